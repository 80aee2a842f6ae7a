"""A small real HTTP API on loopback that answers 429 above its limit."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class LimitedApi:
    """Answers `per_second` calls a second, with bursts of that many, and refuses the rest with 429.

    Use it as a context manager; it listens on a free port of loopback.
    """

    def __init__(self, per_second: float = 3.0) -> None:
        self._per_second = per_second
        self._lock = threading.Lock()
        self._tokens = per_second
        self._filled = time.monotonic()
        self.served = 0
        self.refused = 0
        self.last_refused: float | None = None
        """When it last answered 429 (monotonic seconds)."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="demo-api", daemon=True)

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/chat/completions"

    def admit(self) -> bool:
        """Whether one more call is within the limit; counts it either way."""
        with self._lock:
            now = time.monotonic()
            self._tokens = min(self._per_second, self._tokens + (now - self._filled) * self._per_second)
            self._filled = now
            if self._tokens < 1:
                self.refused += 1
                self.last_refused = now
                return False
            self._tokens -= 1
            self.served += 1
            return True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=2)


def _handler(api: LimitedApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """One call of the agent."""
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if api.admit():
                self._answer(200, {"choices": [{"message": {"role": "assistant", "content": "ok"}}]})
            else:
                words = "Rate limit reached for requests: too many calls. Please try again in 1s."
                self._answer(429, {"error": {"message": words, "type": "requests", "code": "rate_limit_exceeded"}})

        def _answer(self, status: int, data: object) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 429:
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """The agent's own log tells it."""

    return Handler
