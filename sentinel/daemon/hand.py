"""A hand: reads, calls and runs as a job's owner, for a daemon that belongs to somebody else.

`python -m sentinel.daemon.hand`, with its charge as JSON on stdin. It does what a
daemon of the owner's own would do for the job, with the same parts: it follows the
logs, watches the checkpoint directories, hands requests over by file, program and
HTTP, and carries messages to the owner's addresses. It trusts the daemon with no
more than the owner declared: an order for any other path, program or address is
refused. It ends when the daemon says that nothing is left to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sentinel.api.client import ApiError, Client
from sentinel.daemon.handwire import Habits, Orders, Report, shipped_patterns
from sentinel.daemon.handwork import Reading, Work
from sentinel.errors import SentinelError
from sentinel.jobs import keeper
from sentinel.jobs.logfile import LogFile
from sentinel.jobs.ownhand import TERMINAL, Charge
from sentinel.logs.classify import Classifier
from sentinel.logs.patterns import load
from sentinel.model.events import new_id
from sentinel.model.jobs import How, Job, ProcessId
from sentinel.model.wire import WireError, decode, encode
from sentinel.system import processes

_log = logging.getLogger(__name__)

PERIOD_S = 0.5
_HASTE_S = 0.05
_HASTE_FOR_S = 15.0
"""How long after the leader's end the daemon is asked more often: it waits for the last words."""
_LONGEST_PAUSE_S = 5.0
_ANSWER_S = 10.0
_LONGEST_STAY_S = 30.0
"""How long what is under way is waited for when the daemon wants nothing more."""
GONE_S = 600.0
"""How long a daemon that is away is waited for once the job's leader is gone."""
UNMET_S = 60.0
"""How long for one that has never answered."""
_CAP_EVERY_S = 60.0
_LARGEST_REPORT = 768 * 1024


class Hand:
    """One job's hand. Lives on its event loop; reading and calling happen in threads.

    Args:
        charge: What the owner's own side has declared. Nothing beyond it is done.
    """

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._client = Client(charge.socket, _ANSWER_S)
        self._name = new_id("h")
        self._seq = 0
        self._report: Report | None = None  # sent, and not yet answered
        self._met = False  # whether this daemon, as far as we can tell, knows us
        self._job: Job | None = None
        self._reading: Reading | None = None
        self._work: Work | None = None
        self._wake = asyncio.Event()
        self._leads: ProcessId | None = None
        self._leader = -1
        self._leader_gone_at: float | None = None
        self._over_at: float | None = None
        self._log_limit = Habits().log_limit_bytes
        self._heard = self._capped = time.monotonic()
        self._drained = 0
        self._draining: asyncio.Task[None] | None = None
        self._keeps_terminal = charge.terminal

    async def run(self) -> int:
        """Until there is nothing left to do; the exit code."""
        pause = PERIOD_S
        while True:
            try:
                orders = await asyncio.to_thread(self._speak, self._composed())
            except (SentinelError, OSError, WireError, KeyError) as fault:
                if isinstance(fault, ApiError) and fault.status in {403, 404, 409}:
                    _log.info("the daemon will not have this hand: %s", fault.message)
                    break
                self._met = False
                if self._forsaken():
                    _log.info("the daemon is gone: %s", fault)
                    break
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                self._report, self._met = None, True
                self._heard, pause = time.monotonic(), PERIOD_S
                self._follow(orders)
                if orders.over and self._may_go():
                    break
            self._look_after_output()
            await self._rest(pause)
        await self._close()
        return 0

    # Talking

    def _composed(self) -> Report:
        """The next report, or again the one that was not answered."""
        if self._report is None:
            self._seq += 1
            self._report = Report(self._name, self._seq)
            if self._reading is not None and self._work is not None:
                self._report = self._work.tell(self._reading.tell(self._report))
        if self._met or self._reading is None:
            return self._report
        return replace(self._report, recent=self._reading.recent())

    def _speak(self, said: Report) -> Orders:
        """One report and its answer. In a thread."""
        data = encode(said)
        while len(json.dumps(data)) > _LARGEST_REPORT and (said.events or said.recent):
            said = replace(said, events=said.events[len(said.events) // 2 + 1 :], recent=())
            data = encode(said)
        answer = self._client.post(f"/v1/jobs/{self._charge.job}/hand", data)
        return decode(Orders, answer)

    def _follow(self, orders: Orders) -> None:
        """What the daemon has said."""
        self._job = self._known(orders.job)
        if orders.habits is not None and self._work is None:
            self._begin(orders.habits)
        if self._reading is None or self._work is None:
            return
        self._reading.job = self._job
        self._watch_leader(self._job)
        for errand in orders.errands:
            if (why := self._beyond(errand.how, errand.target)) is not None:
                self._work.refuse(errand, why)
            else:
                self._work.take(errand, self._job)
        self._work.carry([each for each in orders.parcels if each.url in self._charge.spec.notify])
        if orders.drain and self._drained < self._job.attempt and self._draining is None:
            self._draining = asyncio.create_task(self._drain(self._reading, self._job))

    def _known(self, job: Job) -> Job:
        """The job as the daemon knows it, with what its owner said in place of what the daemon says of that."""
        return replace(job, spec=self._charge.spec, output=self._output(job))

    def _output(self, job: Job) -> tuple[str, ...]:
        """The attempt's logs: as charged with, or those of a later attempt, beside the first one's."""
        base = os.path.join(os.path.realpath(self._charge.directory), "attempt-") if self._charge.directory else ""
        if self._charge.output and base and all(os.path.realpath(path).startswith(base) for path in job.output):
            return job.output
        return self._charge.output

    def _beyond(self, how: How, target: str) -> str | None:
        """Why an order is not followed: it is none that the owner declared."""
        for channel in self._charge.spec.channels:
            if channel.how is how and (
                channel.target == target or (how is How.EXEC and shlex.split(channel.target) == shlex.split(target))
            ):
                return None
        return f"the owner never declared {how.value}:{target}"

    def _begin(self, habits: Habits) -> None:
        directory = Path(self._charge.directory or "/nonexistent")
        self._reading = Reading(Classifier(_patterns(habits.patterns)), directory / "hand.json")
        self._work = Work(habits, self._wake.set)
        self._log_limit = habits.log_limit_bytes
        assert self._job is not None
        self._reading.job = self._job
        self._reading.start()

    # The end

    def _watch_leader(self, job: Job) -> None:
        """Be woken when the job's leader ends: then the daemon waits for us."""
        if job.root != self._leads:  # another attempt
            self._forget_leader()
            self._leads, self._leader_gone_at = job.root, None
        if job.root is None or self._leader_gone_at is not None:
            return
        if not processes.same(job.root):
            self._leader_gone()
        elif self._leader < 0:
            with contextlib.suppress(OSError):
                self._leader = os.pidfd_open(job.root.pid)
                asyncio.get_running_loop().add_reader(self._leader, self._leader_gone)

    def _forget_leader(self) -> None:
        if self._leader >= 0:
            asyncio.get_running_loop().remove_reader(self._leader)
            os.close(self._leader)
            self._leader = -1

    def _leader_gone(self) -> None:
        self._forget_leader()
        self._leader_gone_at = time.monotonic()
        self._wake.set()

    async def _drain(self, reading: Reading, job: Job) -> None:
        """The attempt is over: read its output to the end, and say so."""
        await asyncio.to_thread(reading.drain, job)
        self._drained, self._draining = job.attempt, None
        self._wake.set()

    async def _rest(self, pause: float) -> None:
        gone_at = self._leader_gone_at
        if gone_at is not None and time.monotonic() - gone_at < _HASTE_FOR_S:
            pause = min(pause, _HASTE_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wake.wait()
        self._wake.clear()

    def _may_go(self) -> bool:
        """Whether nothing is under way any more; what hangs is not waited for without end."""
        self._over_at = self._over_at or time.monotonic()
        return self._work is None or not self._work.busy or time.monotonic() - self._over_at > _LONGEST_STAY_S

    def _forsaken(self) -> bool:
        """Whether the daemon has been away for so long that there is nobody to work for."""
        away_s = time.monotonic() - self._heard
        if self._job is None:
            return away_s > UNMET_S
        if self._job.alive and self._job.root is not None and processes.same(self._job.root):
            return False
        return away_s > GONE_S

    async def _close(self) -> None:
        if self._draining is not None:
            await self._draining
        if self._work is not None:
            await self._work.close()
        if self._reading is not None:
            await asyncio.to_thread(self._reading.stop)
        self._client.close()

    # The output of a job without a supervisor

    def _look_after_output(self) -> None:
        supervisor = self._charge.supervisor
        if supervisor is None or processes.same(supervisor):
            if self._keeps_terminal and self._job is not None and not self._job.alive:
                self._let_terminal_go()
            return
        if self._keeps_terminal and self._charge.output:
            self._keeps_terminal = False
            arguments = [str(TERMINAL), str(self._log_limit), self._charge.output[0]]
            threading.Thread(target=keeper.main, args=(arguments,), name="terminal", daemon=True).start()
        elif time.monotonic() - self._capped > _CAP_EVERY_S:
            self._capped = time.monotonic()
            for path in self._job.output if self._job is not None else self._charge.output:
                with contextlib.suppress(OSError), LogFile(path, self._log_limit) as log:
                    log.cap()

    def _let_terminal_go(self) -> None:
        self._keeps_terminal = False
        with contextlib.suppress(OSError):
            os.close(TERMINAL)


def _patterns(extra: Iterable[str]) -> Any:
    """The shipped patterns and those of the configuration, as far as we may read them and they are right."""
    packs = shipped_patterns()
    try:
        return load([*packs, *(Path(path) for path in extra if os.access(path, os.R_OK))])
    except (SentinelError, OSError) as fault:
        _log.warning("only the shipped patterns are in force: %s", fault)
        return load(packs)


def main() -> int:
    """Serve until the job is over."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    charge = decode(Charge, json.load(sys.stdin))
    os.chdir("/")

    async def serve() -> int:
        return await Hand(charge).run()

    return asyncio.run(serve())


if __name__ == "__main__":
    sys.exit(main())
