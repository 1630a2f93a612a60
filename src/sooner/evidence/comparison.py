"""How sure is a difference? Paired bootstrap over blocks of requests.

Two runs with the same seed carry the same requests, so they are compared pair by pair. Requests that queue
together are late together: taken one at a time they would look like far more evidence than they are. What is
drawn anew is therefore a whole block of consecutive arrivals (the moving-block idea of Künsch 1989,
https://doi.org/10.1214/aos/1176347265, with fixed blocks), the same blocks on both sides; where there are a dozen
runs or more, a block is a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Figure", "Interval", "Pair", "change_interval", "mean", "percent"]

Values = NDArray[np.float64]
Figure = Callable[[Values], float]
"""From the values of many requests to one number."""

_BLOCKS_PER_RUN = 10
_ENOUGH_RUNS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A number and how far it may be off.

    Attributes:
        value: the estimate.
        low: lower end of the interval.
        high: upper end.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One run of each side over the same requests, in order of arrival; equal lengths.

    Attributes:
        base: values of the baseline, such as seconds of E2E under fcfs.
        other: values of what is compared with it.
    """

    base: Values
    other: Values


def percent(percentile: float) -> Figure:
    """The figure that is the given percentile."""
    return lambda values: float(np.percentile(values, percentile))


def mean(values: Values) -> float:
    """The figure that is the mean."""
    return float(values.mean())


def change_interval(
    pairs: Sequence[Pair],
    figure: Figure,
    *,
    rng: np.random.Generator,
    num_resamples: int = 1000,
    confidence: float = 0.95,
) -> Interval:
    """By how many percent ``figure`` of the pooled values changes from base to other: −50 is half.

    Args:
        pairs: at least one; sides of unequal length are an error.
        figure: what is compared.
        rng: draws the blocks.
        num_resamples: bootstrap samples.
        confidence: share of them that the interval holds.

    Raises:
        ValueError: no pair, an empty one, or sides of unequal length; a figure of 0 or less on the base side, of
            which nothing is a percentage; or a single block, of which no sample tells how far it may be off.
    """
    blocks = _blocks(pairs)
    if len(blocks) < 2:
        raise ValueError("one pair of requests has no interval; it takes two at least")
    estimate = _change(blocks, figure)
    draws = rng.integers(len(blocks), size=(num_resamples, len(blocks)))
    changes = [_change([blocks[index] for index in draw], figure) for draw in draws]
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(changes, [tail, 100 - tail])
    return Interval(value=estimate, low=float(low), high=float(high))


def _blocks(pairs: Sequence[Pair]) -> list[Pair]:
    if not pairs or any(len(pair.base) == 0 or len(pair.base) != len(pair.other) for pair in pairs):
        raise ValueError("a comparison needs pairs of runs with the same requests, at least one each")
    if len(pairs) >= _ENOUGH_RUNS:
        return list(pairs)
    return [
        Pair(base=base, other=other)
        for pair in pairs
        for base, other in zip(
            np.array_split(pair.base, min(_BLOCKS_PER_RUN, len(pair.base))),
            np.array_split(pair.other, min(_BLOCKS_PER_RUN, len(pair.other))),
            strict=True,
        )
    ]


def _change(blocks: Sequence[Pair], figure: Figure) -> float:
    base = figure(np.concatenate([block.base for block in blocks]))
    if not base > 0:
        raise ValueError(f"a change in percent needs a baseline above 0, not {base:g}")
    other = figure(np.concatenate([block.other for block in blocks]))
    return 100 * (other / base - 1)
