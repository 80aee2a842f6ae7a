"""`sentinel demo`: a bad night in forty seconds, with real processes."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from typing import TYPE_CHECKING

from sentinel.cli.tables import terminal_width
from sentinel.errors import UsageError

if TYPE_CHECKING:
    from sentinel.demo.stage import Stage
    from sentinel.demo.story import Moment, Verdict

EPILOG = """\
Starts a daemon in a temporary directory, two simulated GPUs and four real jobs:
  leaky      leaks memory: it is asked for a checkpoint, then to use less, and lives on
  agent      is refused by an API with 429 and slows down when asked
  forgetful  stops writing checkpoints and is asked for one
  happy      trains with forked workers that share memory; nobody is bothered
and opens the dashboard on them. Nothing of it is left afterwards, and your own daemon is
not touched. With --headless it exits 1 if a job did not end as told."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel demo` takes."""
    parser.add_argument("--headless", action="store_true", help="print the story instead of opening the dashboard")
    parser.add_argument(
        "--seconds",
        type=float,
        default=40.0,
        metavar="N",
        help="with --headless: give up after N seconds (default: 40)",
    )
    parser.add_argument("--json", action="store_true", help="with --headless: JSON lines")


def run(args: argparse.Namespace) -> int:
    """Play it."""
    if args.json and not args.headless:
        raise UsageError("--json tells the story, which the dashboard shows", hint="--headless --json")
    if not args.headless and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the dashboard needs a terminal", hint="sentinel demo --headless")
    if not 1 <= args.seconds <= 3600:
        raise UsageError("--seconds must be from 1 to 3600", hint="--seconds 40")
    print("starting a daemon and four jobs …", file=sys.stderr, flush=True)
    from sentinel.demo.stage import stage

    if args.headless:
        with stage() as playing:
            _introduce(playing, as_json=args.json)
            verdicts = playing.play(args.seconds, lambda one: _tell(playing, one, as_json=args.json))
        return 0 if all(verdict.ok for verdict in verdicts) else 1

    with stage() as playing:
        watching = threading.Thread(target=playing.play_on, name="demo", daemon=True)
        watching.start()
        print("opening the dashboard …", file=sys.stderr, flush=True)
        from sentinel.tui.app import run as show

        show(playing.connect)
        playing.end()
        watching.join()
        decided = sorted(
            (part.verdict for part in playing.story.parts.values() if part.verdict), key=lambda verdict: verdict.at
        )
        waiting = [part.job for part in playing.story.parts.values() if part.verdict is None]
        print("cleaning up …", file=sys.stderr)
    for verdict in decided:
        _tell(playing, verdict, as_json=False)
    if waiting:
        _say(" " * 7, f"not waited for: {', '.join(waiting)}")
    return 0


def _introduce(playing: Stage, *, as_json: bool) -> None:
    for role in playing.roles:
        if as_json:
            _line(playing, playing.elapsed(), "role", role.name, message=role.told)
        else:
            _say(f"       {role.name:<10} ", role.told)


def _tell(playing: Stage, one: Moment | Verdict, *, as_json: bool) -> None:
    from sentinel.demo.story import Verdict

    if isinstance(one, Verdict):
        more: dict[str, object] = {"ok": one.ok}
        words = f"{'✓' if one.ok else '✗'} {one.message}"
    else:
        more = {"what": one.what}
        words = f"{one.what}: {one.message}"
    if as_json:
        _line(
            playing, one.at, "verdict" if isinstance(one, Verdict) else "moment", one.job, **more, message=one.message
        )
    else:
        _say(f"{one.at:5.1f} s {one.job:<10} ", words)


def _say(before: str, words: str) -> None:
    """A line, wrapped between words under its own beginning where the terminal is narrow."""
    from textwrap import fill

    width = max(40, terminal_width())
    print(fill(
        words, width, initial_indent=before, subsequent_indent=" " * len(before), break_long_words=False,
        break_on_hyphens=False,
    ), flush=True)  # fmt: skip


def _line(playing: Stage, at: float, kind: str, job: str, **more: object) -> None:
    line = {"time": round(playing.began + at, 3), "elapsed": round(at, 2), "kind": kind, "job": job, **more}
    print(json.dumps(line, ensure_ascii=False), flush=True)
