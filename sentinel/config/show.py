"""The settings in force, one line each: the value as the file would say it, secrets masked, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sentinel.config.settings import Adoption, Settings

DEFAULT = "default"
MASK = "***"


@dataclass(frozen=True, slots=True)
class Shown:
    """One value.

    Attributes:
        key: Its path in the file: `store.retention.raw`, `notify.receivers[0].urls[1]`.
        value: As the file would say it.
        origin: `FILE:LINE`, with the variables used, or `default`.
    """

    key: str
    value: str
    origin: str


def shown(settings: Settings) -> list[Shown]:
    """Every value in force, in the order of the file."""
    return [Shown(key, value, _origin(settings, key)) for key, value in _pairs(settings)]


def duration_text(seconds: float) -> str:
    """`1h30m`, `250ms`: what `parse_duration` reads back."""
    left = round(seconds * 1000)
    parts: list[str] = []
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def size_text(count: int) -> str:
    """`2GiB`: what `parse_size` reads back."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count and count % (1 << power) == 0:
            return f"{count >> power}{unit}"
    return f"{count}B"


def _origin(settings: Settings, key: str) -> str:
    """A list of one may be written without brackets, and a pattern without its key."""
    short = key.removesuffix("[0]").removesuffix(".match.cmdline") + (
        ".match" if key.endswith(".match.cmdline") else ""
    )
    return settings.origins.get(key) or settings.origins.get(short, DEFAULT)


def _pairs(settings: Settings) -> Iterator[tuple[str, str]]:
    yield "mode", settings.mode
    yield "sampling.interval", duration_text(settings.sampling.interval_s)
    yield from _list("rules", settings.rules)
    yield "shipped_rules", _truth(settings.shipped_rules)
    yield from _list("patterns", settings.patterns)
    if not settings.adoptions:
        yield "jobs", "[]"
    for index, adoption in enumerate(settings.adoptions):
        yield from _adoption(f"jobs[{index}]", adoption)
    notify = settings.notify
    if not notify.receivers:
        yield "notify.receivers", "[]"
    for index, receiver in enumerate(notify.receivers):
        yield f"notify.receivers[{index}].name", receiver.name
        yield from _list(f"notify.receivers[{index}].urls", [masked(url) for url in receiver.urls])
    yield "notify.route.receiver", notify.route.receiver or '""'
    yield "notify.route.group_by", "[" + ", ".join(notify.route.group_by) + "]"
    yield "notify.route.group_wait", duration_text(notify.route.group_wait_s)
    yield "notify.route.group_interval", duration_text(notify.route.group_interval_s)
    yield "notify.route.repeat_interval", duration_text(notify.route.repeat_interval_s)
    yield "store.retention.raw", duration_text(settings.store.raw_s)
    yield "store.retention.rollup", duration_text(settings.store.rollup_s)
    yield "store.retention.size", size_text(settings.store.size_bytes)
    yield "api.listen", settings.api.listen or '""'
    yield "api.token", MASK if settings.api.token else '""'


def _adoption(key: str, adoption: Adoption) -> Iterator[tuple[str, str]]:
    spec = adoption.spec
    yield f"{key}.name", spec.name
    for name, value in (("cmdline", adoption.cmdline), ("user", adoption.user)):
        if value:
            yield f"{key}.match.{name}", value
    yield from _some(f"{key}.logs", spec.logs)
    for index, each in enumerate(spec.checkpoints):
        yield f"{key}.checkpoints[{index}].path", each.path
        if each.interval_s is not None:
            yield f"{key}.checkpoints[{index}].interval", duration_text(each.interval_s)
        if each.complete_when:
            yield f"{key}.checkpoints[{index}].complete_when", each.complete_when
    for channel in spec.channels:
        yield f"{key}.requests.{channel.request.value}", str(channel)
    yield f"{key}.degrade_levels", str(spec.degrade_levels)
    yield from _some(f"{key}.notify", [masked(url) for url in spec.notify])
    if spec.memory_limit_bytes is not None:
        yield f"{key}.memory_limit", size_text(spec.memory_limit_bytes)
    if spec.cost_per_hour is not None:
        yield f"{key}.cost_per_hour", f"{spec.cost_per_hour:g}"
    yield from _some(f"{key}.rules", spec.rules)
    yield f"{key}.dry_run", _truth(spec.dry_run)


def masked(url: str) -> str:
    """The kind of address only: anything behind it may be a secret."""
    scheme, found, _ = url.partition("://")
    return f"{scheme}://{MASK}" if found else MASK


def _list(key: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not values:
        yield key, "[]"
    yield from _some(key, values)


def _some(key: str, values: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, value in enumerate(values):
        yield f"{key}[{index}]", value


def _truth(value: bool) -> str:
    return "true" if value else "false"
