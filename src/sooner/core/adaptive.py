"""``adaptive``: a controller that changes the order with the traffic.

No order is best everywhere. With nothing waiting, arrival order is as good as any and surprises nobody. Where
sizes differ widely (files among clips) short before long is nearly free. Where they are alike, an order can only
move waiting from one job to another: worth it in overload, where half of the jobs can be spared a queue that
grows, and hardly below. So the controller looks at how much waits, how sizes differ and what load arrives, and,
where goals are given, at what recent jobs have suffered.

It decides; whoever owns the queue (``WaitingLine``) changes it, with all that waits, its arrivals and promises.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sooner.core.job import Ticket, largest
from sooner.core.ready_queue import HeapQueue, ReadyQueue
from sooner.core.traffic import Traffic

__all__ = ["AdaptivePolicy", "Controller", "Goals", "Switch"]

CALM, ALIKE, SHORT_FIRST, SHORTEST, GENTLE = "fcfs", "boost", "quantile", "srpt", "hrrn"

_BUSY_FROM = 4.0  # backlog in jobs of the median size
_CALM_BELOW = 1.0
_DWELL = 100.0  # service times of the median job between two changes
_UNLIKE_FROM = 1.5  # squared coefficient of variation of sizes
_ALIKE_BELOW = 1.0
_OVERLOAD_FROM = 1.0
_UNDERLOAD_BELOW = 0.9
_MET_BELOW = 0.7  # of a goal: from there what was done for it is undone
_LOOK_EVERY = 16  # jobs between two looks at load, sizes and tails


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What recent jobs should have, from arrival to end; ``None`` for no goal.

    Attributes:
        short_p90_s: 90th percentile of the shorter half, seconds.
        all_p99_s: 99th percentile of all, seconds.
    """

    short_p90_s: float | None = None
    all_p99_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A change of order.

    Attributes:
        at_s: when, monotonic seconds.
        before: name of the order until then.
        after: name of the order from then on.
        reason: why, in a sentence with the figures.
    """

    at_s: float
    before: str
    after: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptivePolicy:
    """Chooses among other policies by the traffic; the victim is the largest running job.

    Attributes:
        name: see ``Policy``.
        summary: see ``Policy``.
        preemptive: see ``Policy``.
        goals: what to keep to where possible.
    """

    name: str = "adaptive"
    summary: str = "fcfs while calm, short first under load, the order by backlog, load and sizes"
    preemptive: bool = True
    goals: Goals = field(default_factory=Goals)

    def make_queue(self, traffic: Traffic) -> ReadyQueue:
        """The queue that the controller begins with."""
        return HeapQueue(lambda ticket: ticket.arrival_s)

    def make_controller(self, traffic: Traffic) -> Controller:
        """A controller that begins calm."""
        return Controller(traffic, self.goals)

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return largest(running)


class Controller:
    """Which order to serve in, decided anew after every arrival and every job taken. O(1), amortised.

    Args:
        traffic: what is measured.
        goals: see ``Goals``.

    Attributes:
        order: name of the order in force.
    """

    def __init__(self, traffic: Traffic, goals: Goals) -> None:
        self.order = CALM
        self._traffic = traffic
        self._goals = goals
        self._overload = False
        self._unlike = True
        self._short_missed = False
        self._tail_missed = False
        self._num_until_look = 0
        self._changed_at_s = float("-inf")

    def decide(self, now_s: float) -> Switch | None:
        """The change of order that is due at ``now_s``, from then on in force; ``None`` for none."""
        if self._num_until_look == 0:
            self._look()
            self._num_until_look = _LOOK_EVERY
        self._num_until_look -= 1
        order = self._wanted()
        if order == self.order or not (self.order == CALM or self._has_dwelt(now_s)):
            return None
        switch = Switch(at_s=now_s, before=self.order, after=order, reason=self._reason(order))
        self.order, self._changed_at_s = order, now_s
        return switch

    def _has_dwelt(self, now_s: float) -> bool:
        traffic = self._traffic
        return now_s - self._changed_at_s >= _DWELL * traffic.median_size_s / traffic.speed

    def _look(self) -> None:
        """Take in what changes slowly. Each has two limits, so that none goes to and fro at one."""
        traffic, goals = self._traffic, self._goals
        load = traffic.load
        if load is not None:
            self._overload = load >= (_UNDERLOAD_BELOW if self._overload else _OVERLOAD_FROM)
        self._unlike = traffic.size_variation >= (_ALIKE_BELOW if self._unlike else _UNLIKE_FROM)
        if goals.short_p90_s is not None:
            seen_s = traffic.recent_e2e_s(0.9, upto_size_s=traffic.median_size_s)
            self._short_missed = _is_missed(seen_s, goals.short_p90_s, was_missed=self._short_missed)
        if goals.all_p99_s is not None:
            seen_s = traffic.recent_e2e_s(0.99)
            self._tail_missed = _is_missed(seen_s, goals.all_p99_s, was_missed=self._tail_missed)

    def _wanted(self) -> str:
        """The order that the traffic asks for."""
        if not self._is_busy():
            return CALM
        if self._short_missed != self._tail_missed:  # where both are, no order helps both
            return SHORTEST if self._short_missed else GENTLE
        return SHORT_FIRST if self._unlike or self._overload else ALIKE

    def _reason(self, order: str) -> str:
        """Why it is this one, in a sentence with the figures."""
        traffic = self._traffic
        load, variation = traffic.load or 0.0, traffic.size_variation
        if order == CALM:
            return f"hardly anything waits: {traffic.backlog_s:.1f} s of work"
        reasons = {
            SHORTEST: f"the shorter half misses its P90 goal of {self._goals.short_p90_s or 0:g} s",
            GENTLE: f"all miss their P99 goal of {self._goals.all_p99_s or 0:g} s",
            ALIKE: f"sizes are alike, and a load of {load:.2f} will be served",
        }
        differ = f"sizes differ widely (CV² {variation:.1f})"
        short_first = differ if self._unlike else f"more arrives than can be served (load {load:.2f})"
        backlog = f"{traffic.num_waiting} wait, {traffic.backlog_s:.1f} s of work"
        return f"{backlog}; {reasons.get(order, short_first)}"

    def _is_busy(self) -> bool:
        traffic = self._traffic
        if self.order == CALM:  # a lone file that comes back after a window is no queue
            return traffic.num_waiting > 1 and traffic.waiting_s >= _BUSY_FROM * traffic.median_size_s
        return traffic.num_waiting > 0 and traffic.waiting_s >= _CALM_BELOW * traffic.median_size_s


def _is_missed(seen_s: float | None, goal_s: float, *, was_missed: bool) -> bool:
    """Whether a goal is missed; ``seen_s`` is ``None`` while too little was seen."""
    return seen_s is not None and seen_s > (_MET_BELOW * goal_s if was_missed else goal_s)
