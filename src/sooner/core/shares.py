"""Whose share of the service is used up: virtual time, as in start-time fair queueing.

After Goyal, Vin and Cheng 1997, https://doi.org/10.1109/90.649569. What is charged, when, and what follows from it
is said in ``sooner.core.groups``.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

__all__ = ["Client", "Shares"]

Client = str | None
"""Whose tickets: a client as the driver knows it, or ``None`` for all that have none."""


class Shares:
    """Virtual time: how much service a client may have had, and who had more. O(log clients ahead), amortised.

    ``virtual_s`` is V. ``tags`` has F of each client that waits beside others or is ahead, and of nobody else:
    memory is bounded by those. ``ahead`` is a heap with one entry for each client whose F is after V, of F as it
    was when the entry was made.
    """

    __slots__ = ("ahead", "num_entries", "tags", "virtual_s")

    def __init__(self) -> None:
        self.virtual_s = 0.0
        self.tags: dict[Client, float] = {}
        self.ahead: list[tuple[float, int, Client]] = []  # tag, number of the entry, client
        self.num_entries = 0

    def is_ahead(self, client: Client) -> bool:
        return self.tags.get(client, self.virtual_s) > self.virtual_s

    def begin(self, client: Client) -> None:
        """Keep the tag of a client that waits beside others from now on."""
        self.tags.setdefault(client, self.virtual_s)

    def charge(self, client: Client, service_s: float) -> None:
        """Count a window against its client, as it is taken."""
        was_ahead = self.is_ahead(client)
        self.tags[client] += service_s
        if self.is_ahead(client) and not was_ahead:
            self.num_entries += 1
            heapq.heappush(self.ahead, (self.tags[client], self.num_entries, client))

    def caught_up(self) -> Iterator[Client]:
        """Take out those that are not ahead any more, the least tag first; their tags stay."""
        while self.ahead and self.ahead[0][0] <= self.virtual_s:
            tag_s, number, client = self.ahead[0]
            if self.tags[client] > tag_s:  # charged again meanwhile, for a ticket that was taken without a turn
                heapq.heapreplace(self.ahead, (self.tags[client], number, client))
            else:
                heapq.heappop(self.ahead)
                yield client

    def jump(self) -> None:
        """Let V be the least tag that is ahead."""
        self.virtual_s = self.ahead[0][0]

    def check(self) -> None:
        ahead = [client for _, _, client in self.ahead]
        assert len(set(ahead)) == len(ahead), "a client is ahead twice"
        assert set(ahead) == set(filter(self.is_ahead, self.tags)), "who is ahead is not in the heap"
        assert all(self.virtual_s < tag_s <= self.tags[client] for tag_s, _, client in self.ahead)
        for child in range(1, len(self.ahead)):
            assert self.ahead[(child - 1) // 2][:2] <= self.ahead[child][:2], "heap order broken"
