"""In which order servers are measured.

A machine is not the same in the second hour: it warms up, a neighbour wakes up, a disk fills. Had all runs of A
been made before all of B, that would look like a difference between A and B. So they are visited in turn with the
same traffic, and every second time backwards: A B, B A, A B. What drifts evenly then falls on both alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Target", "Visit", "visits_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server to be measured.

    Attributes:
        name: how results call it; the policy where ``url`` is ``None``.
        url: where it is, without ``/v1``; ``None``: ``sooner serve`` is to be started with this policy.
    """

    name: str
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One run.

    Attributes:
        target: who is measured.
        rate_per_s: requests a second, ``None`` where the workload has arrivals of its own.
        seed: of the traffic.
        round: 1, 2, … where everything is measured several times.
    """

    target: Target
    rate_per_s: float | None
    seed: int
    round: int

    @property
    def name(self) -> str:
        """What tells it from all others, fit for a file's name."""
        rate = "" if self.rate_per_s is None else f"-rate{self.rate_per_s:g}"
        return f"{self.target.name}{rate}-seed{self.seed}-round{self.round}"


def visits_of(
    targets: Sequence[Target], *, rates_per_s: Sequence[float | None], seeds: Sequence[int], num_rounds: int
) -> Iterator[Visit]:
    """All runs in order: rate by rate, round by round, seed by seed, the targets forth and back."""
    for rate_per_s in rates_per_s:
        for turn in range(num_rounds * len(seeds)):
            number, index = divmod(turn, len(seeds))
            for target in reversed(targets) if turn % 2 else targets:
                yield Visit(target=target, rate_per_s=rate_per_s, seed=seeds[index], round=number + 1)
