"""Reading requests and writing answers, in the two dialects: Prometheus's under `/api/v1/`, ours elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sentinel.errors import SentinelError
from sentinel.server.access import Viewer

LARGEST_BODY = 1 << 20
BODY_DEADLINE_S = 10.0

_ERROR_TYPES = {400: "bad_data", 404: "not_found", 422: "execution", 503: "timeout", 500: "internal"}
_KINDS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    422: "failed",
    500: "internal",
    503: "unavailable",
}


class HttpError(SentinelError):
    """An answer other than success.

    Attributes:
        status: The HTTP status.
        kind: The machine-readable name.
    """

    def __init__(self, status: int, message: str, *, hint: str | None = None, kind: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.kind = kind


def answer(data: Any, status: int = 200) -> Response:
    """`data`, plain JSON already, as the response."""
    return raw(written(data), status)


def written(data: Any) -> bytes:
    """JSON in UTF-8, whatever a job's bytes have become: what is no text is a question mark."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def raw(content: bytes, status: int = 200, media_type: str = "application/json") -> Response:
    """Bytes that are JSON (or what is said) already."""
    return Response(content, status, media_type=media_type)


def failure(path: str, status: int, message: str, *, hint: str | None = None, kind: str = "") -> Response:
    """An error in the dialect of `path`."""
    if path.startswith("/api/v1/"):
        error_type = kind or _ERROR_TYPES.get(status, _KINDS.get(status, "internal"))
        text = message if hint is None else f"{message} (try: {hint})"
        return answer({"status": "error", "errorType": error_type, "error": text}, status)
    kind = kind or _KINDS.get(status, "error")
    return answer({"error": {"message": message, "hint": hint, "kind": kind}}, status)


def viewer_of(request: Request) -> Viewer:
    """Who asks; the guard has put it there."""
    viewer: Viewer = request.scope["state"]["viewer"]
    return viewer


async def body_of(request: Request) -> bytes:
    """The whole body, within bounds of size and time."""

    async def read() -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in request.stream():
            size += len(piece)
            if size > LARGEST_BODY:
                raise HttpError(413, f"a body may have {LARGEST_BODY >> 20} MiB at most")
            pieces.append(piece)
        return b"".join(pieces)

    try:
        return await asyncio.wait_for(read(), BODY_DEADLINE_S)
    except TimeoutError:
        raise HttpError(408, "the body did not come in time") from None
    except ClientDisconnect:
        raise HttpError(400, "the client went away") from None


async def object_of(request: Request) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object."""
    content = await body_of(request)
    try:
        data = json.loads(_text(content)) if content.strip() else {}
    except (ValueError, RecursionError) as fault:
        raise HttpError(400, f"the body is no JSON: {fault}") from None
    if not isinstance(data, dict):
        raise HttpError(400, "the body must be a JSON object")
    return data


def _text(content: bytes) -> bytes:
    """The same without halves of characters, as escapes can say them (a file name that is no UTF-8 has some).

    No database, no terminal and no mail would take them.
    """
    return written(json.loads(content)) if rb"\ud" in content.lower() else content


class Parameters:
    """Those of the query string and, for a POST, of the form: each may come several times."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    @classmethod
    async def of(cls, request: Request) -> Parameters:
        """Of a request. A form wins over the query string."""
        pairs: list[tuple[str, str]] = []
        if request.method == "POST":
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            content = await body_of(request)
            if kind == "application/x-www-form-urlencoded":
                pairs += _pairs(content)
        return cls(pairs + _pairs(request.scope["query_string"]))

    def get(self, name: str, default: str = "") -> str:
        """The first value."""
        return self._values.get(name, [default])[0]

    def all(self, name: str) -> list[str]:
        """All values."""
        return self._values.get(name, [])

    def flag(self, name: str) -> bool:
        """Whether it is there and not `0`, `false` or `no`."""
        return self.get(name, "0").lower() not in {"0", "false", "no", ""}

    def number(self, name: str, default: float) -> float:
        """A finite number."""
        text = self.get(name)
        try:
            value = float(text) if text else default
        except ValueError:
            value = float("nan")
        if value - value != 0:
            raise HttpError(400, f"`{name}` must be a number, not {text!r}")
        return value


def field(data: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """One field of a JSON object, of the right type."""
    value = data.get(name)
    if value is None:
        return default
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise HttpError(400, f"`{name}` must be {_TYPES.get(kind, kind.__name__)}, not {type(value).__name__}")
    return value


_TYPES = {str: "text", float: "a number", int: "a whole number", dict: "an object", list: "a list"}


def _pairs(content: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=1000)
    except ValueError:
        raise HttpError(400, "too many parameters") from None
