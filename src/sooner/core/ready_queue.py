"""Queues of waiting tickets, one per kind of order.

``HeapQueue`` serves every policy whose rank is fixed while a job waits: a binary heap with lazy deletion,
as in the ``heapq`` documentation's priority queue (https://docs.python.org/3/library/heapq.html).

``ResponseRatioQueue`` serves HRRN, whose order changes as time passes. A heap ordered by the ratio is
unsound: the key of every entry moves, each at its own speed. Ranking all waiting jobs at each pop is exact
but O(n). Between two jobs of equal size, though, the one that waits longer always has the higher ratio, so
one small heap per distinct size and a scan over their heads makes the same choice as the full scan, at a
cost of the number of distinct sizes. Sizes are ``encode_s · windows + token_s · n̂`` with integers for
windows and n̂, so there are few: about 100 for any number of clips under 35 s.

Both hand out at ``pop`` what the last ``peek`` showed unless the queue changed in between: a driver may
look, work, and then take, though an HRRN order would have moved meanwhile. A driver that looked and did not
take simply looks again: each ``peek`` is right for its own ``now_s``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from sooner.core.job import Ticket
from sooner.errors import DuplicateJobError, UnknownJobError

__all__ = ["HeapQueue", "Rank", "ReadyQueue", "ResponseRatioQueue"]

RankKey = float | tuple[int, float]
Rank = Callable[[Ticket], RankKey]
"""A rank, taken when a ticket is pushed: lower is served sooner. All are numbers, or all a class and a number.
Ties go to the earlier arrival, then to the lower sequence number."""

_Entry = tuple[Any, float, int, int, Ticket]  # rank, arrival_s, sequence, push number (unique), ticket


class ReadyQueue(Protocol):
    """Waiting tickets in a policy's order."""

    def push(self, ticket: Ticket) -> None:
        """Add a ticket. Raises ``DuplicateJobError`` where its id is already in the queue."""

    def peek(self, now_s: float) -> Ticket | None:
        """The ticket to serve next at ``now_s``, left in place; ``None`` where the queue is empty."""

    def pop(self, now_s: float) -> Ticket | None:
        """Take the ticket to serve next: the one last peeked, unless the queue changed since."""

    def remove(self, job_id: str) -> Ticket:
        """Take one ticket out wherever it stands. Raises ``UnknownJobError``."""

    def ordered(self, now_s: float) -> list[Ticket]:
        """All tickets as they would be served if nothing arrived and no time passed. O(n log n)."""

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold. O(n); for tests."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Ticket]: ...

    def __contains__(self, job_id: object) -> bool: ...


class _LazyHeap:
    """A binary heap of tickets in which deleted entries stay until they surface.

    The head is always live. Dead entries never outnumber the live ones by more than a constant, so memory
    is O(live) and the amortised cost of every operation O(log n).
    """

    _SLACK = 16

    __slots__ = ("entries", "live", "num_pushes")

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.live: dict[str, _Entry] = {}
        self.num_pushes = 0

    def __deepcopy__(self, memo: object) -> _LazyHeap:
        """Another heap with the very same entries, which never change."""
        again = _LazyHeap()
        again.entries, again.live, again.num_pushes = self.entries.copy(), self.live.copy(), self.num_pushes
        return again

    def push(self, rank: RankKey, ticket: Ticket) -> None:
        self.num_pushes += 1
        entry = (rank, ticket.arrival_s, ticket.sequence, self.num_pushes, ticket)
        self.live[ticket.id] = entry
        heapq.heappush(self.entries, entry)

    def remove(self, job_id: str) -> Ticket:
        ticket = self.live.pop(job_id)[-1]
        if len(self.entries) > 2 * len(self.live) + self._SLACK:
            self.entries = list(self.live.values())
            heapq.heapify(self.entries)
        while self.entries and not self._is_live(self.entries[0]):
            heapq.heappop(self.entries)
        return ticket

    def _is_live(self, entry: _Entry) -> bool:
        return self.live.get(entry[-1].id) is entry

    def check(self) -> None:
        assert len(self.entries) <= 2 * len(self.live) + self._SLACK, "dead entries pile up"
        assert sum(map(self._is_live, self.entries)) == len(self.live), "a live ticket left the heap"
        assert not self.entries or self._is_live(self.entries[0]), "the head is dead"
        for child in range(1, len(self.entries)):
            assert self.entries[(child - 1) // 2] <= self.entries[child], "heap order broken"


class HeapQueue:
    """A ready queue for any rank that does not change while a job waits. O(log n) a push and pop.

    Args:
        rank: the static rank; see ``Rank``.
    """

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._heap = _LazyHeap()

    def push(self, ticket: Ticket) -> None:
        if ticket.id in self._heap.live:
            raise DuplicateJobError(ticket.id)
        self._heap.push(self._rank(ticket), ticket)

    def peek(self, now_s: float) -> Ticket | None:
        return self._heap.entries[0][-1] if self._heap.entries else None

    def pop(self, now_s: float) -> Ticket | None:
        return self._heap.remove(self._heap.entries[0][-1].id) if self._heap.entries else None

    def remove(self, job_id: str) -> Ticket:
        if job_id not in self._heap.live:
            raise UnknownJobError(job_id, state="waiting")
        return self._heap.remove(job_id)

    def ordered(self, now_s: float) -> list[Ticket]:
        return [entry[-1] for entry in sorted(self._heap.live.values())]

    def check(self) -> None:
        self._heap.check()

    def __len__(self) -> int:
        return len(self._heap.live)

    def __iter__(self) -> Iterator[Ticket]:
        return (entry[-1] for entry in self._heap.live.values())

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._heap.live


class ResponseRatioQueue:
    """The exact highest-response-ratio-next order.

    A push and a remove are O(log n); a peek or pop adds one step per distinct size that waits, whatever n.
    """

    def __init__(self) -> None:
        self._classes: dict[float, _LazyHeap] = {}  # by size
        self._heads_since_s: dict[float, float] = {}  # by size: since when the class's head waits
        self._tickets: dict[str, Ticket] = {}
        self._peeked: Ticket | None = None
        self._peeked_at_s = 0.0

    def push(self, ticket: Ticket) -> None:
        if ticket.id in self._tickets:
            raise DuplicateJobError(ticket.id)
        self._peeked = None
        self._tickets[ticket.id] = ticket
        size_s = ticket.size_s
        size_class = self._classes.get(size_s)
        if size_class is None:
            size_class = self._classes[size_s] = _LazyHeap()
        size_class.push(ticket.waiting_since_s, ticket)
        self._heads_since_s[size_s] = size_class.entries[0][0]

    def peek(self, now_s: float) -> Ticket | None:
        if self._tickets and (self._peeked is None or now_s != self._peeked_at_s):
            self._peeked = self._classes[self._highest_size_s(now_s)].entries[0][-1]
            self._peeked_at_s = now_s
        return self._peeked

    def _highest_size_s(self, now_s: float) -> float:
        """The size whose head has the highest ratio. The hot loop: two numbers per class and no call."""
        highest_ratio = float("-inf")
        highest_size_s = 0.0
        for size_s, since_s in self._heads_since_s.items():
            ratio = (now_s - since_s + size_s) / size_s
            if ratio > highest_ratio:
                highest_ratio, highest_size_s = ratio, size_s
            elif ratio == highest_ratio and self._comes_first(size_s, highest_size_s):
                highest_size_s = size_s
        return highest_size_s

    def _comes_first(self, size_s: float, other_size_s: float) -> bool:
        """Whether the head of one class wins a tie against the head of the other."""
        head, other = self._classes[size_s].entries[0], self._classes[other_size_s].entries[0]
        return head[1:3] < other[1:3]

    def pop(self, now_s: float) -> Ticket | None:
        ticket = self._peeked or self.peek(now_s)
        return None if ticket is None else self.remove(ticket.id)

    def remove(self, job_id: str) -> Ticket:
        ticket = self._tickets.pop(job_id, None)
        if ticket is None:
            raise UnknownJobError(job_id, state="waiting")
        self._peeked = None
        size_s = ticket.size_s
        size_class = self._classes[size_s]
        size_class.remove(job_id)
        if size_class.live:
            self._heads_since_s[size_s] = size_class.entries[0][0]
        else:
            del self._classes[size_s], self._heads_since_s[size_s]
        return ticket

    def ordered(self, now_s: float) -> list[Ticket]:
        return sorted(
            self._tickets.values(),
            key=lambda ticket: (-ticket.response_ratio(now_s), ticket.arrival_s, ticket.sequence),
        )

    def check(self) -> None:
        heads = {size_s: size_class.entries[0][0] for size_s, size_class in self._classes.items()}
        assert heads == self._heads_since_s
        in_classes: dict[str, Ticket] = {}
        for size_s, size_class in self._classes.items():
            size_class.check()
            assert size_class.live, "an empty class was kept"
            for entry in size_class.live.values():
                assert entry[-1].size_s == size_s, "a ticket is in another size's class"
                in_classes[entry[-1].id] = entry[-1]
        assert in_classes == self._tickets
        assert self._peeked is None or self._tickets.get(self._peeked.id) is self._peeked

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._tickets
