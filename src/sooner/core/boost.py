"""``boost``: γ-Boost, the order with the lightest tail of response times where sizes are light-tailed.

Smallest ``arrival − b(size)`` first, with ``b(s) = (1/γ) ln(1 / (1 − e^(−γ s)))`` and γ the decay rate of the
workload's tail, the positive root of ``γ = λ (E[e^(γ S)] − 1)`` (Yu and Scully 2024, "Strongly Tail-Optimal
Scheduling in the Light-Tailed M/G/1", https://arxiv.org/abs/2404.08826, §1.2 and §3). Large γ is first come first
served, small γ shortest first. At load 1 and above there is no root; γ is never less than a hundredth of the
inverse mean size, as it is just below load 1: sizes then rule within some hundred mean service times.

An engine that batches has two costs. Admission occupies it, and argues for short before long; the job's own
decoding does not, and argues for long before short, because who has long to decode must begin early to end in
time. The form for such engines is ``arrival − b(admission work) − own decoding`` (our derivation, simulated only).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sooner.core.job import Ticket
from sooner.core.ready_queue import HeapQueue, ReadyQueue
from sooner.core.traffic import Traffic

__all__ = ["BoostPolicy", "boost_s", "decay_rate"]

_UPDATE_EVERY = 32  # arrivals between two looks at the load
_NUM_POINTS = 64  # of the distribution of sizes, for the root
_NUM_HALVINGS = 50
_LEAST = 0.01  # γ · mean size: what γ is near load 1 anyhow, so that boosts of before and after can be compared
_MAX_EXPONENT = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostPolicy:
    """Arrival less a boost that falls with size; the victim is the running job that arrived last."""

    name: str = "boost"
    summary: str = "arrival less a boost for short jobs, sized by the load: the lightest tail, clips gain less"
    preemptive: bool = True

    def make_queue(self, traffic: Traffic) -> ReadyQueue:
        return _BoostQueue(traffic)

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return max(running, key=lambda t: (t.arrival_s, t.sequence), default=None)


class _BoostQueue(HeapQueue):
    """A heap by arrival − b(size) − own decoding, with the γ of the push. O(log n) a push and pop."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__(self._rank_now)
        self._traffic = traffic
        self._gamma_per_s = 0.0
        self._num_seen = 0

    def _rank_now(self, ticket: Ticket) -> float:
        traffic = self._traffic
        if self._num_seen % _UPDATE_EVERY == 0:
            self._gamma_per_s = _gamma_of(traffic)
        self._num_seen += 1
        boost = boost_s(ticket.size_s / traffic.capacity, gamma_per_s=self._gamma_per_s)
        return ticket.arrival_s - boost - ticket.own_s


def boost_s(size_s: float, *, gamma_per_s: float) -> float:
    """b(s), by how many seconds earlier a job counts as arrived. Both arguments are more than 0."""
    return -math.log(-math.expm1(-gamma_per_s * size_s)) / gamma_per_s


def _gamma_of(traffic: Traffic) -> float:
    """γ of what was measured, per second, and at least ``_LEAST`` over the mean size."""
    sizes_s = traffic.sizes_s
    if not sizes_s:
        return 1.0
    step = max(1, len(sizes_s) // _NUM_POINTS)
    points_s = [size_s / traffic.capacity for size_s in sizes_s[step // 2 :: step]]
    points_s[-1] = sizes_s[-1] / traffic.capacity  # the longest decides
    rate_per_s = traffic.rate_per_s
    gamma_per_s = None if rate_per_s is None else decay_rate(points_s, rate_per_s=rate_per_s)
    return max(gamma_per_s or 0.0, _LEAST * len(points_s) / sum(points_s))


def decay_rate(sizes_s: Sequence[float], *, rate_per_s: float) -> float | None:
    """The positive root γ of ``γ = λ (E[e^(γ S)] − 1)``, per second.

    Args:
        sizes_s: equally likely service times on the whole engine, seconds, each more than 0.
        rate_per_s: λ, arrivals a second.

    Returns:
        γ, or ``None`` where there is none: the load is 1 or more. By bisection, O(sizes).
    """
    count = len(sizes_s)
    if not rate_per_s * sum(sizes_s) / count < 1:
        return None
    low, high = 0.0, _MAX_EXPONENT / max(sizes_s)
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        if rate_per_s * sum(math.expm1(middle * size_s) for size_s in sizes_s) / count < middle:
            low = middle
        else:
            high = middle
    return high
