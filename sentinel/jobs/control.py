"""The way to ask a job: by the channel it declared, or by STOP, CONT, TERM and KILL."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sentinel.clock import Clock, SystemClock
from sentinel.errors import SentinelError
from sentinel.jobs import selection
from sentinel.jobs.machine import Seen
from sentinel.jobs.ports import HandOf
from sentinel.jobs.register import Register
from sentinel.jobs.selection import Candidate
from sentinel.jobs.settings import Settings
from sentinel.jobs.trees import Forest
from sentinel.logs.masking import clean
from sentinel.model.jobs import Channel, How, Job, JobState
from sentinel.model.requests import Delivery, Outcome, Request, RequestKind
from sentinel.system import processes, signals
from sentinel.system.processes import Stat
from sentinel.units import format_duration

_STOPPED = frozenset("Tt")
_ROUNDS = 10
_LOOK_S = 0.1
_DUMP_S = 20.0
_TOO_LATE = "it was not sent any more"


class Control:
    """Hands requests to jobs, and says what came of it.

    Args:
        register: Learns of pauses and stops.
        forest: Knows the processes.
        hand_of: Who acts for a job's owner.
        settings: The grace between TERM and KILL.
        clock: Whose `now` the deadlines of requests are meant in.
    """

    def __init__(
        self,
        register: Register,
        forest: Forest,
        hand_of: HandOf,
        settings: Settings | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._register = register
        self._forest = forest
        self._hand_of = hand_of
        self._settings = settings or Settings()
        self._clock = clock or SystemClock()
        self._endings: set[asyncio.Future[Delivery]] = set()

    async def deliver(self, job: Job, request: Request, leaving: Callable[[], bool] = lambda: True) -> Delivery:
        """Hand one request to one job; never raises for what the job or the machine did.

        Args:
            job: Whom.
            request: What.
            leaving: Called on the loop right before the request leaves, so that it is
                written down as sent no earlier than needed. Where it answers False,
                nothing leaves; where it is never called, nothing has left.
        """
        current = self._register.find(job.id) or job
        if not current.alive:
            return _refused(f"job {current.name!r} has ended")
        if current.attempt != request.attempt:
            return _refused(f"attempt {request.attempt}, which was to be asked, is over")
        try:
            match request.kind:
                case RequestKind.CHECKPOINT | RequestKind.DEGRADE | RequestKind.RESTORE:
                    return await self._ask(current, request, leaving)
                case _ if not leaving():
                    return Delivery(Outcome.FAILED, _TOO_LATE)
                case RequestKind.PAUSE:
                    return await self._pause(current, request)
                case RequestKind.RESUME:
                    return await self._resume(current, request)
                case RequestKind.STOP:
                    return await self._stop(current, request)
                case RequestKind.DUMP:
                    return await self._dump(current)
                case RequestKind.RESTART:
                    return await self._restart(current, request)
        except SentinelError as fault:
            return _refused(fault.message)
        except OSError as fault:
            return Delivery(Outcome.FAILED, str(fault))

    # What the job declared

    async def _ask(self, job: Job, request: Request, leaving: Callable[[], bool]) -> Delivery:
        channel = job.spec.channel(request.kind)
        if channel is None:
            return _refused(
                f"the job did not say how it can be asked to {request.kind.value}: --on-{request.kind.value}"
            )
        if channel.how is How.SIGNAL:
            return await self._signal(job, channel, leaving)
        hand = self._hand_of(job)
        argv = shlex.split(channel.target) if channel.how is How.EXEC else []
        if not leaving():
            return Delivery(Outcome.FAILED, _TOO_LATE)
        left = max(0.1, request.deadline - self._clock.now())
        match channel.how:
            case How.FILE:
                return await hand.file(channel.target, request.wire(), timeout_s=left)
            case How.HTTP:
                return await hand.http(channel.target, request.wire(), timeout_s=left)
            case _:
                return await hand.execute(argv, request.wire(), cwd=job.spec.cwd, timeout_s=left)

    async def _signal(self, job: Job, channel: Channel, leaving: Callable[[], bool]) -> Delivery:
        number = signals.number_of(channel.target)
        if job.root is None:
            return _refused("the job has not started yet")
        members = await asyncio.to_thread(self._forest.members, job)
        if not any(stat.pid == job.root.pid for stat in members):
            now = processes.read_stat(job.root.pid)
            if now is not None and now.start_ticks != job.root.start_ticks:
                return _refused(f"pid {job.root.pid} belongs to another process by now: the job's is gone")
        candidates = await asyncio.to_thread(_candidates, members, number)
        chosen = selection.choose(candidates, channel.target, channel.pattern)
        if not chosen.pids:
            return _refused(chosen.reason)
        by_pid = {stat.pid: stat for stat in members}
        if not leaving():
            return Delivery(Outcome.FAILED, _TOO_LATE)
        sent = signals.request([self._forest.identity(by_pid[pid]) for pid in chosen.pids], number)
        if not sent.pids:
            return _refused(sent.reasons)
        who = ", ".join(f"{by_pid[pid].name} ({pid})" for pid in sent.pids)
        asleep = [pid for pid in sent.pids if by_pid[pid].state in _STOPPED]
        notes = [f"SIG{channel.target} sent to {clean(who, 400)}"]
        if asleep:
            notes.append("which is paused and will see it when it goes on")
        if sent.refused:
            notes.append(f"not to others: {sent.reasons}")
        return Delivery(Outcome.ACKNOWLEDGED, "; ".join(notes), sent.pids)

    # What needs no handler, but an owner's word

    async def _pause(self, job: Job, request: Request) -> Delivery:
        members = await asyncio.to_thread(self._forest.members, job)
        why = selection.distributed([processes.command_line(stat.pid) for stat in members], _environment_of(job))
        if why:
            return _refused(f"a distributed job is not paused, its other processes would time out: {why}")
        if not self._register.may(job, Seen.PAUSED):
            return _refused(f"job {job.name!r} is {job.state.value}")
        pids = await asyncio.to_thread(
            self._to_whole_tree, job, signal.SIGSTOP, lambda stat: stat.state not in _STOPPED
        )
        if not pids and not any(stat.alive for stat in members):
            return _refused("the job has no process any more")
        self._register.paused(job.id, request.by)
        if not pids:
            return _refused(f"{job.name} is paused already")
        return Delivery(Outcome.DONE, f"{_count(len(pids))} paused", tuple(pids))

    async def _resume(self, job: Job, request: Request) -> Delivery:
        if not self._register.may(job, Seen.RESUMED):
            return _refused(f"job {job.name!r} is {job.state.value}")
        paused = job.state is JobState.PAUSED
        pids = await asyncio.to_thread(self._to_whole_tree, job, signal.SIGCONT, lambda stat: stat.state in _STOPPED)
        self._register.resumed(job.id, request.by)
        if not pids and not paused:
            return _refused(f"{job.name} is not paused")
        return Delivery(Outcome.DONE, f"{_count(len(pids))} resumed", tuple(pids))

    async def _restart(self, job: Job, request: Request) -> Delivery:
        """End the attempt; the supervisor, which learns that it was meant so, starts the next."""
        if job.supervisor is None or not processes.same(job.supervisor):
            return _refused(
                f"{job.name!r} has no supervisor that could start it again: stop it, then use `sentinel run`"
            )
        if not self._register.may(job, Seen.BROKE_OFF) or job.state is JobState.STOPPING:
            return _refused(f"job {job.name!r} is {job.state.value}")
        self._register.restarting(job.id, request.by)
        if job.state is JobState.WAITING:
            return Delivery(Outcome.DONE, "it waited for its next attempt, which begins now")
        return await self._tell_to_end(job)

    async def _stop(self, job: Job, request: Request) -> Delivery:
        """TERM to those who should hear it, a grace, KILL to what is left."""
        if job.state is JobState.WAITING:
            self._register.stopping(job.id, request.by)
            return Delivery(Outcome.DONE, "it waited for its next attempt, which does not begin any more")
        if not await asyncio.to_thread(self._living, job):
            return _refused("the job has no process any more")
        self._register.stopping(job.id, request.by)
        return await self._tell_to_end(job)

    async def _tell_to_end(self, job: Job) -> Delivery:
        members = await asyncio.to_thread(self._forest.members, job)
        living = {stat.pid: stat for stat in members if stat.alive}
        if not living:
            return _refused("the job has no process any more")
        chosen = selection.to_end(_candidates(members, signal.SIGTERM))
        sent = signals.control([self._forest.identity(living[pid]) for pid in chosen], signal.SIGTERM)
        if any(stat.state in _STOPPED for stat in living.values()):  # a paused process cannot hear it
            signals.control([self._forest.identity(stat) for stat in living.values()], signal.SIGCONT)
        # Whoever asked may stop waiting; the grace and what follows it go on.
        ending = asyncio.ensure_future(self._see_to_the_end(job, sent.pids))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
        return await asyncio.shield(ending)

    async def _see_to_the_end(self, job: Job, told: tuple[int, ...]) -> Delivery:
        began = time.monotonic()
        while (waited := time.monotonic() - began) < self._settings.stop_grace_s:
            if not await asyncio.to_thread(self._living, job):
                return Delivery(Outcome.DONE, f"ended {format_duration(waited)} after TERM", told)
            await asyncio.sleep(_LOOK_S)
        killed = await asyncio.to_thread(self._to_whole_tree, job, signal.SIGKILL, lambda stat: stat.alive)
        return Delivery(
            Outcome.DONE,
            f"did not end within {format_duration(self._settings.stop_grace_s)} of TERM; {_count(len(killed))} killed",
            (*told, *(pid for pid in killed if pid not in told)),
        )

    def _living(self, job: Job) -> list[Stat]:
        return [stat for stat in self._forest.members(job) if stat.alive]

    def _to_whole_tree(self, job: Job, number: signal.Signals, needs: Callable[[Stat], bool]) -> list[int]:
        """Until nobody is left who needs it: a tree may grow while it is being signalled."""
        reached: list[int] = []
        for _ in range(_ROUNDS):
            wanting = [stat for stat in self._living(job) if needs(stat) and stat.pid not in reached]
            if not wanting:
                break
            sent = signals.control([self._forest.identity(stat) for stat in wanting], number)
            reached += sent.pids
            if not sent.pids:
                break
        return reached

    # Stacks

    async def _dump(self, job: Job) -> Delivery:
        """What each process is doing: with py-spy where it is installed, and what the kernel says in any case."""
        members = await asyncio.to_thread(self._living, job)
        if not members:
            return _refused("the job has no process any more")
        # It maps the files of the process, which are not for another user, and least of all for root, to open.
        spy = shutil.which("py-spy") if job.uid == os.getuid() else None
        parts = []
        for stat in members:
            parts.append(await asyncio.to_thread(_facts, stat))
            if spy and stat.name.startswith("python"):
                parts.append(await _spied(spy, stat.pid))
        path = (
            self._register.directory_of(job)
            / f"dump-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(self._clock.now()))}.txt"
        )
        await asyncio.to_thread(_write, path, "\n".join(parts))
        how = "py-spy's stacks" if spy else "what the kernel says (with py-spy installed: the Python stacks too)"
        return Delivery(Outcome.DONE, f"{path}: {_count(len(members))}, {how}", tuple(stat.pid for stat in members))


def _candidates(members: Sequence[Stat], number: int) -> list[Candidate]:
    return [
        Candidate(
            stat.pid,
            stat.ppid,
            stat.alive and processes.catches(processes.signals_caught(stat.pid), number),
            tuple(processes.command_line(stat.pid)),
            stat.alive,
        )
        for stat in members
    ]


def _environment_of(job: Job) -> dict[str, str]:
    """The environment the leader was started with; empty where it may not be read."""
    if job.root is None or not processes.same(job.root):
        return {}
    try:
        data = Path(f"/proc/{job.root.pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.decode("utf-8", "replace").partition("=") for item in data.split(b"\0") if b"=" in item)
    return {name: value for name, _, value in pairs}


_FACTS = ("wchan", "syscall", "stack")


def _facts(stat: Stat) -> str:
    base = Path(f"/proc/{stat.pid}")
    head = (
        f"process {stat.pid} ({stat.name}), state {stat.state}, {stat.threads} threads, "
        f"{(stat.utime_ticks + stat.stime_ticks) / processes.TICKS_PER_SECOND:.1f}s of processor"
    )
    lines = [head, f"  {clean(' '.join(processes.command_line(stat.pid)), 1000)}"]
    try:
        threads = sorted(base.joinpath("task").iterdir(), key=lambda one: int(one.name))[:64]
    except OSError:
        threads = []
    for thread in threads:
        said = {name: text for name in (*_FACTS, "comm") if (text := _peek(thread / name))}
        now = processes.parse_stat(_peek(thread / "stat").encode())
        lines.append(
            f"  thread {thread.name} {said.get('comm', '')}: {now.state if now else '?'} in {said.get('wchan', '0')}"
        )
        lines += [f"      {line}" for line in said.get("stack", "").splitlines()[:30]]
    return "\n".join(lines) + "\n"


def _peek(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


async def _spied(program: str, pid: int) -> str:
    process = await asyncio.create_subprocess_exec(
        program, "dump", "--nonblocking", "--pid", str(pid),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), _DUMP_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"  py-spy did not answer within {_DUMP_S:.0f}s\n"
    return said.decode("utf-8", "replace")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text)


def _refused(reason: str) -> Delivery:
    return Delivery(Outcome.REFUSED, reason)


def _count(number: int) -> str:
    return f"{number} process" if number == 1 else f"{number} processes"
