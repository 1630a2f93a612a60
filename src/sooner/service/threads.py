"""Running CPU work in threads without losing track of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

__all__ = ["run_to_its_end"]

T = TypeVar("T")


async def run_to_its_end(pool: Executor | None, work: Callable[[], T]) -> T:
    """Run ``work`` in a thread of ``pool``. If the caller is cancelled, wait for the work before saying so.

    A thread cannot be stopped; to leave it running would let its owner close files under it and would free
    a place in the pool that is still taken.
    """
    future = asyncio.get_running_loop().run_in_executor(pool, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # seen, so that asyncio does not report it as never retrieved
        raise
