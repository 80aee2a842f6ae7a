"""The hand: programs, files and HTTP, as the owner of the job, each with a deadline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import urllib.parse
from collections.abc import Mapping, Sequence

from sentinel.jobs.settings import Settings
from sentinel.logs.masking import clean, mask
from sentinel.model.events import new_id
from sentinel.model.requests import Delivery, Outcome
from sentinel.system import signals

REFUSED = 75
"""The exit code by which a program says that it will not (EX_TEMPFAIL)."""

_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")
_LARGEST_ACK = 64 * 1024
_ANSWERS = {"done": Outcome.DONE, "refused": Outcome.REFUSED, "failed": Outcome.FAILED}


class LocalHand:
    """Acts as the user that this process runs as. A per-user daemon is its own hand."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()

    async def file(self, path: str, message: Mapping[str, object], *, timeout_s: float) -> Delivery:
        """Put the message at `path` by an atomic rename and wait for `path`.ack with its id.

        The ack may be the bare id, the id and one of `done`, `refused`, `failed` with
        words, or JSON with `id`, `answer` and `detail`.
        """
        try:
            await asyncio.to_thread(_put, path, message)
        except OSError as fault:
            return Delivery(Outcome.FAILED, f"cannot write {path}: {fault.strerror}")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            answer = await asyncio.to_thread(_acknowledgement, f"{path}.ack", str(message["id"]))
            if answer is not None:
                return answer
            left = deadline - loop.time()
            if left <= 0:
                return Delivery(Outcome.SENT, f"written to {path}; no {path}.ack with its id came in {timeout_s:.0f}s")
            await asyncio.sleep(min(self._settings.ack_poll_s, left))

    async def execute(
        self, argv: Sequence[str], message: Mapping[str, object], *, cwd: str, timeout_s: float
    ) -> Delivery:
        """Run a program with the message on its stdin: 0 done, 75 refused, anything else failed."""
        limit = min(timeout_s, self._settings.exec_limit_s)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=cwd or None,
                env=_environment(message),
                start_new_session=True,
            )
        except (OSError, ValueError) as fault:
            return Delivery(Outcome.FAILED, f"cannot run {argv[0]}: {getattr(fault, 'strerror', None) or fault}")
        try:
            said, _ = await asyncio.wait_for(process.communicate(json.dumps(message).encode()), limit)
        except TimeoutError:
            signals.kill_own_group(process.pid)
            await process.wait()
            return Delivery(Outcome.FAILED, f"{argv[0]} was still running after {limit:.0f}s and was killed")
        words = _last_line(said)
        match process.returncode:
            case 0:
                return Delivery(Outcome.DONE, words or f"{argv[0]} ended with 0")
            case 75:
                return Delivery(Outcome.REFUSED, words or f"{argv[0]} ended with {REFUSED}")
            case code:
                return Delivery(Outcome.FAILED, f"{argv[0]} ended with {code}" + (f": {words}" if words else ""))

    async def http(self, url: str, message: Mapping[str, object], *, timeout_s: float) -> Delivery:
        """POST the message: 202 acknowledged, another 2xx done, 409 refused, anything else failed."""
        try:
            status, said = await asyncio.wait_for(
                asyncio.to_thread(_post, url, json.dumps(message).encode(), timeout_s), timeout_s + 1
            )
        except (TimeoutError, OSError) as fault:
            return Delivery(Outcome.FAILED, f"{mask(url)} does not answer: {fault or 'timed out'}")
        except Exception as fault:  # whatever a strange server makes of HTTP
            return Delivery(Outcome.FAILED, f"{mask(url)}: {type(fault).__name__}: {clean(str(fault))}")
        words = _last_line(said)
        detail = f"HTTP {status}" + (f": {words}" if words else "")
        if status == 202:
            return Delivery(Outcome.ACKNOWLEDGED, detail)
        if 200 <= status < 300:
            return Delivery(Outcome.DONE, detail)
        return Delivery(Outcome.REFUSED if status == 409 else Outcome.FAILED, detail)


def _put(path: str, message: Mapping[str, object]) -> None:
    temporary = f"{path}.{new_id()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(message).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _acknowledgement(path: str, request_id: str) -> Delivery | None:
    """What stands beside the request file, if it is about this request."""
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST_ACK).decode("utf-8", "replace").strip()
    except OSError:
        return None
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if isinstance(data, dict):
        if data.get("id") != request_id:
            return None
        answer, words = str(data.get("answer", "")), str(data.get("detail", ""))
    else:
        if text.strip('"').partition(" ")[0].partition("\n")[0] != request_id:
            return None
        answer, _, words = text[len(request_id) :].strip().partition(" ")
    return Delivery(_ANSWERS.get(answer, Outcome.ACKNOWLEDGED), clean(words) or f"{path} has its id")


def _environment(message: Mapping[str, object]) -> dict[str, str]:
    """Little enough that nothing leaks, enough that programs are found."""
    level = message.get("level")
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {
        **kept,
        "SENTINEL_REQUEST": str(message["request"]),
        "SENTINEL_REQUEST_ID": str(message["id"]),
        "SENTINEL_DEGRADE_LEVEL": "" if level is None else str(level),
        "SENTINEL_JOB_NAME": str(message["job"]),
    }


def _post(url: str, body: bytes, timeout_s: float) -> tuple[int, bytes]:
    """One POST, straight there: no proxy, no redirect."""
    import http.client

    parts = urllib.parse.urlsplit(url)
    maker = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = maker(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", target, body, {"Content-Type": "application/json", "User-Agent": "sentinel"})
        answer = connection.getresponse()
        return answer.status, answer.read(_LARGEST_ACK)
    finally:
        connection.close()


def _last_line(said: bytes) -> str:
    lines = said.decode("utf-8", "replace").strip().splitlines()
    return clean(lines[-1], 400) if lines else ""
