"""``quantile``: three classes by where a size stands among recent ones, while there is a backlog.

The shorter half first, then what is shorter than nine tenths, then the longest tenth. Ordering by size alone (sjf)
buys the median with the 90th percentile; ordering by ratio (hrrn) gains little of either. Both percentiles can be
had at once, because each asks for something else: the median wants half of the jobs served at once, whichever,
and the 90th percentile wants nine tenths served in turn. Whoever is behind them pays: the longest, who can.
``docs/policies/quantile.md`` has the figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from sooner.core.job import Ticket, largest
from sooner.core.ready_queue import HeapQueue, ReadyQueue
from sooner.core.traffic import Traffic

__all__ = ["QuantilePolicy"]

_FIRST_SHARE = 0.525  # a little over half, so that the median job is well inside
_LAST_RANK = 0.88
_MAX_DEMOTED_SHARE = 0.095  # a little under a tenth, so that the 90th percentile is not one of them
_WINDOW = 512  # arrivals over which that share holds
_MAX_FIRST_LOAD = 0.9
_MIN_WAITING = 4.0  # backlog, in jobs of the median size, from which there are classes
_SIZE_WEIGHT = 10.0  # within a class: seconds of arrival that a second of the engine's time weighs
_UPDATE_EVERY = 32  # arrivals between two looks at what the first class brings


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePolicy:
    """Three classes by size among recent arrivals; the victim is the largest running job."""

    name: str = "quantile"
    summary: str = "shorter half first, longest tenth last, while there is a backlog: good median and P90 at once"
    preemptive: bool = True

    def make_queue(self, traffic: Traffic) -> ReadyQueue:
        return _QuantileQueue(traffic)

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return largest(running)


class _QuantileQueue(HeapQueue):
    """A heap by class, then by arrival + 10 · size / capacity − own decoding.

    The class is given at each push, from the state of that moment:

    - no backlog (less than four median jobs of work wait): the first, so that arrival order rules;
    - longer than 88 % of recent sizes, while fewer than 9.5 % of the last 512 arrivals are in it: the last. At the
      beginning of a rush all of that share is free, which is when it helps: who comes early in a rush and is not
      first waits for most of it;
    - shorter than 52.5 % of recent sizes, or less where that much would bring more than 0.9 of the capacity: the
      first; otherwise that class would have a growing queue of its own, and the median would be lost;
    - else the second.

    A job that comes back after a window is pushed again, so a file that was alone when it came is put into its
    class once others wait. O(log n) a push and pop.
    """

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(self._rank_now)
        self._traffic = traffic
        self._first_share = _FIRST_SHARE
        self._num_arrived = 0
        self._demoted: deque[int] = deque()  # by number of arrival, those of the window

    def _rank_now(self, ticket: Ticket) -> tuple[int, float]:
        traffic = self._traffic
        weight = _SIZE_WEIGHT / traffic.capacity if traffic.is_measured else 0.0
        return self._class_of(ticket), ticket.arrival_s + weight * ticket.size_s - ticket.own_s

    def _class_of(self, ticket: Ticket) -> int:
        traffic = self._traffic
        is_new = ticket.remaining_s == ticket.size_s
        if is_new:
            self._count_arrival()
        if traffic.waiting_s < _MIN_WAITING * traffic.median_size_s:
            return 0
        rank = traffic.rank(ticket.size_s)
        if rank > _LAST_RANK and (not is_new or self._may_demote()):
            return 2
        return 0 if rank <= self._first_share else 1

    def _count_arrival(self) -> None:
        if self._num_arrived % _UPDATE_EVERY == 0:
            self._first_share = min(_FIRST_SHARE, self._traffic.share_within(_MAX_FIRST_LOAD))
        self._num_arrived += 1
        while self._demoted and self._demoted[0] <= self._num_arrived - _WINDOW:
            self._demoted.popleft()

    def _may_demote(self) -> bool:
        """Whether the share has room for this arrival, which then takes it."""
        if len(self._demoted) + 1 > _MAX_DEMOTED_SHARE * _WINDOW:
            return False
        self._demoted.append(self._num_arrived)
        return True
