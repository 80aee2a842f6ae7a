"""Walks the chains: what a rule asks because of an alert, one step after another.

Hooks that wait for no request start at once, beside the chain.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from sentinel.actions import chain as chains
from sentinel.actions import hooks, telling
from sentinel.actions.addressing import addressed
from sentinel.actions.chain import Because, Chain, End, Go, Reached, Wait
from sentinel.actions.desk import Desk
from sentinel.actions.gates import Gate, Verdict
from sentinel.actions.hooks import Distrust, HookRun, RunHook
from sentinel.model.alerts import ActionSpec, After, Alert, AlertState, On, RuleSpec
from sentinel.model.events import Severity, event
from sentinel.model.jobs import Job
from sentinel.model.requests import Answer, RequestKind
from sentinel.model.wire import encode

Alerts = dict[str, tuple[Alert, RuleSpec | None]]
_STANDS_FOR = {
    Gate.NO_CHANNEL: Reached.SKIPPED,
    Gate.LOWEST: Reached.FAILED,
    Gate.NOT_DEGRADED: Reached.FAILED,
    Gate.OBSERVE: Reached.PRETENDED,
    Gate.DRY_RUN: Reached.PRETENDED,
}
_PLAIN = frozenset({Because.FIRST, Because.ACKNOWLEDGED, Because.DONE, Because.ANY, Because.FAILED})


class Runner:
    """Begins chains and advances them.

    Args:
        desk: Makes the requests.
        alerts: The pending and firing alerts with their rules, kept by the dispatcher.
        run_hook: Starts a hook.
        distrust: Why a hook must not be started, or None.
    """

    def __init__(self, desk: Desk, alerts: Alerts, run_hook: RunHook, distrust: Distrust) -> None:
        self._desk = desk
        self._alerts = alerts
        self._run_hook = run_hook
        self._distrust = distrust

    def begin(self, alert: Alert, rule: RuleSpec | None, on: On, at: float) -> None:
        """Begin what a rule does at this transition, unless this very occasion has begun already."""
        if rule is None:
            return
        steps = [action for action in rule.actions if action.on is on]
        for index, step in enumerate(steps):
            waits = step.after in {After.DONE, After.FAILED} and any(s.request for s in steps[:index])
            if step.run and not waits:
                self._start_hook(f"{chains.occasion(alert, 'hook', on)}/{index}", step, alert, rule, at)
        targets: dict[str, Job] = {}
        asked: dict[str, list[ActionSpec]] = {}
        for step in steps:
            if step.request is None:
                if step.after in {After.DONE, After.FAILED}:
                    for known in asked.values():
                        known.append(step)
                continue
            for job in self.addressed(alert, step, rule):
                targets[job.id] = job
                asked.setdefault(job.id, []).append(step)
        for job_id, own in asked.items():
            name = chains.occasion(alert, job_id, on)
            if name in self._desk.book.chains:
                continue
            job = targets[job_id]
            begun = Chain(
                id=name,
                rule=rule.name,
                rule_uid=rule.uid,
                alert=alert.id,
                job_id=job.id,
                job=job.name,
                attempt=job.attempt,
                summary=self._desk.clean(alert.annotation("summary") or rule.name),
                steps=tuple(own),
                begun=at,
                left_s=chains.forecast_s(rule, alert),
                on=on,
            )
            self._advance(begun, at)

    def advance(self, at: float) -> None:
        """Let every open chain take the steps that are due."""
        for name in [chain.id for chain in self._desk.book.chains.values() if chain.open]:
            self._advance(self._desk.book.chains[name], at)
        for chain in [chain for chain in self._desk.book.chains.values() if self._goes_on(chain, at)]:
            again = replace(chain, id=chains.next_round(chain.id), position=0, last="", reached=None, asked=0.0)
            self._advance(replace(again, begun=at, ended=None, because=Because.FIRST, left_s=None), at)

    def _goes_on(self, chain: Chain, at: float) -> bool:
        """Whether a chain is walked again.

        It is when its alert outlasts the job's start-up, or when it outlasts the cooldown and the job can
        go down another level.
        """
        if self._waits_for_start(chain):
            return self._desk.control.has_progressed(chain.job_id)
        if chain.because is not Because.COMPLETE or chain.on is not On.FIRING or not self._alert_open(chain):
            return False
        if chains.next_round(chain.id) in self._desk.book.chains:
            return False
        step = next((step for step in chain.steps if step.request is RequestKind.DEGRADE), None)
        job = self._desk.control.find(chain.job_id)
        last = self._desk.book.last_by(f"rule:{chain.rule}", chain.job_id, RequestKind.DEGRADE)
        if step is None or last is None or job is None or not job.alive or last.created < chain.begun:
            return False
        heard = last.acknowledged is not None or last.answer is Answer.UNKNOWN
        lower = self._desk.book.ladder(job.id).level < job.spec.degrade_levels
        return heard and lower and at >= last.created + step.cooldown_s

    def _waits_for_start(self, chain: Chain) -> bool:
        """Whether all that stood in the way was the job's start-up, and the alert still fires."""
        last = self._desk.book.requests.get(chain.last)
        barred = last is not None and last.detail.startswith(f"{Gate.START_UP.value}:")
        fresh = chains.next_round(chain.id) not in self._desk.book.chains
        return barred and not chain.open and fresh and chain.on is On.FIRING and self._alert_open(chain)

    def _advance(self, chain: Chain, at: float) -> None:
        while chain.open:
            last = self._desk.book.requests.get(chain.last)
            decided = chains.move(chain, last, alert_open=self._alert_open(chain), at=at)
            job = self._desk.control.find(chain.job_id)
            if chain.position and isinstance(decided, Go) and (job is None or not job.alive):
                decided = End(Because.JOB_ENDED)
            match decided:
                case Wait():
                    return
                case End(because):
                    chain = replace(chain, ended=at, because=because)
                    self._desk.ledger.write("chain", encode(chain))
                    self._say_end(chain, at)
                case Go(because) if job is not None:
                    chain = self._take(chain, job, because, at)
                case Go():
                    return

    def _take(self, chain: Chain, job: Job, because: Because, at: float) -> Chain:
        """Take the next step of a chain; the record of the step holds the chain's new position as well."""
        step = chain.steps[chain.position]
        following = replace(chain, position=chain.position + 1, asked=at, because=because, reached=None)
        if step.request is None:
            following = replace(following, last=f"{chain.id}/{chain.position}", reached=Reached.ACKNOWLEDGED)
            self._desk.ledger.write("chain", encode(following))
            alert, rule = self._alerts.get(chain.alert, (None, None))
            if alert is not None and rule is not None:
                self._start_hook(following.last, step, alert, rule, at)
            return following
        reason = chain.summary if because is not Because.HALF_FORECAST else f"{chain.summary}; no time to wait longer"
        by = f"rule:{chain.rule}"
        draft = self._desk.draft(job, step.request, reason, by=by, alert=chain.alert, timeout_s=step.timeout_s, at=at)
        if because not in _PLAIN:
            draft = replace(draft, detail=because.value)
        alert, _ = self._alerts.get(chain.alert, (None, None))
        verdict = self._desk.judge(job, step.request, at, step=step, chain=chain, alert=alert)
        following = replace(following, last=draft.id)
        if verdict is not None:
            stand_in = self._stand_in(verdict, by, job, step.request, at)
            reached = None if stand_in else _STANDS_FOR.get(verdict.gate, Reached.BARRED)
            following = replace(following, last=stand_in or draft.id, reached=reached)
        self._desk.plan(draft, verdict, chain=following, restore_after_s=step.restore_after_s)
        return self._desk.book.chains[following.id]

    def _stand_in(self, verdict: Verdict, by: str, job: Job, kind: RequestKind, at: float) -> str | None:
        """A request already made that answers for the one barred: the step counts as far as that one came."""
        if verdict.gate is Gate.ALREADY_OPEN:
            other = self._desk.book.open_like(job.id, kind)
        elif verdict.gate is Gate.COOLING_DOWN:
            other = self._desk.book.last_by(by, job.id, kind)
        elif verdict.gate is Gate.FRESH:
            other = self._desk.fresh(job, kind, at)
        else:
            return None
        return other.id if other is not None else None

    def _alert_open(self, chain: Chain) -> bool:
        if chain.on is On.RESOLVED:
            return True
        alert, _ = self._alerts.get(chain.alert, (None, None))
        return (
            alert is not None
            and alert.state is AlertState.FIRING
            and chains.occasion(alert, chain.job_id, chain.on) == chains.of_occasion(chain.id)
        )

    def _say_end(self, chain: Chain, at: float) -> None:
        if chain.because in {Because.COMPLETE, Because.ALERT_ENDED, Because.JOB_ENDED, Because.BARRED}:
            return
        left = [step.request.value for step in chain.steps[chain.position :] if step.request]
        text = (
            f"{chain.rule} asks {chain.job} no further ({chain.because.value}); left out: {', '.join(left) or 'a hook'}"
        )
        self._desk.publish(
            event("sentinel.chain", text, at=at, job=chain.job, severity=Severity.WARNING, chain=chain.id)
        )

    def _start_hook(self, name: str, step: ActionSpec, alert: Alert, rule: RuleSpec, at: float) -> None:
        if name in self._desk.book.hooks:
            return
        hook = HookRun(name, rule.name, alert.id, alert.job, step.run, at)
        barred = self._hook_barred(step, alert, rule)
        if barred is None and not self._desk.ledger.write("hook", encode(hook)):
            barred = f"{Gate.UNJOURNALLED.value}: the journal cannot be written"
        if barred is not None:
            self.close_hook(hook, None, barred, at)
            return
        self._desk.publish(telling.hook_event(hook, at=at))
        self._desk.task(self._hook(hook, alert))

    def _hook_barred(self, step: ActionSpec, alert: Alert, rule: RuleSpec) -> str | None:
        if self._desk.settings.observe:
            return f"{Gate.OBSERVE.value}: the daemon only observes"
        if (silence := self._desk.silences.covering(alert)) is not None:
            return f"{Gate.SILENCED.value}: silence {silence} covers the alert"
        if rule.uid is not None and rule.uid != os.getuid():
            return f"{Gate.NOT_YOURS.value}: a rule of another user starts nothing here"
        return self._distrust(step.run)

    async def _hook(self, hook: HookRun, alert: Alert) -> None:
        ended = await self._run_hook(
            hook.argv, hooks.environment(alert, hook.job), hooks.stdin(alert), self._desk.settings.hook_timeout_s
        )
        self.close_hook(hook, ended.code, ended.output, self._desk.clock.now())

    def close_hook(self, hook: HookRun, code: int | None, detail: str, at: float) -> None:
        """Say how a hook ended, and write it down."""
        closed = replace(hook, closed=at, code=code, detail=self._desk.clean(detail))
        self._desk.ledger.write("hook", encode(closed))
        self._desk.publish(telling.hook_event(closed, at=at))

    def addressed(self, alert: Alert, step: ActionSpec, rule: RuleSpec) -> Sequence[Job]:
        """The jobs that one action of a rule asks because of this alert."""
        control = self._desk.control
        return addressed(alert, step, rule, living=control.living(), find=control.find, on_gpu=control.on_gpu)
