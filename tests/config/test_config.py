"""One file becomes settings, and every mistake in it is said."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel import config
from sentinel.config.sample import SAMPLE
from sentinel.config.show import duration_text, shown, size_text
from sentinel.errors import Problem, Problems
from sentinel.model.jobs import CheckpointDir, How
from sentinel.model.requests import RequestKind
from sentinel.notify.settings import Receiver, Route
from sentinel.units import parse_duration, parse_size

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "sentinel.yaml"
        path.write_text(text)
        return path

    return write


def problems_of(path: Path, **environ: str) -> list[Problem]:
    found: list[Problem] = []
    config.read(path, found, environ=environ)
    return found


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}

    settings = config.load(environ=environ, system=False)

    assert settings.mode == "act"
    assert settings.sampling.interval_s == 2.0
    assert settings.store.size_bytes == 2 << 30
    assert all(each.origin == "default" for each in shown(settings))


def test_an_empty_file_is_no_mistake(write: Write) -> None:
    assert config.load(write("# nothing\n")).mode == "act"


def test_the_file_is_found_where_the_environment_says(write: Write) -> None:
    path = write("mode: observe\n")

    for environ in ({"SENTINEL_CONFIG": str(path)},):
        settings = config.load(environ=environ)
        assert (settings.mode, settings.file) == ("observe", path)
        assert settings.actions.observe


def test_the_example_of_the_design_is_understood(write: Write, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\nmore\n")
    token.chmod(0o600)
    path = write(f"""\
mode: act
sampling: {{interval: 5s}}
rules: ["/etc/sentinel/rules/*.yaml", mine.yaml]
shipped_rules: no
patterns: /etc/sentinel/patterns/x.yaml
jobs:
  - name: llama-ft
    match: {{cmdline: "train\\\\.py", user: alice}}
    logs: ["/data/llama/logs/*.log"]
    checkpoints: [{{path: /data/llama/ckpt, interval: 30m}}, /other]
    requests: {{checkpoint: "signal:USR1", degrade: ["signal:USR2", "file:/run/x"]}}
    cost_per_hour: 19.92
notify:
  receivers:
    - {{name: oncall, urls: ["${{SLACK_URL}}", "mailtos://a:b@c"]}}
  route: {{receiver: oncall, group_by: [alertname, job], group_wait: 30s, group_interval: 5m, repeat_interval: 4h}}
store: {{retention: {{raw: 3d, rollup: 90d, size: 1GiB}}}}
api: {{listen: "127.0.0.1:9464", token: "file:{token}"}}
""")

    settings = config.load(path, environ={"SLACK_URL": "slack://a/b/c"})

    assert settings.sampling.interval_s == 5
    assert settings.rules == ("/etc/sentinel/rules/*.yaml", str(tmp_path / "mine.yaml"))
    assert settings.shipped_rules is False
    assert settings.patterns == ("/etc/sentinel/patterns/x.yaml",)
    (job,) = settings.adoptions
    assert (job.cmdline, job.user, job.spec.name, job.spec.cost_per_hour) == (r"train\.py", "alice", "llama-ft", 19.92)
    assert job.spec.checkpoints == (CheckpointDir("/data/llama/ckpt", 1800), CheckpointDir("/other"))
    assert [(c.request, c.how) for c in job.spec.channels] == [
        (RequestKind.CHECKPOINT, How.SIGNAL), (RequestKind.DEGRADE, How.SIGNAL), (RequestKind.DEGRADE, How.FILE),
    ]  # fmt: skip
    assert settings.notify.receivers == (Receiver("oncall", ("slack://a/b/c", "mailtos://a:b@c")),)
    assert settings.notify.route == Route("oncall")
    assert (settings.store.raw_s, settings.store.size_bytes) == (3 * 86400, 1 << 30)
    assert (settings.api.listen, settings.api.token) == ("127.0.0.1:9464", "s3cret")


def test_all_mistakes_of_a_file_come_together_each_at_its_place(write: Write) -> None:
    path = write("""\
mode: obsrve
samplng: {interval: 2s}
sampling: {interval: fast}
notify:
  receivers: [{name: a, urls: [nonsense]}]
  route: {receiver: b}
store: {retention: {size: 1}}
api: {listen: "here", token: x}
""")

    with pytest.raises(Problems) as refused:
        config.load(path)

    lines = [(problem.line, problem.message.split(",")[0]) for problem in refused.value.problems]
    assert lines == [
        (1, "`mode` must be one of `act`"),
        (2, "unknown key `samplng`"),
        (3, "`sampling.interval` must be a duration"),
        (5, "`notify.receivers[0].urls[0]` is not an address to notify"),
        (6, "there is no receiver `b`"),
        (7, "`store.retention.size` must be at least 64.0 MiB"),
        (8, "`api.listen`: 'here' is not an address to listen at"),
    ]
    assert refused.value.exit_code == 2
    assert f"{path}:2:1: unknown key `samplng`" in str(refused.value)
    assert "try: `sampling`" in str(refused.value)


MISTAKES = {
    "a variable that is not set": ("notify: {receivers: [{name: a, urls: ['${NOPE}']}]}", "`NOPE` is not set"),
    "a variable with an odd name": ("mode: '${a-b}'", "names no environment variable"),
    "a secret that cannot be read": ("api: {listen: ':1', token: 'file:/nonexistent'}", "cannot be read"),
    "a secret with a relative path": ("api: {listen: ':1', token: 'file:token'}", "absolute path"),
    "listening without a token": ("api: {listen: '127.0.0.1:1'}", "needs a token"),
    "a job that fits everything": ("jobs: [{name: a, match: {}}]", "fits every process"),
    "a job without a name": ("jobs: [{match: {user: a}}]", "`name` is missing"),
    "two jobs of one name": ("jobs: [{name: a, match: {user: a}}, {name: a, match: {user: b}}]", "two jobs"),
    "a bad pattern": ("jobs: [{name: a, match: {cmdline: '('}}]", "bad regular expression"),
    "a relative log": ("jobs: [{name: a, match: {user: a}, logs: [x.log]}]", "absolute path"),
    "an unknown signal": (
        "jobs: [{name: a, match: {user: a}, requests: {checkpoint: 'signal:USR9'}}]",
        "unknown signal",
    ),
    "a line for a shell": (
        "jobs: [{name: a, match: {user: a}, requests: {checkpoint: 'exec:save > log'}}]",
        "hand `>` to it as a word",
    ),
    "a program that is not there": (
        "jobs: [{name: a, match: {user: a}, requests: {checkpoint: 'exec:/no/such'}}]",
        "command not found: /no/such",
    ),
    "an unknown request": ("jobs: [{name: a, match: {user: a}, requests: {explode: 'signal:USR1'}}]", "unknown key"),
    "two receivers of one name": (
        "notify: {receivers: [{name: a, urls: ['a://b']}, {name: a, urls: ['a://b']}], route: {receiver: a}}",
        "two receivers",
    ),
    "receivers without a route": (
        "notify: {receivers: [{name: a, urls: ['a://b']}, {name: b, urls: ['a://b']}]}",
        "`route` must say who",
    ),
    "no YAML": ("mode: [", ""),
    "a list": ("- a", "must be a mapping"),
    "an interval of nothing": ("sampling: {interval: 0s}", "at least 250ms, not 0s"),
}


def test_a_variable_that_is_not_set_is_one_mistake(write: Write) -> None:
    (problem,) = problems_of(write("notify: {receivers: [{name: a, urls: ['${NOPE}']}]}"))

    assert problem.message == "the environment variable `NOPE` is not set"


def test_addresses_are_tried_on_where_that_is_wanted(write: Write) -> None:
    path = write("""notify: {receivers: [{name: a, urls: ['foo://x', 'json://y']}]}
jobs: [{name: a, match: {user: a}, notify: ['bar://z']}]
""")
    found: list[Problem] = []

    config.read(path, found, try_on=lambda urls: [None if url.startswith("json") else "no such kind" for url in urls])

    assert [(each.line, each.column, each.message) for each in found] == [
        (1, 39, "`notify.receivers[0].urls[0]`: no such kind"),
        (2, 45, "`jobs[0].notify[0]`: no such kind"),
    ]


@pytest.mark.parametrize(("text", "words"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_said_with_its_line(write: Write, text: str, words: str) -> None:
    problems = problems_of(write(text))

    assert any(words in problem.message and problem.line == 1 for problem in problems), problems


def test_with_one_receiver_the_route_is_clear(write: Write) -> None:
    settings = config.load(write("notify: {receivers: [{name: me, urls: ['json://x']}]}"))

    assert settings.notify.route.receiver == "me"


def test_a_dollar_sign_is_written_twice(write: Write) -> None:
    settings = config.load(write("notify: {receivers: [{name: me, urls: ['json://a$${X}$b']}]}"), environ={})

    assert settings.notify.receivers[0].urls == ("json://a${X}$b",)


def test_a_variable_may_be_a_number(write: Write) -> None:
    text = "jobs:\n  - name: a\n    match: a\n    cost_per_hour: ${PRICE}\n"

    assert config.load(write(text), environ={"PRICE": "2.5"}).adoptions[0].spec.cost_per_hour == 2.5


@pytest.mark.skipif(os.getuid() != 0, reason="needs files of somebody else")
@pytest.mark.parametrize("bad", ["owner", "mode"])
def test_a_root_daemon_believes_only_roots_files(write: Write, tmp_path: Path, bad: str) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    path = write(f"api: {{listen: ':1', token: 'file:{token}'}}")

    def spoil(file: Path) -> None:
        os.chown(file, 12345, -1) if bad == "owner" else file.chmod(0o666)

    spoil(token)
    (problem,) = problems_of(path)
    assert "a root daemon believes only files" in problem.message

    spoil(path)
    (problem,) = problems_of(path)
    assert problem.file == str(path)
    assert "a root daemon believes only files" in problem.message
    assert config.load(path, trusted_only=False).api.token == "x"


def test_the_sample_passes_and_changes_nothing(write: Write) -> None:
    settings = config.load(write(SAMPLE), environ={})
    values = {each.key: each.value for each in shown(settings)}

    assert values == {each.key: each.value for each in shown(config.Settings())}


def test_the_sample_passes_with_everything_uncommented(write: Write, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    text = re.sub(r"(?m)^# ?(?=(?:rules|shipped_rules|patterns|jobs|notify|api|  .*):|  - |  #)", "", SAMPLE)
    text = text.replace("/etc/sentinel/token", str(token))

    settings = config.load(write(text), environ={"SLACK_URL": "slack://a/b/c"})

    assert settings.adoptions[0].spec.memory_limit_bytes == 64 << 30
    assert settings.notify.route.receiver == "oncall"
    assert settings.api.listen == "127.0.0.1:9464"


def test_what_is_shown_has_its_place_and_no_secret(write: Write, tmp_path: Path) -> None:
    path = write("""\
sampling:
  interval: 1500ms
rules: one.yaml
jobs: [{name: a, match: x, notify: ["slack://secret"]}]
notify: {receivers: [{name: me, urls: ["${URL}"]}]}
api: {listen: ":1", token: topsecret}
""")
    settings = config.load(path, environ={"URL": "mailtos://user:secret@host"})

    lines = {each.key: (each.value, each.origin) for each in shown(settings)}

    assert lines["sampling.interval"] == ("1s500ms", f"{path}:2")
    assert lines["rules[0]"] == (str(tmp_path / "one.yaml"), f"{path}:3")
    assert lines["jobs[0].match.cmdline"] == ("x", f"{path}:4")
    assert lines["notify.receivers[0].urls[0]"] == ("mailtos://***", f"{path}:5, ${{URL}}")
    assert lines["api.token"] == ("***", f"{path}:6")
    assert lines["store.retention.raw"] == ("7d", "default")
    assert "secret" not in repr(lines)


@given(st.integers(0, 10**9))
def test_durations_read_back(milliseconds: int) -> None:
    assert parse_duration(duration_text(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@given(st.integers(0, 2**50))
def test_sizes_read_back(count: int) -> None:
    assert parse_size(size_text(count)) == count


def test_the_owner_says_how_a_checkpoint_is_known_to_be_complete(write: Write) -> None:
    form = "jobs:\n  - name: a\n    match: {{cmdline: a}}\n    checkpoints: [{{path: /a, complete_when: {}}}]\n"
    for told in ("rename", "stable", '"marker:{name}.done"'):
        (job,) = config.load(write(form.format(told)), environ={}, system=False).adoptions
        assert job.spec.checkpoints == (CheckpointDir("/a", None, told.strip('"')),)

    for wrong in ("finished", '"marker:"'):
        (problem,) = problems_of(write(form.format(wrong)))
        assert "does not say when one is complete" in problem.message
