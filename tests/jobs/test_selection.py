"""Whom a signal goes to: the picture, then what must always be true of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sentinel.jobs.selection import Candidate, choose, distributed, to_end


def one(pid: int, ppid: int, command: str, *, catches: bool = False, alive: bool = True) -> Candidate:
    return Candidate(pid, ppid, catches, tuple(command.split()), alive)


def test_a_leader_that_catches_is_asked_and_its_forked_workers_are_not() -> None:
    tree = [
        one(10, 1, "python train.py", catches=True),
        one(11, 10, "python train.py", catches=True),
        one(12, 10, "python train.py", catches=True),
    ]

    assert choose(tree, "USR1").pids == (10,)


def test_behind_a_launcher_that_catches_nothing_all_siblings_are_asked_at_once() -> None:
    tree = [
        one(10, 1, "bash run.sh"),
        one(11, 10, "python worker.py", catches=True),
        one(12, 10, "python worker.py", catches=True),
        one(13, 11, "python worker.py", catches=True),
    ]

    assert choose(tree, "USR1").pids == (11, 12)


def test_what_catches_nothing_is_never_asked() -> None:
    choice = choose([one(10, 1, "python train.py"), one(11, 10, "sleep 9")], "USR1")

    assert choice.pids == ()
    assert "catches SIGUSR1, which would end it" in choice.reason


def test_behind_a_forwarder_nobody_is_asked_and_the_way_out_is_named() -> None:
    tree = [
        one(10, 1, "/usr/bin/timeout 9h python train.py", catches=True),
        one(11, 10, "python train.py", catches=True),
    ]

    choice = choose(tree, "USR1")

    assert choice.pids == ()
    assert choice.reason.startswith("timeout (pid 10)")
    assert "signal:USR1@REGEX" in choice.reason


def test_what_hands_everything_on_is_no_target_only_where_it_catches() -> None:
    for command in (
        "uv run train.py",
        "python -m sentinel run -- python train.py",
        "/venv/bin/python /bin/sentinel run x",
    ):
        catching = [one(10, 1, command, catches=True), one(11, 10, "python train.py", catches=True)]
        assert "signal:USR1@REGEX" in choose(catching, "USR1").reason
    plain = [one(10, 1, "uv run train.py"), one(11, 10, "python train.py", catches=True)]
    assert choose(plain, "USR1").pids == (11,)


def test_what_hands_a_signal_to_ranks_that_it_would_end_is_no_target() -> None:
    for command in ("mpirun -np 2 python train.py", "/usr/bin/mpiexec x", "Apptainer runtime parent"):
        launched = [one(10, 1, command, catches=True), one(11, 10, "python train.py")]
        assert "signal:USR1@REGEX" in choose(launched, "USR1").reason


def test_a_handler_that_is_no_answer_is_passed_over_and_the_job_below_it_is_asked() -> None:
    for command in ("make train", "xargs -P2 python train.py", "dd if=x", "perl /usr/bin/parallel python", "npm run x"):
        tree = [one(10, 1, command, catches=True), one(11, 10, "python train.py", catches=True)]
        assert choose(tree, "USR1").pids == (11,)
        assert "for a purpose of its own" in choose(tree[:1], "USR1").reason
    titled = [Candidate(10, 1, True, ("npm run train",)), one(11, 10, "node server.js", catches=True)]
    assert choose(titled, "USR1").pids == ()
    assert choose(titled, "USR2").pids == (10,)
    assert choose(titled, "USR1", "server").pids == (11,), "whoever names it knows"
    made = [one(10, 1, "make train", catches=True), one(11, 10, "python train.py", catches=True)]
    assert choose(made, "USR1", "train").pids == (11,), "make train is no trainer"


def test_a_pattern_names_the_target_behind_a_forwarder() -> None:
    tree = [
        one(10, 1, "timeout 9h python train.py", catches=True),
        one(11, 10, "python train.py", catches=True),
        one(12, 11, "python train.py", catches=True),
    ]

    assert choose(tree, "USR1", r"train\.py").pids == (11,)


def test_a_pattern_never_makes_a_target_of_what_does_not_catch() -> None:
    tree = [one(10, 1, "python train.py"), one(11, 10, "python other.py", catches=True)]

    assert "does not catch SIGUSR1" in choose(tree, "USR1", "train").reason
    assert "no process of the job matches" in choose(tree, "USR1", "elsewhere").reason


def test_a_tunnel_beside_the_workers_does_not_keep_them_from_being_asked() -> None:
    tree = [
        one(10, 1, "bash run.sh"),
        one(11, 10, "ssh -N tunnel", catches=True),
        one(12, 10, "python train.py", catches=True),
    ]

    assert choose(tree, "USR1").pids == (12,)


def test_a_job_whose_processes_are_zombies_has_none() -> None:
    assert choose([one(10, 1, "", catches=True, alive=False)], "USR1").reason == "the job has no process any more"


def test_to_end_a_trainer_that_saves_at_term_keeps_its_workers_while_it_does() -> None:
    tree = [
        one(10, 1, "bash run.sh"),
        one(11, 10, "python train.py", catches=True),
        one(12, 11, "python train.py", catches=True),
        one(13, 10, "tail -f log"),
    ]

    assert to_end(tree) == (10, 11, 13)


def test_who_counts_as_distributed() -> None:
    assert distributed([["/venv/bin/torchrun", "train.py"]], {}) == "it was started by torchrun"
    assert distributed([["python", "-m", "torch.distributed.run", "train.py"]], {})
    assert distributed([["python", "train.py"]], {"WORLD_SIZE": "8"}) == "WORLD_SIZE is 8"
    assert not distributed([["python", "train.py"]], {"WORLD_SIZE": "1"})


programs = st.sampled_from(["python train.py", "bash run.sh", "timeout 9 x", "docker run x", "sleep 9", ""])


@st.composite
def trees(draw: st.DrawFn) -> list[Candidate]:
    count = draw(st.integers(1, 12))
    return [
        one(
            number + 10,
            draw(st.integers(10, number + 9)) if number and draw(st.integers(0, 5)) else 1,
            draw(programs),
            catches=draw(st.booleans()),
            alive=draw(st.integers(0, 6)) > 0,
        )
        for number in range(count)
    ]


def ancestors(tree: list[Candidate], pid: int) -> list[Candidate]:
    by_pid = {candidate.pid: candidate for candidate in tree}
    found = []
    while (pid := by_pid[pid].ppid) in by_pid:
        found.append(by_pid[pid])
    return found


@given(trees(), st.sampled_from(["", "train", "run|sleep"]))
def test_only_living_catchers_are_asked_never_a_forwarder_and_each_once(tree: list[Candidate], pattern: str) -> None:
    by_pid = {candidate.pid: candidate for candidate in tree}
    choice = choose(tree, "USR1", pattern)

    assert len(set(choice.pids)) == len(choice.pids)
    assert bool(choice.pids) != bool(choice.reason)
    for pid in choice.pids:
        assert by_pid[pid].alive
        assert by_pid[pid].catches
        assert not by_pid[pid].forwards


@given(trees(), st.sampled_from(["", "train", "run|sleep"]))
def test_nobody_below_another_who_is_asked_is_asked(tree: list[Candidate], pattern: str) -> None:
    chosen = set(choose(tree, "USR1", pattern).pids)

    for pid in chosen:
        assert not chosen & {candidate.pid for candidate in ancestors(tree, pid)}


@given(trees())
def test_every_living_catcher_is_asked_or_has_a_reason_above_it(tree: list[Candidate]) -> None:
    chosen = set(choose(tree, "USR1").pids)

    for candidate in tree:
        if candidate.alive and candidate.catches and candidate.pid not in chosen:
            above = [candidate, *ancestors(tree, candidate.pid)]
            assert any(higher.pid in chosen or higher.forwards for higher in above)


@given(trees())
def test_to_end_reaches_everybody_who_is_not_below_a_catcher(tree: list[Candidate]) -> None:
    told = set(to_end(tree))

    for candidate in tree:
        sheltered = any(higher.catches for higher in ancestors(tree, candidate.pid))
        assert (candidate.pid in told) == (candidate.alive and not sheltered)
