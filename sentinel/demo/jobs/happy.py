"""A training job with which nothing is wrong: it must cause no alert.

    python -m sentinel.demo.jobs.happy --checkpoints DIR --data-mib 200 --workers 4

The parent holds a data set and forks workers that only read it. Their
resident sets add up to several times the memory that is really used, as they
do for every DataLoader. USR1 asks for a checkpoint; the workers inherit the
handler and must not be the ones that are asked.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

from sentinel.demo.jobs.support import MIB, Asked, Life, arguments, done, loss, save, say


def main() -> None:
    """Fork the workers, train, save on time."""
    parser = arguments("Trains happily with forked workers that share its pages. USR1: checkpoint.")
    parser.add_argument("--checkpoints", type=Path, required=True, metavar="DIR", help="where checkpoints go")
    parser.add_argument("--every", type=float, default=5.0, metavar="N", help="seconds between two checkpoints")
    parser.add_argument("--data-mib", type=int, default=200, metavar="N", help="size of the shared data set")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="how many read it")
    args = parser.parse_args()

    checkpoint = Asked(signal.SIGUSR1)
    life = Life(args.seconds, args.lifeline)
    data = bytearray(b"\x37") * (args.data_mib * MIB)
    workers = [_fork(data, number, args.step_seconds) for number in range(args.workers)]
    say(f"{len(workers)} workers share {args.data_mib} MiB")
    saved = time.monotonic()
    step = 0
    try:
        while life.goes_on():
            _next_batch(workers, args.step_seconds)
            step += 1
            if time.monotonic() - saved >= args.every:
                saved = time.monotonic()
                say(f"step {step}: saved {save(args.checkpoints, step).name}")
            if checkpoint.take():
                say(f"step {step}: asked for a checkpoint, saved {save(args.checkpoints, step).name}")
            if step % max(1, round(1.0 / args.step_seconds)) == 0:
                say(f"step {step} loss {loss(step):.3f}")
    finally:
        for _, pipe in workers:
            os.close(pipe)
        for pid, _ in workers:
            os.waitpid(pid, 0)
    done(f"step {step}: done")


def _fork(data: bytearray, number: int, pause_s: float) -> tuple[int, int]:
    """A worker that reads all of `data`, page by page, and hands over sums; ends when its parent does."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.set_blocking(reading, False)
        return pid, reading
    os.close(reading)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()
    page = number * 4096
    while os.getppid() == parent:
        total = 0
        for _ in range(2048):  # 8 MiB of pages, one byte of each
            total += data[page % len(data)]
            page += 4096
        os.write(writing, total.to_bytes(8, "little"))
        time.sleep(pause_s)
    os._exit(0)


def _next_batch(workers: list[tuple[int, int]], step_s: float) -> None:
    """What the workers have ready; a step takes `step_s` in any case."""
    until = time.monotonic() + step_s
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([pipe for _, pipe in workers], [], [], left)
        for pipe in ready:
            os.read(pipe, 4096)
        time.sleep(min(0.02, max(0.0, until - time.monotonic())))


if __name__ == "__main__":
    main()
