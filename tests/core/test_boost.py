"""γ-Boost's two formulas: the boost of a size, and the decay rate that a workload has."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sooner.core.boost import boost_s, decay_rate

sizes_s = st.lists(st.integers(1, 64 * 60).map(lambda n: n / 64), min_size=1, max_size=40)
jobs = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(1, 64 * 60).map(lambda n: n / 64)), min_size=2, max_size=30
)


def in_order(jobs: list[tuple[int, float]], gamma_per_s: float) -> list[tuple[int, float]]:
    return sorted(jobs, key=lambda one: one[0] - boost_s(one[1], gamma_per_s=gamma_per_s))


@given(jobs=jobs)
def test_a_small_gamma_orders_by_size(jobs: list[tuple[int, float]]) -> None:
    served_s = [one_s for _, one_s in in_order(jobs, 1e-11)]
    assert served_s == sorted(served_s)


@given(jobs=jobs)
def test_a_large_gamma_orders_by_arrival(jobs: list[tuple[int, float]]) -> None:
    came_s = [at_s for at_s, _ in in_order(jobs, 1e6)]
    assert came_s == sorted(came_s)


@given(one_s=st.floats(0.01, 100.0), more_s=st.floats(0.01, 100.0), gamma_per_s=st.floats(1e-6, 0.1))
def test_shorter_jobs_get_more(one_s: float, more_s: float, gamma_per_s: float) -> None:
    short, long = (boost_s(size_s, gamma_per_s=gamma_per_s) for size_s in (one_s, one_s + more_s))
    assert short > long > 0
    assert short == pytest.approx(math.log(1 / (1 - math.exp(-gamma_per_s * one_s))) / gamma_per_s, rel=1e-4)


@given(sizes_s=sizes_s, load=st.floats(0.05, 0.99))
def test_the_decay_rate_solves_its_equation(sizes_s: list[float], load: float) -> None:
    mean_s = sum(sizes_s) / len(sizes_s)
    rate_per_s = load / mean_s
    gamma = decay_rate(sizes_s, rate_per_s=rate_per_s)
    assert gamma is not None
    grown = rate_per_s * (sum(math.exp(gamma * size_s) for size_s in sizes_s) / len(sizes_s) - 1)
    assert gamma > 0
    assert grown == pytest.approx(gamma, rel=1e-6)


@given(sizes_s=sizes_s, load=st.floats(1.001, 50.0))
def test_there_is_no_decay_where_more_comes_than_is_served(sizes_s: list[float], load: float) -> None:
    assert decay_rate(sizes_s, rate_per_s=load * len(sizes_s) / sum(sizes_s)) is None


@given(sizes_s=sizes_s, loads=st.tuples(st.floats(0.05, 0.99), st.floats(0.05, 0.99)))
def test_less_load_decays_faster(sizes_s: list[float], loads: tuple[float, float]) -> None:
    low, high = sorted(loads)
    assume(high - low > 0.01)
    per_load = len(sizes_s) / sum(sizes_s)
    faster, slower = (decay_rate(sizes_s, rate_per_s=load * per_load) for load in (low, high))
    assert faster is not None
    assert slower is not None
    assert faster > slower


@pytest.mark.parametrize("load", [0.6, 0.8, 0.95])
def test_of_exponential_sizes_it_is_what_theory_says(load: float) -> None:
    """M/M/1: γ = μ − λ. The sizes are quantiles, of which the longest carry the most."""
    num, mean_s = 100_000, 2.0
    sizes_s = [-mean_s * math.log(1 - (index + 0.5) / num) for index in range(num)]
    gamma = decay_rate(sizes_s, rate_per_s=load / mean_s)
    assert gamma == pytest.approx((1 - load) / mean_s, rel=0.05)


def test_a_sample_of_exponential_sizes_comes_near_it() -> None:
    rng = random.Random(4)
    sizes_s = [rng.expovariate(1.0) for _ in range(20_000)]
    assert decay_rate(sizes_s, rate_per_s=0.8) == pytest.approx(0.2, rel=0.1)
