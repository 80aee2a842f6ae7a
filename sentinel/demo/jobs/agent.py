"""An agent that calls an API faster than it may, and slows down when it is asked to.

    python -m sentinel.demo.jobs.agent --url http://127.0.0.1:PORT/v1/chat/completions --degrade-file PATH

The request to degrade comes as a file: JSON with an id and a level, put there
by rename. The agent reads it between two calls, doubles its pause for each
level twice over, and answers by writing the id to PATH.ack.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from pathlib import Path

from sentinel.demo.jobs.support import Life, arguments, done, say


def main() -> None:
    """Call, log what comes back, look for requests."""
    parser = arguments("Calls an API too fast. A file asks it to degrade: it slows down.")
    parser.add_argument("--url", required=True, help="of the API")
    parser.add_argument("--degrade-file", type=Path, required=True, metavar="PATH", help="where requests appear")
    parser.add_argument("--calls-per-second", type=float, default=8.0, metavar="N", help="before it is asked")
    parser.add_argument("--eager-after", type=float, default=4.0, metavar="N", help="seconds at a quarter of that pace")
    args = parser.parse_args()

    life = Life(args.seconds, args.lifeline)
    level = 0
    subtask = 0
    begun = time.monotonic()
    say(f"agent started, {args.calls_per_second:g} calls a second")
    while life.goes_on():
        if (wanted := _asked(args.degrade_file)) is not None:
            level = wanted
            say(f"asked to degrade to level {level}: {args.calls_per_second / 4**level:g} calls a second from now on")
        slow = 4 ** max(level, 1 if time.monotonic() - begun < args.eager_after else 0)
        status, body = _call(args.url)
        if status == 200:
            subtask += 1
            if subtask % 8 == 0:
                say(f"subtask {subtask} finished")
        elif status == 429:
            say(f"ERROR openai.RateLimitError: Error code: 429 - {body}")
        else:
            say(f"ERROR call failed: {body}")
        time.sleep(slow / args.calls_per_second)
    done(f"{subtask} subtasks finished")


def _call(url: str) -> tuple[int, str]:
    """Status and body; status 0 where nobody answered."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=5)
    try:
        connection.request("POST", parts.path, json.dumps({"model": "demo", "messages": []}).encode())
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except OSError as fault:
        return 0, str(fault)
    finally:
        connection.close()


def _asked(path: Path) -> int | None:
    """The level asked for, acknowledged and taken away, or None."""
    try:
        request = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    path.unlink(missing_ok=True)
    acknowledgement = path.with_name(path.name + ".ack")
    partial = acknowledgement.with_name(acknowledgement.name + ".tmp")
    partial.write_text(str(request["id"]), encoding="utf-8")
    partial.rename(acknowledgement)
    return int(request.get("level") or 1)


if __name__ == "__main__":
    main()
