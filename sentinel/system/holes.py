"""Giving the oldest part of a file back to the disk, and keeping room at its end, while others go on writing there."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable

_KEEP_SIZE = 0x01
_PUNCH_HOLE = 0x02
_BLOCK = 1 << 20


@functools.cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    import ctypes  # only what keeps a log needs it

    try:
        function = ctypes.CDLL(None, use_errno=True).fallocate64
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    function.restype = ctypes.c_int
    return function


def reserve(descriptor: int, size_bytes: int) -> bool | None:
    """Have the disk keep room for so much behind the end of a file, whoever writes it. Its size stays as it is.

    Returns:
        False where there is no room; None where the file system cannot do it.
    """
    function = _fallocate()
    if function is None:
        return None
    if function(descriptor, _KEEP_SIZE, os.fstat(descriptor).st_size, size_bytes) == 0:
        return True
    import ctypes

    return False if ctypes.get_errno() in {errno.ENOSPC, errno.EDQUOT} else None


def drop_oldest(descriptor: int, keep_bytes: int, block: int = _BLOCK) -> int | None:
    """Free all but about the last `keep_bytes` of a file. Its size and every offset stay as they are.

    The freed part reads as zeros. The file must be open for writing.

    Args:
        descriptor: The file.
        keep_bytes: How much of its end stays.
        block: What is freed ends at a multiple of this.

    Returns:
        Where what is left begins; None where the file system cannot do it.
    """
    upto = max(0, os.fstat(descriptor).st_size - keep_bytes) // block * block
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
