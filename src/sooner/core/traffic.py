"""What has come lately and how fast it is served: what policies and the controller adapt to.

Everything is measured in the unit that sizes have. Where sizes are seconds of a worker's time, capacity comes out
near the number of workers; where they are tokens, it comes out in tokens a second. Nothing here needs to know.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import deque
from itertools import accumulate

from sooner.core.job import Ticket

__all__ = ["Traffic"]

_NUM_SIZES = 512  # arrivals whose sizes make the distribution
_NUM_ARRIVALS = 128  # arrivals that make the rate: fewer, because it changes sooner than sizes do
_NUM_STARTS = 256  # jobs taken up whose waits are kept
_KEPT = 1 - 1 / 200  # of the measured capacity, at each job that is taken
_MIN_TAKEN = 8  # jobs taken with others waiting before a capacity is believed


class Traffic:
    """Measures of one queue, fed by the ``WaitingLine`` that owns it.

    Attributes:
        waiting_s: predicted service of all that waits, seconds.
        num_waiting: jobs that wait.
    """

    def __init__(self, *, num_workers: int) -> None:
        self.waiting_s = 0.0
        self.num_waiting = 0
        self._num_workers = num_workers
        self._sizes: deque[float] = deque()
        self._sorted: list[float] = []
        self._sum_s = 0.0
        self._arrivals_s: deque[float] = deque(maxlen=_NUM_ARRIVALS)
        self._starts: deque[tuple[float, float]] = deque(maxlen=_NUM_STARTS)  # size, seconds from arrival to end
        self._busy_since_s: float | None = None
        self._work_s = 0.0
        self._time_s = 0.0
        self._num_taken = 0

    def arrived(self, ticket: Ticket) -> None:
        """Note a job that comes for the first time. O(log n) and a short copy in a window of constant length."""
        latest_s = self._arrivals_s[-1] if self._arrivals_s else ticket.arrival_s
        self._arrivals_s.append(max(ticket.arrival_s, latest_s))  # a long upload may be queued after a later clip
        self._sizes.append(ticket.size_s)
        insort(self._sorted, ticket.size_s)
        self._sum_s += ticket.size_s
        if len(self._sizes) > _NUM_SIZES:
            oldest_s = self._sizes.popleft()
            self._sum_s -= oldest_s
            del self._sorted[bisect_left(self._sorted, oldest_s)]

    def taken(self, ticket: Ticket, now_s: float) -> None:
        """Note that a worker takes a job, which no longer counts as waiting. O(1)."""
        if self._busy_since_s is not None:  # others waited ever since the last one was taken: the engine was full
            self._work_s = self._work_s * _KEPT + ticket.next_service_s
            self._time_s = self._time_s * _KEPT + max(0.0, now_s - self._busy_since_s)
            self._num_taken += 1
        self._busy_since_s = now_s if self.num_waiting else None
        if ticket.remaining_s == ticket.size_s:
            self._starts.append((ticket.size_s, now_s - ticket.arrival_s + ticket.remaining_s / self.speed))

    def emptied(self) -> None:
        """Note that the last waiting job was taken out unserved: from now on the engine may stand idle. O(1)."""
        self._busy_since_s = None

    @property
    def capacity(self) -> float:
        """Predicted service that the engine gives in a second when it is full, all workers together.

        Until enough was seen: the number of workers, which is right where sizes are.
        """
        return self._work_s / self._time_s if self.is_measured else float(self._num_workers)

    @property
    def is_measured(self) -> bool:
        """Whether the engine was full for long enough to tell its capacity."""
        return self._num_taken >= _MIN_TAKEN and self._time_s > 0

    @property
    def speed(self) -> float:
        """Predicted service that one worker gives in a second: 1 where sizes are right."""
        return self.capacity / self._num_workers

    @property
    def backlog_s(self) -> float:
        """Seconds that the engine needs for all that waits."""
        return self.waiting_s / self.capacity

    @property
    def rate_per_s(self) -> float | None:
        """Jobs that arrive in a second; ``None`` before the second one."""
        if len(self._arrivals_s) < 2:
            return None
        lasted_s = self._arrivals_s[-1] - self._arrivals_s[0]
        return (len(self._arrivals_s) - 1) / lasted_s if lasted_s > 0 else math.inf

    @property
    def load(self) -> float | None:
        """ρ: predicted service that arrives in a second over the capacity; ``None`` where not known yet."""
        rate_per_s = self.rate_per_s
        return None if rate_per_s is None else rate_per_s * self.mean_size_s / self.capacity

    @property
    def mean_size_s(self) -> float:
        """Mean of the recent sizes, 0 where there are none."""
        return self._sum_s / len(self._sizes) if self._sizes else 0.0

    @property
    def median_size_s(self) -> float:
        """Median of the recent sizes, 0 where there are none."""
        return self._sorted[len(self._sorted) // 2] if self._sorted else 0.0

    @property
    def size_variation(self) -> float:
        """Squared coefficient of variation of the recent sizes; 0 where there are none. O(window)."""
        mean_s = self.mean_size_s
        if not mean_s:
            return 0.0
        return math.fsum((size_s - mean_s) ** 2 for size_s in self._sizes) / len(self._sizes) / mean_s**2

    @property
    def sizes_s(self) -> list[float]:
        """The recent sizes, least first."""
        return self._sorted

    def rank(self, size_s: float) -> float:
        """Where a size stands among recent ones, from 0 for the least to 1; ties stand in the middle of theirs."""
        if not self._sorted:
            return 0.0
        below, upto = bisect_left(self._sorted, size_s), bisect_right(self._sorted, size_s)
        return (below + upto) / 2 / len(self._sorted)

    def share_within(self, load: float) -> float:
        """The largest share of jobs, shortest first, that together bring at most this load. O(window).

        All of them where no rate is known, or all came at one instant: that is a heap of work and no stream.
        """
        rate_per_s = self.rate_per_s
        if rate_per_s is None or rate_per_s == math.inf or not self._sorted:
            return 1.0
        budget_s = load * self.capacity / rate_per_s * len(self._sorted)
        return bisect_right(list(accumulate(self._sorted)), budget_s) / len(self._sorted)

    def recent_e2e_s(self, share: float, *, upto_size_s: float = math.inf) -> float | None:
        """A quantile of the seconds from arrival to end that recent jobs had, or were in for when taken up.

        Args:
            share: which quantile, from 0 to 1.
            upto_size_s: only jobs up to this size.

        Returns:
            Seconds; ``None`` where too few jobs are known for this quantile. O(window).
        """
        e2e_s = sorted(e2e_s for size_s, e2e_s in self._starts if size_s <= upto_size_s)
        if len(e2e_s) * (1 - share) < 1:
            return None
        return e2e_s[min(len(e2e_s) - 1, int(share * len(e2e_s)))]
