"""The same requests in two runs, and what changes between them: for the report and for a measurement's tables.

Runs pair by seed and by ``notes["round"]``, requests by id. A request that got no text on one side is on neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sooner.evidence.comparison import Figure, Interval, Pair, change_interval, mean, percent
from sooner.evidence.run_file import RunHeader
from sooner.evidence.summary import Columns

__all__ = ["FIGURES", "PairedRun", "Served", "interval_of", "pair_runs"]

Served = tuple[RunHeader, Columns]
"""A run as pairing takes it: what was run, and the requests that got a text."""

FIGURES: tuple[tuple[str, Figure, int], ...] = (
    ("mean", mean, 20),
    ("median", percent(50), 20),
    ("P90", percent(90), 100),
    ("P99", percent(99), 1000),
)
"""Name, figure, and the requests it takes at least: ten beyond a percentile."""

_MANY = 20_000
_SEED = 20260101  # of the resampling; any will do, but the same runs give the same intervals


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedRun:
    """The requests that were served in both of two runs, in order of arrival; at least one.

    Attributes:
        seed: of the traffic.
        base: under the baseline.
        other: under what is compared with it.
    """

    seed: int
    base: Columns
    other: Columns


def pair_runs(base: Sequence[Served], other: Sequence[Served]) -> tuple[tuple[PairedRun, ...], int]:
    """Pairs of runs with the same traffic, and how many requests of all these runs have no partner. O(n log n).

    Where several runs of a side have one seed and round, the first pairs with the first, and so on.
    """
    waiting: dict[tuple[int, str], list[Columns]] = {}
    for header, columns in base:
        if (key := _traffic(header)) is not None:
            waiting.setdefault(key, []).append(columns)
    runs = []
    for header, columns in other:
        key = _traffic(header)
        if key is not None and waiting.get(key):
            runs.append(_paired(key[0], waiting[key].pop(0), columns))
    num_served = sum(len(columns) for _, columns in (*base, *other))
    return tuple(run for run in runs if len(run.base)), num_served - 2 * sum(len(run.base) for run in runs)


def _traffic(header: RunHeader) -> tuple[int, str] | None:
    return None if header.seed is None else (header.seed, str(header.notes.get("round")))


def _paired(seed: int, base: Columns, other: Columns) -> PairedRun:
    place_of = {one: index for index, one in enumerate(base.ids)}
    places = [(place_of.pop(one, -1), index) for index, one in enumerate(other.ids)]
    left, right = np.array(sorted(pair for pair in places if pair[0] >= 0), dtype=np.intp).reshape(-1, 2).T
    # One id and two lengths: the seed is the same, the traffic is not.
    same = np.abs(base.audio_s[left] - other.audio_s[right]) < 0.01
    return PairedRun(seed=seed, base=base.where(left[same]), other=other.where(right[same]))


def interval_of(pairs: Sequence[Pair], figure: Figure, *, num_least: int) -> Interval | None:
    """The change of a figure with its 95 % interval; ``None`` where there are too few requests to tell.

    Args:
        pairs: values of the runs, side by side.
        figure: one of ``FIGURES``.
        num_least: requests that it takes.
    """
    num_requests = sum(len(pair.base) for pair in pairs)
    if _num_different(pairs) < num_least:
        return None
    num_resamples = 1000 if num_requests < _MANY else 200  # a percentile of a million takes its time
    return change_interval(pairs, figure, rng=np.random.default_rng(_SEED), num_resamples=num_resamples)


def _num_different(pairs: Sequence[Pair]) -> int:
    """Requests, those of several rounds of one traffic counted once."""
    most: dict[int | tuple[str, int], int] = {}
    for index, pair in enumerate(pairs):
        key = ("its own", index) if pair.traffic is None else pair.traffic
        most[key] = max(most.get(key, 0), len(pair.base))
    return sum(most.values())
