"""Which processes of a job get a signal, and why not the others. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

FORWARDERS = frozenset(
    {
        "docker", "podman", "nerdctl", "kubectl", "srun", "ssh", "sudo", "doas", "su", "timeout", "tini", "dumb-init",
        "mpirun", "mpiexec", "orterun", "prterun", "apptainer", "singularity", "Apptainer", "Singularity",
    }
)  # fmt: skip
"""Programs that catch signals to hand them on, or not. That they catch one proves nothing about the job behind them."""

_PASSERS = frozenset({"uv", "uvx", "catatonit"})
"""The same, but only where they have a handler: without one they are launchers like any other."""

_OWN_MEANING = frozenset({"make", "gmake", "xargs", "parallel", "dd", "tmux"})
"""Programs for which USR1 and USR2 mean something of their own (make: debugging on; xargs: one more at a time).

They hand neither on, so what they started is asked in their place.
"""

_DEBUGGED = frozenset({"node", "nodejs", "npm", "npx", "yarn", "pnpm"})
"""USR1 has these open a debugger's port. Whether they handle it themselves cannot be seen: only a pattern says so."""

_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun", "srun", "orterun"})
_LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher",
)
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One process of the tree, as far as the choice needs to know it.

    Attributes:
        pid: Its number.
        ppid: Its parent's.
        catches: Whether it has a handler for the signal in question.
        argv: Its command line.
        alive: False for a zombie.
    """

    pid: int
    ppid: int
    catches: bool
    argv: tuple[str, ...] = ()
    alive: bool = True

    @property
    def program(self) -> str:
        """The name of what it runs, without the path."""
        return os.path.basename(self.argv[0]) if self.argv else ""

    @property
    def name(self) -> str:
        """What it is known as: of `npm run train`, which is all one title, `npm`; of a script in Perl, the script."""
        first = (self.program.split() or [""])[0]
        return os.path.basename(self.argv[1]) if first == "perl" and len(self.argv) > 1 else first

    @property
    def forwards(self) -> bool:
        """Whether it only hands signals on."""
        return self.name in FORWARDERS or (self.catches and (self.name in _PASSERS or _is_supervisor(self.argv)))


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom to signal, or why nobody.

    Attributes:
        pids: In the order of the walk, the leader's branch first.
        reason: Where nobody is chosen: why, and what to do about it.
    """

    pids: tuple[int, ...] = ()
    reason: str = ""


def choose(candidates: Sequence[Candidate], signal: str, pattern: str = "") -> Choice:
    """The topmost processes, from the leader down, that catch the signal; never their descendants.

    A child inherits its parent's handler when it is forked (a DataLoader worker
    does), so below a catcher nobody is asked. Behind a forwarder nobody is asked
    either, unless `pattern` names the target.

    Args:
        candidates: The tree, the leader first, as a walk down finds them.
        signal: The signal's name, without SIG, for the words.
        pattern: A regular expression; only processes whose command line matches are asked.
    """
    if not any(one.alive for one in candidates):
        return Choice(reason="the job has no process any more")
    busy = [one for one in candidates if one.alive and one.catches and _for_itself(one, signal, named=bool(pattern))]
    if pattern:
        matches = re.compile(pattern).search
        named = [
            one
            for one in candidates
            if one.alive and not one.forwards and one not in busy and matches(" ".join(one.argv))
        ]
        if not named:
            return Choice(reason=f"no process of the job matches {pattern!r}")
        found = _topmost(candidates, lambda one: one.catches and one in named)
        if found:
            return Choice(found)
        return Choice(reason=f"{_people(named)} matches {pattern!r} but does not catch SIG{signal}, which would end it")
    barred = [one for one in candidates if one.alive and one.forwards]
    found = _topmost(candidates, lambda one: one.catches and one not in busy, stop=lambda one: one.forwards)
    if found:
        return Choice(found)
    if barred:
        return Choice(
            reason=f"{_people(barred)} hands signals on, or not, so it is not known who would get SIG{signal}: "
            f"name the process with signal:{signal}@REGEX, or use file:, exec: or http:"
        )
    if busy:
        return Choice(
            reason=f"{_people(busy)} catches SIG{signal} for a purpose of its own, and no other process of the job "
            "catches it: install a handler first"
        )
    return Choice(reason=f"no process of the job catches SIG{signal}, which would end it: install a handler first")


def to_end(candidates: Sequence[Candidate]) -> tuple[int, ...]:
    """Who gets TERM when a job is to stop: everybody who is not below a process that catches it.

    A trainer that saves at TERM keeps its loader's workers while it does; a
    launcher that catches nothing ends together with what it started.
    """
    found: list[int] = []

    def visit(one: Candidate) -> bool:
        if one.alive:
            found.append(one.pid)
        return one.catches

    _walk(candidates, visit)
    return tuple(found)


def distributed(argvs: Sequence[Sequence[str]], environment: Mapping[str, str]) -> str:
    """Why a job counts as distributed, in words; empty when it does not.

    Processes elsewhere wait for those here, so it cannot be paused.
    """
    for argv in argvs:
        for word in argv[:4]:
            program = os.path.basename(word)
            if program in _LAUNCHERS or word.startswith(_LAUNCHER_MODULES):
                return f"it was started by {program}"
    for name in _WORLD:
        size = environment.get(name, "")
        if size.isdigit() and int(size) > 1:
            return f"{name} is {size}"
    return ""


def _for_itself(one: Candidate, signal: str, *, named: bool) -> bool:
    """Whether the handler it has is not one that a job's owner has written."""
    return one.name in _OWN_MEANING or (signal == "USR1" and not named and one.name in _DEBUGGED)


def _is_supervisor(argv: Sequence[str]) -> bool:
    """Whether it is a `sentinel run` inside the job: it catches everything, and hands it on."""
    names = [os.path.basename(word) for word in argv[:4]]
    return "sentinel" in names and "run" in names[names.index("sentinel") :]


def _topmost(
    candidates: Sequence[Candidate],
    wanted: Callable[[Candidate], bool],
    stop: Callable[[Candidate], bool] = lambda one: False,  # noqa: ARG005 - the default stops nowhere
) -> tuple[int, ...]:
    found: list[int] = []

    def visit(one: Candidate) -> bool:
        if stop(one):
            return True
        if one.alive and wanted(one):
            found.append(one.pid)
            return True
        return False

    _walk(candidates, visit)
    return tuple(found)


def _walk(candidates: Sequence[Candidate], visit: Callable[[Candidate], bool]) -> None:
    """From each process whose parent is not in the tree downwards; not below one for which `visit` says True."""
    known = {one.pid for one in candidates}
    children: dict[int, list[Candidate]] = {}
    for one in candidates:
        children.setdefault(one.ppid if one.ppid in known and one.ppid != one.pid else -1, []).append(one)
    level = children.get(-1, [])
    while level:
        level = [child for one in level if not visit(one) for child in children.get(one.pid, [])]


def _people(some: Sequence[Candidate]) -> str:
    first = some[0]
    rest = f" and {len(some) - 1} more" if len(some) > 1 else ""
    return f"{first.program or 'process'} (pid {first.pid}){rest}"
