"""Classes of priority, and a fair share for each client, around the queues of any policy.

Within a class, of each client at most one ticket that nobody has begun to serve contends at a time: it has the
client's *turn*. The client's others wait behind it in a queue of their own, in the policy's order. When the
turn is taken or removed, the next enters the contest ranked as if it had arrived at that moment. A client with
a thousand clips then gets turns like a client with one: under fcfs this is round robin, under hrrn whoever gets
a turn begins with a ratio of 1. Under sjf sizes still come first, so that a client of short clips goes before
one of long files; what a client gains by sending many is gone under each.

Tickets without a client contend directly. So do those that were begun or that a guard has promised something,
at the time of their own arrival: they had their turn, and holding them back would break the promise.

A class is one whole contest; the lowest number in which a ticket waits is served first, strictly. A class may
starve those after it: a guard inside the contest counts within its class, from the turn on.

The alternative, virtual time per client (start-time fair queueing, https://doi.org/10.1109/90.649569), gives
exact shares of service, but it is an order of its own and would replace the policy instead of composing with
it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from sooner.core.job import Ticket
from sooner.core.ready_queue import ReadyQueue
from sooner.errors import DuplicateJobError, UnknownJobError

__all__ = ["GroupedQueue"]

_AFTER_ARRIVALS = 1 << 62
"""Added to the sequence of a turn, so that at one instant turns come in the order given, after all arrivals."""


class _Contest:
    """One class of priority: the queue in which tickets contend, and what waits behind each client's turn.

    ``turns`` has the id of the client's turn, ``backlogs`` what waits behind it (never empty), ``entered`` the
    tickets that came from behind, as they arrived.
    """

    __slots__ = ("_make_backlog", "_make_queue", "backlogs", "entered", "num_entered", "queue", "turns")

    def __init__(self, make_queue: Callable[[], ReadyQueue], make_backlog: Callable[[], ReadyQueue]) -> None:
        self._make_queue = make_queue
        self._make_backlog = make_backlog
        self.queue = make_queue()
        self.backlogs: dict[str, ReadyQueue] = {}
        self.turns: dict[str, str] = {}
        self.entered: dict[str, Ticket] = {}
        self.num_entered = 0

    def push(self, ticket: Ticket) -> None:
        client = ticket.client
        if client is None or _is_begun(ticket):
            self.queue.push(ticket)
        elif client not in self.turns:
            self.turns[client] = ticket.id
            self.queue.push(ticket)
        elif ticket.allowance_s is not None:
            self.queue.push(ticket)
        else:
            if client not in self.backlogs:
                self.backlogs[client] = self._make_backlog()
            self.backlogs[client].push(ticket)

    def peek(self, now_s: float) -> Ticket | None:
        ticket = self.queue.peek(now_s)
        return None if ticket is None else self.as_it_arrived(ticket)

    def pop(self, now_s: float) -> Ticket | None:
        ticket = self.queue.pop(now_s)
        return None if ticket is None else self._leave(ticket, now_s)

    def remove(self, ticket: Ticket, now_s: float) -> Ticket:
        if ticket.id in self.queue:
            return self._leave(self.queue.remove(ticket.id), now_s)
        assert ticket.client is not None, "a ticket without a client waits behind a turn"
        backlog = self.backlogs[ticket.client]
        removed = backlog.remove(ticket.id)
        if not len(backlog):
            del self.backlogs[ticket.client]
        return removed

    def _leave(self, ticket: Ticket, now_s: float) -> Ticket:
        """Give the turn that a ticket had to the next of its client; the ticket as it arrived."""
        arrived = self.as_it_arrived(ticket)
        self.entered.pop(ticket.id, None)
        client = ticket.client
        if client is not None and self.turns.get(client) == ticket.id:
            del self.turns[client]
            self._give_turn(client, now_s)
        return arrived

    def _give_turn(self, client: str, now_s: float) -> None:
        backlog = self.backlogs.get(client)
        ticket = None if backlog is None else backlog.pop(now_s)
        if backlog is None or ticket is None:
            return
        if not len(backlog):
            del self.backlogs[client]
        self.turns[client] = ticket.id
        self.entered[ticket.id] = ticket
        self.num_entered += 1
        sequence = _AFTER_ARRIVALS + self.num_entered
        self.queue.push(replace(ticket, arrival_s=max(ticket.arrival_s, now_s), sequence=sequence))

    def as_it_arrived(self, ticket: Ticket) -> Ticket:
        """A contending ticket under its true arrival, with the allowance that it has in the contest."""
        arrived = self.entered.get(ticket.id)
        return ticket if arrived is None else replace(arrived, allowance_s=ticket.allowance_s)

    def ordered(self, now_s: float) -> list[Ticket]:
        if not self.backlogs:
            return [self.as_it_arrived(ticket) for ticket in self.queue.ordered(now_s)]
        waiting = {ticket.id: ticket for ticket in self}
        replay = self._copy()
        order: list[Ticket] = []
        while (ticket := replay.pop(now_s)) is not None:
            order.append(waiting[ticket.id])
        return order

    def _copy(self) -> _Contest:
        """Another contest with the same tickets in the same places. O(n log n)."""
        copy = _Contest(self._make_queue, self._make_backlog)
        for ticket in self.queue:
            copy.queue.push(ticket)
        for client, backlog in self.backlogs.items():
            copy.backlogs[client] = self._make_backlog()
            for ticket in backlog:
                copy.backlogs[client].push(ticket)
        copy.turns = dict(self.turns)
        copy.entered = dict(self.entered)
        copy.num_entered = self.num_entered
        return copy

    def check(self) -> None:
        self.queue.check()
        contending = {ticket.id: ticket for ticket in self.queue}
        for client, job_id in self.turns.items():
            assert job_id in contending, "a turn left the contest"
            assert contending[job_id].client == client, "a client has another's turn"
        for client, backlog in self.backlogs.items():
            backlog.check()
            assert len(backlog), "an empty backlog was kept"
            assert client in self.turns, "a client waits behind nobody"
            assert all(t.client == client and not _is_begun(t) for t in backlog), "held back without a reason"
            assert all(t.allowance_s is None for t in backlog), "what was promised something is held back"
        assert self.entered.keys() <= contending.keys(), "a ticket that left is remembered"
        for job_id, arrived in self.entered.items():
            assert contending[job_id].arrival_s >= arrived.arrival_s, "a turn came before the ticket did"

    def __len__(self) -> int:
        return len(self.queue) + sum(map(len, self.backlogs.values()))

    def __iter__(self) -> Iterator[Ticket]:
        for ticket in self.queue:
            yield self.as_it_arrived(ticket)
        for backlog in self.backlogs.values():
            yield from backlog


def _is_begun(ticket: Ticket) -> bool:
    return ticket.served_s > 0 or ticket.remaining_s < ticket.size_s


class GroupedQueue:
    """A ready queue with a fair share for each client, and classes of priority.

    Operations cost what they cost in the contest and in the client's backlog, O(log n), and one step per
    priority that there has been. What it hands out are the tickets as they were pushed, with the
    allowance that a guard in the contest has left them.

    Args:
        make_contest: makes the queue of a class, in the policy's order; guarded or not.
        make_backlog: makes the queue of what waits behind a client's turn, in the policy's order.
    """

    def __init__(self, make_contest: Callable[[], ReadyQueue], make_backlog: Callable[[], ReadyQueue]) -> None:
        self._make_contest = make_contest
        self._make_backlog = make_backlog
        self._contests: dict[int, _Contest] = {}  # by priority, all that there have been: an order may remember
        self._tickets: dict[str, Ticket] = {}
        self._latest_s = -math.inf  # the latest second that the queue has heard of

    def push(self, ticket: Ticket) -> None:
        if ticket.id in self._tickets:
            raise DuplicateJobError(ticket.id)
        self._latest_s = max(self._latest_s, ticket.arrival_s)
        self._tickets[ticket.id] = ticket
        contest = self._contests.get(ticket.priority)
        if contest is None:
            contest = self._contests[ticket.priority] = _Contest(self._make_contest, self._make_backlog)
        contest.push(ticket)

    def peek(self, now_s: float) -> Ticket | None:
        self._latest_s = max(self._latest_s, now_s)
        return None if not self._tickets else self._first().peek(now_s)

    def pop(self, now_s: float) -> Ticket | None:
        self._latest_s = max(self._latest_s, now_s)
        if not self._tickets:
            return None
        ticket = self._first().pop(now_s)
        assert ticket is not None, "the first class is empty"
        del self._tickets[ticket.id]
        return ticket

    def _first(self) -> _Contest:
        """The class to serve, of those in which a ticket waits."""
        if len(self._contests) == 1:
            return next(iter(self._contests.values()))
        return self._contests[min(priority for priority, contest in self._contests.items() if len(contest.queue))]

    def remove(self, job_id: str) -> Ticket:
        """As ``ReadyQueue.remove``; where it ends a turn, the next begins at the latest second heard of."""
        if job_id not in self._tickets:
            raise UnknownJobError(job_id, state="waiting")
        pushed = self._tickets[job_id]
        ticket = self._contests[pushed.priority].remove(pushed, self._latest_s)
        del self._tickets[ticket.id]
        return ticket

    def ordered(self, now_s: float) -> list[Ticket]:
        return [t for priority in sorted(self._contests) for t in self._contests[priority].ordered(now_s)]

    def check(self) -> None:
        in_contests: set[str] = set()
        for priority, contest in self._contests.items():
            contest.check()
            assert all(ticket.priority == priority for ticket in contest), "a ticket is in another class"
            in_contests.update(ticket.id for ticket in contest)
        assert in_contests == self._tickets.keys(), "a ticket is lost"
        assert len(self._tickets) == sum(map(len, self._contests.values())), "a ticket waits twice"

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        for contest in self._contests.values():
            yield from contest

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._tickets
