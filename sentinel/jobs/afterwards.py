"""`--on-exit`: what runs once the job is over, after a grace in which somebody may still say no."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping

from sentinel.jobs import hold, retry
from sentinel.jobs.errands import Errands
from sentinel.model.jobs import JobSpec
from sentinel.units import format_duration

_LOOK_S = 2.0
_TRIES = 3
_TERMINALS = "/dev/pts"
_COVERS = {"failed": {"failed", "gave-up"}, "finished": {"finished"}, "gave-up": {"gave-up"}}


class Afterwards:
    """Runs the commands that fit how the job ended, once each.

    Args:
        spec: What the owner declared.
        errands: Asks the daemon whether other jobs run, and tells it of a command that fails.
        say: Our words for the user.
        pause: Waits; the signal that ended the wait, or 0.
        environ: Ours, which the command gets too.
        terminals: Where terminals appear when somebody logs in.
    """

    def __init__(
        self,
        spec: JobSpec,
        errands: Errands,
        say: Callable[[str], None],
        pause: Callable[[float], int],
        environ: Mapping[str, str],
        terminals: str = _TERMINALS,
    ) -> None:
        self._spec = spec
        self._errands = errands
        self._say = say
        self._pause = pause
        self._environ = environ
        self._terminals = terminals

    def see_to(self, outcome: str, exit_code: int, checkpoint: str) -> None:
        """Wait, then run what fits.

        Args:
            outcome: finished, failed, gave-up, preempted or stopped.
            exit_code: Of the job.
            checkpoint: The newest whole checkpoint that the supervisor knows, or "".
        """
        fitting = [hook for hook in self._spec.on_exit if fits(hook.when, outcome)]
        if not fitting:
            return
        commands = ", ".join(hook.command for hook in fitting)
        grace = format_duration(self._spec.exit_grace_s)
        self._say(f"the job is over ({outcome}); runs in {grace}: {commands} (not so: `sentinel hold`, or Ctrl-C)")
        if why := self._cancelled():
            self._say(f"does not run it: {why}")
            return
        found = (self._errands.job() or {}).get("checkpoint") or {}
        given = {
            **self._environ,
            "SENTINEL_JOB_NAME": self._spec.name,
            "SENTINEL_OUTCOME": outcome,
            "SENTINEL_EXIT_CODE": str(exit_code),
            "SENTINEL_CHECKPOINT": str(found.get("path") or checkpoint),
        }
        for hook in fitting:
            self._run(hook.command, given)

    def _cancelled(self) -> str:
        """Why it should not run after all; "" once the grace is over."""
        before = self._logins()
        deadline = time.monotonic() + self._spec.exit_grace_s
        while True:
            if hold.until(self._environ) > time.time():
                return "`sentinel hold` holds it"
            if others := self._errands.others():
                return f"{others} other job{'s' if others > 1 else ''} run{'' if others > 1 else 's'} here"
            if self._logins() - before:
                return "somebody has logged in"
            left = deadline - time.monotonic()
            if left <= 0:
                return ""
            if self._pause(min(_LOOK_S, left)):
                return "interrupted"

    def _logins(self) -> set[tuple[str, int]]:
        """The terminals there are, each told apart from a later one of the same name."""
        try:
            with os.scandir(self._terminals) as entries:
                return {(entry.name, entry.stat().st_ctime_ns) for entry in entries if entry.name.isdecimal()}
        except OSError:
            return set()

    def _run(self, command: str, given: Mapping[str, str]) -> None:
        argv = shlex.split(command)
        fault = ""
        for attempt in range(_TRIES):
            if attempt and self._pause(retry.wait(attempt, 0.5)):
                return
            try:
                pid = os.posix_spawnp(argv[0], argv, given, setsigdef=[])
            except OSError as failed:
                fault = f"cannot run {argv[0]}: {failed.strerror}"
                continue
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code == 0:
                return
            fault = f"{argv[0]} ended with {code}"
        words = f"--on-exit failed {_TRIES} times: {fault}"
        self._say(words)
        self._errands.say("hook_failed", words)


def fits(when: str, outcome: str) -> bool:
    """Whether a command for `when` runs after `outcome`; one without a condition always does."""
    return not when or outcome in _COVERS[when]
