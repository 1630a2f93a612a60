"""How sure is a difference? Paired bootstrap over blocks of requests.

Two runs with the same seed carry the same requests, so they are compared pair by pair. Requests that queue
together are late together: taken one at a time they would look like far more evidence than they are. What is
drawn anew is therefore a whole block of consecutive arrivals (the moving-block idea of Künsch 1989,
https://doi.org/10.1214/aos/1176347265, with fixed blocks), the same blocks on both sides; where there are a dozen
traffics or more, a block is all of one. Runs of the same traffic repeat each other, so their blocks are drawn
together.

So few blocks vary less than they should, and plain percentiles of the samples make an interval that is too narrow:
with ten blocks, one of "95 %" holds the truth 92 times in 100. The percentiles are therefore taken further out, as
Student's t interval is wider than the normal one (the expanded percentile interval of Hesterberg 2015,
https://doi.org/10.1080/00031305.2015.1089789). With fewer than eight blocks there is no interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

__all__ = ["Figure", "Interval", "Pair", "Values", "change_interval", "mean", "percent", "student_t"]

Values = NDArray[np.float64]
Figure = Callable[[Values], float]
"""From the values of many requests to one number."""

_BLOCKS_PER_TRAFFIC = 10
_ENOUGH_TRAFFICS = 12
_MIN_BLOCKS = 8


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
        traffic: equal for runs of the same requests at the same times, such as their seed; ``None``: its own.
    """

    base: Values
    other: Values
    traffic: int | None = None


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
) -> Interval | None:
    """By how many percent ``figure`` of the pooled values changes from base to other: −50 is half.

    ``None`` where that cannot be told: of fewer than eight blocks, or where the figure of the base side, or of a
    sample of it, is 0, of which nothing is a percentage.

    Args:
        pairs: at least one; sides of unequal length are an error.
        figure: what is compared.
        rng: draws the blocks.
        num_resamples: bootstrap samples.
        confidence: share of them that the interval holds.

    Raises:
        ValueError: no pair, an empty one, or sides of unequal length.
    """
    blocks = _blocks(pairs)
    if len(blocks) < _MIN_BLOCKS:
        return None
    draws = rng.integers(len(blocks), size=(num_resamples, len(blocks)))
    samples = (blocks, *([blocks[index] for index in draw] for draw in draws))
    estimate, *changes = (_change(sample, figure) for sample in samples)
    known = [change for change in changes if change is not None]
    if estimate is None or len(known) < num_resamples:
        return None
    tail = 100 * _expanded_tail((1 - confidence) / 2, len(blocks))
    # So far out, the common definition of a percentile lies inside of where the samples' own share is.
    low, high = np.percentile(known, [tail, 100 - tail], method="weibull")
    return Interval(value=estimate, low=float(low), high=float(high))


def _expanded_tail(tail: float, num_blocks: int) -> float:
    """The share of samples to leave out at each end, so that the interval leaves the truth out that often."""
    return NormalDist().cdf(-sqrt(num_blocks / (num_blocks - 1)) * student_t(1 - tail, num_blocks - 1))


def student_t(share: float, degrees: int) -> float:
    """Quantile of Student's t, to a thousandth from seven degrees of freedom up and for tails from 0.5 %.

    Args:
        share: of the distribution that lies below, in (0, 1).
        degrees: degrees of freedom.

    Source: the expansion around the normal quantile, M. Abramowitz and I. Stegun, Handbook of Mathematical
    Functions (1964), 26.7.5.
    """
    z = NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / float(degrees) ** power for power, term in enumerate(terms, start=1))


def _blocks(pairs: Sequence[Pair]) -> list[Pair]:
    if not pairs or any(len(pair.base) == 0 or len(pair.base) != len(pair.other) for pair in pairs):
        raise ValueError("a comparison needs pairs of runs with the same requests, at least one each")
    traffics = _by_traffic(pairs)
    num_blocks = 1 if len(traffics) >= _ENOUGH_TRAFFICS else _BLOCKS_PER_TRAFFIC
    return [block for runs in traffics for block in _blocks_of(runs, num_blocks)]


def _by_traffic(pairs: Sequence[Pair]) -> list[list[Pair]]:
    alike: dict[int | tuple[str, int], list[Pair]] = {}
    for index, pair in enumerate(pairs):
        key = ("its own", index) if pair.traffic is None else pair.traffic
        alike.setdefault(key, []).append(pair)
    return list(alike.values())


def _blocks_of(runs: Sequence[Pair], num_blocks: int) -> list[Pair]:
    """Stretches of one traffic, each with the same stretch of all its runs."""
    num = min(num_blocks, *(len(run.base) for run in runs))
    base = [np.array_split(run.base, num) for run in runs]
    other = [np.array_split(run.other, num) for run in runs]
    return [
        Pair(base=np.concatenate(left), other=np.concatenate(right))
        for left, right in zip(zip(*base, strict=True), zip(*other, strict=True), strict=True)
    ]


def _change(blocks: Sequence[Pair], figure: Figure) -> float | None:
    base = figure(np.concatenate([block.base for block in blocks]))
    if not base > 0:
        return None
    other = figure(np.concatenate([block.other for block in blocks]))
    return 100 * (other / base - 1)
