"""A limit on how long any job is put off, around the queue of any policy.

Two rules:

- fixed: once the earliest waiting job has waited ``max_wait_s`` it is served next. Simple, and in overload, where
  every job waits that long, the order becomes first come, first served.
- scaled: a job may be overtaken by so much service, in proportion to the work that was ahead of it when it came.

**The scaled rule.** A job J that is queued for the first time is promised an *allowance*: ``scale`` ·
(remaining service of all that waits here) + ``slack_s`` · ``num_workers``. What runs at that moment is not
known to a queue and is left out, so the promise is never too wide. Whenever a job K is taken, every waiting job
that arrived before it is overtaken by the service that K gets before it can next be put off (one window), and
its allowance falls by that. A waiting job whose allowance is 0 or less is *due*; while there are any, the
earliest due job is served, whatever the policy says. What is left of the allowance travels with the ticket
(``Ticket.allowance_s``), through windows and into the queue of another policy.

**Theorem.** Sizes being right, jobs being queued in the order of arrival, and no worker being idle while a job
waits: let W be the remaining service, at J's arrival, of all that was there (waiting and running), and w the
largest window. Then J waits for its first window at most (W + allowance + w) / ``num_workers``, hence at most
(1 + ``scale``) · W / ``num_workers`` + ``slack_s`` + w / ``num_workers``.

*Proof.* While J is due, whoever is served is the earliest due job, so J itself or one that arrived before it: a
due job is overtaken by nobody. J therefore is overtaken only while its allowance is more than 0, and by one
window at a time, each counted whole when it is taken: at most the allowance and the one window that used it up.
All other service while J waits goes to jobs that arrived before it, W at most. The workers are busy while J
waits, so they give ``num_workers`` · wait of service in that time. ∎

With one worker W is what J would have waited under fcfs, and the bound holds for all that J waits in its life,
however often it comes back after a window. With more, W / ``num_workers`` stands in for that wait, and each
time that J comes back, up to ``num_workers`` - 1 windows of later jobs may be under way that were taken while J
was served: they count for nobody, and add as many w to the sum in brackets.

The scaled rule reads no clock: where sizes are wrong by a factor, both sides are. Of ``slack_s`` alone seconds are
made service by the measured ``capacity`` (``num_workers`` above), which has the same factor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Protocol

from sooner.core.job import Ticket
from sooner.core.overtaking import AllowanceTree, Arrival
from sooner.core.ready_queue import HeapQueue, ReadyQueue
from sooner.errors import ConfigurationError

__all__ = ["Guard", "GuardedQueue", "taken_from"]

_FORMS = "off, fixed:SECONDS or scaled:E,D, with numbers from 0 to 1e9"
_NS_PER_S = 10**9
_MOST = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How far the order of a policy may put a job off. Without any number: as far as it likes.

    Attributes:
        max_wait_s: fixed rule: seconds since arrival after which the earliest waiting job is served next.
        scale: scaled rule, ε: how much later than the work ahead of it alone would have it a job may be served.
        slack_s: scaled rule, δ: seconds that every job may be put off beside that.

    Raises:
        ConfigurationError: a number is negative, not finite or above 1e9, both rules are asked for, or half of
            the scaled one.
    """

    max_wait_s: float | None = None
    scale: float | None = None
    slack_s: float | None = None

    def __post_init__(self) -> None:
        numbers = [n for n in (self.max_wait_s, self.scale, self.slack_s) if n is not None]
        half = (self.scale is None) != (self.slack_s is None)
        both = self.max_wait_s is not None and self.scale is not None
        if half or both or not all(0 <= n <= _MOST for n in numbers):
            raise ConfigurationError(f"{self} is no guard; it may be {_FORMS}")

    @classmethod
    def parse(cls, text: str) -> Guard:
        """The guard that an option's text names: ``off``, ``fixed:SECONDS`` or ``scaled:E,D``.

        Raises:
            ConfigurationError: the text is none of these, or a number is negative or not finite.
        """
        rule, _, rest = text.partition(":")
        try:
            numbers = [float(number) for number in rest.split(",")] if rest else []
        except ValueError:
            numbers = []
        if text == "off":
            return cls()
        if all(0 <= n <= _MOST for n in numbers):
            if rule == "fixed" and len(numbers) == 1:
                return cls(max_wait_s=numbers[0])
            if rule == "scaled" and len(numbers) == 2:
                return cls(scale=numbers[0], slack_s=numbers[1])
        raise ConfigurationError(f"{text!r} is no guard; use {_FORMS}")

    @property
    def is_off(self) -> bool:
        """Whether no job is guarded."""
        return self.max_wait_s is None and self.scale is None

    def around(self, inner: ReadyQueue, *, capacity: Callable[[], float]) -> ReadyQueue:
        """The queue, guarded; itself where the guard is off. For ``capacity`` see ``GuardedQueue``."""
        return inner if self.is_off else GuardedQueue(inner, self, capacity=capacity)


class _Rule(Protocol):
    """Which waiting ticket, if any, has to be served whatever the policy says."""

    def push(self, ticket: Ticket) -> None: ...

    def due(self, now_s: float) -> Ticket | None:
        """The ticket to serve at once, with what is left of its allowance."""

    def waiting(self) -> dict[str, Ticket]:
        """All tickets by id, each with what is left of its allowance. O(n)."""

    def remove(self, job_id: str) -> Ticket:
        """Forget a ticket; it, with what is left of its allowance."""

    def take(self, job_id: str) -> Ticket:
        """Remove a ticket that is to be served, and count that against all that it overtakes."""

    def is_due_within(self, order: Sequence[Ticket], now_s: float) -> bool:
        """Whether any would fall due, if all that wait were taken in this order at ``now_s``. O(n log n)."""

    def check(self) -> None: ...

    def __contains__(self, job_id: object) -> bool: ...

    def __len__(self) -> int: ...


class _FixedRule(HeapQueue):
    """The earliest ticket is due once it has waited long enough. O(log n) a push and remove."""

    def __init__(self, max_wait_s: float) -> None:
        super().__init__(lambda ticket: ticket.arrival_s)
        self._max_wait_s = max_wait_s

    def due(self, now_s: float) -> Ticket | None:
        earliest = self.peek(now_s)
        if earliest is None or now_s - earliest.arrival_s < self._max_wait_s:
            return None
        return earliest

    def waiting(self) -> dict[str, Ticket]:
        return {ticket.id: ticket for ticket in self}

    def take(self, job_id: str) -> Ticket:
        return self.remove(job_id)

    def is_due_within(self, order: Sequence[Ticket], now_s: float) -> bool:
        return self.due(now_s) is not None


class _ScaledRule:
    """The earliest ticket whose allowance is used up is due. O(log n) an operation, expected."""

    def __init__(self, *, scale: float, slack_s: float, capacity: Callable[[], float]) -> None:
        self._scale = scale
        self._slack_s = slack_s
        self._capacity = capacity
        self._tickets: dict[str, Ticket] = {}
        self._allowances = AllowanceTree()
        self._work_ns = 0  # remaining service of all that waits

    def push(self, ticket: Ticket) -> None:
        if ticket.allowance_s is None:
            allowance_ns = round(self._scale * self._work_ns) + _to_ns(self._slack_s * self._capacity())
        else:
            allowance_ns = _to_ns(ticket.allowance_s)
        self._tickets[ticket.id] = ticket
        self._allowances.insert(_arrival(ticket), allowance_ns)
        self._work_ns += _to_ns(ticket.remaining_s)

    def due(self, now_s: float) -> Ticket | None:
        arrival = self._allowances.first_due()
        return None if arrival is None else self._tickets[arrival[-1]]

    def waiting(self) -> dict[str, Ticket]:
        return {
            job_id: self._tickets[job_id].with_allowance(allowance_ns / _NS_PER_S)
            for (_, _, job_id), allowance_ns in self._allowances.items()
        }

    def remove(self, job_id: str) -> Ticket:
        return self._without(self._tickets[job_id], charge_ns=0)

    def take(self, job_id: str) -> Ticket:
        ticket = self._tickets[job_id]
        return self._without(ticket, charge_ns=_to_ns(ticket.next_service_s))

    def _without(self, ticket: Ticket, *, charge_ns: int) -> Ticket:
        allowance_ns = self._allowances.take(_arrival(ticket), charge_ns)
        del self._tickets[ticket.id]
        self._work_ns -= _to_ns(ticket.remaining_s)
        return ticket.with_allowance(allowance_ns / _NS_PER_S)

    def is_due_within(self, order: Sequence[Ticket], now_s: float) -> bool:
        """A ticket's allowance only falls while it waits, so it is least at the ticket's own turn."""
        by_arrival = list(self._allowances.items())
        if all(allowance_ns > self._work_ns for _, allowance_ns in by_arrival):
            return False
        places = {job_id: place for place, ((_, _, job_id), _) in enumerate(by_arrival)}
        served_ns = _PrefixSums(len(by_arrival))
        total_ns = 0
        for ticket in order:
            place = places[ticket.id]
            if by_arrival[place][1] <= total_ns - served_ns.upto(place):
                return True
            service_ns = _to_ns(ticket.next_service_s)
            served_ns.add(place, service_ns)
            total_ns += service_ns
        return False

    def check(self) -> None:
        self._allowances.check()
        in_order = [arrival for arrival, _ in self._allowances.items()]
        assert in_order == sorted(map(_arrival, self._tickets.values())), "a ticket has no allowance"
        assert self._work_ns == sum(_to_ns(ticket.remaining_s) for ticket in self._tickets.values())

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._tickets

    def __len__(self) -> int:
        return len(self._tickets)


class _PrefixSums:
    """Sums of the first so many of n numbers, which grow. O(log n) an operation.

    A binary indexed tree (Fenwick 1994, https://doi.org/10.1002/spe.4380240306).
    """

    def __init__(self, count: int) -> None:
        self._sums = [0] * (count + 1)

    def add(self, place: int, amount: int) -> None:
        """Let the number at ``place``, from 0, grow."""
        place += 1
        while place < len(self._sums):
            self._sums[place] += amount
            place += place & -place

    def upto(self, place: int) -> int:
        """The sum of the numbers before ``place``."""
        total = 0
        while place > 0:
            total += self._sums[place]
            place -= place & -place
        return total


def _arrival(ticket: Ticket) -> Arrival:
    return ticket.arrival_s, ticket.sequence, ticket.id


def _to_ns(seconds: float) -> int:
    return round(seconds * _NS_PER_S)


class GuardedQueue:
    """A ready queue that serves due tickets first and otherwise follows another queue.

    It adds O(log n), expected under the scaled rule, to the cost of each operation of the other.

    Args:
        inner: an empty queue in a policy's order. Taking a ticket out of it must leave the order of the rest.
        guard: when a ticket is due; not one that is off.
        capacity: predicted service that the engine gives in a second, all workers together, as known when it is
            called: their number where sizes are seconds. It turns the seconds of ``slack_s`` into service.

    Raises:
        ValueError: the guard is off.
    """

    def __init__(self, inner: ReadyQueue, guard: Guard, *, capacity: Callable[[], float]) -> None:
        self._inner = inner
        self._guard = guard
        self._capacity = capacity
        self._rule = self._make_rule()
        self._looked_at_s: float | None = None  # when peek last looked; None: the queue changed since

    def _make_rule(self) -> _Rule:
        guard = self._guard
        if guard.max_wait_s is not None:
            return _FixedRule(guard.max_wait_s)
        if guard.scale is None or guard.slack_s is None:
            raise ValueError("the guard is off; use the inner queue as it is")
        return _ScaledRule(scale=guard.scale, slack_s=guard.slack_s, capacity=self._capacity)

    def push(self, ticket: Ticket) -> None:
        self._inner.push(ticket)
        self._rule.push(ticket)
        self._looked_at_s = None

    def peek(self, now_s: float) -> Ticket | None:
        """As ``ReadyQueue.peek``; the ticket as it was pushed, its allowance not brought up to date."""
        self._looked_at_s = now_s
        return self._rule.due(now_s) or self._inner.peek(now_s)

    def pop(self, now_s: float) -> Ticket | None:
        due = self._rule.due(now_s if self._looked_at_s is None else self._looked_at_s)
        self._looked_at_s = None
        ticket = self._inner.pop(now_s) if due is None else self._inner.remove(due.id)
        return None if ticket is None else self._rule.take(ticket.id)

    def take(self, job_id: str) -> Ticket:
        """Take one ticket out wherever it stands, to be served, and count that against all that it overtakes."""
        self._inner.remove(job_id)
        self._looked_at_s = None
        return self._rule.take(job_id)

    def remove(self, job_id: str) -> Ticket:
        self._inner.remove(job_id)
        self._looked_at_s = None
        return self._rule.remove(job_id)

    def ordered(self, now_s: float) -> list[Ticket]:
        waiting = self._rule.waiting()
        inner = self._inner.ordered(now_s)
        if not self._rule.is_due_within(inner, now_s):
            return [waiting[ticket.id] for ticket in inner]
        replay = deepcopy(self._rule)
        order: list[Ticket] = []
        for ticket in inner:
            while ticket.id in replay:
                due = replay.due(now_s)
                served_id = ticket.id if due is None else due.id
                replay.take(served_id)
                order.append(waiting[served_id])
        return order

    def check(self) -> None:
        self._inner.check()
        self._rule.check()
        assert len(self._inner) == len(self._rule), "the guard and the queue hold different tickets"
        assert all(ticket.id in self._rule for ticket in self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Ticket]:
        waiting = self._rule.waiting()
        return (waiting[ticket.id] for ticket in self._inner)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._inner


def taken_from(queue: ReadyQueue, job_id: str) -> Ticket:
    """Take one ticket out of a queue wherever it stands, to be served: a guard counts it, an order need not."""
    return queue.take(job_id) if isinstance(queue, GuardedQueue) else queue.remove(job_id)
