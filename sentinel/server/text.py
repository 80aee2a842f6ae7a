"""At the root: `/metrics`, `/federate` and the two questions of a load balancer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sentinel.promql.series import Block, Matcher, SeriesReader
from sentinel.server.core import Core
from sentinel.server.parameters import selectors_of
from sentinel.server.queries import Queries
from sentinel.server.respond import HttpError, Parameters, raw, viewer_of

Expose = Callable[[Sequence[Block], float, bool], str]
"""Blocks, the time (Unix seconds) and whether to write timestamps → the text format."""

_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LOOKBACK_S = 300.0


def routes(core: Core, queries: Queries, expose: Expose) -> list[Route]:
    """Of what is text."""
    here = _Text(core, queries, expose)
    return [
        Route("/metrics", here.metrics),
        Route("/federate", here.federate),
        Route("/-/healthy", here.healthy),
        Route("/-/ready", here.ready),
    ]


class _Text:
    def __init__(self, core: Core, queries: Queries, expose: Expose) -> None:
        self._core = core
        self._queries = queries
        self._expose = expose

    async def metrics(self, request: Request) -> Response:
        """Every series as it stands. Scrape it with `honor_labels: true`."""
        return await self._answer(request, [()], timestamps=False)

    async def federate(self, request: Request) -> Response:
        """The series that one of `match[]` selects, with their times."""
        selectors = selectors_of(await Parameters.of(request))
        return await self._answer(request, [selector.matchers for selector in selectors], timestamps=True)

    async def healthy(self, request: Request) -> Response:  # noqa: ARG002 - a handler's shape
        """Whether we answer."""
        return raw(b"sentinel is healthy.\n", media_type="text/plain")

    async def ready(self, request: Request) -> Response:  # noqa: ARG002 - a handler's shape
        """Whether we measure and judge by now."""
        if not self._core.ready:
            return raw(b"sentinel is starting.\n", 503, media_type="text/plain")
        return raw(b"sentinel is ready.\n", media_type="text/plain")

    async def _answer(self, request: Request, wanted: Sequence[tuple[Matcher, ...]], *, timestamps: bool) -> Response:
        viewer = viewer_of(request)
        if not viewer.everything:
            raise HttpError(403, "on a daemon of the system only root and the group `sentinel` read all series")
        at = self._core.now()

        def work(reader: SeriesReader) -> bytes:
            blocks = [block for matchers in wanted for block in reader.select(matchers, at - _LOOKBACK_S, at)]
            return self._expose(blocks, at, timestamps).encode()

        return raw(await self._queries.run(work, viewer.reader(self._core)), media_type=_MEDIA_TYPE)
