"""Time as a dependency, so that tests decide what time it is."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "MonotonicClock"]


class Clock(Protocol):
    """A source of monotonic seconds."""

    def now_s(self) -> float:
        """Seconds since an arbitrary origin; never goes back."""


class MonotonicClock:
    """The real clock."""

    def now_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to.

    Args:
        now_s: where it starts.
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``. Raises ``ValueError`` where that is negative."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-seconds} s")
        self._now_s += seconds
