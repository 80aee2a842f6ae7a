"""The register: which jobs there are, and where each is in its life."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentinel.clock import Clock
from sentinel.errors import SentinelError
from sentinel.jobs import bill, failures
from sentinel.jobs.bill import Kept
from sentinel.jobs.failures import Evidence, Judgement
from sentinel.jobs.machine import Seen, must_step, step
from sentinel.jobs.naming import default_name
from sentinel.jobs.ports import Journal, Publish
from sentinel.jobs.settings import Settings
from sentinel.model.events import Severity, event, new_id
from sentinel.model.jobs import Job, JobSpec, JobState, ProcessId
from sentinel.model.journal import JournalUnavailable, Record
from sentinel.model.wire import decode, encode

_KEPT = 200
_PAST_KEPT = 200
_KIND = "job"
_SAID = {"preempted": Seen.PREEMPTED, "stopped": Seen.INTERRUPTED}
_BY_US = {
    "timeout": "its time limit was over, so sentinel stopped it",
    "stall": "it made no progress for longer than allowed, so sentinel stopped it",
    "preempted": "a scheduler wanted the machine back",
}


@dataclass(frozen=True, slots=True)
class _How:
    """How an attempt ended.

    Attributes:
        code: Exit code, None for a signal.
        number: Of the signal, or None.
        at: Unix seconds.
        reason: Why no attempt follows, in words.
        last_lines: The last of its output.
        outcome: What the supervisor said about it.
    """

    code: int | None
    number: int | None
    at: float
    reason: str = ""
    last_lines: tuple[str, ...] = ()
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """A job that was taken in.

    Attributes:
        job: With its unique name.
        renamed_from: The name it asked for, where another living job has it.
        directory: Where the attempts' log files go; empty where the job's owner
            is somebody else than the daemon, who then chooses.
        again: Whether the same supervisor had registered it before.
    """

    job: Job
    renamed_from: str | None
    directory: str
    again: bool = False


class UnknownJob(SentinelError):
    """There is no such job."""


class Register:
    """All jobs of one daemon.

    Each change is journalled, then published as `job.STATE`. Only the event
    loop calls it.

    Args:
        journal: Where changes are written down.
        publish: Whom to tell.
        clock: Its `now` dates the records.
        directory: The state directory; each job has `jobs/ID` in it.
        settings: How long ended jobs are remembered.
        evidence: What others saw of an attempt: log events, kernel kills.
    """

    def __init__(
        self,
        journal: Journal,
        publish: Publish,
        clock: Clock,
        *,
        directory: Path,
        settings: Settings | None = None,
        evidence: Callable[[Job], Evidence] = lambda job: Evidence(),  # noqa: ARG005 - nothing is known
    ) -> None:
        self._journal = journal
        self._publish = publish
        self._clock = clock
        self._directory = directory
        self._settings = settings or Settings()
        self._evidence = evidence
        self._jobs: dict[str, Job] = {}
        self._judgements: dict[str, Judgement] = {}
        self._unjournalled = False

    # Looking

    def find(self, name_or_id: str) -> Job | None:
        """By id; else the living job of that name; else the last that had it."""
        if found := self._jobs.get(name_or_id):
            return found
        named = [job for job in self._jobs.values() if job.name == name_or_id]
        return max(named, key=lambda job: (job.alive, job.created), default=None)

    def living(self) -> list[Job]:
        """Jobs that may still have processes, the oldest first."""
        return [job for job in self._jobs.values() if job.alive]

    def recent(self) -> list[Job]:
        """Jobs that ended lately and are still shown, the oldest first."""
        since = self._clock.now() - self._settings.remember_s
        return [job for job in self._jobs.values() if job.ended is not None and job.ended >= since]

    def last_paid(self) -> Job | None:
        """The priced job that ended last: by it the machine has a price while nothing runs."""
        paid = [job for job in self._jobs.values() if job.spec.cost_per_hour and job.ended is not None]
        return max(paid, key=lambda job: job.ended or 0.0, default=None)

    @property
    def outputs(self) -> Path:
        """Holds one directory per job, with its output."""
        return self._directory / "jobs"

    def directory_of(self, job: Job) -> Path:
        """Where the daemon keeps what belongs to this job."""
        return self.outputs / job.id

    # Coming and going

    def register(
        self,
        spec: JobSpec,
        *,
        uid: int,
        owner: str,
        supervisor: ProcessId | None = None,
        adopt: ProcessId | None = None,
        pgid: int = 0,
        timeout_s: float | None = None,
    ) -> Registered:
        """Take a job in: one that `supervisor` is about to start, or the running process `adopt`.

        A supervisor that comes again, because the daemon was away, gets its job again.

        Raises:
            SentinelError: `adopt` is a job already.
        """
        for job in self.living():
            if supervisor is not None and job.supervisor == supervisor:
                return Registered(job, None, self._own(job), again=True)
            if adopt is not None and job.root == adopt:
                raise SentinelError(f"process {adopt.pid} is job {job.name!r} already", hint="sentinel jobs")
        now = self._clock.now()
        wanted = spec.name or default_name(spec.argv)
        job = Job(
            id=new_id("j"),
            name=self._unique(wanted),
            uid=uid,
            owner=owner,
            spec=spec,
            state=JobState.STARTING if adopt is None else JobState.RUNNING,
            since=now,
            created=now,
            attempt_started=None if adopt is None else now,
            root=adopt,
            supervisor=supervisor,
            adopted=adopt is not None,
            pgid=pgid,
            timeout_s=timeout_s if timeout_s is not None else spec.timeout_s,
        )
        job = self._change(job, "registered" if adopt is None else f"process {adopt.pid} is watched from now on")
        return Registered(job, wanted if job.name != wanted else None, self._own(job))

    def attempt_started(
        self,
        job_id: str,
        *,
        attempt: int,
        root: ProcessId,
        pgid: int = 0,
        output: tuple[str, ...] = (),
        degrade_level: int | None = None,
    ) -> Job:
        """The supervisor has started an attempt, or says again that it had."""
        job = self._known(job_id)
        state = must_step(job.name, job.state, Seen.STARTED)
        if job.root == root and job.attempt == attempt and job.output == output:
            return job
        changed = replace(
            job,
            state=state,
            attempt=attempt,
            attempt_started=self._clock.now(),
            root=root,
            pgid=pgid,
            output=output,
            degrade_level=job.degrade_level if degrade_level is None else degrade_level,
            exit_code=None,
            exit_signal=None,
            cause="",
            restarting=False,
            next_attempt=None,
        )
        return self._change(changed, f"attempt {attempt} runs as process {root.pid}")

    def attempt_ended(
        self,
        job_id: str,
        *,
        attempt: int,
        exit_code: int | None,
        exit_signal: int | None,
        at: float,
        outcome: str = "",
        reason: str = "",
        more: bool = False,
        last_lines: Sequence[str] = (),
    ) -> Job:
        """Somebody saw how the attempt ended. Saying it twice changes nothing.

        Args:
            job_id: Which job.
            attempt: Which attempt.
            exit_code: None for a signal.
            exit_signal: None for an exit code.
            at: Unix seconds.
            outcome: `preempted`, `stopped`, `timeout` or `stall` where the supervisor says so, else "".
            reason: Why no attempt follows, in words.
            more: Whether another attempt may follow a failure: the job then waits.
            last_lines: The last of its output.
        """
        job = self._known(job_id)
        if not job.alive or attempt < job.attempt:
            return job
        if more and job.state is JobState.WAITING and attempt == job.attempt:
            return job
        seen = Seen.FINISHED if exit_code == 0 else Seen.FAILED
        if exit_code is None and exit_signal is None:
            seen = Seen.VANISHED
        elif exit_signal == signal.SIGINT or exit_code == 128 + signal.SIGINT:
            seen = Seen.INTERRUPTED
        if job.restarting or (more and seen is Seen.FAILED):
            seen = Seen.BROKE_OFF
        if outcome in _SAID:
            seen = _SAID[outcome]
        how = _How(exit_code, exit_signal, at, reason, tuple(last_lines), outcome)
        return self._end(replace(job, attempt=attempt), seen, how)

    def judgement(self, job_id: str) -> Judgement | None:
        """What the last attempt's failure says about the next; None where it did not fail."""
        return self._judgements.get(job_id)

    def waits(self, job_id: str, until: float, reason: str) -> Job:
        """The supervisor begins the next attempt at `until` (Unix seconds)."""
        job = self._known(job_id)
        if job.state is not JobState.WAITING:
            return job
        return self._change(replace(job, next_attempt=until), reason)

    def vanished(self, job_id: str) -> Job:
        """Its processes are gone, and nobody saw how."""
        job = self._known(job_id)
        return self._end(job, Seen.VANISHED, _How(None, None, self._clock.now())) if job.alive else job

    def supervisor_lost(self, job_id: str) -> Job:
        """Its supervisor died; the job goes on without."""
        job = self._known(job_id)
        if job.supervisor is None or not job.alive:
            return job
        changed = replace(job, supervisor=None, adopted=True)
        self._keep(changed)
        self._publish(
            event(
                "sentinel.supervisor_lost",
                f"the supervisor of {job.name} died; the job goes on, its output is kept, and its end will be noticed, "
                "though not its exit code",
                at=self._clock.now(),
                job=job.name,
                severity=Severity.WARNING,
                uid=job.uid,
                id=job.id,
                supervisor=job.supervisor.pid,
            )
        )
        return changed

    # What was asked of it

    def paused(self, job_id: str, by: str) -> Job:
        """Its processes were stopped for a while."""
        return self._move(job_id, Seen.PAUSED, f"paused by {by}")

    def resumed(self, job_id: str, by: str) -> Job:
        """They run again."""
        return self._move(job_id, Seen.RESUMED, f"resumed by {by}")

    def restarting(self, job_id: str, by: str) -> Job:
        """Its attempt has been told to end so that the next can begin."""
        job = self._known(job_id)
        must_step(job.name, job.state, Seen.BROKE_OFF)
        changed = replace(job, restarting=True)
        self._keep(changed)
        self._publish(
            event(
                "job.restarting",
                f"{job.name}: told to end and to start anew by {by}",
                at=self._clock.now(),
                job=job.name,
                uid=job.uid,
                id=job.id,
                attempt=job.attempt,
            )
        )
        return changed

    def stopping(self, job_id: str, by: str) -> Job:
        """It has been told to end; however it ends now, it was stopped."""
        job = self._known(job_id)
        if job.state is JobState.WAITING:
            how = _How(job.exit_code, job.exit_signal, self._clock.now(), f"stopped by {by} while it waited")
            return self._end(job, Seen.STOP_ASKED, how)
        return self._move(job_id, Seen.STOP_ASKED, f"told to end by {by}")

    def may(self, job: Job, seen: Seen) -> bool:
        """Whether that can happen to the job now."""
        return step(job.state, seen) is not None

    def set_degrade_level(self, job_id: str, level: int) -> None:
        """What the job's level is from now on."""
        job = self._known(job_id)
        if job.degrade_level != level:
            self._keep(replace(job, degrade_level=level))

    # Restart

    def fold(self, record: Record) -> None:
        """Take one record of the journal, in order."""
        if record.kind == _KIND:
            job = decode(Job, record.data)
            self._jobs[job.id] = job
            self._forget()

    def snapshot(self) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The records that say all that `fold` needs."""
        for job in self._jobs.values():
            yield _KIND, encode(job)

    def _end(self, job: Job, seen: Seen, how: _How) -> Job:
        """An attempt is over, and with it the job unless another may follow."""
        state = must_step(job.name, job.state, seen)
        over = replace(job, state=state, exit_code=how.code, exit_signal=how.number)
        if state.ended:
            over = replace(over, ended=how.at, supervisor=None, next_attempt=None, restarting=False)
        if job.past and job.past[-1].attempt == job.attempt:  # the attempt was told before; now the job is over too
            cause = "; ".join(part for part in (job.cause, how.reason) if part)
            return self._change(replace(over, cause=cause), cause)
        evidence = Evidence()
        try:
            evidence = replace(self._evidence(over), last_lines=how.last_lines)
            cause = failures.explain(over, evidence)
        except Exception as fault:  # a fault in looking for the cause must not hide the end
            cause = f"{failures.explain(over, Evidence())} (looking for the cause failed: {fault})"
        cause = "; ".join(part for part in (_BY_US.get(how.outcome, ""), cause, how.reason) if part)
        failed = state in {JobState.FAILED, JobState.WAITING, JobState.LOST} and not job.restarting
        judgement = failures.judge(over, evidence) if failed else None
        if judgement is not None:
            self._judgements[job.id] = judgement
        else:
            self._judgements.pop(job.id, None)
        over = replace(over, cause=cause)
        if job.attempt_started is not None:
            past = bill.past(
                replace(over, restarting=job.restarting),
                started=job.attempt_started,
                ended=how.at,
                kept=evidence.kept or Kept(),
                verdict=judgement.verdict.value if judgement else "",
                error=judgement.error if judgement else "",
                gpus=job.spec.gpus or evidence.gpus,
            )
            over = replace(over, past=(*job.past, past)[-_PAST_KEPT:])
        return self._change(over, cause)

    def _move(self, job_id: str, seen: Seen, words: str) -> Job:
        job = self._known(job_id)
        state = must_step(job.name, job.state, seen)
        return job if state is job.state else self._change(replace(job, state=state), words)

    def _change(self, job: Job, words: str) -> Job:
        """Write the new state down, then tell."""
        job = replace(job, since=self._clock.now())
        self._keep(job)
        loud = job.state in {JobState.FAILED, JobState.LOST}
        self._publish(
            event(
                f"job.{job.state.value}",
                f"{job.name}: {words}",
                at=job.since,
                job=job.name,
                severity=Severity.WARNING if loud else Severity.INFO,
                uid=job.uid,
                id=job.id,
                attempt=job.attempt,
                pid=job.root.pid if job.root else None,
                exit_code=job.exit_code,
                exit_signal=_signal_name(job.exit_signal),
                cause=job.cause or None,
            )
        )
        return job

    def _keep(self, job: Job) -> None:
        try:
            self._journal.append(_KIND, encode(job))
            self._unjournalled = False
        except JournalUnavailable as fault:
            # Knowing a job does it no harm; what is done to it is journalled by whoever does it.
            if not self._unjournalled:
                self._unjournalled = True
                self._publish(
                    event(
                        "store.journal_unavailable",
                        f"changes of jobs are not written down: {fault.message}",
                        at=self._clock.now(),
                        severity=Severity.CRITICAL,
                    )
                )
        self._jobs[job.id] = job
        self._forget()

    def _forget(self) -> None:
        ended = [job for job in self._jobs.values() if not job.alive]
        for job in ended[: max(0, len(ended) - _KEPT)]:
            del self._jobs[job.id]
            self._judgements.pop(job.id, None)

    def _known(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None:
            raise UnknownJob(f"there is no job {job_id!r}", hint="sentinel jobs")
        return job

    def _unique(self, wanted: str) -> str:
        taken = {job.name for job in self.living()}
        if wanted not in taken:
            return wanted
        number = 2
        while f"{wanted}-{number}" in taken:
            number += 1
        return f"{wanted}-{number}"

    def _own(self, job: Job) -> str:
        return str(self.directory_of(job)) if job.uid == os.getuid() else ""


def _signal_name(number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
