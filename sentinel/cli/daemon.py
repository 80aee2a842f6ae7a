"""`sentinel daemon`: run the daemon in the foreground."""

from __future__ import annotations

import argparse
from pathlib import Path

EPILOG = """\
Without options it serves you alone: its socket is $XDG_RUNTIME_DIR/sentinel/sentinel.sock
(or /tmp/sentinel-UID/sentinel.sock), its state ~/.local/state/sentinel/HOSTNAME.
SIGTERM ends it, SIGHUP makes it read rules, mode and notification settings again; what
needs a restart all the same (sampling, patterns, jobs, store, api) is said."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `sentinel daemon` takes."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="the configuration file")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="where it keeps its state")
    parser.add_argument("--socket", type=Path, metavar="PATH", help="where it listens")
    parser.add_argument("--system", action="store_true", help="serve every user of this machine (the systemd service)")
    parser.add_argument(
        "--auto",
        nargs="?",
        const="",
        metavar="DURATION",
        help="end after so long without anything to do (15m; 5s inside a batch job)",
    )


def run(args: argparse.Namespace) -> int:
    """Run until told to end."""
    from sentinel.daemon.lifecycle import Options, main, usual_idle_s
    from sentinel.units import parse_duration

    idle_s = None
    if args.auto is not None:
        idle_s = parse_duration(args.auto) if args.auto else usual_idle_s()

    return main(
        Options(
            config=args.config,
            state=args.state_dir,
            socket=args.socket,
            system=args.system,
            idle_s=idle_s,
        )
    )
