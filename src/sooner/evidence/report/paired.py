"""What changes for whom, against the baseline: the same requests under both policies, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sooner.evidence.comparison import Figure, Interval, Pair
from sooner.evidence.pairing import FIGURES, PairedRun, Served, interval_of, pair_runs
from sooner.evidence.report.sections import Cell, Offered
from sooner.evidence.summary import bucket_labels, bucket_numbers, joined

__all__ = ["TENTHS", "Change", "Comparison", "compare"]

TENTHS = tuple(f"tenth {number}" for number in range(1, 11))
"""Of requests by predicted size, smallest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of one figure of the E2E times of one group.

    Attributes:
        whose: the group, such as ``5-15 s``.
        figure: ``mean``, ``median``, ``P90`` or ``P99``.
        num_requests: pairs of requests.
        base_s: the figure under the baseline, seconds.
        other_s: the figure under the policy, seconds.
        interval: change in percent, ``None`` where it cannot be told: mostly of too few requests.
    """

    whose: str
    figure: str
    num_requests: int
    base_s: float
    other_s: float
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Comparison:
    """One policy against the baseline at one load.

    Attributes:
        offered: the load.
        policy: what is compared.
        baseline: what with.
        runs: the pairs of runs; none where no seed was run under both.
        num_left_out: served requests of both sides without a partner, those of unpaired runs included.
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
    paired, num_left_out = pair_runs(_served(base), _served(other))
    overall: tuple[Change, ...] = ()
    by_length: tuple[Change, ...] = ()
    by_size: tuple[Change, ...] = ()
    if paired:
        everything = [np.zeros(len(run.base), dtype=np.intp) for run in paired]
        overall = tuple(_changes(paired, everything, ["all requests"], FIGURES))
        lengths = [bucket_numbers(run.base.audio_s) for run in paired]
        by_length = tuple(_changes(paired, lengths, bucket_labels(), FIGURES[:1]))
        by_size = tuple(_changes(paired, _tenths(paired), TENTHS, FIGURES[:1]))
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


def _served(cell: Cell) -> list[Served]:
    return [(run.header, columns) for run, columns in zip(cell.runs, cell.per_run, strict=True)]


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
            Pair(base=run.base.e2e_s[group == number], other=run.other.e2e_s[group == number], traffic=run.seed)
            for run, group in zip(runs, groups, strict=True)
            if (group == number).any()
        ]
        if not pairs:
            continue
        base, other = (np.concatenate([getattr(pair, side) for pair in pairs]) for side in ("base", "other"))
        for name, figure, num_least in figures:
            yield Change(
                whose=label,
                figure=name,
                num_requests=len(base),
                base_s=figure(base),
                other_s=figure(other),
                interval=interval_of(pairs, figure, num_least=num_least),
            )
