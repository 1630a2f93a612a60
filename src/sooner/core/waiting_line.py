"""The waiting jobs of one engine: a policy's queue with all that goes around it.

Innermost is the policy's queue. A guard goes around it where one is asked for (``sooner.core.guard``), around both
the groups (``sooner.core.groups``), which give each client its share and serve priority classes one after another,
and around all, where asked for, a maximum wait (``sooner.core.max_wait``). This class feeds what is measured to
the policy, and changes the order on request or, where the policy is ``adaptive``, by its controller's decision.
Scheduler, vLLM plugin and simulator all wait here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sooner.core.adaptive import AdaptivePolicy, Controller, Switch
from sooner.core.groups import GroupedQueue
from sooner.core.guard import Guard
from sooner.core.job import Ticket
from sooner.core.max_wait import MaxWaitQueue, overdue_first
from sooner.core.policy import Policy, policy_named
from sooner.core.ready_queue import ReadyQueue
from sooner.core.traffic import Traffic

__all__ = ["WaitingLine"]

_MAX_SWITCHES = 100  # kept until somebody asks


class WaitingLine:
    """A ``ReadyQueue`` in a policy's order, whatever that takes.

    Args:
        policy: the order.
        num_workers: workers that the queue is for.
        guard: bounds how long a job waits, see ``Guard``; ``None`` for none.
        max_wait_s: seconds without service after which a job is next, whatever all else says, see
            ``sooner.core.max_wait``; ``None`` for no such limit.

    Attributes:
        policy: the policy as asked for.
        traffic: what was measured.
        num_switches: changes of order that the controller made.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        num_workers: int,
        guard: Guard | None = None,
        max_wait_s: float | None = None,
    ) -> None:
        self.traffic = Traffic(num_workers=num_workers)
        self.num_switches = 0
        self._guard = guard or Guard()
        self._max_wait_s = max_wait_s
        self._switches: list[Switch] = []
        self._last_sequence = 0
        self._now_s = 0.0
        self._set_policy(policy)
        self._queue = self._make_queue()

    def _set_policy(self, policy: Policy) -> None:
        self.policy = self._order = policy
        self._controller: Controller | None = None
        if isinstance(policy, AdaptivePolicy):
            self._controller = policy.make_controller(self.traffic)
            self._order = policy_named(self._controller.order)

    @property
    def order(self) -> str:
        """Name of the order in force: the policy's, or the one that the controller has chosen."""
        return self._order.name

    def take_switches(self) -> list[Switch]:
        """The controller's changes of order since this was last asked, oldest first."""
        switches, self._switches = self._switches, []
        return switches

    def switch_policy(self, policy: Policy) -> None:
        """Order everything by another policy from now on. Arrivals and promises stay. O(n log n)."""
        self._set_policy(policy)
        self._refill()

    def _make_queue(self) -> ReadyQueue:
        groups = GroupedQueue(self._make_guarded_queue)
        return groups if self._max_wait_s is None else MaxWaitQueue(groups, max_wait_s=self._max_wait_s)

    def _make_order_queue(self) -> ReadyQueue:
        return self._order.make_queue(self.traffic)

    def _make_guarded_queue(self) -> ReadyQueue:
        return self._guard.around(self._make_order_queue(), capacity=lambda: self.traffic.capacity)

    def _refill(self) -> None:
        """Move all that waits into a queue of the order in force, as if it had come in sequence."""
        tickets = sorted(self._queue, key=lambda ticket: ticket.sequence)
        self.traffic.waiting_s, self.traffic.num_waiting = 0.0, 0
        self._queue = self._make_queue()
        for ticket in tickets:
            self._put(ticket)

    def _put(self, ticket: Ticket) -> None:
        self._queue.push(ticket)
        self.traffic.waiting_s += ticket.remaining_s
        self.traffic.num_waiting += 1

    def push(self, ticket: Ticket, *, counts: bool = True) -> None:
        """See ``ReadyQueue``. A ticket with a higher sequence number than any before is an arrival.

        ``counts`` is whether it belongs to the traffic that orders adapt to.
        """
        if ticket.sequence > self._last_sequence and ticket.id not in self._queue:
            self._last_sequence = ticket.sequence
            self._now_s = max(self._now_s, ticket.arrival_s)
            if counts:
                self.traffic.arrived(ticket)
        self._put(ticket)
        self._control()

    def peek(self, now_s: float) -> Ticket | None:
        """See ``ReadyQueue``."""
        return self._queue.peek(now_s)

    def pop(self, now_s: float) -> Ticket | None:
        """See ``ReadyQueue``."""
        ticket = self._queue.pop(now_s)
        if ticket is not None:
            self._now_s = max(self._now_s, now_s)
            self._left(ticket)
            self.traffic.taken(ticket, now_s)
            self._control()
        return ticket

    def remove(self, job_id: str) -> Ticket:
        """See ``ReadyQueue``."""
        ticket = self._queue.remove(job_id)
        self._left(ticket)
        if not self.traffic.num_waiting:
            self.traffic.emptied()
        return ticket

    def _left(self, ticket: Ticket) -> None:
        traffic = self.traffic
        traffic.num_waiting -= 1
        traffic.waiting_s -= ticket.remaining_s
        if not traffic.num_waiting:
            traffic.waiting_s = 0.0  # the sum of many floats drifts; an empty queue is the moment to know it

    def _control(self) -> None:
        if self._controller is None:
            return
        switch = self._controller.decide(self._now_s)
        if switch is not None:
            self._order = policy_named(switch.after)
            self.num_switches += 1
            self._switches = [*self._switches[1 - _MAX_SWITCHES :], switch]
            self._refill()

    def ordered(self, now_s: float) -> list[Ticket]:
        """See ``ReadyQueue``."""
        return self._queue.ordered(now_s)

    def merged(self, waiting: Sequence[Ticket], others: Sequence[Ticket], now_s: float) -> list[Ticket]:
        """``waiting``, in that order, and others where the order in force would put them among it. O(n log n)."""
        if not others:
            return list(waiting)
        if self._max_wait_s is None:
            return self._merged(waiting, others, now_s)
        overdue, rest = overdue_first([*waiting, *others], now_s, self._max_wait_s)
        other_ids = {ticket.id for ticket in others}
        waiting = [ticket for ticket in rest if ticket.id not in other_ids]
        return overdue + self._merged(waiting, [ticket for ticket in rest if ticket.id in other_ids], now_s)

    def _merged(self, waiting: Sequence[Ticket], others: Sequence[Ticket], now_s: float) -> list[Ticket]:
        contest = self._make_order_queue()
        for ticket in (*waiting, *others):
            contest.push(ticket)
        other_ids = {ticket.id for ticket in others}
        before: dict[str, list[Ticket]] = {}
        gathered: list[Ticket] = []
        for ticket in contest.ordered(now_s):
            if ticket.id in other_ids:
                gathered.append(ticket)
            else:
                before[ticket.id], gathered = gathered, []
        return [one for ticket in waiting for one in (*before[ticket.id], ticket)] + gathered

    def check(self) -> None:
        """See ``ReadyQueue``."""
        self._queue.check()
        assert self.traffic.num_waiting == len(self._queue)
        work_s = sum(ticket.remaining_s for ticket in self._queue)
        assert abs(work_s - self.traffic.waiting_s) <= 1e-6 * max(1.0, work_s), "the backlog drifted"

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._queue)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._queue
