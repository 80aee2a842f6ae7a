"""Which alerts come in one message, and when it goes: pure functions over groups.

    first alert ──group_wait──▶ message ──group_interval──▶ message …
    (critical: at once)          │
                                 └─ all resolved: the message that says so, at once

What still fires after repeat_interval is told again. An alert that ends before
it was told is never mentioned, and one that ends because its job does is told by
the message about the job's end, where that goes to the same people.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sentinel.model.alerts import Alert, AlertState
from sentinel.notify.settings import Route

CRITICAL = "critical"
UNANSWERED_PAUSE_S = 30.0
"""The least time between a critical message and the one that says that the job did not help itself."""


@dataclass(frozen=True, slots=True)
class Member:
    """One alert of a group.

    Attributes:
        alert: As last heard.
        told: Whether people know that it fires.
        limit: The threshold in its expression, where one could be read, else "".
        ended: Why it ended (ended, went_dark, job_ended, …), or "".
    """

    alert: Alert
    told: bool = False
    limit: str = ""
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts that are told together to one receiver.

    Attributes:
        id: The receiver and the labels they agree in.
        receiver: Name of a configured receiver, or `job:ID`.
        members: Firing ones, and resolved ones that people still believe to fire.
        flushed: When the last message was made, or None (Unix seconds).
        due: When the next is due, or None.
        serial: How many were made.
        letters: Of the last message.
        unanswered: Whether a job did not do what it was asked, and people do not know yet.
    """

    id: str
    receiver: str
    members: tuple[Member, ...] = ()
    flushed: float | None = None
    due: float | None = None
    serial: int = 0
    letters: tuple[str, ...] = ()
    unanswered: bool = False


Occasion = Literal["news", "unanswered", "repeat"]
"""Why a message is made: an alert began or ended; a job did not do what it was asked; nothing changed for long."""


@dataclass(frozen=True, slots=True)
class Bulletin:
    """What one message of a group says, and why it is made."""

    firing: tuple[Member, ...]
    resolved: tuple[Member, ...]
    occasion: Occasion = "news"


def group_id(receiver: str, alert: Alert, route: Route) -> str:
    """The group an alert belongs to at a receiver."""
    agreed = "\x1f".join(f"{name}={alert.labels.get(name, '')}" for name in route.group_by)
    return f"{receiver}\x1e{agreed}"


def hear(group: Group, alert: Alert, at: float, route: Route, *, limit: str = "", ended: str = "") -> Group:
    """Take in what has become of one alert.

    Args:
        group: As it stands.
        alert: As it is now.
        at: Now (Unix seconds).
        route: How often to speak.
        limit: The threshold of its rule, where known.
        ended: Why it ended.
    """
    known = {member.alert.id: member for member in group.members}
    before = known.get(alert.id)
    if alert.state is AlertState.FIRING:
        known[alert.id] = Member(alert, before.told if before else False, limit or (before.limit if before else ""))
        if before is not None and before.told:
            return _scheduled(replace(group, members=tuple(known.values())), at, route)
        return _sooner(replace(group, members=tuple(known.values())), _first(group, alert, at, route))
    if before is None:
        return group
    if not before.told:
        del known[alert.id]
    else:
        known[alert.id] = replace(before, alert=alert, ended=ended)
    return _scheduled(replace(group, members=tuple(known.values())), at, route)


def flush(group: Group, at: float, route: Route, silenced: frozenset[str]) -> tuple[Group, Bulletin | None]:
    """What a group has to say when it is due, and the group afterwards.

    Args:
        group: As it stands.
        at: Now (Unix seconds).
        route: How often to speak.
        silenced: Ids of alerts that are silenced now: they are held back, not forgotten.
    """
    firing = tuple(m for m in group.members if m.alert.state is AlertState.FIRING and m.alert.id not in silenced)
    held = tuple(m for m in group.members if m.alert.state is AlertState.FIRING and m.alert.id in silenced)
    over = tuple(m for m in group.members if m.alert.state is not AlertState.FIRING)
    fresh = any(not member.told for member in firing)
    repeated = bool(firing) and group.flushed is not None and at - group.flushed >= route.repeat_interval_s
    unanswered = bool(firing) and group.unanswered
    kept = (*(replace(member, told=True) for member in firing), *held)
    if not fresh and not over and not repeated and not unanswered:
        untold = any(not member.told for member in held)
        repeat = None if group.flushed is None else group.flushed + route.repeat_interval_s
        later = repeat if repeat is not None and repeat > at and not untold else at + route.group_interval_s
        return replace(group, due=later if kept else None, unanswered=False), None
    due = at + route.repeat_interval_s if firing else at + route.group_interval_s if held else None
    spoken = replace(group, members=kept, flushed=at, due=due, serial=group.serial + 1, unanswered=False)
    occasion: Occasion = "news" if fresh or over else "unanswered" if unanswered else "repeat"
    return spoken, Bulletin(firing, over, occasion)


def stir(group: Group, alert_id: str, at: float, route: Route) -> Group:
    """A job did not do what it was asked because of an alert that people know to fire: they have to step in."""
    concerned = [m for m in group.members if m.alert.id == alert_id and m.told and m.alert.state is AlertState.FIRING]
    if not concerned or group.flushed is None or group.unanswered:
        return group
    pause = route.group_interval_s
    if any(member.alert.severity == CRITICAL for member in concerned):
        pause = min(pause, UNANSWERED_PAUSE_S)
    return _sooner(replace(group, unanswered=True), max(at, group.flushed + pause))


def forget(group: Group, alert_id: str) -> Group:
    """The group without one alert, of whose end it has nothing to say."""
    left = tuple(member for member in group.members if member.alert.id != alert_id)
    return replace(group, members=left, due=group.due if left else None)


def finished(group: Group, at: float, route: Route) -> bool:
    """Whether a group can be forgotten; it is remembered for a while, so that what flaps is not told at once."""
    return not group.members and (group.flushed is None or at - group.flushed >= route.group_interval_s)


def _first(group: Group, alert: Alert, at: float, route: Route) -> float:
    if group.flushed is not None:
        return max(at, group.flushed + route.group_interval_s)
    return at if alert.severity == CRITICAL else at + route.group_wait_s


def _scheduled(group: Group, at: float, route: Route) -> Group:
    """After something ended, or went on: say so at once where nothing is left, else at the group's pace."""
    over = [member for member in group.members if member.alert.state is not AlertState.FIRING]
    if not group.members:
        return replace(group, due=None)
    if len(over) == len(group.members):
        return replace(group, due=at)
    if over and group.flushed is not None:
        return _sooner(group, max(at, group.flushed + route.group_interval_s))
    return group


def _sooner(group: Group, at: float) -> Group:
    return replace(group, due=at if group.due is None else min(group.due, at))
