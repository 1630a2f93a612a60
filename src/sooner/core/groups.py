"""Classes of priority, and a fair share for each client, around the queues of any policy.

Within a class, of each client at most one ticket that nobody has begun to serve contends at a time: it has the
client's *turn*. The client's others wait behind it in a queue of their own, in the policy's order. The next turn
begins when the one before was taken or removed and the client is not *ahead* of its share; its ticket enters the
contest ranked as if it had arrived at that moment.

**The share** is kept in virtual time, as in start-time fair queueing (Goyal, Vin and Cheng 1997,
https://doi.org/10.1109/90.649569). V is the seconds of service that one client would have had if all had the same:
when a ticket is taken, V grows by the service that it gets until it can next be put off, over the number of
clients that wait or are served at that moment (all tickets without a client count as one). A turn starts at a
virtual time S; when its ticket is taken, F = S + its whole size. For the next of a backlog S = F, for the first
job of a client that has nothing waiting S = max(V, F). While F > V the client is ahead.
Where nobody contends and somebody waits, V jumps to the least F of those, so that no worker is idle for the sake
of shares.

In that work the start tag *is* the order. Here it only opens the gate to the contest, so that it goes around
any order. One job at a time without a gate was tried, and protects nobody where size rules: who floods with
short clips always has one in the contest, which goes before every longer job of others.

**What holds**, in predicted service: from when a client begins to wait, the jobs of it that are taken make up no
more than V has grown, and one job. V grows by 1/N of what is served while somebody contends, N clients waiting.
That is so under any order, and however many jobs it sends. What nobody else contends for it gets on top, free of
charge for the others. Clients that never stop sending get equal service, whatever the sizes: whom the order puts
off stays behind V and is let in until that is made up. (S = max(V, F) at each turn was tried: it forgets what a
client falls behind while a long job of another is served, and clients of files got more than those of clips.)

A file that is cut into clips gets no more service than a share. What it gains is that each clip is ranked by its
own size when its turn comes. What it gives up is that a begun file contends on and is made up for afterwards.

Begun tickets contend at once, at the time of their own arrival: they had their turn, and their whole size is in F.
So do those that a guard has promised something, which are counted when taken: holding them back would break the
promise. A new queue, as after a change of order, begins with nobody ahead.

A class is one whole contest; the lowest number in which a ticket waits is served first, strictly. A class may
starve those after it: a guard inside the contest counts within its class, from the turn on.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from copy import deepcopy
from dataclasses import replace

from sooner.core.job import Ticket
from sooner.core.ready_queue import ReadyQueue
from sooner.errors import DuplicateJobError, UnknownJobError

__all__ = ["GroupedQueue"]

_AFTER_ARRIVALS = 1 << 62
"""Added to the sequence of a turn, so that at one instant turns come in the order given, after all arrivals."""


class _Shares:
    """Virtual time: how much service a client may have had, and who had more. O(log clients ahead), amortised.

    ``virtual_s`` is V. ``tags`` has S for a client with a turn and F for one that is ahead, and nobody else's:
    memory is bounded by the clients that wait or are ahead. ``ahead`` is a heap with one entry, of F when it was
    made or less than that, for each client whose tag is after V.
    """

    __slots__ = ("ahead", "num_entries", "tags", "virtual_s")

    def __init__(self) -> None:
        self.virtual_s = 0.0
        self.tags: dict[str, float] = {}
        self.ahead: list[tuple[float, int, str]] = []  # tag, number of the entry, client
        self.num_entries = 0

    def is_ahead(self, client: str) -> bool:
        return self.tags.get(client, self.virtual_s) > self.virtual_s

    def charge(self, client: str, size_s: float) -> None:
        """Count the whole of a job against its client, as it is taken for the first time."""
        was_ahead = self.is_ahead(client)
        tag_s = self.tags[client] = self.tags.get(client, self.virtual_s) + size_s
        if tag_s > self.virtual_s and not was_ahead:
            self.num_entries += 1
            heapq.heappush(self.ahead, (tag_s, self.num_entries, client))

    def caught_up(self) -> Iterator[str]:
        """Take out those that are not ahead any more, the least tag first; their tags stay."""
        while self.ahead and self.ahead[0][0] <= self.virtual_s:
            tag_s, number, client = self.ahead[0]
            if self.tags[client] > tag_s:  # charged again meanwhile, for a ticket that did not wait for a turn
                heapq.heapreplace(self.ahead, (self.tags[client], number, client))
            else:
                heapq.heappop(self.ahead)
                yield client

    def jump(self) -> None:
        """Let V be the least tag that is ahead."""
        self.virtual_s = self.ahead[0][0]

    def check(self) -> None:
        ahead = [client for _, _, client in self.ahead]
        assert sorted(ahead) == sorted(filter(self.is_ahead, self.tags)), "who is ahead is not in the heap once"
        assert all(self.virtual_s < tag_s <= self.tags[client] for tag_s, _, client in self.ahead)
        for child in range(1, len(self.ahead)):
            assert self.ahead[(child - 1) // 2] <= self.ahead[child], "heap order broken"


class _Contest:
    """One class of priority: the queue in which tickets contend, and what waits for each client's next turn.

    ``turns`` has the id of the client's turn, ``backlogs`` what waits for the next (never empty), ``entered`` the
    tickets that came from behind, as they arrived, ``waiting`` the number of tickets of each client that has any.
    ``num_named`` counts the contending tickets that have a client.
    """

    __slots__ = (
        "_make_backlog",
        "_make_queue",
        "backlogs",
        "entered",
        "num_entered",
        "num_named",
        "queue",
        "shares",
        "turns",
        "waiting",
    )

    def __init__(self, make_queue: Callable[[], ReadyQueue], make_backlog: Callable[[], ReadyQueue]) -> None:
        self._make_queue = make_queue
        self._make_backlog = make_backlog
        self.queue = make_queue()
        self.shares = _Shares()
        self.backlogs: dict[str, ReadyQueue] = {}
        self.turns: dict[str, str] = {}
        self.entered: dict[str, Ticket] = {}
        self.num_entered = 0
        self.waiting: dict[str, int] = {}
        self.num_named = 0

    def push(self, ticket: Ticket, now_s: float) -> None:
        client = ticket.client
        if client is None:
            self.queue.push(ticket)
            return
        self.waiting[client] = self.waiting.get(client, 0) + 1
        is_promised = ticket.allowance_s is not None
        if _is_begun(ticket):
            self._contend(ticket)
        elif client not in self.turns and (is_promised or not self.shares.is_ahead(client)):
            self._begin_turn(client, ticket)
        elif is_promised:
            self._contend(ticket)
        else:
            if client not in self.backlogs:
                self.backlogs[client] = self._make_backlog()
            self.backlogs[client].push(ticket)
            self._let_in(now_s)

    def _contend(self, ticket: Ticket) -> None:
        self.num_named += 1
        self.queue.push(ticket)

    def _begin_turn(self, client: str, ticket: Ticket) -> None:
        self.turns[client] = ticket.id
        self.shares.tags.setdefault(client, self.shares.virtual_s)
        self._contend(ticket)

    def peek(self, now_s: float) -> Ticket | None:
        ticket = self.queue.peek(now_s)
        return None if ticket is None else self.as_it_arrived(ticket)

    def pop(self, now_s: float) -> Ticket | None:
        ticket = self.queue.pop(now_s)
        if ticket is None or (ticket.client is None and not self.shares.tags):
            return ticket
        # The ticket is still counted in both numbers, but not in the queue: so >=, not >.
        num_clients = len(self.waiting) + (len(self.queue) >= self.num_named)
        if ticket.client is not None and not _is_begun(ticket):
            self.shares.charge(ticket.client, ticket.size_s)
        arrived = self._leave(ticket, now_s)
        self.shares.virtual_s += ticket.next_service_s / num_clients
        self._let_in(now_s)
        return arrived

    def remove(self, ticket: Ticket, now_s: float) -> Ticket:
        if ticket.id in self.queue:
            removed = self._leave(self.queue.remove(ticket.id), now_s)
            self._let_in(now_s)
            return removed
        assert ticket.client is not None, "a ticket without a client waits behind a turn"
        self._count_out(ticket.client)
        backlog = self.backlogs[ticket.client]
        removed = backlog.remove(ticket.id)
        if not len(backlog):
            del self.backlogs[ticket.client]
        return removed

    def _leave(self, ticket: Ticket, now_s: float) -> Ticket:
        """Pass on the turn that a ticket had; the ticket as it arrived."""
        client = ticket.client
        if client is None:
            return ticket
        arrived = self.as_it_arrived(ticket)
        self.entered.pop(ticket.id, None)
        self.num_named -= 1
        self._count_out(client)
        if self.turns.get(client) == ticket.id:
            del self.turns[client]
            if not self.shares.is_ahead(client):
                self._give_turn(client, now_s)
        return arrived

    def _count_out(self, client: str) -> None:
        self.waiting[client] -= 1
        if not self.waiting[client]:
            del self.waiting[client]

    def _let_in(self, now_s: float) -> None:
        """Give turns to those that are not ahead any more; if nobody contends, to the next that waits."""
        while True:
            for client in self.shares.caught_up():
                if client not in self.turns:
                    self._give_turn(client, now_s)
            if len(self.queue) or not self.backlogs:
                return
            self.shares.jump()

    def _give_turn(self, client: str, now_s: float) -> None:
        """Let the next of a client's backlog contend; without one, the client's tag is not needed any more."""
        backlog = self.backlogs.get(client)
        ticket = None if backlog is None else backlog.pop(now_s)
        if backlog is None or ticket is None:
            self.shares.tags.pop(client, None)
            return
        if not len(backlog):
            del self.backlogs[client]
        self.entered[ticket.id] = ticket
        self.num_entered += 1
        sequence = _AFTER_ARRIVALS + self.num_entered
        contender = replace(ticket, arrival_s=max(ticket.arrival_s, now_s), sequence=sequence)
        self._begin_turn(client, contender)

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
        """Another contest in the same state. O(n).

        Pushing the tickets into new queues would rank them anew, and ranks may be of the moment of the push.
        """
        makers = (self._make_queue, self._make_backlog)  # methods of what holds this queue: no part of the state
        return deepcopy(self, {id(make): make for make in makers})

    def check(self) -> None:
        self.queue.check()
        self.shares.check()
        contending = {ticket.id: ticket for ticket in self.queue}
        for client, job_id in self.turns.items():
            assert job_id in contending, "a turn left the contest"
            assert contending[job_id].client == client, "a client has another's turn"
        for client, backlog in self.backlogs.items():
            backlog.check()
            assert len(backlog), "an empty backlog was kept"
            assert client in self.turns or self.shares.is_ahead(client), "a client waits for nothing"
            assert all(t.client == client and not _is_begun(t) for t in backlog), "held back without a reason"
            assert all(t.allowance_s is None for t in backlog), "what was promised something is held back"
        assert contending or not self.backlogs, "somebody waits and nobody contends"
        assert self.entered.keys() <= contending.keys(), "a ticket that left is remembered"
        for job_id, arrived in self.entered.items():
            assert contending[job_id].arrival_s >= arrived.arrival_s, "a turn came before the ticket did"
        self._check_counts(contending.values())

    def _check_counts(self, contending: Collection[Ticket]) -> None:
        assert self.waiting == Counter(t.client for t in self if t.client is not None), "a client is miscounted"
        assert self.num_named == sum(t.client is not None for t in contending), "the contest is miscounted"
        for client in self.shares.tags:
            assert client in self.turns or self.shares.is_ahead(client), "a share is kept for nobody"
        assert self.turns.keys() <= self.shares.tags.keys(), "a turn has no start"

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

    Operations cost what they cost in the contest and in the client's backlog, O(log n), amortised where a pop lets
    several clients in, and one step per priority that there has been. What it hands out are the tickets as they
    were pushed, with the allowance that a guard in the contest has left them.

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
        contest.push(ticket, self._latest_s)

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
