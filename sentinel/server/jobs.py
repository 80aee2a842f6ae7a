"""`/v1/jobs` and `/v1/requests`: what supervisors say, what people ask, what jobs answer."""

from __future__ import annotations

import os
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sentinel.errors import UsageError, nearest
from sentinel.logs.masking import mask
from sentinel.model.jobs import Job, JobSpec, ProcessId
from sentinel.model.requests import Request as JobRequest
from sentinel.model.requests import RequestKind
from sentinel.model.wire import decode, encode
from sentinel.server.access import Viewer, user_name
from sentinel.server.core import Core, Owner
from sentinel.server.respond import HttpError, Parameters, answer, field, object_of, viewer_of
from sentinel.system.processes import read_stat

PROTOCOL = 1
"""Of the supervisor's side of this API. It only grows, so one number is enough."""
_LONGEST_WAIT_S = 600.0
_LONGEST_REQUEST_S = 86400.0
_SAID = ("timeout_near", "stall_near", "hook_failed")
_ANSWERS = ("acknowledged", "done", "refused", "failed")


def routes(core: Core) -> list[Route]:
    """Of jobs and requests."""
    here = _Jobs(core)
    return [
        Route("/v1/jobs", here.list),
        Route("/v1/jobs", here.register, methods=["POST"]),
        Route("/v1/jobs/{job}", here.show),
        Route("/v1/jobs/{job}/attempts", here.attempt, methods=["POST"]),
        Route("/v1/jobs/{job}/end", here.end, methods=["POST"]),
        Route("/v1/jobs/{job}/hand", here.hand, methods=["POST"]),
        Route("/v1/jobs/{job}/waiting", here.waiting, methods=["POST"]),
        Route("/v1/jobs/{job}/said", here.said, methods=["POST"]),
        Route("/v1/jobs/{job}/room", here.room),
        Route("/v1/report", here.report),
        Route("/v1/jobs/{job}/requests", here.ask, methods=["POST"]),
        Route("/v1/requests", here.requests),
        Route("/v1/requests/{request}", here.request),
        Route("/v1/requests/{request}", here.answer, methods=["POST"]),
    ]


def job_object(core: Core, job: Job) -> dict[str, Any]:
    """A job as the API shows it: its fields without secrets, and what is measured of it."""
    made: dict[str, Any] = encode(job)
    spec = made["spec"]
    spec["notify"] = [_masked_url(url) for url in spec["notify"]]
    spec["argv"] = [mask(word) for word in spec["argv"]]
    made.update(encode(dict(core.job_view(job))))
    return made


class _Jobs:
    def __init__(self, core: Core) -> None:
        self._core = core

    async def list(self, request: Request) -> Response:
        """Living jobs; with `all=1` also those that have ended and are still remembered."""
        viewer, parameters = viewer_of(request), await Parameters.of(request)
        found = self._core.jobs(ended=parameters.flag("all"))
        return answer([job_object(self._core, job) for job in found if viewer.sees(job)])

    async def show(self, request: Request) -> Response:
        """One job."""
        return answer(job_object(self._core, self._job(request)))

    async def register(self, request: Request) -> Response:
        """Take a job in."""
        viewer, data = viewer_of(request), await object_of(request)
        if viewer.uid is None:
            raise HttpError(403, "over TCP the API only reads")
        protocol = field(data, "protocol", int, PROTOCOL)
        if protocol > PROTOCOL:
            raise HttpError(
                409,
                f"this supervisor speaks protocol {protocol}, this daemon {PROTOCOL}",
                hint="restart the daemon: a newer sentinel has been installed",
            )
        spec = decode(JobSpec, field(data, "spec", dict, {}))
        supervisor, adopt = _process(data, "supervisor"), _process(data, "adopt")
        if (supervisor is None) == (adopt is None):
            raise UsageError("a job has either a supervisor or a process to adopt")
        for process in (supervisor, adopt):
            if process is not None:
                _check_owner(process, viewer)
        made = await self._core.register(
            spec, owner=Owner(viewer.uid, user_name(viewer.uid)), supervisor=supervisor, adopt=adopt
        )
        return answer(
            {
                "job": encode(made.job),
                "renamed_from": made.renamed_from,
                "directory": made.directory,
                "resume_from": made.resume_from,
                "socket": _socket_of(request),
                "handover": made.handover,
                "hand": made.hand,
                "facts": encode(dict(made.facts)),
                "protocol": PROTOCOL,
            },
            201,
        )

    async def attempt(self, request: Request) -> Response:
        """The supervisor has started an attempt."""
        job, data = self._own(request), await object_of(request)
        root = _process(data, "root")
        if root is None:
            raise UsageError("an attempt has a `root` process")
        if self._core.system:
            _check_owner(root, viewer_of(request), job.supervisor)
        outputs = field(data, "output", list, [])
        changed = await self._core.attempt_started(
            job,
            attempt=field(data, "attempt", int, job.attempt),
            root=root,
            pgid=field(data, "pgid", int, 0),
            output=tuple(str(path) for path in outputs),
            degrade_level=field(data, "degrade_level", int),
        )
        return answer(encode(changed))

    async def end(self, request: Request) -> Response:
        """The supervisor has seen an attempt end."""
        job, data = self._own(request), await object_of(request)
        changed = await self._core.attempt_ended(
            job,
            attempt=field(data, "attempt", int, job.attempt),
            exit_code=field(data, "exit_code", int),
            exit_signal=field(data, "exit_signal", int),
            at=field(data, "at", float, self._core.now()),
            outcome=field(data, "outcome", str, ""),
            reason=field(data, "reason", str, "")[:1000],
            more=field(data, "more", bool, False),
            last_lines=tuple(str(line)[:4096] for line in field(data, "last_lines", list, [])[-20:]),
        )
        return answer({**encode(changed), "next": await self._core.what_follows(changed)})

    async def waiting(self, request: Request) -> Response:
        """The supervisor says when the next attempt begins."""
        job, data = self._own(request), await object_of(request)
        until = field(data, "until", float, self._core.now())
        return answer(encode(self._core.waits(job, until=until, reason=field(data, "reason", str, "")[:1000])))

    async def said(self, request: Request) -> Response:
        """The supervisor has something to tell about its job."""
        job, data = self._own(request), await object_of(request)
        kind = field(data, "kind", str, "")
        if kind not in _SAID:
            raise UsageError(f"{kind!r} is nothing that a supervisor tells", hint=", ".join(_SAID))
        self._core.said(job, kind=kind, message=mask(field(data, "message", str, "")[:1000]))
        return answer({})

    async def room(self, request: Request) -> Response:
        """Whether the boards that the job ran on are free for its next attempt."""
        reason = self._core.room(self._job(request))
        return answer({"free": not reason, "reason": reason})

    async def report(self, request: Request) -> Response:
        """The bill, from `since` on (Unix seconds; by default everything that is kept)."""
        viewer, parameters = viewer_of(request), await Parameters.of(request)
        return answer(
            await self._core.report(
                since=parameters.number("since", 0.0), sees=lambda uid: viewer.everything or viewer.uid == uid
            )
        )

    async def hand(self, request: Request) -> Response:
        """The owner's hand says what it has seen and done, and is told what to do. Nobody else's business."""
        job, viewer = self._own(request), viewer_of(request)
        if viewer.uid not in {0, job.uid}:
            raise HttpError(403, f"only {job.owner} may lend {job.name!r} a hand")
        if job.uid == os.getuid():
            raise HttpError(409, f"{job.name!r} needs no hand: this daemon is its owner's own")
        return answer(encode(dict(await self._core.hand(job, await object_of(request)))))

    async def ask(self, request: Request) -> Response:
        """Ask the job something; answers once the request is closed, or `wait` seconds have passed."""
        job, data = self._own(request), await object_of(request)
        text = field(data, "request", str, "")
        try:
            kind = RequestKind(text)
        except ValueError:
            raise UsageError(
                f"{text!r} is nothing that can be asked", hint=", ".join(kind.value for kind in RequestKind)
            ) from None
        timeout = field(data, "timeout_seconds", float, 60.0)
        if not 0 < timeout <= _LONGEST_REQUEST_S:
            raise UsageError("`timeout_seconds` must be more than 0 and a day at most")
        viewer = viewer_of(request)
        asked = await self._core.ask(
            job,
            kind,
            by=viewer.by,
            reason=field(data, "reason", str, "")[:1000] or f"{viewer.name} asked for it",
            timeout_s=timeout,
            wait_s=min(max(0.0, field(data, "wait", float, 0.0)), _LONGEST_WAIT_S),
        )
        return answer(encode(asked))

    async def requests(self, request: Request) -> Response:
        """The requests remembered, oldest first; with `job=` of one job."""
        viewer, parameters = viewer_of(request), await Parameters.of(request)
        wanted = parameters.get("job")
        found = self._core.requests(self._visible(viewer, wanted).id if wanted else None)
        return answer([encode(each) for each in found if self._sees(viewer, each)])

    async def request(self, request: Request) -> Response:
        """One request."""
        return answer(encode(self._request(request)))

    async def answer(self, request: Request) -> Response:
        """The job's own word on a request: `{"answer", "detail"}`."""
        found, data = self._request(request), await object_of(request)
        word = field(data, "answer", str, "")
        if word not in _ANSWERS:
            raise UsageError(f"{word!r} is no answer", hint=", ".join(_ANSWERS))
        return answer(encode(await self._core.answer(found, word, mask(field(data, "detail", str, "")[:4096]))))

    def _job(self, request: Request) -> Job:
        return self._visible(viewer_of(request), request.path_params["job"])

    def _own(self, request: Request) -> Job:
        """A job that the viewer may do something about: whoever sees a job by this door may."""
        viewer = viewer_of(request)
        if not viewer.controls:
            raise HttpError(403, "over TCP the API only reads")
        return self._visible(viewer, request.path_params["job"])

    def _visible(self, viewer: Viewer, name: str) -> Job:
        found = self._core.find_job(name)
        if found is not None and viewer.sees(found):
            return found
        close = nearest(name, [job.name for job in self._core.jobs(ended=True) if viewer.sees(job)])
        raise HttpError(404, f"no job {name!r}", hint=f"`{close}`" if close else "`sentinel jobs --all` lists them")

    def _request(self, request: Request) -> JobRequest:
        wanted = request.path_params["request"]
        found = self._core.find_request(wanted)
        if found is None or not self._sees(viewer_of(request), found):
            raise HttpError(404, f"no request {wanted!r}")
        return found

    def _sees(self, viewer: Viewer, request: JobRequest) -> bool:
        if viewer.everything:
            return True
        job = self._core.find_job(request.job_id)
        return job is not None and viewer.sees(job)


def _process(data: dict[str, Any], name: str) -> ProcessId | None:
    found = field(data, name, dict)
    return None if found is None else decode(ProcessId, found)


def _check_owner(process: ProcessId, viewer: Viewer, supervisor: ProcessId | None = None) -> None:
    """A process is spoken for by its own user, by root, or by its parent, the supervisor (as with sudo)."""
    try:
        uid = os.stat(f"/proc/{process.pid}").st_uid
    except OSError:
        return  # it has ended already, or lives in a namespace that we cannot see
    if viewer.uid in {0, uid}:
        return
    found = read_stat(process.pid)
    if supervisor is None or found is None or found.ppid != supervisor.pid:
        raise HttpError(403, f"process {process.pid} belongs to {user_name(uid)}")


def _socket_of(request: Request) -> str:
    server = request.scope.get("server")
    return str(server[0]) if server else ""


def _masked_url(url: str) -> str:
    """The kind of receiver only: in these URLs anything may be a secret."""
    scheme, found, _ = url.partition("://")
    return f"{scheme}://***" if found else mask(url)
