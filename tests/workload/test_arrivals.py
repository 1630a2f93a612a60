"""Arrival processes: their mean rate, how uneven they are, and the drift of time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from statistics import mean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.workload.arrivals import (
    SHIPPED_ARRIVALS,
    burst_arrivals,
    drifting,
    gamma_arrivals,
    on_off_arrivals,
    poisson_arrivals,
    recorded_arrivals,
)
from sooner.workload.trace import read_arrivals

Process = Callable[[random.Random], Iterator[float]]


def poisson(rng: random.Random) -> Iterator[float]:
    return poisson_arrivals(rng, rate_per_s=5.0)


def bursty(rng: random.Random) -> Iterator[float]:
    return gamma_arrivals(rng, rate_per_s=5.0, cv=4.0)


def even(rng: random.Random) -> Iterator[float]:
    return gamma_arrivals(rng, rate_per_s=5.0, cv=0.5)


def on_off(rng: random.Random) -> Iterator[float]:
    return on_off_arrivals(rng, rate_per_s=5.0, on_s=1.0, off_s=3.0)


def gaps_of(times_s: list[float]) -> list[float]:
    return [later_s - earlier_s for earlier_s, later_s in pairwise(times_s)]


def cv_of(times_s: list[float]) -> float:
    gaps_s = gaps_of(times_s)
    return pstdev(gaps_s) / mean(gaps_s)


# Gaps of on-off arrivals (an interrupted Poisson process): cv² = 1 + 2·λ·a/(a + b)² with λ = 20 a second while
# busy, which ends at rate a = 1 and begins again at rate b = 1/3 (Kuczura 1973).
CVS = [(poisson, 1.0), (bursty, 4.0), (even, 0.5), (on_off, 4.85)]


@pytest.mark.parametrize("process", [poisson, bursty, even, on_off])
def test_arrivals_rise_at_their_rate_and_repeat_with_their_seed(process: Process) -> None:
    times_s = list(islice(process(random.Random(1)), 100_000))
    assert times_s == sorted(times_s)
    assert len(times_s) / times_s[-1] == pytest.approx(5.0, rel=0.05)
    assert times_s == list(islice(process(random.Random(1)), 100_000))
    assert times_s[:10] != list(islice(process(random.Random(2)), 10))


@pytest.mark.parametrize(("process", "cv"), CVS)
def test_gaps_are_as_uneven_as_asked(process: Process, cv: float) -> None:
    assert cv_of(list(islice(process(random.Random(1)), 100_000))) == pytest.approx(cv, rel=0.05)


def test_on_off_arrivals_begin_in_either_phase() -> None:
    """A quarter of the time is busy, and then the first comes after 50 ms on average."""
    firsts_s = [next(on_off(random.Random(seed))) for seed in range(2000)]
    assert mean(first_s < 0.2 for first_s in firsts_s) == pytest.approx(0.3, abs=0.05)


def test_a_burst_comes_all_at_once() -> None:
    assert list(islice(burst_arrivals(), 3)) == [0.0, 0.0, 0.0]


def test_a_recorded_sequence_is_scaled_and_begins_anew() -> None:
    times_s = list(islice(recorded_arrivals([100.0, 101.0, 106.0], rate_per_s=2.0), 7))
    # Gaps of 1 and 5 s, 3 on average, become gaps of 0.5 s on average; one of these leads to the next round.
    assert times_s == pytest.approx([0.0, 1 / 6, 1.0, 1.5, 1.5 + 1 / 6, 2.5, 3.0])


@pytest.mark.parametrize("arrivals_s", [[], [1.0], [2.0, 2.0, 2.0]])
def test_what_has_no_rate_cannot_be_scaled(arrivals_s: list[float]) -> None:
    with pytest.raises(ValueError, match="two arrivals or more"):
        next(recorded_arrivals(arrivals_s, rate_per_s=1.0))


@pytest.mark.parametrize(
    ("name", "num_arrivals", "rate_per_s", "cv"),
    [("azure-code", 8819, 2.57, 13.2), ("azure-conv", 19366, 5.53, 1.09)],
)
def test_shipped_arrivals(name: str, num_arrivals: int, rate_per_s: float, cv: float) -> None:
    times_s = read_arrivals(SHIPPED_ARRIVALS[name])
    assert len(times_s) == num_arrivals
    assert num_arrivals / times_s[-1] == pytest.approx(rate_per_s, rel=0.01)
    assert cv_of(times_s) == pytest.approx(cv, rel=0.01)
    scaled_s = list(islice(recorded_arrivals(times_s, rate_per_s=0.5), num_arrivals))
    assert (num_arrivals - 1) / scaled_s[-1] == pytest.approx(0.5)
    assert cv_of(scaled_s) == pytest.approx(cv, rel=0.01)


@pytest.mark.parametrize(
    "process",
    [
        lambda bad: poisson_arrivals(random.Random(1), rate_per_s=bad),
        lambda bad: gamma_arrivals(random.Random(1), rate_per_s=bad, cv=1.0),
        lambda bad: gamma_arrivals(random.Random(1), rate_per_s=1.0, cv=bad),
        lambda bad: on_off_arrivals(random.Random(1), rate_per_s=bad, on_s=1.0, off_s=1.0),
        lambda bad: on_off_arrivals(random.Random(1), rate_per_s=1.0, on_s=bad, off_s=1.0),
        lambda bad: on_off_arrivals(random.Random(1), rate_per_s=1.0, on_s=1.0, off_s=bad),
        lambda bad: recorded_arrivals([0.0, 1.0], rate_per_s=bad),
    ],
)
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_senseless_numbers_are_refused(process: Callable[[float], Iterator[float]], bad: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        next(process(bad))


@pytest.mark.parametrize("drift_rate", [4.0, 0.25])
def test_the_rate_drifts_evenly_around_its_mean(drift_rate: float) -> None:
    times_s = list(islice(poisson(random.Random(1)), 100_000))
    first_s = times_s[0]
    drifted_s = drifting([time_s - first_s for time_s in times_s], drift_rate=drift_rate)
    span_s = drifted_s[-1]
    assert len(drifted_s) / span_s == pytest.approx(5.0, rel=0.02)
    tenths = [sum(int(10 * time_s / span_s) == tenth for time_s in drifted_s) for tenth in range(10)]
    rates_per_s = [count / (span_s / 10) for count in tenths]
    begin, end = 10 / (1 + drift_rate), 10 * drift_rate / (1 + drift_rate)
    assert rates_per_s == pytest.approx([begin + (end - begin) * (n + 0.5) / 10 for n in range(10)], rel=0.04)


@given(
    st.lists(st.floats(0, 1e6), min_size=1).map(lambda gaps_s: [sum(gaps_s[:n]) for n in range(len(gaps_s))]),
    st.floats(0.01, 100),
)
def test_drift_keeps_order_and_ends(times_s: list[float], drift_rate: float) -> None:
    if len(times_s) > 1 and times_s[-1] == 0 and drift_rate != 1:
        with pytest.raises(ValueError, match="no rate"):
            drifting(times_s, drift_rate=drift_rate)
        return
    drifted_s = drifting(times_s, drift_rate=drift_rate)
    assert drifted_s == sorted(drifted_s)
    assert len(drifted_s) == len(times_s)
    assert drifted_s[0] == times_s[0] == 0
    assert drifted_s[-1] == pytest.approx(times_s[-1])


@given(st.lists(st.floats(0, 1e6), min_size=2).map(lambda times_s: [0.0, *sorted(times_s)]))
def test_no_drift_changes_nothing(times_s: list[float]) -> None:
    assert drifting(times_s, drift_rate=1.0) == times_s
    if times_s[-1] > 0:
        assert drifting(times_s, drift_rate=1 + 1e-12) == pytest.approx(times_s)


def test_rounding_does_not_let_neighbours_change_places() -> None:
    drifted_s = drifting([0.0, 0.03742337508476401, 0.03742337508476402, 1.0], drift_rate=100.0)
    assert drifted_s[1] <= drifted_s[2]


def test_a_drift_must_be_positive() -> None:
    with pytest.raises(ValueError, match="drift_rate must be positive"):
        drifting([0.0, 1.0], drift_rate=0.0)
