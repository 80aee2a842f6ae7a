"""The API as one ASGI application, and the way to serve it in the daemon's own event loop."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sentinel.errors import SentinelError, UsageError
from sentinel.model.journal import JournalUnavailable
from sentinel.model.wire import WireError
from sentinel.server import jobs, prometheus, text, v1
from sentinel.server.access import Access, Refused
from sentinel.server.core import Core
from sentinel.server.listen import App, Listener, Listening
from sentinel.server.queries import Queries
from sentinel.server.respond import HttpError, failure
from sentinel.server.settings import Settings
from sentinel.server.text import Expose

_log = logging.getLogger(__name__)


class Server:
    """The running API.

    Attributes:
        listening: Its sockets; `listening.last_request` and `listening.clients` say whether it is used.
    """

    def __init__(self, listening: Listening, queries: Queries) -> None:
        self.listening = listening
        self._queries = queries

    async def close(self) -> None:
        """Stop listening and end what is under way."""
        await self.listening.close()
        self._queries.close()


async def serve(core: Core, listeners: Sequence[Listener], *, settings: Settings, expose: Expose) -> Server:
    """Open the API in the running event loop.

    Args:
        core: The daemon.
        listeners: Where to listen.
        settings: Limits, and the token for TCP.
        expose: Writes series in the text format of `/metrics`.

    Raises:
        SentinelError: An address cannot be bound.
    """
    queries = Queries(deadline_s=settings.query_timeout_s)
    listening = Listening(application(core, queries, settings, expose), listeners, most_clients=settings.most_clients)
    try:
        await listening.open()
    except BaseException:
        queries.close()
        raise
    return Server(listening, queries)


def application(core: Core, queries: Queries, settings: Settings, expose: Expose) -> App:
    """The whole API, guarded."""
    routes = [
        *prometheus.routes(core, queries),
        *text.routes(core, queries, expose),
        *v1.routes(core),
        *jobs.routes(core),
    ]
    inner = Starlette(
        routes=routes,
        exception_handlers={
            HTTPException: _on_http,
            SentinelError: _on_error,
            WireError: _on_wire,
            Exception: _on_fault,
        },
    )
    inner.router.redirect_slashes = False
    return Guard(inner, Access(system=core.system, token=settings.token))


class Guard:
    """Lets in who may be here, and says who it is."""

    def __init__(self, inner: App, access: Access) -> None:
        self._inner = inner
        self._access = access

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """One request."""
        try:
            scope["state"]["viewer"] = self._access.admit(scope)
        except Refused as refused:
            response = failure(scope["path"], refused.status, refused.message, hint=refused.hint)
            if refused.status == 401:
                response.headers["www-authenticate"] = "Bearer"
            await response(scope, receive, send)
        else:
            await self._inner(scope, receive, send)


async def _on_http(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, HTTPException)
    words = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not for {request.url.path}"}
    return failure(request.url.path, fault.status_code, words.get(fault.status_code, fault.detail))


async def _on_error(request: Request, fault: Exception) -> Response:
    assert isinstance(fault, SentinelError)
    if isinstance(fault, HttpError):
        return failure(request.url.path, fault.status, fault.message, hint=fault.hint, kind=fault.kind)
    status = 503 if isinstance(fault, JournalUnavailable) else 400 if isinstance(fault, UsageError) else 409
    return failure(request.url.path, status, fault.message, hint=fault.hint)


async def _on_wire(request: Request, fault: Exception) -> Response:
    return failure(request.url.path, 400, str(fault))


async def _on_fault(request: Request, fault: Exception) -> Response:
    """Starlette raises it again after this answer, so that the log has the traceback."""
    return failure(request.url.path, 500, f"a fault of sentinel itself: {type(fault).__name__}: {fault}")
