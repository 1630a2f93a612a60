"""Which of the waiting jobs can no longer be done in time."""

from __future__ import annotations

import heapq
import math

__all__ = ["Deadlines"]

_SLACK = 16


class Deadlines:
    """The latest start of each waiting job that has one. A heap in which dead entries stay until they surface.

    Dead entries never outnumber the live ones by more than a constant, so memory is O(live) and every operation
    O(log n) amortised.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[float, str]] = []
        self._latest_s: dict[str, float] = {}

    def set(self, job_id: str, latest_start_s: float) -> None:
        """A job waits that has to be taken up by then; infinity for one that has all the time."""
        self.discard(job_id)
        if latest_start_s < math.inf:
            self._latest_s[job_id] = latest_start_s
            heapq.heappush(self._entries, (latest_start_s, job_id))

    def discard(self, job_id: str) -> None:
        """A job does not wait any more; nothing happens where it was not known."""
        if self._latest_s.pop(job_id, None) is None:
            return
        if len(self._entries) > 2 * len(self._latest_s) + _SLACK:
            self._entries = [(latest_s, waiting_id) for waiting_id, latest_s in self._latest_s.items()]
            heapq.heapify(self._entries)
        while self._entries and not self._is_live(self._entries[0]):
            heapq.heappop(self._entries)

    @property
    def earliest_s(self) -> float | None:
        """The latest start that comes first; ``None`` where nobody is in a hurry."""
        return self._entries[0][0] if self._entries else None

    def take_passed(self, now_s: float) -> list[str]:
        """Remove the jobs whose latest start has passed, and name them, the first to pass first."""
        passed = []
        while self._entries and self._entries[0][0] < now_s:
            job_id = self._entries[0][1]
            passed.append(job_id)
            self.discard(job_id)
        return passed

    def _is_live(self, entry: tuple[float, str]) -> bool:
        return self._latest_s.get(entry[1]) == entry[0]

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold. O(n); for tests."""
        assert len(self._entries) <= 2 * len(self._latest_s) + _SLACK, "dead entries pile up"
        assert {entry for entry in self._entries if self._is_live(entry)} == {
            (latest_s, job_id) for job_id, latest_s in self._latest_s.items()
        }, "a waiting job is not in the heap"
        assert not self._entries or self._is_live(self._entries[0]), "the head is dead"
