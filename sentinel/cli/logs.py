"""`sentinel logs`: what lines mean, and the output of jobs."""

from __future__ import annotations

import argparse
import base64
import binascii
import contextlib
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sentinel.cli.common import add_json, print_line, reach, seconds
from sentinel.errors import SentinelError, UsageError

if TYPE_CHECKING:
    from sentinel.logs.classify import Classifier
    from sentinel.logs.tail import Lines
    from sentinel.model.logs import LogEvent

EPILOG = """\
examples:
  sentinel logs classify train.log
  journalctl -k -o cat | sentinel logs classify -
  sentinel logs tail llama -f
  sentinel logs search llama 'loss.*nan' --since 2h"""

PIECE_BYTES = 1 << 20
LOOK_S = 0.2
END_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel logs` takes."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="classify | tail | search")
    classify = verbs.add_parser("classify", help="say what the lines of a log mean, as JSON lines")
    classify.add_argument("file", metavar="FILE", help="a log; - reads stdin")
    classify.add_argument(
        "--records",
        action="store_true",
        help="FILE holds JSON lines with `text` or `bytes_b64`: print one result for each",
    )
    classify.add_argument(
        "--patterns", action="append", default=[], metavar="FILE", help="more patterns (may be repeated)"
    )
    tail = verbs.add_parser("tail", help="the last lines of a job's output")
    tail.add_argument("job", metavar="JOB", help="a job's name or id")
    tail.add_argument("-f", "--follow", action="store_true", help="go on with what it writes from now on")
    tail.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="so many lines (default: 20)")
    search = verbs.add_parser("search", help="the lines of a job's output that match a pattern")
    search.add_argument("job", metavar="JOB", help="a job's name or id")
    search.add_argument("pattern", metavar="PATTERN", help="a regular expression (google-re2)")
    search.add_argument("--since", type=seconds, metavar="DURATION", help="only of the last 10m, 2h, …")
    search.add_argument("-i", "--ignore-case", action="store_true", help="upper and lower case are the same")
    add_json(search, "print JSON lines: path, line, time, text")


def run(args: argparse.Namespace) -> int:
    """Carry out one verb."""
    verbs = {"classify": _classify, "tail": _tail, "search": _search}
    return verbs[args.verb](args)


# classify


def _classify(args: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        file = sys.stdin.buffer if args.file == "-" else stack.enter_context(_opened(args.file))
        classifier = _classifier(args.patterns)
        if args.records:
            for number, line in enumerate(file, 1):
                if line.strip():
                    print(json.dumps(_result(classifier, line, number), ensure_ascii=False))
            return 0
        name = "stdin" if args.file == "-" else args.file
        for chunk in _lines(name, file):
            for event in classifier.feed(chunk):
                print_line(_said(event))
        for event in classifier.forget(name):
            print_line(_said(event))
    return 0


def _classifier(extra: list[str]) -> Classifier:
    from sentinel import config
    from sentinel.logs.classify import Classifier
    from sentinel.logs.patterns import load
    from sentinel.paths import shipped

    own = [Path(found) for pattern in config.load(None).patterns for found in _matching(pattern)]
    return Classifier(load([*sorted((shipped("rules") / "patterns").glob("*.yaml")), *own, *map(Path, extra)]))


def _matching(pattern: str) -> list[str]:
    import glob

    return sorted(glob.glob(os.path.expanduser(pattern)))


def _result(classifier: Classifier, line: bytes, number: int) -> dict[str, Any]:
    """What one record is; a record that cannot be read says why, and is nothing."""
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise TypeError("a record is a JSON object")
        if record.get("bytes_b64") is not None:
            raw = base64.b64decode(record["bytes_b64"])
        else:
            raw = str(record.get("text", "")).encode("utf-8", "replace")
    except (ValueError, TypeError, binascii.Error) as fault:
        return {"id": None, "line": number, "kind": None, "retryable": None, "error": str(fault)}
    found = classifier.record(raw)
    result: dict[str, Any] = {"id": record.get("id", number)}
    if found is None:
        return result | {"kind": None, "retryable": None}
    said = _said(found)
    del said["count"]
    return result | said


def _said(event: LogEvent) -> dict[str, Any]:
    return {
        "line": event.line_number,
        "kind": event.kind.value,
        "retryable": event.retryable,
        "framework": event.framework or None,
        "fields": dict(event.fields),
        "text": event.line,
        "pattern": event.pattern,
        "count": event.count,
    }


def _lines(name: str, file: IO[bytes]) -> Iterator[Lines]:
    from sentinel.logs.tail import Splitter

    splitter = Splitter(name)
    while data := file.read1(PIECE_BYTES) if hasattr(file, "read1") else file.read(PIECE_BYTES):
        if (found := splitter.take(data)) is not None:
            yield found
    if (last := splitter.last_words()) is not None:
        yield last


def _opened(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as fault:
        raise UsageError(f"cannot read {path}: {fault.strerror}") from None


# tail and search


def _job(name: str) -> tuple[dict[str, Any], list[str]]:
    """A job as the daemon knows it, and the files that hold its output."""
    from urllib.parse import quote

    with reach() as client:
        job = client.get(f"/v1/jobs/{quote(name, safe='')}")
    patterns = [*job.get("output", ()), *(job.get("spec") or {}).get("logs", ())]
    files = [path for pattern in dict.fromkeys(patterns) for path in (_matching(pattern) or [pattern])]
    if not files:
        raise SentinelError(
            f"the output of {job['name']} is in no file that sentinel knows",
            hint="name its logs when it is started or watched: --log PATH",
        )
    return job, list(dict.fromkeys(files))


def _tail(args: argparse.Namespace) -> int:
    from sentinel.logs.masking import clean
    from sentinel.logs.tail import Tailer

    job, files = _job(args.job)
    several = len(files) > 1
    tailer = Tailer(files)
    tailer.look_for_files()
    last: deque[tuple[str, bytes]] = deque(maxlen=max(0, args.lines))
    for chunk in tailer.read_all():
        last.extend((chunk.path, line) for line in chunk.lines)
    for path, line in last:
        _show(path if several else "", clean(line.decode("utf-8", "replace")))
    looked = time.monotonic()
    ended = False
    while args.follow and not ended:
        time.sleep(LOOK_S)
        if time.monotonic() - looked > END_S:
            looked, ended = time.monotonic(), not _alive(job["id"])
            tailer.look_for_files()
        for chunk in tailer.read_all():
            for line in chunk.lines:
                _show(chunk.path if several else "", clean(line.decode("utf-8", "replace")))
    tailer.close()
    return 0


def _alive(job_id: str) -> bool:
    try:
        with reach() as client:
            return client.get(f"/v1/jobs/{job_id}").get("ended") is None
    except SentinelError:
        return False


def _show(path: str, text: str) -> None:
    print(f"{os.path.basename(path)}: {text}" if path else text, flush=True)


def _search(args: argparse.Namespace) -> int:
    import re2

    from sentinel.logs.masking import clean
    from sentinel.logs.times import time_of

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not args.ignore_case
    try:
        search = re2.compile(args.pattern, options).search
    except re2.error as fault:
        words = fault.args[0].decode() if isinstance(fault.args[0], bytes) else str(fault)
        raise UsageError(f"bad regular expression `{args.pattern}`: {words}") from None
    job, files = _job(args.job)
    since = time.time() - args.since if args.since is not None else None
    found = 0
    for path in files:
        with contextlib.suppress(FileNotFoundError), _opened_log(path) as file:
            if since is not None and os.fstat(file.fileno()).st_mtime < since:
                continue
            at: float | None = None
            for chunk in _lines(path, file):
                for number, raw in enumerate(chunk.lines, chunk.first):
                    text = raw.decode("utf-8", "replace")
                    if since is not None:
                        at = time_of(text) or at
                        if at is not None and at < since:
                            continue
                    if search(text) is None:
                        continue
                    found += 1
                    shown = clean(text)
                    if args.json:
                        stamp = at if since is not None else time_of(text)
                        print_line({"path": path, "line": number, "time": stamp, "text": shown})
                    else:
                        _show(path if len(files) > 1 else "", shown)
    if not found:
        print(f"sentinel: nothing in the output of {job['name']} matches", file=sys.stderr)
    return 0 if found else 1


def _opened_log(path: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise SentinelError(f"cannot read {path}: {fault.strerror}", hint="the job's owner can") from None
