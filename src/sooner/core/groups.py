"""Classes of priority, and a fair share for each client, around the queues of any policy.

Within a class, what waits of each client is a *line* of its own, in the policy's order and guarded. While one
client alone waits, its line is all there is, so that the order is the one without clients, to the last tie.
(Tickets without a client are together those of one client more.)

While several wait, a *contest* decides between them. Of each client at most one ticket contends, the one that its
line puts first, and when it wins, the client's line gives its next. That is the client's *turn*. The contest is a
queue in the policy's order, too. A ticket that nobody has begun enters it as if it had come when the turn began:
when the client began to wait, when the turn before was taken, or when the client was no longer *ahead* of its
share. A begun one enters at its own arrival. A ticket that comes and is put first by its line takes the
contender's place, so that no clip waits behind a file of its own client.

**The share** is kept in virtual time (``sooner.core.shares``). V is the seconds of service that one client would
have had if all had the same: when a ticket is taken, V grows by the service that it gets until it can next be put
off (a *window*), over the number of clients that wait at that moment. F of a client begins at V, or where it was
if that is later, and grows by each window that is taken of it. While F > V the client is ahead, and has no turn.
Where nobody contends and somebody waits, V jumps to the least F that is ahead, so that no worker is idle for the
sake of shares.

In start-time fair queueing the start tag *is* the order. Here it only opens the gate to the contest, so that it
goes around any order. One job at a time without a gate was tried, and protects nobody where size rules: who floods
with short clips always has one in the contest, which goes before every longer job of others. Charging a job whole
when it is begun was tried: it holds a client's clips back for what its file has not had yet, and who cancels a
file has paid for it.

**What holds**, in predicted service: from when a client begins to wait, what is taken of it is no more than V has
grown, and one window. V grows by 1/N of what is taken while N clients wait. That is so under any order, and
however many jobs it sends: a window is taken of it only while F ≤ V, and F began at V or later.

A client that is left alone has F = V: nobody waits who was put off for it, or for whom it was put off. So when a
second one comes that is not ahead, both have F = V, and of the first *one* window at most is taken before the
second's: then it is ahead, and V grows by the second's service alone. Among N clients of which none is behind when
one of them begins to wait, X of service goes before its first window, where X ≤ (N - 1) · (X / N + w), hence X ≤ N
· (N - 1) · w; w is the largest window.

Clients that never stop sending get equal service, whatever the sizes: whom the order puts off stays behind V and
is let in until that is made up. (Beginning at max(V, F) at each turn was tried: it forgets what a client falls
behind while a long job of another is served, and clients of files got more than those of clips.) What nobody else
contends for a client gets on top.

**Guards.** There are two promises, and both travel with the ticket. The line's is about jobs of the same client
(``Ticket.allowance_s``). A ticket stays in its line until it is taken, so this promise is what it would be if no
other client were there. The contest's is about turns of other clients (``Ticket.turn_allowance_s``): it is given
with a ticket's first turn and counts while the ticket contends, so what a job waits for its client's share breaks
it not. Who is due in its line is the line's next; a turn that is due wins. Neither opens the gate: shares hold
under any guard.

A class is one whole contest; the lowest number in which a ticket waits is served first, strictly. A class may
starve those after it: a guard counts within its class. A new queue, as after a change of order, begins with nobody
ahead, and so does a class in which nobody waited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from sooner.core.guard import taken_from
from sooner.core.job import Ticket
from sooner.core.ready_queue import ReadyQueue
from sooner.core.shares import Client, Shares
from sooner.errors import DuplicateJobError, UnknownJobError

__all__ = ["GroupedQueue"]

_AFTER_ARRIVALS = 1 << 62
"""Added to the number of a turn, so that at one instant turns come in the order given, after all arrivals."""


class _Class:
    """One class of priority: what waits of each client, and the contest between them.

    ``lines`` has what waits of each client that has anything. ``bids`` has, of each client that contends, the id
    of the ticket that stands for it in the contest; it stays in its line meanwhile. ``promises`` has what the
    contest's guard has left of its promise to tickets that wait and do not contend any more. While one client
    alone waits, nobody contends and it has no tag.
    """

    __slots__ = ("_make_queue", "_spare", "bids", "contest", "lines", "num_turns", "promises", "shares")

    def __init__(self, make_queue: Callable[[], ReadyQueue]) -> None:
        self._make_queue = make_queue
        self._spare: ReadyQueue | None = None  # the line that was emptied last: an order may remember
        self.contest = make_queue()
        self.lines: dict[Client, ReadyQueue] = {}
        self.bids: dict[Client, str] = {}
        self.promises: dict[str, float] = {}
        self.num_turns = 0
        self.shares = Shares()

    @property
    def is_shared(self) -> bool:
        """Whether several clients wait."""
        return len(self.lines) > 1

    def push(self, ticket: Ticket, now_s: float) -> None:
        client = ticket.client
        line = self.lines.get(client)
        if line is not None:
            line.push(ticket)
            if client in self.bids and _head(line, now_s).id == ticket.id:
                self._withdraw(client)
                self._bid(ticket)
            return
        line = self._make_queue() if self._spare is None else self._spare
        self._spare = None
        line.push(ticket)
        self.lines[client] = line
        if self.is_shared:
            for each in (client,) if len(self.lines) > 2 else tuple(self.lines):
                self.shares.begin(each)
                if not self.shares.is_ahead(each):
                    self._bid(_head(self.lines[each], now_s))

    def _bid(self, ticket: Ticket, *, since_s: float = -math.inf) -> None:
        """Let a ticket contend for its client, as if it had come at ``since_s`` if nobody has begun it."""
        allowance_s = self.promises.pop(ticket.id, ticket.turn_allowance_s)
        self.bids[ticket.client] = ticket.id
        if _is_begun(ticket) or ticket.arrival_s >= since_s:
            self.contest.push(ticket.with_allowance(allowance_s))
            return
        self.num_turns += 1
        sequence = _AFTER_ARRIVALS + self.num_turns
        self.contest.push(replace(ticket, arrival_s=since_s, sequence=sequence, allowance_s=allowance_s))

    def _withdraw(self, client: Client) -> None:
        """End a client's turn, if it has one, without a ticket taken."""
        job_id = self.bids.pop(client, None)
        if job_id is not None:
            self._keep_promise(self.contest.remove(job_id))

    def _keep_promise(self, contender: Ticket) -> None:
        if contender.allowance_s is not None:
            self.promises[contender.id] = contender.allowance_s

    def peek(self, at_s: float) -> Ticket | None:
        return self._next_line(at_s).peek(at_s)

    def _next_line(self, at_s: float) -> ReadyQueue:
        if not self.is_shared:
            return next(iter(self.lines.values()))
        contender = self.contest.peek(at_s)
        assert contender is not None, "clients wait and none contends"
        return self.lines[contender.client]

    def pop(self, at_s: float, now_s: float) -> Ticket:
        """Take at ``now_s`` the ticket that ``peek(at_s)`` shows."""
        line = self._next_line(at_s)
        line.peek(at_s)  # or what it was last asked for, by a turn, would count
        ticket = line.pop(now_s)
        contender = self.contest.pop(now_s) if self.is_shared else None
        assert ticket is not None, "a line is empty"
        return self._taken(ticket, contender, now_s)

    def take(self, ticket: Ticket, now_s: float) -> Ticket:
        """Take this ticket, wherever it stands, as if it had won the contest."""
        ticket = taken_from(self.lines[ticket.client], ticket.id)
        contender = None
        if self.is_shared:
            if self.bids.get(ticket.client) != ticket.id:
                self._withdraw(ticket.client)
                self._bid(ticket)
            contender = taken_from(self.contest, ticket.id)
        return self._taken(ticket, contender, now_s)

    def _taken(self, ticket: Ticket, contender: Ticket | None, now_s: float) -> Ticket:
        """Count the service that a ticket gets; the ticket, with what is left of both promises."""
        shares, service_s = self.shares, ticket.next_service_s
        if contender is not None:
            del self.bids[ticket.client]
            self._keep_promise(contender)
            shares.charge(ticket.client, service_s)
        shares.virtual_s += service_s / len(self.lines)
        return self._left(ticket, now_s)

    def remove(self, ticket: Ticket, now_s: float) -> Ticket:
        if self.bids.get(ticket.client) == ticket.id:
            self._withdraw(ticket.client)
        return self._left(self.lines[ticket.client].remove(ticket.id), now_s)

    def _left(self, ticket: Ticket, now_s: float) -> Ticket:
        """Give the turns that are due now that a ticket is out of its line; the ticket, with its promise."""
        ticket = _with_promise(ticket, self.promises.pop(ticket.id, None))
        changed = [ticket.client]
        if not len(self.lines[ticket.client]):
            self._spare = self.lines.pop(ticket.client)
        if not self.lines:  # or who is ahead now would be put off for it after any time without work
            self.shares = Shares()
        if not self.shares.tags:  # it was alone, and nobody is ahead
            return ticket
        if len(self.lines) == 1:
            changed.extend(self.lines)
            self._be_alone(*self.lines)
        while True:
            for client in (*self.shares.caught_up(), *changed):
                self._settle(client, now_s)
            if self.bids or not self.is_shared:
                return ticket
            self.shares.jump()

    def _be_alone(self, client: Client) -> None:
        """End the turn of a client that alone is left, and let it be neither ahead of its share nor behind."""
        self._withdraw(client)
        self.shares.virtual_s = max(self.shares.virtual_s, self.shares.tags.get(client, 0.0))

    def _settle(self, client: Client, now_s: float) -> None:
        """Unless it is ahead, give a client its turn, or forget its tag where it does not wait beside others."""
        if self.shares.is_ahead(client):
            return
        if client not in self.lines or not self.is_shared:
            self.shares.tags.pop(client, None)
        elif client not in self.bids:
            self._bid(_head(self.lines[client], now_s), since_s=now_s)

    def ordered(self, now_s: float) -> list[Ticket]:
        orders = {client: line.ordered(now_s) for client, line in self.lines.items()}
        left_s = self._left_of_promises()
        waiting = {t.id: _with_promise(t, left_s.get(t.id)) for order in orders.values() for t in order}
        if not self.is_shared:
            return list(waiting.values())
        if len(self.bids) == len(waiting):
            return [waiting[ticket.id] for ticket in self.contest.ordered(now_s)]
        replay = self._copy(orders)
        return [waiting[replay.pop(now_s, now_s).id] for _ in waiting]

    def _copy(self, orders: Mapping[Client, Sequence[Ticket]]) -> _Class:
        """Another class in the same state, whose lines have the orders given. O(n).

        Pushing the contenders into a new contest would rank them anew, and ranks may be of the moment of the push.
        """
        lines = {client: _Foretold(order) for client, order in orders.items()}
        kept = (self._make_queue, self._spare)  # what holds this class, and what nothing is pushed into
        return deepcopy(self, {id(self.lines): lines} | {id(one): one for one in kept})

    def check(self) -> None:
        self.contest.check()
        self.shares.check()
        tags, waiting = self.shares.tags, {ticket.id for ticket in self}
        for client, line in self.lines.items():
            line.check()
            assert len(line), "an empty line was kept"
            assert all(ticket.client == client for ticket in line), "a ticket is in another client's line"
            assert not self.is_shared or client in tags, "a client that waits beside others has no tag"
            has_turn, is_ahead = client in self.bids, self.shares.is_ahead(client)
            assert has_turn == (self.is_shared and not is_ahead), "a turn without a share, or none with one"
        bids = sorted(self.bids.values())
        assert sorted(ticket.id for ticket in self.contest) == bids, "who contends and who has a turn differ"
        assert all(job_id in self.lines[client] for client, job_id in self.bids.items()), "a turn left its line"
        kept = set(self.lines) if self.is_shared else set()
        assert all(client in kept or self.shares.is_ahead(client) for client in tags), "a tag is kept for nobody"
        assert self.promises.keys() <= waiting - set(self.bids.values()), "a promise to nobody"

    def _left_of_promises(self) -> dict[str, float]:
        """What the contest's guard has left of what it promised to tickets that wait, by id."""
        return self.promises | {t.id: t.allowance_s for t in self.contest if t.allowance_s is not None}

    def __iter__(self) -> Iterator[Ticket]:
        left_s = self._left_of_promises()
        for line in self.lines.values():
            for ticket in line:
                yield _with_promise(ticket, left_s.get(ticket.id))


class _Foretold:
    """A line whose order is known, as far as replaying a contest asks for it."""

    __slots__ = ("_last_first",)

    def __init__(self, order: Sequence[Ticket]) -> None:
        self._last_first = list(reversed(order))

    def peek(self, now_s: float) -> Ticket:
        return self._last_first[-1]

    def pop(self, now_s: float) -> Ticket:
        return self._last_first.pop()

    def __len__(self) -> int:
        return len(self._last_first)


def _is_begun(ticket: Ticket) -> bool:
    return ticket.served_s > 0 or ticket.remaining_s < ticket.size_s


def _head(line: ReadyQueue, now_s: float) -> Ticket:
    ticket = line.peek(now_s)
    assert ticket is not None, "a line is empty"
    return ticket


def _with_promise(ticket: Ticket, left_s: float | None) -> Ticket:
    """The ticket with what the contest's guard has left of its promise, where it has promised anything."""
    return ticket if left_s in (None, ticket.turn_allowance_s) else ticket.with_turn_allowance(left_s)


class GroupedQueue:
    """A ready queue with a fair share for each client, and classes of priority.

    Operations cost what they cost in the client's line and, where several clients wait, in the contest: O(log n),
    amortised where a pop lets several clients in, and one step per priority that there has been. What it hands out
    are the tickets as they were pushed, with what guards have left of their promises.

    Args:
        make_queue: makes the queue of a client's line, or of a contest, in the policy's order; guarded or not.
    """

    def __init__(self, make_queue: Callable[[], ReadyQueue]) -> None:
        self._make_queue = make_queue
        self._classes: dict[int, _Class] = {}  # by priority, all that there have been: an order may remember
        self._tickets: dict[str, Ticket] = {}
        self._latest_s = -math.inf  # the latest second that the queue has heard of
        self._looked_at_s: float | None = None  # when peek last looked; None: the queue changed since

    def push(self, ticket: Ticket) -> None:
        if ticket.id in self._tickets:
            raise DuplicateJobError(ticket.id)
        self._latest_s = max(self._latest_s, ticket.arrival_s)
        self._looked_at_s = None
        self._tickets[ticket.id] = ticket
        group = self._classes.get(ticket.priority)
        if group is None:
            group = self._classes[ticket.priority] = _Class(self._make_queue)
        group.push(ticket, self._latest_s)

    def peek(self, now_s: float) -> Ticket | None:
        self._latest_s = max(self._latest_s, now_s)
        self._looked_at_s = now_s
        return self._first().peek(now_s) if self._tickets else None

    def pop(self, now_s: float) -> Ticket | None:
        self._latest_s = max(self._latest_s, now_s)
        at_s = now_s if self._looked_at_s is None else self._looked_at_s
        self._looked_at_s = None
        if not self._tickets:
            return None
        ticket = self._first().pop(at_s, now_s)
        del self._tickets[ticket.id]
        return ticket

    def _first(self) -> _Class:
        """The class to serve, of those in which a ticket waits."""
        if len(self._classes) == 1:
            return next(iter(self._classes.values()))
        return self._classes[min(priority for priority, group in self._classes.items() if group.lines)]

    def take(self, job_id: str, now_s: float) -> Ticket:
        """Take one ticket out wherever it stands, to be served: its client's share and all promises count it.

        Raises:
            UnknownJobError: no such job is waiting.
        """
        self._latest_s = max(self._latest_s, now_s)
        pushed = self._forget(job_id)
        return self._classes[pushed.priority].take(pushed, now_s)

    def remove(self, job_id: str) -> Ticket:
        """As ``ReadyQueue.remove``; where it ends a turn, the next begins at the latest second heard of."""
        pushed = self._forget(job_id)
        return self._classes[pushed.priority].remove(pushed, self._latest_s)

    def _forget(self, job_id: str) -> Ticket:
        if job_id not in self._tickets:
            raise UnknownJobError(job_id, state="waiting")
        self._looked_at_s = None
        return self._tickets.pop(job_id)

    def ordered(self, now_s: float) -> list[Ticket]:
        return [t for priority in sorted(self._classes) for t in self._classes[priority].ordered(now_s)]

    def check(self) -> None:
        in_classes: list[str] = []
        for priority, group in self._classes.items():
            group.check()
            assert all(ticket.priority == priority for ticket in group), "a ticket is in another class"
            in_classes.extend(ticket.id for ticket in group)
        assert sorted(in_classes) == sorted(self._tickets), "a ticket is lost, or waits twice"

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        for group in self._classes.values():
            yield from group

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._tickets
