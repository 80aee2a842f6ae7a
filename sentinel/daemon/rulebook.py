"""Which rules are in force: the shipped pack, the configured files, and those that jobs bring along."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from sentinel.errors import Problem, Problems
from sentinel.model.alerts import RuleSpec
from sentinel.model.jobs import Job
from sentinel.paths import shipped
from sentinel.rules.loader import Options, load
from sentinel.rules.ruleset import RuleSet


class Rulebook:
    """Reads rule files, all or nothing.

    Args:
        files: Paths and globs from the configuration.
        use_shipped: Whether the shipped pack is in force.
        trusted_only: Whether only root's files, writable by nobody else, are read (a root daemon's rule).
    """

    def __init__(self, files: Sequence[str], *, use_shipped: bool, trusted_only: bool) -> None:
        self._files = tuple(files)
        self._use_shipped = use_shipped
        self._trusted_only = trusted_only
        self._base = RuleSet()
        self._of_jobs: dict[str, RuleSet] = {}

    def read(self) -> RuleSet:
        """The base anew from its files; what jobs brought stays.

        Raises:
            Problems: Everything that is wrong; what was in force stays in force.
        """
        pack = load([shipped("rules")]) if self._use_shipped else RuleSet()
        own = load(self._own()) if self._files else RuleSet()
        self._base = pack.overridden_by(own)
        return self.all()

    def take(self, fresh: Rulebook) -> None:
        """Take over what another one has read; what jobs brought stays."""
        self._files, self._use_shipped, self._base = fresh._files, fresh._use_shipped, fresh._base

    def add(self, job: Job) -> RuleSet:
        """The rules that a job brings along: they are about that job alone."""
        self._of_jobs[job.id] = load(list(job.spec.rules), Options(uid=job.uid, job_id=job.id))
        return self.all()

    def drop(self, job: Job) -> RuleSet | None:
        """The job has ended; None where it had brought none."""
        return self.all() if self._of_jobs.pop(job.id, None) is not None else None

    def all(self) -> RuleSet:
        """What is in force."""
        rules = self._base
        for brought in self._of_jobs.values():
            rules = rules.with_(brought)
        return rules

    def _own(self) -> list[Path | str]:
        found: list[Path | str] = []
        problems: list[Problem] = []
        for pattern in self._files:
            paths = sorted(glob(os.path.expanduser(pattern)))
            if not paths and "*" not in pattern:
                problems.append(Problem(pattern, 0, 0, "no such rule file", "check `rules:` in the configuration"))
            for path in paths:
                if self._trusted_only and (reason := untrusted(path)):
                    problems.append(Problem(path, 0, 0, reason, "chown root and chmod go-w it"))
                found.append(path)
        if problems:
            raise Problems(problems)
        return found


def untrusted(path: str) -> str:
    """Why a root daemon must not believe this file; "" where it may."""
    found = os.stat(path)
    if found.st_uid != 0:
        return "a root daemon reads only files of root, and this one is not"
    return "a root daemon reads only files that nobody else can write to" if found.st_mode & 0o022 else ""


def sees(rule: RuleSpec, jobs: Sequence[Job]) -> list[str] | None:
    """The names of the jobs whose series a rule may read; None: everything."""
    if rule.job_id is not None:
        return [job.name for job in jobs if job.id == rule.job_id]
    if rule.uid is not None:
        return [job.name for job in jobs if job.uid == rule.uid]
    return None
