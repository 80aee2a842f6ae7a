"""The supervisor's own way to end what it started: TERM to those who should hear it, KILL to what is left."""

from __future__ import annotations

import signal
from collections.abc import Callable

from sentinel.jobs import selection
from sentinel.jobs.selection import Candidate
from sentinel.model.jobs import ProcessId
from sentinel.system import processes, signals
from sentinel.system.processes import Stat, Tree

_ROUNDS = 10
_STOPPED = frozenset("Tt")


class Grove:
    """The tree of one attempt, as its supervisor sees it. It remembers who was once a member.

    Args:
        root: The leader.
        pgid: Its process group; 0: it has none of its own.
    """

    def __init__(self, root: ProcessId, pgid: int) -> None:
        self.root = root
        self._tree = Tree(root, pgid)

    def living(self) -> list[Stat]:
        """Its processes now, without zombies."""
        return [stat for stat in self._tree.update(processes.scan()) if stat.alive]

    def catching(self, name: str, pattern: str = "") -> selection.Choice:
        """Who would get the request that the signal `name` carries."""
        number = signals.number_of(name)
        return selection.choose([_candidate(stat, number) for stat in self.living()], name, pattern)

    def ask(self, name: str, pattern: str = "") -> str:
        """Send a request by signal, as the daemon would; why it was not sent, or ""."""
        chosen = self.catching(name, pattern)
        if not chosen.pids:
            return chosen.reason
        by_pid = {stat.pid: stat for stat in self.living()}
        targets = [_identity(by_pid[pid]) for pid in chosen.pids if pid in by_pid]
        sent = signals.request(targets, signals.number_of(name))
        return "" if sent.pids else sent.reasons

    def stop(self) -> int:
        """TERM to everybody who is not below a process that catches it; how many got it."""
        living = {stat.pid: stat for stat in self.living()}
        chosen = selection.to_end([_candidate(stat, signal.SIGTERM) for stat in living.values()])
        sent = signals.control([_identity(living[pid]) for pid in chosen], signal.SIGTERM)
        if any(stat.state in _STOPPED for stat in living.values()):  # a paused process cannot hear it
            signals.control([_identity(stat) for stat in living.values()], signal.SIGCONT)
        return len(sent.pids)

    def kill(self) -> int:
        """KILL, until nobody is left: a tree may grow while it is being ended."""
        reached: set[int] = set()
        for _ in range(_ROUNDS):
            wanting = [stat for stat in self.living() if stat.pid not in reached]
            sent = signals.control([_identity(stat) for stat in wanting], signal.SIGKILL)
            if not sent.pids:
                break
            reached.update(sent.pids)
        return len(reached)

    def clear(self, grace_s: float, pause: Callable[[float], object]) -> int:
        """End what the leader left behind: TERM, a grace, KILL; how many there were."""
        left = len(self.living())
        if not left:
            return 0
        self.stop()
        for _ in range(max(1, int(grace_s / 0.1))):
            if not self.living():
                return left
            pause(0.1)
        self.kill()
        return left


def _candidate(stat: Stat, number: int) -> Candidate:
    catches = stat.alive and processes.catches(processes.signals_caught(stat.pid), number)
    return Candidate(stat.pid, stat.ppid, catches, tuple(processes.command_line(stat.pid)), stat.alive)


def _identity(stat: Stat) -> ProcessId:
    return ProcessId(stat.pid, stat.start_ticks, processes.boot_id())
