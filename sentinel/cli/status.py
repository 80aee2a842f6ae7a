"""`sentinel status`: one screen that answers whether all is well."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from sentinel.api.connect import connect
from sentinel.cli.colours import OF_SEVERITY, OF_STATE, Paint, paint
from sentinel.cli.common import add_json, ago, counted, print_json
from sentinel.cli.tables import Cell, Column, bar, cut, plain, table, terminal_width
from sentinel.units import format_bytes, format_duration

_BAR = 10
_LAGGING_S = 60.0
_SOON_S = 600.0
_WIDE = 140
_INDENT = "  "


EPILOG = """\
Exit code 0: all is well. 1: an alert fires, or sentinel itself needs a look; also with --json.
A job that failed is no finding here: `sentinel run` has ended with its code."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel status` takes."""
    add_json(parser, "print the whole snapshot as JSON")
    parser.add_argument("--no-daemon", action="store_true", help="start no daemon where none is running")


def run(args: argparse.Namespace) -> int:
    """Show it."""
    with connect(start=not args.no_daemon) as client:
        seen = client.get("/v1/overview")
    if args.json:
        print_json(seen)
    else:
        print("\n".join(screen(seen, width=terminal_width(), paint=paint())))
    return 1 if _firing(seen) or _complaints(seen) else 0


def screen(seen: Mapping[str, Any], *, width: int, paint: Paint) -> list[str]:
    """The lines of the screen for one snapshot."""
    lines = [_verdict(seen, paint), *_troubles(seen, paint)]
    if host := _host(seen["host"]):
        lines += ["", host]
    for title, part in (
        ("", _gpus(seen["gpus"], width, paint)),
        ("", job_table(seen["jobs"], seen["time"], width=width, paint=paint) if seen["jobs"] else []),
        ("", alert_table(seen["alerts"], seen["time"], width=width, paint=paint) if seen["alerts"] else []),
    ):
        if part:
            lines += [title, *part]
    if not seen["jobs"]:
        lines += ["", paint("no jobs; `sentinel run -- CMD` starts one", "dim")]
    return lines


def job_table(jobs: Sequence[Mapping[str, Any]], now: float, *, width: int, paint: Paint) -> list[str]:
    """Jobs with a memory bar, the time until it is full, and the age of the newest checkpoint."""
    columns = [
        Column("JOB", least=8, weight=9),
        Column("STATE", weight=8),
        Column("FOR", right=True, weight=4),
        Column("MEMORY", weight=7),
        Column("FULL IN", right=True, weight=6),
        Column("CHECKPOINT", right=True, weight=6),
        Column("GPU", right=True, weight=3),
        Column("CPU", right=True, weight=2),
        Column("ASKED", least=8, weight=5),
        Column("CAUSE", least=16, weight=8),
    ]
    rows = [_job_row(job, now) for job in jobs]
    used = [
        index
        for index, column in enumerate(columns)
        if column.title not in {"GPU", "ASKED", "CAUSE"} or any(_text(row[index]) for row in rows)
    ]
    return table(
        [columns[index] for index in used], [[row[index] for index in used] for row in rows], width=width, paint=paint
    )


def alert_table(alerts: Sequence[Mapping[str, Any]], now: float, *, width: int, paint: Paint) -> list[str]:
    """Alerts, the worst first. On a narrow terminal the summary has a line of its own: it is what matters."""
    columns = [
        Column("ALERT", least=12, weight=9),
        Column("STATE", weight=8),
        Column("SEVERITY", weight=7),
        Column("JOB", least=6, weight=6),
        Column("FOR", right=True, weight=5),
        Column("ID", weight=4),
        Column("SUMMARY", least=16, weight=3),
    ]
    order = {"firing": 0, "pending": 1, "resolved": 2}
    severities = {"critical": 0, "warning": 1}
    rows = [
        [
            Cell(alert["rule"], OF_SEVERITY.get(alert["severity"], "") if alert["state"] == "firing" else ""),
            Cell(alert["state"] + (" (seen)" if alert["acknowledged_by"] else ""), OF_STATE.get(alert["state"], "")),
            alert["severity"],
            alert["job"] or "-",
            ago(alert["resolved"] or alert["fired"] or alert["began"], now),
            Cell(alert["id"][:8], "dim"),
            alert["annotations"].get("summary", ""),
        ]
        for alert in sorted(
            alerts, key=lambda each: (order.get(each["state"], 3), severities.get(each["severity"], 2), -each["began"])
        )
    ]
    if width >= _WIDE:
        return table(columns, rows, width=width, paint=paint)
    heading, *lines = table(columns[:-1], [row[:-1] for row in rows], width=width, paint=paint)
    summaries = [cut(plain(_text(row[-1])), width - len(_INDENT)) for row in rows]
    return [heading, *(text for line, said in zip(lines, summaries, strict=True) for text in (line, _INDENT + said))]


def _firing(seen: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [alert for alert in seen["alerts"] if alert["state"] == "firing"]


def _verdict(seen: Mapping[str, Any], paint: Paint) -> str:
    firing = _firing(seen)
    jobs = len(seen["jobs"])
    jobs_said = counted(jobs, "job")
    if firing:
        worst = "alarm" if any(alert["severity"] == "critical" for alert in firing) else "yellow"
        return paint(f"{counted(len(firing), 'alert')} firing, {jobs_said}", worst)
    if _complaints(seen):
        return paint(f"sentinel itself needs a look; {jobs_said}, no alert firing", "yellow")
    pending = len(seen["alerts"])
    alerts = f"{counted(pending, 'alert')} pending" if pending else "no alerts"
    return paint(f"all is well: {jobs_said}, {alerts}", "green")


def _troubles(seen: Mapping[str, Any], paint: Paint) -> list[str]:
    lines = [paint(f"  {line}", "yellow") for line in (*_complaints(seen), *_unheard(seen["health"]))]
    if seen.get("mode") == "observe":
        lines.append(paint("  observing only: no job is asked anything (mode: observe)", "cyan"))
    return lines


def _complaints(seen: Mapping[str, Any]) -> list[str]:
    """What is wrong with sentinel itself."""
    health = seen["health"]
    made = [
        plain(f"collector {each['name']} is down" + (f": {each['reason']}" if each.get("reason") else ""))
        for each in health.get("collectors", [])
        if each.get("up") is False
    ]
    made += [
        plain(f"rule {each if isinstance(each, str) else each.get('rule', each)} cannot be evaluated")
        for each in health.get("rules", {}).get("unhealthy", [])
    ]
    lag = health.get("store", {}).get("lag_seconds")
    if lag is not None and lag > _LAGGING_S:
        made.append(f"the store is {format_duration(lag)} behind")
    if failed := health.get("reload_failed"):
        made.append(plain(f"the last change of its files is not in force: {failed}"))
    return made


def _unheard(health: Mapping[str, Any]) -> list[str]:
    """Who could not be told: that is no fault of ours."""
    return [
        plain(
            f"{each['messages']} message{' waits' if each['messages'] == 1 else 's wait'} for receiver "
            f"{each['receiver']}: {each['error']} (`sentinel notify outbox`)"
        )
        for each in health.get("waiting", [])
    ]


def _host(host: Mapping[str, Any]) -> str:
    parts: list[str] = []
    total, free = host.get("memory_total_bytes"), host.get("memory_available_bytes")
    if total and free is not None:
        parts.append(f"memory {bar(1 - free / total, _BAR)} {format_bytes(total - free)} of {format_bytes(total)}")
    if (busy := host.get("cpu_utilization_ratio")) is not None:
        parts.append(f"cpu {busy:.0%}")
    if (load := host.get("load1")) is not None:
        parts.append(f"load {load:.1f}")
    if swap := host.get("swap_used_bytes"):
        parts.append(f"swap {format_bytes(swap)}")
    return "host  " + "   ".join(parts) if parts else ""


def _gpus(gpus: Sequence[Mapping[str, Any]], width: int, paint: Paint) -> list[str]:
    if not gpus:
        return []
    columns = [
        Column("GPU", weight=9),
        Column("MODEL", least=8, weight=3),
        Column("MEMORY", weight=8),
        Column("BUSY", right=True, weight=7),
        Column("TEMP", right=True, weight=5),
        Column("POWER", right=True, weight=4),
    ]
    rows: list[list[str | Cell]] = []
    for gpu in gpus:
        name = str(gpu["gpu"]) + (f"/{gpu['mig']}" if gpu.get("mig") else "")
        lost = gpu.get("up") is not None and not gpu["up"]
        rows.append(
            [
                Cell(name, "red" if lost else ""),
                gpu.get("model") or "-",
                Cell("lost", "red") if lost else _memory(gpu.get("memory_used_bytes"), gpu.get("memory_total_bytes")),
                _or_dash(gpu.get("utilization_ratio"), "{:.0%}"),
                _or_dash(gpu.get("temperature_celsius"), "{:.0f} °C"),
                _or_dash(gpu.get("power_watts"), "{:.0f} W"),
            ]
        )
    return table(columns, rows, width=width, paint=paint)


def _job_row(job: Mapping[str, Any], now: float) -> list[str | Cell]:
    memory = job.get("memory") or {}
    full_in = memory.get("full_in_seconds")
    checkpoint = job.get("checkpoint")
    gpu = job.get("gpu_memory_bytes")
    asked = ", ".join(str(each.get("kind", "")) for each in job.get("open_requests") or [])
    level = job.get("degrade_level")
    state = job["state"] + (f", {level} down" if level else "")
    over = bool(job.get("ended"))
    if over:
        memory, full_in, gpu, asked = {}, None, None, ""
    return [
        Cell(job["name"], "bold"),
        Cell(state, OF_STATE.get(job["state"], "")),
        ago(job["ended"], now) + " ago" if over else ago(job.get("attempt_started") or job.get("created"), now),
        _job_memory(memory),
        Cell(format_duration(full_in), "red" if full_in < _SOON_S else "") if full_in is not None else "-",
        format_duration(max(0, round(checkpoint["age_seconds"]))) + " ago" if checkpoint else "none",
        format_bytes(gpu) if gpu else "",
        _or_dash(None if over else job.get("cpu_cores"), "{:.1f}"),
        Cell(asked, "cyan"),
        job.get("cause") or "",
    ]


def _job_memory(memory: Mapping[str, Any]) -> Cell:
    """Against its own limit; where only the whole host limits it, what it holds itself, and how full that is."""
    used, limit, own = memory.get("used_bytes"), memory.get("limit_bytes"), memory.get("rss_bytes")
    if memory.get("constraint") != "host" or own is None:
        return _memory(used, limit)
    ratio = used / limit if used is not None and limit else 0.0
    colour = "red" if ratio > 0.95 else "yellow" if ratio > 0.85 else "dim"
    return Cell(f"{format_bytes(own)}, host {ratio:.0%} full", colour)


def _memory(used: float | None, limit: float | None) -> Cell:
    if used is None:
        return Cell("-")
    if not limit:
        return Cell(format_bytes(used))
    ratio = used / limit
    colour = "red" if ratio > 0.95 else "yellow" if ratio > 0.85 else ""
    return Cell(f"{bar(ratio, _BAR)} {format_bytes(used)} of {format_bytes(limit)}", colour)


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _text(cell: str | Cell) -> str:
    return cell if isinstance(cell, str) else cell.text
