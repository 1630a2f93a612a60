"""From seconds to size."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner import Estimator, Job
from sooner.workload.recordings import librispeech_test_clean


@pytest.mark.parametrize(
    ("audio_s", "tokens", "windows"),
    [(0.1, 1, 1), (3.0, 9, 1), (30.0, 90, 1), (30.01, 90, 2), (600.0, 1800, 20), (3600.0, 10800, 120)],
)
def test_tokens_and_windows(audio_s: float, tokens: int, windows: int) -> None:
    estimate = Estimator(kappa=3.0, encode_s=0.4, token_s=0.01).estimate(audio_s)
    assert estimate.estimated_output_tokens == tokens
    assert estimate.windows == windows
    assert estimate.size_s == pytest.approx(0.4 * windows + 0.01 * tokens)


def test_paper_mode_orders_by_tokens_alone() -> None:
    estimate = Estimator(kappa=2.5, encode_s=0.0, token_s=1.0).estimate(7.9)
    assert estimate.size_s == estimate.estimated_output_tokens == 19


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e5))
def test_longer_audio_is_never_smaller(a: float, b: float) -> None:
    estimator = Estimator()
    assert estimator.estimate(min(a, b)).size_s <= estimator.estimate(max(a, b)).size_s


@pytest.mark.parametrize(
    "options",
    [{"kappa": -1.0}, {"encode_s": math.nan}, {"token_s": math.inf}, {"encode_s": 0.0, "token_s": 0.0}],
)
def test_senseless_costs_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be a finite|both 0"):
        Estimator(**options)


def test_observations_are_kept_beside_predictions() -> None:
    estimator = Estimator(kappa=3.0, encode_s=0.5, token_s=0.005)
    for n, audio_s in enumerate((10.0, 60.0)):
        estimate = estimator.estimate(audio_s)
        job = Job(id=str(n), arrival_s=0.0, audio_s=audio_s, estimate=estimate)
        estimator.observe(job, tokens=100, service_s=2.0)
    seen = estimator.statistics()
    assert (seen.num_jobs, seen.audio_s) == (2, 70.0)
    assert (seen.predicted_tokens, seen.actual_tokens) == (210, 200)
    assert seen.predicted_service_s == pytest.approx(0.65 + 1.9)
    assert seen.actual_service_s == pytest.approx(4.0)


def test_the_default_kappa_fits_its_source() -> None:
    corpus = librispeech_test_clean()
    tokens_per_s = sum(u.num_tokens for u in corpus) / sum(u.audio_s for u in corpus)
    assert len(corpus) == 2620
    assert Estimator().kappa == pytest.approx(tokens_per_s, rel=0.02)
