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

from sooner.core.job import Ticket
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
        return max(running, key=lambda t: (t.size_s, t.arrival_s, t.sequence), default=None)


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
        order, reason = self._wanted()
        dwell_s = _DWELL * self._traffic.median_size_s / self._traffic.speed
        urgent = self.order == CALM
        if order == self.order or not (urgent or now_s - self._changed_at_s >= dwell_s):
            return None
        switch = Switch(at_s=now_s, before=self.order, after=order, reason=reason)
        self.order, self._changed_at_s = order, now_s
        return switch

    def _look(self) -> None:
        """Take in what changes slowly. Each has two limits, so that none goes to and fro at one."""
        traffic = self._traffic
        load, variation = traffic.load, traffic.size_variation
        if load is not None:
            self._overload = load >= (_UNDERLOAD_BELOW if self._overload else _OVERLOAD_FROM)
        self._unlike = variation >= (_ALIKE_BELOW if self._unlike else _UNLIKE_FROM)
        short_s = traffic.recent_e2e_s(0.9, upto_size_s=traffic.median_size_s)
        self._short_missed = _is_missed(short_s, self._goals.short_p90_s, was_missed=self._short_missed)
        self._tail_missed = _is_missed(
            traffic.recent_e2e_s(0.99), self._goals.all_p99_s, was_missed=self._tail_missed
        )

    def _wanted(self) -> tuple[str, str]:
        """The order that the traffic asks for, and why."""
        traffic = self._traffic
        median_s = traffic.median_size_s
        if not self._is_busy(traffic.waiting_s, median_s):
            return CALM, f"hardly anything waits: {traffic.backlog_s:.1f} s"
        backlog = f"{traffic.num_waiting} wait, {traffic.backlog_s:.1f} s of work"
        if self._short_missed and not self._tail_missed:
            return SHORTEST, f"{backlog}; the shorter half misses its P90 goal of {self._goals.short_p90_s:g} s"
        if self._tail_missed and not self._short_missed:
            return GENTLE, f"{backlog}; all miss their P99 goal of {self._goals.all_p99_s:g} s"
        if self._unlike:
            return SHORT_FIRST, f"{backlog}; sizes differ widely (CV² {traffic.size_variation:.1f})"
        if self._overload:
            return SHORT_FIRST, f"{backlog}; more arrives than can be served (load {traffic.load or 0:.2f})"
        return ALIKE, f"{backlog}; sizes are alike, and the load of {traffic.load or 0:.2f} will be served"

    def _is_busy(self, waiting_s: float, median_s: float) -> bool:
        if self.order == CALM:  # a lone file that comes back after a window is no queue
            return self._traffic.num_waiting > 1 and waiting_s >= _BUSY_FROM * median_s
        return waiting_s >= _CALM_BELOW * median_s and self._traffic.num_waiting > 0


def _is_missed(seen_s: float | None, goal_s: float | None, *, was_missed: bool) -> bool:
    if seen_s is None or goal_s is None:
        return False
    return seen_s > (_MET_BELOW * goal_s if was_missed else goal_s)
