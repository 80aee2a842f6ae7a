# ruff: noqa: ISC004 - lines of logs are long
"""How fast mixed training logs are read, split and judged, against `grep -E` with the same patterns.

    python tests/benchmarks/bench_logs.py [MEGABYTES]

End to end: the real tail and the real classifier over a file of what trainers,
servers and schedulers write on a good night, with a failure every few thousand
lines. The goal is 150 MB/s a core, and the memory it takes is printed.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # so that it runs from anywhere, without being installed

from sentinel.logs.classify import Classifier
from sentinel.logs.patterns import load
from sentinel.logs.tail import Tail
from sentinel.paths import shipped

GOOD = (
    "{{'loss': {a:.4f}, 'grad_norm': {b:.4f}, 'learning_rate': {c:.3e}, 'epoch': {d:.2f}}}",
    " iteration {n:8d}/  250000 | consumed samples: {m:12d} | elapsed time per iteration (ms): {e:.1f} | learning rate:"
    " {c:.3E} | global batch size:   512 | lm loss: {a:.6E} | loss scale: 1.0 | grad norm: {b:.3f} | number of skipped"
    " iterations:   0 | number of nan iterations:   0 |",
    "[rank0]:2026-01-02 03:04:05,{k:03d} - root - INFO - step: {n:6d}  loss: {a:7.4f}  memory: 41.20GiB(51.85%)"
    "  tps: {m}  mfu: 40.11%",
    "Epoch {k}:  42%|####      | {n}/100000 [01:02<01:26,  {b:.2f}it/s, v_num=12, train_loss={a:.3f}]",
    "INFO 07-02 03:04:05 [loggers.py:111] Engine 000: Avg prompt throughput: {e:.1f} tokens/s, Avg generation"
    " throughput: {b:.2f} tokens/s, Running: {k} reqs, Waiting: 0 reqs, GPU KV cache usage: 12.4%",
    '2026-01-02T03:04:05Z stdout F {{"level":"info","ts":"2026-01-02T03:04:05Z","msg":"request ok","status":200,'
    '"latency_ms":{k},"id":"req-{m}"}}',
    "step {n}/1000000 | loss {a:.4f} | lr {c:.1e} | grad_norm {b:.2f} | tokens/s {m} | mem 71.2 GiB",
    "node-a:{n}:{k} [3] NCCL INFO Channel 01/0 : 0[0] -> 1[0] [receive] via NET/Socket/0",
)
BAD = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {k}.00 MiB.",
    'HTTP Request: POST https://api.example.com/v1/chat/completions "HTTP/1.1 429 Too Many Requests"',
    "Saving model checkpoint to /data/out/checkpoint-{n}",
)


def write(path: Path, megabytes: int) -> None:
    """A file of mixed logs."""
    chance = random.Random(7)
    with path.open("w", encoding="utf-8") as file:
        size = 0
        while size < megabytes << 20:
            texts = [chance.choice(BAD if chance.random() < 0.0003 else GOOD) for _ in range(20_000)]
            block = "\n".join(
                text.format(
                    a=chance.random() * 3, b=chance.random() * 9, c=chance.random() / 1e4, d=chance.random() * 3,
                    e=chance.random() * 9e3, k=chance.randrange(900), m=chance.randrange(10**7), n=chance.randrange(10**6),
                )
                for text in texts
            )  # fmt: skip
            size += file.write(block + "\n")


def main() -> None:
    """Print it."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    patterns = load(sorted((shipped("rules") / "patterns").glob("*.yaml")))
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "mixed.log"
        write(log, megabytes)
        size = log.stat().st_size
        with log.open("rb") as file:
            while file.read(1 << 20):  # into the page cache, for everybody
                pass
        fresh = _memory_mib()
        began = time.process_time()
        classifier = Classifier(patterns)
        classifier.prepare()
        print(f"{len(patterns)} patterns made ready in {1e3 * (time.process_time() - began):.0f} ms")
        before = _memory_mib()
        tail = Tail(str(log))
        found: Counter[str] = Counter()
        lines = 0
        began = time.process_time()
        for chunk in tail.read(sys.maxsize):
            lines += chunk.count
            for event in classifier.feed(chunk):
                found[event.kind.value] += event.count
        took = time.process_time() - began
        grown = _memory_mib() - before
        print(
            f"sentinel: {size / took / 1e6:7.1f} MB/s a core  ({lines} lines; memory: {before - fresh:.0f} MiB for the"
            f" patterns, {grown:.0f} MiB while reading)"
        )
        print("          " + ", ".join(f"{kind} {count}" for kind, count in sorted(found.items())))
        script = Path(directory) / "patterns.txt"
        script.write_text("\n".join(one for each in patterns if each.kind for one in _for_grep(each.alternatives)))
        part = Path(directory) / "part.log"  # it would take minutes over the whole
        with log.open("rb") as file:
            part.write_bytes(file.read(2 << 20))
        began = time.perf_counter()
        done = subprocess.run(
            ["grep", "-c", "-E", "-f", str(script), str(part)], capture_output=True, text=True, env={"LC_ALL": "C"},
            timeout=600, check=False,
        )  # fmt: skip
        took = time.perf_counter() - began
        print(
            f"grep -E:  {part.stat().st_size / took / 1e6:7.1f} MB/s  ({done.stdout.strip() or done.stderr.strip()} lines)"
        )


def _memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def _for_grep(alternatives: tuple[str, ...]) -> list[str]:
    """Without what grep's syntax lacks; near enough for a race."""
    found = []
    for one in alternatives:
        plain = one.replace("(?i)", "").replace("(?:", "(").replace("(?i:", "(").replace("\\d", "[0-9]")
        plain = (
            plain.replace("\\S", "[^ ]").replace("{0,", "{0,").replace("+?", "+").replace("*?", "*").replace("}?", "}")
        )
        if "(?" not in plain:
            found.append(plain)
    return found


if __name__ == "__main__":
    main()
