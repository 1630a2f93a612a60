"""Changes and their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sooner.evidence.comparison import Interval, Pair, Values, change_interval, mean, percent, student_t


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def told(*arguments: Any, **options: Any) -> Interval:
    interval = change_interval(*arguments, **({"rng": rng()} | options))
    assert interval is not None
    return interval


def late_together(seed: int) -> Values:
    """100 values in ten stretches that share their level, as requests that queue together do."""
    random = np.random.default_rng(seed)
    return np.repeat(random.exponential(10, 10), 10) + random.exponential(0.1, 100) + 1


def test_what_halves_everywhere_halves_without_doubt() -> None:
    base = late_together(1)
    interval = told([Pair(base=base, other=base / 2)], mean)
    assert (interval.value, interval.low, interval.high) == pytest.approx((-50, -50, -50))


def test_what_stays_is_0() -> None:
    base = late_together(1)
    assert change_interval([Pair(base=base, other=base)], percent(90), rng=rng()) == Interval(
        value=0, low=0, high=0
    )


def test_the_estimate_is_of_the_pooled_values() -> None:
    pairs = [
        Pair(base=np.array([1.0, 3.0] * 2), other=np.array([2.0, 2.0] * 2)),
        Pair(base=np.ones(4), other=np.ones(4) * 4),
    ]
    assert told(pairs, mean).value == pytest.approx(100.0)
    assert told(pairs, percent(50)).value == pytest.approx(200.0)


def test_equal_seeds_give_equal_intervals() -> None:
    pairs = [Pair(base=late_together(1), other=late_together(2))]
    first, second = (told(pairs, mean) for _ in range(2))
    assert first == second
    assert first.low < first.value < first.high


def test_requests_that_are_late_together_are_no_evidence_each() -> None:
    """Blocks give a wider interval than the same values would, shuffled, taken for independent."""
    base, other = late_together(1), late_together(2)
    order = np.random.default_rng(0).permutation(100)
    blocks = told([Pair(base=base, other=other)], mean)
    shuffled = told([Pair(base=base[order], other=other[order])], mean)
    assert blocks.high - blocks.low > 1.5 * (shuffled.high - shuffled.low)


def test_with_a_dozen_runs_a_block_is_a_run() -> None:
    """Runs that differ within but not between: a whole run drawn anew changes nothing."""
    pair = Pair(base=late_together(1), other=late_together(2))
    few = told([pair] * 11, mean)
    many = told([pair] * 12, mean)
    assert few.high - few.low > 1
    assert (many.low, many.high) == pytest.approx((many.value, many.value))


def test_a_round_more_of_the_same_traffic_is_no_more_evidence_of_other_traffic() -> None:
    """Two rounds that came out alike: as two traffics they would make the interval narrower."""
    base, other = late_together(1), late_together(2)
    once = told([Pair(base=base, other=other, traffic=1)], mean)
    twice = told([Pair(base=base, other=other, traffic=1)] * 2, mean)
    apart = told([Pair(base=base, other=other, traffic=seed) for seed in (1, 2)], mean)
    assert (twice.value, twice.low, twice.high) == pytest.approx((once.value, once.low, once.high))
    assert apart.high - apart.low < 0.9 * (once.high - once.low)


def test_rounds_of_unequal_length_are_drawn_stretch_by_stretch() -> None:
    """A request that failed in one round is in one of the pairs alone."""
    base, other = late_together(1), late_together(2)
    pairs = [Pair(base=base, other=other, traffic=1), Pair(base=base[:-3], other=other[:-3], traffic=1)]
    interval = told(pairs, mean)
    pooled = 100 * (np.concatenate([other, other[:-3]]).mean() / np.concatenate([base, base[:-3]]).mean() - 1)
    assert interval.value == pytest.approx(pooled)
    assert interval.low < interval.value < interval.high


def test_a_wider_confidence_is_a_wider_interval() -> None:
    pairs = [Pair(base=late_together(1), other=late_together(2))]
    narrow, wide = (told(pairs, mean, confidence=share) for share in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(("num_runs", "num_requests"), [(1, 100), (12, 20), (3, 100)])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(num_runs: int, num_requests: int) -> None:
    """Ten, twelve and thirty blocks of independent values: 95 % of 500, and twice two standard errors.

    Plain percentiles would hold it 459 and 452 times with ten and twelve blocks.
    """
    random = np.random.default_rng(2)
    held = 0
    for _ in range(500):
        base, other = random.exponential(1, (2, num_runs, num_requests))
        pairs = [Pair(base=left, other=right) for left, right in zip(base, other, strict=True)]
        interval = told(pairs, mean, rng=random, num_resamples=200)
        held += interval.low <= 0 <= interval.high
    assert 465 <= held <= 485


@pytest.mark.parametrize(
    ("share", "degrees", "expected"),
    [(0.975, 7, 2.3646), (0.975, 9, 2.2622), (0.975, 29, 2.0452), (0.995, 7, 3.4995), (0.05, 11, -1.7959)],
)
def test_quantiles_of_student(share: float, degrees: int, expected: float) -> None:
    """Against the printed tables."""
    assert student_t(share, degrees) == pytest.approx(expected, abs=1e-3)


def test_fewer_than_eight_blocks_have_no_interval() -> None:
    values = np.arange(1.0, 9.0)
    assert change_interval([Pair(base=values[:7], other=values[:7])], mean, rng=rng()) is None
    assert change_interval([Pair(base=values, other=values)], mean, rng=rng()) is not None


@pytest.mark.parametrize("base", [np.zeros(40), np.repeat([0.0, 1.0], (19, 21))])
def test_nothing_is_a_percentage_of_0_not_even_of_a_sample(base: Values) -> None:
    assert change_interval([Pair(base=base, other=np.ones(40))], percent(50), rng=rng()) is None


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "at least one each"),
        ([Pair(base=np.array([]), other=np.array([]))], "at least one each"),
        ([Pair(base=np.ones(2), other=np.ones(3))], "same requests"),
    ],
)
def test_what_cannot_be_compared_is_refused(pairs: list[Pair], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change_interval(pairs, mean, rng=rng())
