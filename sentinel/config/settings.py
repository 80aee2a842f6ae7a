"""All settings of a daemon: those of each room, and what is said about jobs that it should adopt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sentinel.actions.settings import Settings as Actions
from sentinel.collectors.settings import Settings as Sampling
from sentinel.jobs.settings import Settings as Jobs
from sentinel.model.jobs import JobSpec
from sentinel.notify.settings import Settings as Notify
from sentinel.server.settings import Settings as Api
from sentinel.store.settings import Settings as Store


@dataclass(frozen=True, slots=True)
class Adoption:
    """A running or future process that becomes a job without `sentinel run`.

    Attributes:
        spec: What is said about it; `argv` is empty, since the process brings its own.
        cmdline: A regular expression (RE2) found anywhere in its command line; "" fits all.
        user: The name of its user; "" fits all.
    """

    spec: JobSpec
    cmdline: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is in force.

    Attributes:
        file: Where it was read from; None: nowhere, all are defaults.
        mode: `act` or `observe`.
        rules: Rule files, absolute paths and globs, added to the shipped pack.
        shipped_rules: Whether the shipped pack is in force.
        patterns: Files of log patterns, absolute paths and globs.
        adoptions: The list `jobs` of the file.
        sampling: Of the collectors' room.
        actions: Of the actions' room; `observe` follows `mode`.
        jobs: Of the jobs' room.
        notify: Of the notify room.
        store: Of the store's room.
        api: Of the server's room.
        origins: Where each value that is no default stands, by its path (`store.retention.raw`).
    """

    file: Path | None = None
    mode: str = "act"
    rules: tuple[str, ...] = ()
    shipped_rules: bool = True
    patterns: tuple[str, ...] = ()
    adoptions: tuple[Adoption, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    actions: Actions = field(default_factory=Actions)
    jobs: Jobs = field(default_factory=Jobs)
    notify: Notify = field(default_factory=Notify)
    store: Store = field(default_factory=Store)
    api: Api = field(default_factory=Api)
    origins: Mapping[str, str] = field(default_factory=dict)
