"""A hard maximum wait, around everything else.

A ticket that has waited ``max_wait_s`` is *overdue*; while there are any, the one that has waited longest is taken
next: before the policy's order, a guard, a client's share and a class of priority. Waiting is time without
service, so a job that was put off keeps what it has waited, and an overdue one stays overdue: from then on it is
put off only for jobs that have waited longer still.

**Theorem.** No worker being idle while a job waits, let J be overdue from d on, w the longest window, and U the
service that jobs which have waited at least as long as J still need at d, waiting or running. Then J is taken at
most w + U / ``num_workers`` after d.

*Proof.* Whatever is taken from d until J is has waited at least as long as J at that moment. Both waits have grown
by the same since d, or the other's by less where it was served meanwhile, so it had waited at least as long at d,
too. Whoever comes after d has not. So after the windows that were under way at d, w at most, workers serve nothing
but what U counts, and none is idle. ∎

Of a J that nobody has begun, U is what remains of jobs that came no later: with one worker no more than J would
have waited under first come, first served. So **it waits at most** ``max_wait_s`` + w **longer than it would have
under that order**, whatever else is asked for: short before long, a flood by another client, classes that are
served first. Under a policy that does not preempt, a window is the rest of a job.

**What it costs.** It is a rule by the clock, as ``fixed`` is in ``sooner.core.guard``: in lasting overload
everybody is overdue, and the order is first come, first served. Files that are overdue run to their end, and clips
wait. A guard of the scaled rule does the same service for less; this is for whoever has to name a number.

What is taken as overdue is charged to its client's share, and to the promises of all that it overtakes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sooner.core.groups import GroupedQueue
from sooner.core.job import Ticket
from sooner.core.ready_queue import HeapQueue
from sooner.errors import ConfigurationError

__all__ = ["MaxWaitQueue", "overdue_first"]


class MaxWaitQueue:
    """A ready queue that serves overdue tickets first, and otherwise follows another. O(log n) an operation more.

    Args:
        inner: an empty queue.
        max_wait_s: seconds without service from which a ticket is overdue.

    Raises:
        ConfigurationError: ``max_wait_s`` is not a number above 0.
    """

    def __init__(self, inner: GroupedQueue, *, max_wait_s: float) -> None:
        if not 0 < max_wait_s < math.inf:
            raise ConfigurationError(f"the maximum wait is a number of seconds above 0, not {max_wait_s}")
        self._inner = inner
        self._max_wait_s = max_wait_s
        self._by_wait = HeapQueue(lambda ticket: ticket.waiting_since_s)
        self._looked_at_s: float | None = None  # when peek last looked; None: the queue changed since

    def _overdue(self, now_s: float) -> Ticket | None:
        """The ticket that has waited longest, if that is too long."""
        longest = self._by_wait.peek(now_s)
        return longest if longest is not None and longest.is_overdue(now_s, self._max_wait_s) else None

    def push(self, ticket: Ticket) -> None:
        self._inner.push(ticket)
        self._by_wait.push(ticket)
        self._looked_at_s = None

    def peek(self, now_s: float) -> Ticket | None:
        """As ``ReadyQueue.peek``; an overdue ticket as it was pushed, its allowances not brought up to date."""
        self._looked_at_s = now_s
        return self._overdue(now_s) or self._inner.peek(now_s)

    def pop(self, now_s: float) -> Ticket | None:
        overdue = self._overdue(now_s if self._looked_at_s is None else self._looked_at_s)
        self._looked_at_s = None
        ticket = self._inner.pop(now_s) if overdue is None else self._inner.take(overdue.id, now_s)
        if ticket is not None:
            self._by_wait.remove(ticket.id)
        return ticket

    def remove(self, job_id: str) -> Ticket:
        ticket = self._inner.remove(job_id)
        self._by_wait.remove(job_id)
        self._looked_at_s = None
        return ticket

    def ordered(self, now_s: float) -> list[Ticket]:
        """As ``ReadyQueue.ordered``: who is overdue now, then the others as the inner queue has them.

        What serving the overdue ones will cost their clients and who will be overdue later is not foreseen.
        """
        overdue, others = overdue_first(self._inner.ordered(now_s), now_s, self._max_wait_s)
        return overdue + others

    def check(self) -> None:
        self._inner.check()
        self._by_wait.check()
        waiting_since_s = {ticket.id: ticket.waiting_since_s for ticket in self._inner}
        assert waiting_since_s == {ticket.id: ticket.waiting_since_s for ticket in self._by_wait}, "a wait is lost"

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._inner)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._inner


def overdue_first(tickets: Sequence[Ticket], now_s: float, max_wait_s: float) -> tuple[list[Ticket], list[Ticket]]:
    """Those that are overdue at ``now_s``, who has waited longest first, and the others as given. O(n log n)."""
    overdue = [ticket for ticket in tickets if ticket.is_overdue(now_s, max_wait_s)]
    overdue.sort(key=lambda ticket: (ticket.waiting_since_s, ticket.arrival_s, ticket.sequence))
    return overdue, [ticket for ticket in tickets if not ticket.is_overdue(now_s, max_wait_s)]
