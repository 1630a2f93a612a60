"""What changes for whom, against the baseline: the same requests under both policies, with intervals.

Runs pair by seed and by ``notes["round"]``, requests by id. A request that got no text on one side is on neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sooner.evidence.comparison import Figure, Interval, Pair, change_interval, mean, percent
from sooner.evidence.report.sections import Cell, Offered
from sooner.evidence.summary import Columns, bucket_labels, bucket_numbers, joined

__all__ = ["Change", "Comparison", "PairedRun", "compare", "pair_runs"]

_FIGURES: tuple[tuple[str, Figure, int], ...] = (
    ("mean", mean, 20),
    ("median", percent(50), 20),
    ("P90", percent(90), 100),
    ("P99", percent(99), 1000),
)
"""Name, figure, and the requests it takes at least: ten beyond a percentile."""

_MANY = 20_000
_SEED = 20260101  # of the resampling; any will do, but a report made twice is the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of one figure of the E2E times of one group.

    Attributes:
        whose: the group, such as ``5-15 s``.
        figure: ``mean``, ``median``, ``P90`` or ``P99``.
        num_requests: pairs of requests.
        base_s: the figure under the baseline, seconds.
        other_s: the figure under the policy, seconds.
        interval: change in percent, ``None`` where there are too few requests to tell.
    """

    whose: str
    figure: str
    num_requests: int
    base_s: float
    other_s: float
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedRun:
    """The requests that were served in both of two runs, in order of arrival."""

    base: Columns
    other: Columns


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """One policy against the baseline at one load.

    Attributes:
        offered: the load.
        policy: what is compared.
        baseline: what with.
        runs: the pairs of runs; none where no seed was run under both.
        num_left_out: requests of these runs without a partner.
        overall: changes for all requests.
        by_length: changes of the mean by duration bucket.
        by_size: changes of the mean by tenth of predicted size, smallest first.
    """

    offered: Offered
    policy: str
    baseline: str
    runs: tuple[PairedRun, ...]
    num_left_out: int
    overall: tuple[Change, ...]
    by_length: tuple[Change, ...]
    by_size: tuple[Change, ...]


def compare(base: Cell, other: Cell) -> Comparison:
    """Compare two cells of one load, pair by pair. O(n log n) and the resampling."""
    runs = pair_runs(base, other)
    num_left_out = sum(num for _, num in runs)
    paired = tuple(run for run, _ in runs if len(run.base))
    overall: tuple[Change, ...] = ()
    by_length: tuple[Change, ...] = ()
    by_size: tuple[Change, ...] = ()
    if paired:
        everything = [np.zeros(len(run.base), dtype=np.intp) for run in paired]
        overall = tuple(_changes(paired, everything, ["all requests"], _FIGURES))
        lengths = [bucket_numbers(run.base.audio_s) for run in paired]
        by_length = tuple(_changes(paired, lengths, bucket_labels(), _FIGURES[:1]))
        by_size = tuple(_changes(paired, _tenths(paired), [f"tenth {n}" for n in range(1, 11)], _FIGURES[:1]))
    return Comparison(
        offered=base.offered,
        policy=other.policy,
        baseline=base.policy,
        runs=paired,
        num_left_out=num_left_out,
        overall=overall,
        by_length=by_length,
        by_size=by_size,
    )


def pair_runs(base: Cell, other: Cell) -> list[tuple[PairedRun, int]]:
    """Pairs of runs with the same traffic, and how many requests of each pair have no partner. O(n log n)."""
    partners = {key: index for index in range(len(base.runs)) if (key := _key(base, index)) is not None}
    pairs = []
    for index in range(len(other.runs)):
        key = _key(other, index)
        if key in partners:
            pairs.append(_paired(base.per_run[partners.pop(key)], other.per_run[index]))
    return pairs


def _key(cell: Cell, index: int) -> tuple[int, str] | None:
    header = cell.runs[index].header
    return None if header.seed is None else (header.seed, str(header.notes.get("round")))


def _paired(base: Columns, other: Columns) -> tuple[PairedRun, int]:
    place_of = {one: index for index, one in enumerate(base.ids)}
    places = [(place_of.pop(one, -1), index) for index, one in enumerate(other.ids)]
    left, right = np.array(sorted(pair for pair in places if pair[0] >= 0), dtype=np.intp).reshape(-1, 2).T
    # One id and two lengths: the seed is the same, the traffic is not.
    same = np.abs(base.audio_s[left] - other.audio_s[right]) < 0.01
    run = PairedRun(base=base.where(left[same]), other=other.where(right[same]))
    return run, len(base) + len(other) - 2 * len(run.base)


def _tenths(runs: Sequence[PairedRun]) -> list[NDArray[np.intp]]:
    """For each request the tenth that its predicted size lies in; equal sizes stay together."""
    edges = np.quantile(joined([run.base for run in runs]).size_s, np.arange(0.1, 1, 0.1))
    return [np.searchsorted(edges, run.base.size_s, side="left") for run in runs]


def _changes(
    runs: Sequence[PairedRun],
    groups: Sequence[NDArray[np.intp]],
    labels: Sequence[str],
    figures: Sequence[tuple[str, Figure, int]],
) -> Iterator[Change]:
    for number, label in enumerate(labels):
        pairs = [
            Pair(base=run.base.e2e_s[group == number], other=run.other.e2e_s[group == number])
            for run, group in zip(runs, groups, strict=True)
            if (group == number).any()
        ]
        if not pairs:
            continue
        base, other = (np.concatenate([getattr(pair, side) for pair in pairs]) for side in ("base", "other"))
        for name, figure, num_least in figures:
            is_told = len(base) >= num_least and figure(base) > 0
            yield Change(
                whose=label,
                figure=name,
                num_requests=len(base),
                base_s=figure(base),
                other_s=figure(other),
                interval=_interval(pairs, figure, len(base)) if is_told else None,
            )


def _interval(pairs: Sequence[Pair], figure: Figure, num_requests: int) -> Interval:
    num_resamples = 1000 if num_requests < _MANY else 200  # a percentile of a million takes its time
    return change_interval(pairs, figure, rng=np.random.default_rng(_SEED), num_resamples=num_resamples)
