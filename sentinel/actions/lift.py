"""Gives levels back: keeps the account of who still holds a degrade, and asks for a restore when it is quiet."""

from __future__ import annotations

from dataclasses import replace

from sentinel.actions import restore
from sentinel.actions.desk import Desk
from sentinel.actions.gates import Gate
from sentinel.actions.runner import Alerts, Runner
from sentinel.model.alerts import On
from sentinel.model.requests import RequestKind
from sentinel.model.wire import encode

BY_SENTINEL = "sentinel"
RESTORE_TIMEOUT_S = 60.0


class Lift:
    """The way back up, for all jobs.

    Args:
        desk: Makes the requests.
        runner: Knows whom an action is about.
        alerts: The pending and firing alerts with their rules.
    """

    def __init__(self, desk: Desk, runner: Runner, alerts: Alerts) -> None:
        self._desk = desk
        self._runner = runner
        self._alerts = alerts

    def hold(self, at: float) -> None:
        """Keep the ladders' account of who still holds a degrade on a job."""
        for ladder in [ladder for ladder in self._desk.book.ladders.values() if ladder.level > 0]:
            following = restore.held(ladder, held=self._holds(ladder.job_id), at=at)
            if following is not ladder:
                self._desk.ledger.write("degrade", encode(following))

    def _holds(self, job_id: str) -> bool:
        return any(
            job.id == job_id
            for alert, rule in self._alerts.values()
            if rule is not None
            for step in rule.actions
            if step.request is RequestKind.DEGRADE and step.on is On.FIRING
            for job in self._runner.addressed(alert, step, rule)
        )

    def restore(self, at: float) -> None:
        """Ask each job for a level whose quiet period is over."""
        for ladder in list(self._desk.book.ladders.values()):
            job = self._desk.control.find(ladder.job_id)
            if job is None or not job.alive:
                if job is None or job.state.ended:
                    self._desk.book.forget_job(ladder.job_id)
                continue
            if not restore.due(ladder, at) or self._desk.book.open_like(job.id, RequestKind.RESTORE):
                continue
            quiet = at - (ladder.quiet_since or at)
            reason = f"quiet for {quiet:.0f} s"
            kind = RequestKind.RESTORE
            draft = self._desk.draft(job, kind, reason, by=BY_SENTINEL, alert=None, timeout_s=RESTORE_TIMEOUT_S, at=at)
            verdict = self._desk.judge(job, kind, at)
            if verdict is not None:
                never = verdict.gate is Gate.NO_CHANNEL
                later = replace(restore.put_off(ladder, at), wait_s=None if never else ladder.wait_s)
                self._desk.ledger.write("degrade", encode(later))
            self._desk.plan(draft, verdict)
