"""A training job that leaks host memory until it is killed, unless somebody asks it in time.

    python -m sentinel.demo.jobs.leaky --checkpoints DIR --rate-mib 20 --die-at-mib 600

USR1 asks for a checkpoint, USR2 for half the batch, which is what stops the
leak. Both are answered at the next step boundary.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from sentinel.demo.jobs.support import MIB, Asked, Life, arguments, done, loss, resident_bytes, save, say


def main() -> None:
    """Train, leak, listen."""
    parser = arguments("Leaks host memory. USR1: checkpoint. USR2: halve the batch, which ends the leak.")
    parser.add_argument("--checkpoints", type=Path, required=True, metavar="DIR", help="where checkpoints go")
    parser.add_argument("--rate-mib", type=float, default=20.0, metavar="N", help="leak so much a second")
    parser.add_argument("--warm-up", type=float, default=3.0, metavar="N", help="seconds before the leak begins")
    parser.add_argument("--die-at-mib", type=float, default=600.0, metavar="N", help="where memory ends for this job")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="batch size at the start")
    args = parser.parse_args()

    checkpoint, degrade = Asked(signal.SIGUSR1), Asked(signal.SIGUSR2)
    life = Life(args.seconds, args.lifeline)
    kept: list[bytearray] = []  # the leak: every step's activations, for ever
    batch, leaking = args.batch, True
    begun = last = time.monotonic()
    step = 0
    say(f"training from scratch, batch {batch}")
    while life.goes_on():
        time.sleep(args.step_seconds)
        step += 1
        now = time.monotonic()
        if leaking and now - begun > args.warm_up:
            kept.append(bytearray(b"\x55") * int(args.rate_mib * MIB * (now - last)))
        last = now
        if resident_bytes() > args.die_at_mib * MIB:
            raise MemoryError(f"step {step}: cannot allocate {args.rate_mib:.0f} MiB of activations")
        if step == max(1, round(1.0 / args.step_seconds)):
            say(f"step {step}: saved {save(args.checkpoints, step).name}")
        if checkpoint.take():
            say(f"step {step}: asked for a checkpoint, saved {save(args.checkpoints, step).name}")
        if degrade.take() and batch > 1:
            batch, leaking = batch // 2, False
            say(f"step {step}: asked to degrade, batch {batch}, activations are no longer kept")
        if step % max(1, round(1.0 / args.step_seconds)) == 0:
            say(f"step {step} loss {loss(step):.3f} batch {batch} memory {resident_bytes() / MIB:.0f} MiB")
    done(f"step {step}: told to end, saved {save(args.checkpoints, step).name}")


if __name__ == "__main__":
    main()
