"""References that scan lists: what was measured, and the orders of the policies, written from their descriptions.

Sums are made in the order in which things happened, so that they round as the real ones do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from sooner import Ticket

__all__ = ["NaiveLine", "NaiveTraffic"]

Key = tuple[float, ...]


@dataclass
class NaiveTraffic:
    """All that ever happened to a queue; each figure is worked out from it when asked for."""

    num_workers: int
    arrivals: list[Ticket] = field(default_factory=list)
    waiting: list[Ticket] = field(default_factory=list)
    full: list[tuple[float, float]] = field(default_factory=list)  # service and seconds while others waited
    starts: list[tuple[float, float, float]] = field(default_factory=list)  # size, wait, what remained over speed
    full_since_s: float | None = None

    def taken(self, ticket: Ticket, now_s: float) -> None:
        if self.full_since_s is not None:
            self.full.append((min(ticket.window_s, ticket.remaining_s), max(0.0, now_s - self.full_since_s)))
        self.full_since_s = now_s if self.waiting else None
        if ticket.remaining_s == ticket.size_s:
            self.starts.append((ticket.size_s, now_s - ticket.arrival_s, ticket.size_s / self.speed))

    def removed(self) -> None:
        if not self.waiting:
            self.full_since_s = None

    @property
    def capacity(self) -> float:
        if not self.is_measured:
            return float(self.num_workers)
        work_s = time_s = 0.0
        for service_s, seconds in self.full:
            work_s, time_s = work_s * (1 - 1 / 200) + service_s, time_s * (1 - 1 / 200) + seconds
        return work_s / time_s

    @property
    def is_measured(self) -> bool:
        return len(self.full) >= 8 and any(seconds > 0 for _, seconds in self.full)

    @property
    def speed(self) -> float:
        return self.capacity / self.num_workers

    @property
    def sizes_s(self) -> list[float]:
        return sorted(ticket.size_s for ticket in self.arrivals[-512:])

    @property
    def mean_size_s(self) -> float:
        sizes_s = [ticket.size_s for ticket in self.arrivals[-512:]]
        return sum(sizes_s) / len(sizes_s) if sizes_s else 0.0

    @property
    def median_size_s(self) -> float:
        return self.sizes_s[len(self.sizes_s) // 2] if self.arrivals else 0.0

    @property
    def waiting_s(self) -> float:
        return sum(ticket.remaining_s for ticket in self.waiting)

    @property
    def rate_per_s(self) -> float | None:
        recent = self.arrivals[-128:]
        if len(recent) < 2:
            return None
        lasted_s = recent[-1].arrival_s - recent[0].arrival_s  # they come in order of arrival here
        return (len(recent) - 1) / lasted_s if lasted_s else math.inf

    def rank(self, size_s: float) -> float:
        sizes_s = self.sizes_s
        if not sizes_s:
            return 0.0
        below, equal = sum(one < size_s for one in sizes_s), sum(one == size_s for one in sizes_s)
        return (below + equal / 2) / len(sizes_s)

    def share_within(self, load: float) -> float:
        sizes_s, rate_per_s = self.sizes_s, self.rate_per_s
        if rate_per_s is None or rate_per_s == math.inf or not sizes_s:
            return 1.0
        budget_s = load * self.capacity / rate_per_s * len(sizes_s)
        sums_s = [sum(sizes_s[: count + 1]) for count in range(len(sizes_s))]
        return sum(one <= budget_s for one in sums_s) / len(sizes_s)

    def recent_e2e_s(self, share: float, *, upto_size_s: float = math.inf) -> float | None:
        recent = [wait_s + rest_s for size_s, wait_s, rest_s in self.starts[-256:] if size_s <= upto_size_s]
        if len(recent) * (1 - share) < 1:
            return None
        return sorted(recent)[min(len(recent) - 1, int(share * len(recent)))]


class Quantile:
    """Three classes, as the description has them: first, second and last."""

    def __init__(self, traffic: NaiveTraffic) -> None:
        self.traffic = traffic
        self.num_arrived = 0
        self.demoted_at: list[int] = []
        self.first_share = 0.525

    def __call__(self, ticket: Ticket) -> Key:
        weight = 10.0 / self.traffic.capacity if self.traffic.is_measured else 0.0
        return self.class_of(ticket), ticket.arrival_s + weight * ticket.size_s - ticket.own_s

    def class_of(self, ticket: Ticket) -> int:
        traffic = self.traffic
        is_new = ticket.remaining_s == ticket.size_s
        if is_new:
            if self.num_arrived % 32 == 0:
                self.first_share = min(0.525, traffic.share_within(0.9))
            self.num_arrived += 1
        if traffic.waiting_s < 4 * traffic.median_size_s:
            return 0
        if traffic.rank(ticket.size_s) > 0.88:
            recent = [number for number in self.demoted_at if number > self.num_arrived - 512]
            if not is_new:
                return 2
            if len(recent) < math.floor(0.095 * 512):
                self.demoted_at.append(self.num_arrived)
                return 2
        return 0 if traffic.rank(ticket.size_s) <= self.first_share else 1


class Boost:
    """Arrival less a boost; γ by Newton's method from above, where f is convex and so comes down to the root."""

    def __init__(self, traffic: NaiveTraffic) -> None:
        self.traffic = traffic
        self.num_pushed = 0
        self.gamma = math.nan

    def __call__(self, ticket: Ticket) -> Key:
        if self.num_pushed % 32 == 0:
            self.gamma = self.find_gamma()
        self.num_pushed += 1
        size_s = ticket.size_s / self.traffic.capacity
        return (ticket.arrival_s - math.log(1 / -math.expm1(-self.gamma * size_s)) / self.gamma - ticket.own_s,)

    def find_gamma(self) -> float:
        sizes_s = self.traffic.sizes_s
        if not sizes_s:
            return 1.0
        step = max(1, len(sizes_s) // 64)
        points_s = [one / self.traffic.capacity for one in [*sizes_s[step // 2 :: step][:-1], sizes_s[-1]]]
        count, rate_per_s = len(points_s), self.traffic.rate_per_s
        least = 0.01 / (sum(points_s) / count)
        if rate_per_s is None or rate_per_s * sum(points_s) / count >= 1:
            return least
        gamma = 50 / max(points_s)
        for _ in range(400):
            f = rate_per_s * sum(math.expm1(gamma * one) for one in points_s) / count - gamma
            slope = rate_per_s * sum(one * math.exp(gamma * one) for one in points_s) / count - 1
            if f <= 0 or f / slope < 1e-15 * gamma:
                break
            gamma -= f / slope
        return max(gamma, least)


class NaiveLine:
    """What a ``WaitingLine`` without guard and clients holds, in one list that is sorted anew each time.

    Args:
        order: name of a static policy's order; of ``adaptive`` the one that it begins with.
        num_workers: see ``WaitingLine``.
    """

    def __init__(self, order: str, *, num_workers: int) -> None:
        self.traffic = NaiveTraffic(num_workers)
        self.last_sequence = 0
        self.switch(order)

    def switch(self, order: str) -> None:
        self.order = order
        self.rank = self.make_rank()
        self.ranks: dict[str, Key] = {}
        again = sorted(self.traffic.waiting, key=lambda ticket: ticket.sequence)
        self.traffic.waiting = []
        for ticket in again:
            self.put(ticket)

    def make_rank(self) -> Callable[[Ticket], Key]:
        base, _, dial = self.order.partition(":")
        traffic = self.traffic
        ranks: dict[str, Callable[[Ticket], Key]] = {
            "fcfs": lambda ticket: (ticket.arrival_s,),
            "sjf": lambda ticket: (ticket.remaining_s,),
            "srpt": lambda ticket: (ticket.remaining_s,),
            "hrrn": lambda ticket: (),
            "fair": lambda ticket: (ticket.arrival_s + float(dial or 10) * ticket.size_s / traffic.speed,),
            "quantile": Quantile(traffic),
            "boost": Boost(traffic),
        }
        return ranks[base]

    def put(self, ticket: Ticket) -> None:
        self.ranks[ticket.id] = self.rank(ticket)
        self.traffic.waiting.append(ticket)

    def push(self, ticket: Ticket) -> None:
        if ticket.sequence > self.last_sequence:
            self.last_sequence = ticket.sequence
            self.traffic.arrivals.append(ticket)
        self.put(ticket)

    def ordered(self, now_s: float) -> list[Ticket]:
        def key(ticket: Ticket) -> Key:
            ratio = (-ticket.response_ratio(now_s),) if self.order == "hrrn" else ()
            return (*ratio, *self.ranks[ticket.id], ticket.arrival_s, ticket.sequence)

        return sorted(self.traffic.waiting, key=key)

    def pop(self, now_s: float) -> Ticket | None:
        if not self.traffic.waiting:
            return None
        ticket = self.ordered(now_s)[0]
        self.traffic.waiting.remove(ticket)
        self.traffic.taken(ticket, now_s)
        return ticket

    def remove(self, ticket: Ticket) -> None:
        self.traffic.waiting.remove(ticket)
        self.traffic.removed()
