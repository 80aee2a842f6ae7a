"""A training job whose schedule for checkpoints breaks after a while.

    python -m sentinel.demo.jobs.forgetful --checkpoints DIR --every 2 --forget-after 7

It never notices, and goes on training. USR1 asks it for a checkpoint, which
it still writes when asked.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from sentinel.demo.jobs.support import Asked, Life, arguments, done, loss, save, say


def main() -> None:
    """Train, save, forget to save."""
    parser = arguments("Stops writing checkpoints after a while. USR1: checkpoint.")
    parser.add_argument("--checkpoints", type=Path, required=True, metavar="DIR", help="where checkpoints go")
    parser.add_argument("--every", type=float, default=2.0, metavar="N", help="seconds between two checkpoints")
    parser.add_argument("--forget-after", type=float, default=7.0, metavar="N", help="seconds until it forgets")
    args = parser.parse_args()

    checkpoint = Asked(signal.SIGUSR1)
    life = Life(args.seconds, args.lifeline)
    begun = time.monotonic()
    saved = begun
    step = 0
    say("training from scratch")
    while life.goes_on():
        time.sleep(args.step_seconds)
        step += 1
        now = time.monotonic()
        if now - saved >= args.every and now - begun < args.forget_after:
            saved = now
            say(f"step {step}: saved {save(args.checkpoints, step).name}")
        if checkpoint.take():
            say(f"step {step}: asked for a checkpoint, saved {save(args.checkpoints, step).name}")
        if step % max(1, round(1.0 / args.step_seconds)) == 0:
            say(f"step {step} loss {loss(step):.3f}")
    done(f"step {step}: told to end")


if __name__ == "__main__":
    main()
