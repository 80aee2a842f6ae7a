"""Each command, as a user sees it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sentinel.api.client import Client
from sentinel.cli import doctor
from sentinel.cli.colours import Paint
from sentinel.cli.events import line
from sentinel.cli.status import job_table, screen
from sentinel.model.alerts import AlertState
from sentinel.model.jobs import JobState
from sentinel.model.requests import Answer
from tests.cli.conftest import Sentinel
from tests.server.small import NOW, Running, SmallDaemon

pytestmark = pytest.mark.usefixtures("running")


def test_status_says_that_all_is_well(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_job("train")

    said = sentinel("status")

    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == "all is well: 1 job, no alerts"
    assert "450 MiB of 600 MiB" in said.out
    assert "50s" in said.out
    assert "2m ago" in said.out
    assert "\x1b" not in said.out


def test_status_begins_with_what_is_wrong(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_job("train")
    daemon.add_alert("train")

    said = sentinel("status")
    lines = said.out.splitlines()

    assert said.code == 1
    assert sentinel("status", "--json").code == 1
    assert lines[0] == "1 alert firing, 1 job"
    assert any("train runs out of memory in 45s" in line for line in lines)


def test_status_says_when_sentinel_itself_needs_a_look(client: Client) -> None:
    seen = client.get("/v1/overview")
    seen["health"] = {
        "collectors": [{"name": "gpu", "up": False, "reason": "driver hangs"}],
        "store": {"lag_seconds": 120.0},
        "rules": {"unhealthy": ["GpuIdle"]},
        "reload_failed": "sentinel.yaml:1:12: unknown key `intervall`",
        "undelivered": 2,
    }
    seen["mode"] = "observe"

    lines = screen(seen, width=80, paint=Paint(on=False))

    assert lines[:6] == [
        "sentinel itself needs a look; 0 jobs, no alert firing",
        "  collector gpu is down: driver hangs",
        "  rule GpuIdle cannot be evaluated",
        "  the store is 2m behind",
        "  the last change of its files is not in force: sentinel.yaml:1:12: unknown key `intervall`",
        "  observing only: no job is asked anything (mode: observe)",
    ]


def test_a_receiver_that_is_down_is_no_fault_of_ours(client: Client) -> None:
    seen = client.get("/v1/overview")
    seen["health"] = {"undelivered": 1, "waiting": [{"receiver": "down", "messages": 1, "error": "HTTP 503"}]}

    lines = screen(seen, width=80, paint=Paint(on=False))

    assert lines[:2] == [
        "all is well: 0 jobs, no alerts",
        "  1 message waits for receiver down: HTTP 503 (`sentinel notify outbox`)",
    ]


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    with Client(running.socket_path) as client:
        yield client


def test_status_fits_eighty_columns_with_gpus(client: Client, daemon: SmallDaemon) -> None:
    daemon.add_job("a-job-with-a-long-name-that-goes-on-and-on")
    daemon.add_alert("a-job-with-a-long-name-that-goes-on-and-on")
    seen = client.get("/v1/overview")
    board = {
        "gpu": "0", "uuid": "GPU-1", "model": "NVIDIA H100 80GB HBM3", "mig": "", "memory_used_bytes": 60e9,
        "memory_total_bytes": 80e9, "utilization_ratio": 0.97, "temperature_celsius": 64.0, "power_watts": 430.0,
        "power_limit_watts": 700.0, "up": 1.0,
    }  # fmt: skip
    seen["gpus"] = [board, {**board, "gpu": "1", "up": 0.0}, dict.fromkeys(board) | {"gpu": "2"}]

    lines = screen(seen, width=80, paint=Paint(on=False))

    assert max(map(len, lines)) <= 80
    assert any("97%" in line and "64 °C" in line and "430 W" in line for line in lines)
    assert any(line.startswith("1 ") and "lost" in line for line in lines)


@pytest.mark.parametrize("command", ["jobs", "alerts", "events", "silence"])
def test_json_of_a_list_is_one_array(sentinel: Sentinel, command: str) -> None:
    assert json.loads(sentinel(command, "--json").out) == []
    assert sentinel(command).code == 0


def test_jobs_are_listed_with_why_they_ended(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_job("train")
    daemon._change(
        daemon.add_job("old", state=JobState.FAILED), cause="exit code 1: \x1b[31mCUDA out of memory", ended=NOW
    )

    assert "old" not in sentinel("jobs").out
    daemon._change(daemon.add_job("older", state=JobState.FAILED), cause="signal 9", ended=NOW - 60)
    lines = sentinel("jobs", "--all").out.splitlines()
    assert [line.split()[0] for line in lines] == ["JOB", "train", "old", "older"]
    assert lines[0].endswith("CAUSE")
    assert lines[2].endswith("exit code 1: �[31mCUDA out of memory")
    assert "MiB" in lines[1]
    assert "MiB" not in lines[2] + lines[3]
    assert [job["name"] for job in json.loads(sentinel("jobs", "--json", "--all").out)] == ["train", "old", "older"]


def test_alerts_are_listed_the_worst_first(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_alert("b", AlertState.PENDING)
    daemon.add_alert("a")

    lines = sentinel("alerts").out.splitlines()

    assert [line.split()[1] for line in lines[1:]] == ["firing", "pending"]


def test_a_job_that_only_the_host_limits_shows_what_it_holds_itself() -> None:
    job = {
        "name": "train", "state": "running", "created": NOW, "memory": {
            "used_bytes": 12 << 30, "limit_bytes": 16 << 30, "rss_bytes": 80 << 20, "constraint": "host",
            "full_in_seconds": None,
        },
    }  # fmt: skip

    row = job_table([job | {"ended": None}], NOW, width=200, paint=Paint(on=False))[1]

    assert "80.0 MiB, host 75% full  " in row


def test_narrow_terminals_are_wrapped_for(monkeypatch: pytest.MonkeyPatch, sentinel: Sentinel) -> None:
    event = {"time": NOW, "kind": "job.failed", "job": "x", "severity": "info", "message": "x: " + "word " * 12}
    finding = doctor.Finding("signals", "bad", "this kernel has no pidfd, so no signal is ever sent", "Linux 5.3")

    for text in (*line(event, Paint(on=False), 40).split("\n"), *doctor.lines(finding, Paint(on=False), 40)):
        assert len(text) <= 40
    wide = doctor.lines(finding, Paint(on=False), 200)
    assert wide == [
        "bad  signals        this kernel has no pidfd, so no signal is ever sent",
        "                    try: Linux 5.3",
    ]
    monkeypatch.setenv("COLUMNS", "20")
    assert all(len(text) <= 30 for text in sentinel("doctor").out.splitlines() if "/" not in text)


def test_events_of_what_does_not_exist_are_none_and_say_so(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_job("train")

    assert sentinel("events", "--job", "trian").err == "sentinel: no job 'trian'\n  try: `train`\n"
    assert sentinel("events", "--kind", "alrt").err == "sentinel: no event is of a kind `alrt`\n  try: `alert`\n"
    assert sentinel("events", "--kind", "store.recovered") == (0, "", "no events\n")
    none = sentinel("events", "-n", "0")
    assert (none.code, none.err) == (2, "sentinel: --limit 0 shows nothing\n  try: --limit 50\n")


@pytest.mark.parametrize("words", [["run", "--bogus"], ["rules"], ["checkpoint"], ["events", "-n", "few"]])
def test_bad_usage_is_said_in_two_lines(sentinel: Sentinel, words: list[str]) -> None:
    said = sentinel(*words)

    assert said.code == 2
    first, second = said.err.splitlines()
    assert first.startswith("sentinel: ")
    assert second == f"  try: `sentinel {words[0]} --help`"


def test_events_are_lines(sentinel: Sentinel, daemon: SmallDaemon, running: Running) -> None:
    running.daemon_call(lambda: daemon.happen("job.failed", "it\nbroke", job="train"))
    running.daemon_call(lambda: daemon.happen("checkpoint.complete", "saved", job="train"))
    running.daemon_call(lambda: daemon.happen("request.sent", "asked train to checkpoint", job="train"))
    running.daemon_call(lambda: daemon.happen("checkpoint.broken", "/data/train/4 of train-2", job="train"))

    said = sentinel("events").out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in said] == [
        "job.failed            train: it broke",
        "checkpoint.complete   train: saved",
        "request.sent          asked train to checkpoint",
        "checkpoint.broken     train: /data/train/4 of train-2",
    ]
    assert len(json.loads(sentinel("events", "--json", "--kind", "job").out)) == 1
    assert sentinel("events", "-n", "0").out == ""


def test_following_events_gives_json_lines(sentinel: Sentinel, daemon: SmallDaemon, running: Running) -> None:
    import threading

    running.daemon_call(lambda: daemon.happen("job.failed", "one", job="train"))
    closing = threading.Timer(0.3, lambda: running.daemon_call(daemon.hub.close))
    closing.start()

    said = sentinel("events", "--follow", "--json")
    closing.join()

    assert [json.loads(line)["message"] for line in said.out.splitlines()] == ["one"]
    assert (said.code, said.err) == (1, "sentinel: the daemon has ended the stream\n")


@pytest.mark.parametrize(
    ("outcome", "code", "words"),
    [
        (Answer.DONE, 0, "train: checkpoint done by signal:USR1, seen to happen: SIGUSR1 to 1 process"),
        (Answer.REFUSED, 1, "train: checkpoint refused: SIGUSR1 to 1 process"),
        (Answer.FAILED, 1, "train: checkpoint failed by signal:USR1: SIGUSR1 to 1 process"),
        (
            Answer.EXPIRED,
            1,
            "train: checkpoint was asked by signal:USR1 and not answered in 5m: SIGUSR1 to 1 process",
        ),
        (Answer.SUPPRESSED, 1, "train: checkpoint was not sent: SIGUSR1 to 1 process"),
    ],
)
def test_asking_a_job_prints_what_happened(
    sentinel: Sentinel, daemon: SmallDaemon, outcome: Answer, code: int, words: str
) -> None:
    daemon.add_job("train")
    daemon.outcome = outcome

    said = sentinel("checkpoint", "train", "--reason", "before the update")

    assert (said.code, said.out.strip()) == (code, words)
    assert daemon.all_requests[0].reason == "before the update"
    assert daemon.all_requests[0].deadline == NOW + 300


def test_a_request_that_stays_open_was_not_answered(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    """The daemon may answer late, even with a request still on its way: then it is asked again until it is closed."""
    daemon.add_job("train")
    daemon.closes_after = 2
    daemon.outcome = Answer.EXPIRED

    said = sentinel("checkpoint", "train", "--timeout", "4s")

    assert (said.code, said.out) == (
        1, "train: checkpoint was asked by signal:USR1 and not answered in 4s: SIGUSR1 to 1 process\n",
    )  # fmt: skip


def test_why_a_request_was_not_sent_is_said_in_words(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_job("train")
    daemon.barred = "no_channel: train declares no way to be asked for degrade (--on-degrade)"

    said = sentinel("degrade", "train")

    assert (
        said.out == "train: degrade to level 1 refused: train declares no way to be asked for degrade (--on-degrade)\n"
    )
    assert json.loads(sentinel("degrade", "train", "--json").out)["detail"] == daemon.barred


def test_asking_without_waiting(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_job("train")

    said = sentinel("degrade", "train", "--no-wait", "--timeout", "5s", "--json")

    assert said.code == 0
    assert json.loads(said.out)["state"] == "planned"
    assert daemon.all_requests[0].deadline == NOW + 5


@pytest.mark.parametrize("name", ["checkpoint", "degrade", "restore", "pause", "resume", "stop", "restart", "dump"])
def test_every_request_has_a_command(sentinel: Sentinel, daemon: SmallDaemon, name: str) -> None:
    daemon.add_job("train")

    assert sentinel(name, "train").code == 0
    assert daemon.all_requests[0].kind == name


def test_an_unknown_job_is_said(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    daemon.add_job("train")

    said = sentinel("stop", "trian")

    assert (said.code, said.err) == (1, "sentinel: no job 'trian'\n  try: `train`\n")


def test_a_bad_duration_is_bad_usage(sentinel: Sentinel) -> None:
    said = sentinel("stop", "train", "--timeout", "soon")

    assert said.code == 2
    assert "'soon' is not a duration" in said.err


def test_an_alert_is_acknowledged(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    alert = daemon.add_alert("train")

    said = sentinel("ack", alert.id[:5])

    assert said.code == 0
    assert said.out.startswith(f"{alert.id[:8]} MemoryExhaustionImminent (train): seen by user:")
    assert "firing (seen)" in sentinel("alerts").out
    assert sentinel("ack", "nothing").code == 1


def test_a_silence_begins_is_listed_and_ends(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    said = sentinel("silence", "job=train", "severity!=critical", "--for", "2h", "--comment", "new driver")
    silence = daemon.all_silences[0]
    assert said.out == f'silence {silence.id}: job="train", severity!="critical", for 2h\n'

    assert "new driver" in sentinel("silence").out

    assert sentinel("unsilence", silence.id).code == 0
    assert sentinel("silence").out == "no silences\n"
    assert sentinel("silence", "train").code == 2


def test_a_query(sentinel: Sentinel, daemon: SmallDaemon) -> None:
    for second in range(0, 61, 2):
        daemon.measure("job", {("a",): {"job_processes": second}}, NOW - 60 + second)

    assert sentinel("query", "job_processes").out.splitlines()[1].split() == ['job_processes{job="a"}', "60"]
    assert sentinel("query", "1 + 1").out == "2\n"
    assert json.loads(sentinel("query", "--json", "job_processes").out)["resultType"] == "vector"
    ranged = sentinel("query", "job_processes", "--range", "10s", "--step", "5s").out.splitlines()
    assert [line.split()[-1] for line in ranged[1:]] == ["50", "54", "60"]
    empty = sentinel("query", "nothing_like_it")
    assert (empty.code, empty.out, empty.err) == (0, "", "no series\n")


def test_a_wrong_query_is_bad_usage(sentinel: Sentinel) -> None:
    said = sentinel("query", "sum(")

    assert said.code == 2
    assert "parse error" in said.err


def test_sql(sentinel: Sentinel) -> None:
    assert sentinel("sql", "SELECT 1").out.splitlines() == ["n  name", "1  a", "2  null"]
    assert json.loads(sentinel("sql", "SELECT 1", "--json").out) == [{"n": 1, "name": "a"}, {"n": 2, "name": None}]
    cut = sentinel("sql", "SELECT 1", "-n", "1")
    assert cut.err == "sentinel: only the first 1 rows; --limit takes more\n"
    assert sentinel("sql", "DROP TABLE x").code == 1


def test_the_doctor_looks_at_this_machine(sentinel: Sentinel) -> None:
    findings = {each["name"]: each for each in json.loads(sentinel("doctor", "--json").out)}

    assert findings["daemon"]["state"] == "ok"
    assert findings["signals"]["state"] == "ok"
    assert set(findings) >= {"sentinel", "socket", "configuration", "state", "cgroup", "inotify", "gpu"}


def test_the_doctor_finds_what_is_bad(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = directory / "bad.yaml"
    bad.write_text("mode: nonsense\n")
    environ = {
        **os.environ, "SENTINEL_CONFIG": str(bad), "SENTINEL_SOCKET": str(directory / "none"),
        "SENTINEL_STATE_DIR": "/proc/nothing",
    }  # fmt: skip

    findings = {each.name: each for each in doctor.examine(environ)}

    assert findings["configuration"].state == "bad"
    assert findings["state"].state == "bad"
    assert findings["daemon"].state == "note"


def test_help_topics(sentinel: Sentinel) -> None:
    assert "getting-started" in sentinel("help").out
    assert sentinel("help", "requests").out.startswith("# Requests")
    assert "usage: sentinel jobs" in sentinel("help", "jobs").out
    said = sentinel("help", "request")
    assert (said.code, "sentinel help requests" in said.err) == (2, True)


class TestConfig:
    """`sentinel config`."""

    def test_a_file_to_begin_with_passes_its_own_check(self, sentinel: Sentinel, directory: Path) -> None:
        path = directory / "new" / "sentinel.yaml"

        missing = sentinel("config", "init", str(path))
        assert (missing.code, f"try: mkdir -p {path.parent}" in missing.err) == (2, True)
        path.parent.mkdir()
        assert sentinel("config", "init", str(path)).code == 0
        assert sentinel("config", "init").out == path.read_text()
        assert sentinel("config", "check", str(path)) == (0, f"{path}: fine\n", "")
        said = sentinel("config", "init", str(path))
        assert (said.code, "left as it is" in said.err) == (2, True)

    def test_mistakes_are_said_all_at_once(self, sentinel: Sentinel, directory: Path) -> None:
        path = directory / "sentinel.yaml"
        (directory / "bad-rules.yaml").write_text("groups: [{name: a, rules: [{alert: A, expr: 'sum('}]}]\n")
        path.write_text("mode: x\nrules: [bad-rules.yaml, missing.yaml]\nsampling: {intervall: 2s}\n")

        said = sentinel("config", "check", str(path))

        assert (said.code, said.out) == (2, "")
        assert f"{path}:1:7: `mode` must be one of" in said.err
        assert "try: `interval`" in said.err
        assert f"{directory / 'missing.yaml'}: no such rule file" in said.err
        assert f"{directory / 'bad-rules.yaml'}:1:" in said.err
        listed = json.loads(sentinel("config", "check", "--json", str(path)).out)
        assert {Path(each["file"]).name for each in listed} == {"sentinel.yaml", "bad-rules.yaml", "missing.yaml"}

    def test_what_is_in_force_is_shown(self, sentinel: Sentinel, directory: Path) -> None:
        path = directory / "sentinel.yaml"
        path.write_text("sampling: {interval: 5s}\n")

        lines = sentinel("config", "show", str(path)).out.splitlines()

        assert f"sampling.interval             5s                   {path}:1".split() in [
            line.split() for line in lines
        ]
        assert ["store.retention.size", "2GiB", "default"] in [line.split() for line in lines]
        assert json.loads(sentinel("config", "show", "--json", str(path)).out)[0] == {
            "key": "mode", "value": "act", "origin": "default",
        }  # fmt: skip
