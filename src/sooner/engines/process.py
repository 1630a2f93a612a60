"""Settings of the whole process that a CPU engine is faster with."""

from __future__ import annotations

import ctypes

from threadpoolctl import threadpool_limits

__all__ = ["tune_for_workers"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 256 * 2**20


def tune_for_workers() -> None:
    """Make N single-threaded workers in one process as fast as N processes. Safe to call again.

    NumPy's BLAS would add a thread per core to each small product, and their busy waiting costs a tenth of the
    machine. glibc gives each large freed block back to the kernel, and the engine asks for it again at the next
    window: page faults were an eighth of the time. Other C libraries have no ``mallopt`` and are left alone.
    """
    threadpool_limits(limits=1, user_api="blas")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _KEEP_BYTES)
