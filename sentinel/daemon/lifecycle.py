"""From start to end: the lock, the replay, the loops, the signals. Order lives here and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from sentinel import paths
from sentinel.api.client import Client
from sentinel.clock import SystemClock
from sentinel.daemon.lock import Locked, StateLock
from sentinel.errors import SentinelError, UsageError
from sentinel.system import memory
from sentinel.system.mounts import Mount, mounts
from sentinel.system.processes import boot_id
from sentinel.system.service import ServiceManager

if TYPE_CHECKING:
    from sentinel.daemon.house import House

_log = logging.getLogger(__name__)

WAIT_FOR_OTHER_S = 10.0
IDLE_S = 15 * 60.0
IN_BATCH_JOB_S = 5.0
_BATCH = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_JOB_ID")
OBSERVED_WITHIN_TICKS = 5
_TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says.

    Attributes:
        config: The configuration file, or None for the usual places.
        state: The state directory, or None.
        socket: Where to listen, or None.
        system: Whether to serve every user of the machine.
        idle_s: After how long without anything to do to end; None: never.
    """

    config: Path | None = None
    state: Path | None = None
    socket: Path | None = None
    system: bool = False
    idle_s: float | None = None


class Hangup:
    """SIGHUP asks to read rules and settings again. Asked before that can be done, it is done as soon as it can."""

    def __init__(self) -> None:
        self._early = False
        self._asked = asyncio.Event()

    def listen(self) -> None:
        """From now on none is lost, and none ends the process."""
        signal.signal(signal.SIGHUP, lambda *_: setattr(self, "_early", True))

    def attend(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the loop is woken."""
        loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        if self._early:
            self._asked.set()

    async def wait(self) -> None:
        """Until it is asked, once for all that have asked so far."""
        await self._asked.wait()
        self._asked.clear()


def main(options: Options) -> int:
    """Run the daemon until it is told to end; its exit code.

    Raises:
        SentinelError: It cannot start, and why.
    """
    hangup = Hangup()
    hangup.listen()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    service = ServiceManager()
    state, socket = _places(options)
    lock = StateLock(state)
    try:
        lock.acquire()
    except Locked as held:
        return _other(held, state, socket, auto=options.idle_s is not None)
    try:
        live = live_directory(state, mounts())
        if live != state:
            paths.private_directory(live)
            _log.info("%s is on a network mount: the live database is in %s", state, live)
        return asyncio.run(_run(options, live, socket, service, hangup))
    finally:
        lock.release()


def usual_idle_s() -> float:
    """How long a daemon that was started by the way stays: inside a batch job it never holds the step open."""
    return IN_BATCH_JOB_S if any(os.environ.get(name) for name in _BATCH) else IDLE_S


def live_directory(state: Path, mounts: Sequence[Mount]) -> Path:
    """Where the live database sits: beside the rest, unless that is on a mount that may hang.

    Then it is on a local disk, per host and boot, and only the lock and the daemon's
    log stay in the state directory.
    """
    over = [mount for mount in mounts if state.is_relative_to(mount.point)]
    nearest = max(over, key=lambda mount: len(mount.point), default=None)
    if nearest is None or not nearest.may_hang:
        return state
    return Path("/var/tmp") / f"sentinel-{os.getuid()}" / f"{gethostname()}-{boot_id()[:8]}"


def _places(options: Options) -> tuple[Path, Path]:
    if options.system:
        state = options.state or paths.SYSTEM_STATE
        socket = options.socket or paths.SYSTEM_SOCKET
    else:
        said = os.environ.get("SENTINEL_SOCKET")
        state = options.state or paths.state_directory()
        socket = options.socket or (Path(said) if said else paths.user_socket())
    socket = paths.checked_socket(socket)
    if options.system:
        socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    else:
        paths.socket_directory(socket)
    return state.absolute(), socket


def _other(held: Locked, state: Path, socket: Path, *, auto: bool) -> int:
    """Another daemon has the state: wait until it answers."""
    client, deadline = Client(socket, 2.0), time.monotonic() + WAIT_FOR_OTHER_S
    while time.monotonic() < deadline:
        try:
            client.connect()
        except SentinelError:
            time.sleep(0.1)
            continue
        if auto:
            return 0
        raise UsageError(f"a daemon runs already (process {held.pid}, socket {socket})", hint="sentinel status")
    raise SentinelError(
        f"process {held.pid} holds {state / 'daemon.lock'} and does not answer at {socket}",
        hint=f"end it (kill {held.pid}), or give this daemon a state directory of its own: --state-dir",
    )


async def _run(options: Options, state: Path, socket: Path, service: ServiceManager, hangup: Hangup) -> int:
    from sentinel import config
    from sentinel.daemon.assembly import Place, build

    settings = config.load(options.config, system=options.system)
    house = build(settings, Place(state, socket, options.system, options.config), SystemClock())
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _told_to_end, number, stop)
    hangup.attend(loop)
    tasks: list[asyncio.Task[None]] = []
    try:
        await house.begin()
        tasks = [
            asyncio.create_task(_judge(house), name="judge"),
            asyncio.create_task(_tick(house), name="tick"),
            asyncio.create_task(_serve_manager(house, service), name="service manager"),
            asyncio.create_task(_read_again(house, hangup), name="reload"),
        ]
        if options.idle_s is not None:
            tasks.append(asyncio.create_task(_end_when_idle(house, options.idle_s, stop), name="idle"))
        for task in tasks:
            task.add_done_callback(lambda done: _fell(done, stop))
        _log.info("listening at %s, state in %s", socket, state)
        await stop.wait()
        service.tell("STOPPING=1")
        return 1 if any(task.done() and not task.cancelled() and task.exception() for task in tasks) else 0
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await house.end()
        _log.info("ended")


def _told_to_end(number: signal.Signals, stop: asyncio.Event) -> None:
    _log.info("told to end by %s", number.name)
    stop.set()


def _fell(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    """A loop of ours never ends by itself: if one does, it is better to be restarted than half blind."""
    if not task.cancelled() and (fault := task.exception()) is not None:
        _log.error("a fault of sentinel itself in %s", task.get_name(), exc_info=fault)
        stop.set()


async def _judge(house: House) -> None:
    """Evaluate what is due; something that happened wakes it early."""
    while True:
        house.judge()
        wait = house.rooms.engine.next_due() - house.clock.monotonic()
        with contextlib.suppress(TimeoutError):
            # wait_for would swallow a cancellation that comes together with the wake-up (Python 3.11): no end at TERM.
            async with asyncio.timeout(min(max(wait, 0.01), _TICK_S)):
                await house.wake.wait()
        house.wake.clear()


async def _tick(house: House) -> None:
    while True:
        await house.tick()
        await asyncio.sleep(_TICK_S)


def _watching(house: House) -> str:
    jobs = len(house.rooms.register.living())
    return f"STATUS=watching {jobs} job{'' if jobs == 1 else 's'}"


async def _serve_manager(house: House, service: ServiceManager) -> None:
    """Say when we are ready; feed the watchdog only while something is really observed."""
    ready = False
    while True:
        observed = house.observed_within(OBSERVED_WITHIN_TICKS)
        if observed and not ready:
            ready = house.core.ready = True
            memory.settle()
            service.tell("READY=1", _watching(house))
        if observed and service.watchdog_s is not None:
            service.tell("WATCHDOG=1", _watching(house))
        await asyncio.sleep(0.1 if not ready else min(2.0, (service.watchdog_s or 4.0) / 3))


async def _end_when_idle(house: House, idle_s: float, stop: asyncio.Event) -> None:
    """A daemon that nobody asked for does not stay without reason."""
    busy_at = house.clock.monotonic()
    while True:
        await asyncio.sleep(min(2.0, idle_s / 2))
        now = house.clock.monotonic()
        if house.busy():
            busy_at = now
        elif now - busy_at >= idle_s:
            _log.info("nothing to do for %.0f s: ending", idle_s)
            stop.set()
            return


async def _read_again(house: House, hangup: Hangup) -> None:
    while True:
        await hangup.wait()
        try:
            done = await house.reload()
            late = f"; in force after a restart: {', '.join(done['needs_restart'])}" if done["needs_restart"] else ""
            _log.info("rules and notification settings read again, mode %s%s", done["mode"], late)
        except SentinelError as fault:
            _log.error("the old rules and settings stay in force:\n%s", fault)
