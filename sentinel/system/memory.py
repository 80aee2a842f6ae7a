"""Giving memory back that only the start needed."""

from __future__ import annotations

import ctypes
import gc


def settle() -> None:
    """What lives now lives long: look at it no more, and hand what is free back to the system.

    Source: malloc_trim(3). Elsewhere than under glibc only the first half happens.
    """
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
