"""Giving the oldest part of a file back to the disk, while others go on writing to its end."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02
_BLOCK = 1 << 20


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    import ctypes  # needed only once a log has grown to its limit

    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate64
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function


def drop_oldest(descriptor: int, keep_bytes: int) -> int | None:
    """Free all but about the last `keep_bytes` of a file. Its size and every offset stay as they are.

    The freed part reads as zeros. The file must be open for writing.

    Returns:
        Where what is left begins; None where the file system cannot do it.
    """
    upto = max(0, os.fstat(descriptor).st_size - keep_bytes) // _BLOCK * _BLOCK
    if not upto:
        return 0
    function = _fallocate()
    done = function is not None and function(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, upto) == 0
    return upto if done else None


def first_data(descriptor: int) -> int:
    """Where the part begins that was not freed."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:  # nothing but holes, or a file system that cannot say
        return 0
