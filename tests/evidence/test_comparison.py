"""Changes and their intervals."""

from __future__ import annotations

import numpy as np
import pytest

from sooner.evidence.comparison import Interval, Pair, Values, change_interval, mean, percent


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def late_together(seed: int) -> Values:
    """100 values in ten stretches that share their level, as requests that queue together do."""
    random = np.random.default_rng(seed)
    return np.repeat(random.exponential(10, 10), 10) + random.exponential(0.1, 100) + 1


def test_what_halves_everywhere_halves_without_doubt() -> None:
    base = late_together(1)
    interval = change_interval([Pair(base=base, other=base / 2)], mean, rng=rng())
    assert (interval.value, interval.low, interval.high) == pytest.approx((-50, -50, -50))


def test_what_stays_is_0() -> None:
    base = late_together(1)
    assert change_interval([Pair(base=base, other=base)], percent(90), rng=rng()) == Interval(
        value=0, low=0, high=0
    )


def test_the_estimate_is_of_the_pooled_values() -> None:
    pairs = [
        Pair(base=np.array([1.0, 3.0]), other=np.array([2.0, 2.0])),
        Pair(base=np.ones(2), other=np.ones(2) * 4),
    ]
    assert change_interval(pairs, mean, rng=rng()).value == pytest.approx(100.0)
    assert change_interval(pairs, percent(50), rng=rng()).value == pytest.approx(200.0)


def test_equal_seeds_give_equal_intervals() -> None:
    pairs = [Pair(base=late_together(1), other=late_together(2))]
    first, second = (change_interval(pairs, mean, rng=rng()) for _ in range(2))
    assert first == second
    assert first.low < first.value < first.high


def test_requests_that_are_late_together_are_no_evidence_each() -> None:
    """Blocks give a wider interval than the same values would, shuffled, taken for independent."""
    base, other = late_together(1), late_together(2)
    order = np.random.default_rng(0).permutation(100)
    blocks = change_interval([Pair(base=base, other=other)], mean, rng=rng())
    shuffled = change_interval([Pair(base=base[order], other=other[order])], mean, rng=rng())
    assert blocks.high - blocks.low > 1.5 * (shuffled.high - shuffled.low)


def test_with_a_dozen_runs_a_block_is_a_run() -> None:
    """Runs that differ within but not between: a whole run drawn anew changes nothing."""
    pair = Pair(base=late_together(1), other=late_together(2))
    few = change_interval([pair] * 11, mean, rng=rng())
    many = change_interval([pair] * 12, mean, rng=rng())
    assert few.high - few.low > 1
    assert (many.low, many.high) == pytest.approx((many.value, many.value))


def test_a_wider_confidence_is_a_wider_interval() -> None:
    pairs = [Pair(base=late_together(1), other=late_together(2))]
    narrow, wide = (change_interval(pairs, mean, rng=rng(), confidence=share) for share in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Independent values, so blocks are as good as requests: 90 % of 200, and twice four standard errors."""
    random = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        base, other = random.exponential(1, 600), random.exponential(1, 600)
        pairs = [Pair(base=base[part], other=other[part]) for part in np.split(np.arange(600), 3)]
        interval = change_interval(pairs, mean, rng=random, num_resamples=200, confidence=0.9)
        held += interval.low <= 0 <= interval.high
    assert 163 <= held <= 197


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "at least one each"),
        ([Pair(base=np.array([]), other=np.array([]))], "at least one each"),
        ([Pair(base=np.ones(2), other=np.ones(3))], "same requests"),
        ([Pair(base=np.ones(1), other=np.ones(1))], "two at least"),
        ([Pair(base=np.zeros(5), other=np.ones(5))], "baseline above 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(pairs: list[Pair], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change_interval(pairs, mean, rng=rng())
