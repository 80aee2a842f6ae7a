"""`run --detach`: a supervisor in a session of its own, that nobody waits for and no terminal can hang up."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from sentinel.errors import SentinelError

_LARGEST = 64 * 1024


def detached(supervise: Callable[[Callable[[str, str], None]], int]) -> int:
    """Leave a supervisor behind; returns once its job runs, or with what went wrong.

    stdout gets the job's name, stderr its log: what follows is only in there.

    Args:
        supervise: Runs the job, and calls what it is given, with the job's name and log, once it runs.
    """
    answer, inner = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(answer)
        _leave(inner, supervise)
    os.close(inner)
    said = b""
    while data := os.read(answer, 4096):
        said = (said + data)[:_LARGEST]
    os.close(answer)
    os.waitpid(child, 0)
    code, _, words = said.decode("utf-8", "replace").partition("\n")
    if code != "ok":
        sys.stderr.write(f"sentinel: {words or 'the supervisor died before its job ran'}\n")
        return int(code) if code.isdecimal() else 70
    name, _, log = words.partition("\n")
    print(name)
    sys.stderr.write(f"sentinel: {name} runs on its own now; its output is in {log}\n")
    return 0


def _leave(answer: int, supervise: Callable[[Callable[[str, str], None]], int]) -> None:
    """In the child: once more into a child, so that nobody has to wait for it. Never returns."""
    os.setsid()
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    told = False

    def tell(code: str, words: str) -> None:
        nonlocal told
        if not told:
            told = True
            os.write(answer, f"{code}\n{words}".encode("utf-8", "replace"))
            os.close(answer)

    exit_code = 70
    try:
        exit_code = supervise(lambda name, log: tell("ok", f"{name}\n{log}"))
    except SentinelError as fault:
        tell(str(fault.exit_code), str(fault))
    except BaseException:
        tell("70", traceback.format_exc())
    tell(str(exit_code), "")
    os._exit(exit_code)
