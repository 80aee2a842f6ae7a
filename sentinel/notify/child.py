"""The notifier's own process: apprise speaks to the outside here, so that nothing it does touches the daemon.

Each parcel is sent in a thread of its own, so that one address that hangs delays
no other; each frame is answered at once with the receipts that are there.

    {"op": "exchange", "parcels": […], "wait_s": 0.5, "timeout_s": 30} → {"receipts": […]}
    {"op": "check", "urls": […]} → {"problems": [null, "…"]}
"""

from __future__ import annotations

import contextvars
import logging
import queue
import sys
import threading
import time
from email.utils import parsedate_to_datetime
from typing import Any

from sentinel.notify.addresses import masked
from sentinel.system.frames import serve

IDLE_S = 60.0
_wishes: contextvars.ContextVar[list[float] | None] = contextvars.ContextVar("wishes", default=None)


class Sender:
    """Sends parcels with apprise, several at once."""

    def __init__(self) -> None:
        import apprise

        logging.getLogger("apprise").addHandler(logging.NullHandler())
        logging.getLogger("apprise").propagate = False
        _listen_for_retry_after()
        self._apprise = apprise
        self._asset = apprise.AppriseAsset(app_id="sentinel", app_desc="sentinel", app_url="", async_mode=False)
        self._done: queue.Queue[dict[str, Any]] = queue.Queue()

    def handle(self, frame: Any) -> dict[str, Any]:
        """Answer one frame."""
        if frame["op"] == "check":
            return {"problems": [self._service(url)[1] for url in frame["urls"]]}
        for parcel in frame["parcels"]:
            work = threading.Thread(target=self._send, args=(parcel, float(frame["timeout_s"])), daemon=True)
            work.start()
        return {"receipts": self._receipts(float(frame["wait_s"]))}

    def _receipts(self, wait_s: float) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        until = time.monotonic() + wait_s
        try:
            found.append(self._done.get(timeout=max(0.001, until - time.monotonic())))
            while True:
                found.append(self._done.get_nowait())
        except queue.Empty:
            return found

    def _send(self, parcel: dict[str, Any], timeout_s: float) -> None:
        receipt = {"id": parcel["id"], "delivered": False, "error": "", "retry_after_s": None, "hopeless": False}
        wishes: list[float] = []
        _wishes.set(wishes)
        service, problem = self._service(parcel["url"])
        if problem is not None:
            receipt.update(hopeless=True, error=problem)
            self._done.put(receipt)
            return
        try:
            box = self._apprise.Apprise(asset=self._asset)
            box.add(service)
            result = box.notify(
                body=parcel["body"],
                title=parcel["title"],
                notify_type=parcel["severity"],
                body_format="text",
                interpret_escapes=False,
                timeout=timeout_s,
            )
            receipt["delivered"] = bool(result)
            if not result:
                said = "; ".join(dict.fromkeys(str(entry.message) for entry in result.logs()))
                receipt["error"] = _without(parcel["url"], said or f"no answer ({result.status.name.lower()})")
        except Exception as fault:
            receipt["error"] = _without(parcel["url"], f"{type(fault).__name__}: {fault}")
        if wishes and not receipt["delivered"]:
            receipt["retry_after_s"] = max(wishes)
        self._done.put(receipt)

    def _service(self, url: str) -> tuple[Any, str | None]:
        """What sends to an address, and what is wrong with it, or None."""
        try:
            found: Any = self._apprise.Apprise.instantiate(url, asset=self._asset, suppress_exceptions=False)
        except Exception as fault:
            return None, _why(url, str(fault))
        if found is None:
            return None, _why(url, "")
        if type(found).__name__ == "NotifyNtfy" and not found.topics:  # apprise takes it, and has nowhere to send to
            return None, "it names no topic"
        return found, None


def _why(url: str, said: str) -> str:
    scheme, colon, _ = url.partition("://")
    if not colon:
        return "it has no scheme (mailto://, slack://, …)"
    import apprise

    known = {name for plugin in apprise.Apprise().details()["schemas"] for name in _schemes(plugin)}
    if scheme.lower() not in known:
        from sentinel.errors import nearest

        close = nearest(scheme.lower(), known)
        return "no such kind of address" + (f"; did you mean {close}://?" if close else "")
    return _without(url, said) or f"it is not a whole {scheme}:// address"


def _schemes(plugin: dict[str, Any]) -> list[str]:
    return [str(name) for key in ("protocols", "secure_protocols") for name in plugin.get(key) or ()]


def _without(url: str, text: str) -> str:
    """An error without the address in it, nor any longer piece of it."""
    shown = text.replace(url, masked(url))
    pieces = {piece for part in url.partition("://")[2].split("/") for piece in part.replace("@", ":").split(":")}
    host = masked(url)
    for piece in sorted(pieces, key=len, reverse=True):
        if len(piece) >= 6 and piece not in host:
            shown = shown.replace(piece, "***")
    return " ".join(shown.split())[:500].rstrip(" :")


def _listen_for_retry_after() -> None:
    """Note what other sides ask for with Retry-After: apprise does not hand it on; its HTTP services use requests."""
    from requests.adapters import HTTPAdapter

    send = HTTPAdapter.send

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        response = send(self, *args, **kwargs)
        wishes = _wishes.get()
        if wishes is not None and response.status_code in {429, 503}:
            seconds = retry_after(response.headers.get("Retry-After"), time.time())
            if seconds is not None:
                wishes.append(seconds)
        return response

    setattr(HTTPAdapter, "send", noting)  # noqa: B010 - a plain assignment to a method is none that mypy takes


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds to wait, from a Retry-After in either of its forms; None where there is none."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError):
        return None


def main() -> int:
    """Serve frames until the daemon is gone or there was nothing to do for a minute."""
    idle_s = float(sys.argv[1]) if len(sys.argv) > 1 else IDLE_S
    return serve(Sender().handle, idle_s=idle_s)


if __name__ == "__main__":
    sys.exit(main())
