"""Costs as they are learnt."""

from __future__ import annotations

import json
import math
import random
from dataclasses import astuple
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.core.costs import LIMIT_FACTOR, CostModel, Costs
from sooner.errors import LearntStateError

PRIOR = Costs(encode_s=0.4, token_s=0.0065, context_s=0.3)
PRIORS = st.sampled_from(
    [PRIOR, Costs(encode_s=0.0, token_s=1.0), Costs(encode_s=0.4, token_s=0.0), Costs(encode_s=2.0, token_s=0.01)]
)
JOBS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10**9), st.floats(0.0, 1e9)), max_size=40)


def served(model: CostModel, costs: Costs, *, num_jobs: int, max_windows: int = 4, seed: int = 1) -> list[Costs]:
    """Jobs that take what ``costs`` say, times a log-normal factor; the costs published on the way."""
    rng = random.Random(seed)
    published = []
    for _ in range(num_jobs):
        windows = rng.randint(1, max_windows)
        tokens = rng.randint(5, 90) * windows
        exact_s = costs.size_s(windows=windows, tokens=tokens, contexts=windows - 1)
        model.observe(windows=windows, tokens=tokens, service_s=exact_s * math.exp(rng.gauss(0.0, 0.05)))
        model.check()
        published.append(model.costs)
    return published


def size_s(costs: Costs, windows: int, tokens: int) -> float:
    return costs.size_s(windows=windows, tokens=tokens, contexts=windows - 1)


def test_before_anything_is_seen_costs_are_those_configured() -> None:
    assert CostModel(prior=PRIOR).costs is PRIOR


@given(PRIORS, JOBS)
def test_whatever_is_observed_costs_are_some_that_can_be(prior: Costs, jobs: list[tuple[int, int, float]]) -> None:
    model = CostModel(prior=prior)
    for windows, tokens, service_s in jobs:
        model.observe(windows=windows, tokens=tokens, service_s=service_s)
        model.check()
        assert 0 < size_s(model.costs, 1, 1) <= 1e3 * LIMIT_FACTOR


@given(PRIORS, JOBS)
def test_a_saved_model_goes_on_as_the_one_it_was(prior: Costs, jobs: list[tuple[int, int, float]]) -> None:
    model = CostModel(prior=prior)
    for windows, tokens, service_s in jobs:
        model.observe(windows=windows, tokens=tokens, service_s=service_s)
    again = CostModel.from_state(json.loads(json.dumps(model.state())), prior=prior)
    assert again.state() == model.state()
    assert again.costs == model.costs


@pytest.mark.parametrize(
    "true",
    [
        Costs(encode_s=0.4, token_s=0.0065, context_s=0.3),
        Costs(encode_s=0.1, token_s=0.02, context_s=0.05),
        Costs(encode_s=2.0, token_s=0.005, context_s=0.0),
    ],
)
def test_sizes_become_those_of_the_machine(true: Costs) -> None:
    model = CostModel(prior=PRIOR)
    served(model, true, num_jobs=400)
    for windows, tokens in ((1, 10), (1, 90), (4, 300)):
        assert size_s(model.costs, windows, tokens) == pytest.approx(size_s(true, windows, tokens), rel=0.12)


def test_a_machine_of_half_the_speed_is_followed_within_300_jobs() -> None:
    model = CostModel(prior=PRIOR)
    served(model, PRIOR, num_jobs=300)
    slow = Costs(encode_s=0.8, token_s=0.013, context_s=0.6)
    served(model, slow, num_jobs=300, seed=2)
    assert size_s(model.costs, 1, 30) == pytest.approx(size_s(slow, 1, 30), rel=0.1)


def test_what_no_job_shows_slows_down_with_the_rest() -> None:
    model = CostModel(prior=PRIOR)
    slow = Costs(encode_s=1.2, token_s=0.0195, context_s=0.9)
    served(model, slow, num_jobs=2000, max_windows=1)
    assert model.costs.context_s == pytest.approx(0.9, rel=0.15)


def test_what_was_learnt_of_long_files_does_not_wind_up_among_clips() -> None:
    model = CostModel(prior=PRIOR)
    served(model, PRIOR, num_jobs=300)
    published = served(model, PRIOR, num_jobs=5000, max_windows=1)
    assert all(costs.context_s == pytest.approx(0.3, rel=0.5) for costs in published)


@pytest.mark.parametrize("service_s", [0.0, 60.0])
def test_one_wild_job_moves_costs_little(service_s: float) -> None:
    model = CostModel(prior=PRIOR)
    served(model, PRIOR, num_jobs=300)
    before = model.costs
    model.observe(windows=1, tokens=30, service_s=service_s)
    model.observe(windows=1, tokens=30, service_s=size_s(PRIOR, 1, 30))
    assert size_s(model.costs, 1, 30) == pytest.approx(size_s(before, 1, 30), rel=0.05)


def test_costs_are_published_in_steps() -> None:
    model = CostModel(prior=PRIOR)
    published = served(model, PRIOR, num_jobs=1000)
    changes = [(old, new) for old, new in pairwise(published) if old != new]
    assert len(changes) <= 50
    slow = Costs(encode_s=0.8, token_s=0.013, context_s=0.6)
    published = served(model, slow, num_jobs=300)
    changes = [(old, new) for old, new in pairwise(published) if old != new]
    assert 5 <= len(changes) <= 50
    for old, new in changes:
        moved = [abs(b - a) / a for a, b in zip(astuple(old), astuple(new), strict=True)]
        assert max(moved) > 0.05


def test_saved_costs_that_the_sums_do_not_give_are_published_anew() -> None:
    model = CostModel(prior=PRIOR)
    served(model, PRIOR, num_jobs=300)
    again = CostModel.from_state(model.state() | {"published": [9.0, 9.0, 9.0]}, prior=PRIOR)
    assert size_s(again.costs, 1, 30) == pytest.approx(size_s(PRIOR, 1, 30), rel=0.1)


@pytest.mark.parametrize(
    ("windows", "tokens", "service_s"),
    [(0, 1, 1.0), (1, -1, 1.0), (1, 1, -1.0), (1, 1, math.nan), (1, 1, math.inf)],
)
def test_what_cannot_be_is_refused_and_nothing_learnt(windows: int, tokens: int, service_s: float) -> None:
    model = CostModel(prior=PRIOR)
    before = model.state()
    with pytest.raises(ValueError, match="at least one window and finite numbers"):
        model.observe(windows=windows, tokens=tokens, service_s=service_s)
    assert model.state() == before


@pytest.mark.parametrize(
    "damage",
    [
        {"gram": None},
        {"gram": [1.0] * 5},
        {"gram": [1.0, 2.0, 0.0, 1.0, 0.0, 1.0]},
        {"gram": [1.0, 0.9, 0.0, 1.0, 0.9, 1.0]},
        {"gram": [-1.0] + [0.0] * 5},
        {"gram": [1e30] * 6},
        {"moment": [1.0, 1.0, math.nan]},
        {"moment": [1.0, 1.0, True]},
        {"scale": 0.0},
        {"scale": None},
        {"published": [1.0, 1.0]},
        {"published": [1.0, 1.0, -1.0]},
        {"published": [1.0, 1.0, "1"]},
    ],
)
def test_a_damaged_state_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(LearntStateError, match="delete or move the saved state"):
        CostModel.from_state(CostModel(prior=PRIOR).state() | damage, prior=PRIOR)


def test_a_state_that_is_no_object_is_refused() -> None:
    with pytest.raises(LearntStateError, match="not an object"):
        CostModel.from_state([], prior=PRIOR)
