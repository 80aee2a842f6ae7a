"""What can be set about telling people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Receiver:
    """Somebody to tell, by name.

    Attributes:
        name: Unique.
        urls: Addresses in apprise's form; they hold secrets and are never stored or shown.
    """

    name: str
    urls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """Who hears of alerts, and how often.

    Attributes:
        receiver: Name of a receiver; "" means nobody but the jobs' own.
        group_by: Alerts that agree in these labels come in one message.
        group_wait_s: How long a new group collects alerts before its first
            message; one with a critical alert does not wait.
        group_interval_s: The least time between two messages of one group.
        repeat_interval_s: When what still fires is told again.
    """

    receiver: str = ""
    group_by: tuple[str, ...] = ("alertname", "job")
    group_wait_s: float = 30.0
    group_interval_s: float = 300.0
    repeat_interval_s: float = 14_400.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Receivers, the route, and how hard to try.

    Attributes:
        receivers: All that are known.
        route: Who hears of alerts.
        timeout_s: For one attempt to reach one address.
        give_up_s: How old a message becomes before it is given up.
        idle_s: How long the child that speaks to the outside lives without work.
        remembered_s: How long delivered messages are remembered.
    """

    receivers: tuple[Receiver, ...] = ()
    route: Route = Route()
    timeout_s: float = 30.0
    give_up_s: float = 86_400.0
    idle_s: float = 60.0
    remembered_s: float = 86_400.0

    def receiver(self, name: str) -> Receiver | None:
        """The receiver of that name, or None."""
        return next((receiver for receiver in self.receivers if receiver.name == name), None)
