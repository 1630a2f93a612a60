"""From seconds to size."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner import Estimator, Job
from sooner.errors import LearntStateError
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
    [
        {"kappa": -1.0},
        {"encode_s": math.nan},
        {"token_s": math.inf},
        {"context_s": -1.0},
        {"own_token_s": math.nan},
        {"encode_s": 0.0, "token_s": 0.0},
    ],
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


def finished(
    estimator: Estimator,
    *,
    num_jobs: int,
    tokens_per_s: int = 3,
    service_s: float = 0.5,
    language: str | None = None,
) -> None:
    """Jobs of 10 s of one client that names no language."""
    for n in range(num_jobs):
        estimate = estimator.estimate(10.0, client="a")
        job = Job(id=str(n), arrival_s=0.0, audio_s=10.0, estimate=estimate, client="a")
        estimator.observe(job, tokens=10 * tokens_per_s, service_s=service_s, language=language)
        estimator.check()


def test_a_file_and_its_rest_count_each_window_that_goes_on() -> None:
    estimator = Estimator(kappa=3.0, encode_s=0.4, token_s=0.01, context_s=0.3)
    whole, first = estimator.estimate(90.0), estimator.estimate(30.0)
    rest = estimator.estimate(60.0, is_continued=True)
    assert whole.size_s == pytest.approx(3 * 0.4 + 270 * 0.01 + 2 * 0.3)
    assert whole.size_s == pytest.approx(first.size_s + rest.size_s)


def test_own_time_is_that_of_the_last_windows_tokens() -> None:
    assert Estimator(own_token_s=0.02).estimate(60.0).own_s == pytest.approx(0.02 * 180 / 2)
    assert Estimator().estimate(60.0).own_s == 0.0


def test_half_an_hour_of_which_little_is_speech_is_sized_as_what_it_costs() -> None:
    estimator = Estimator(kappa=3.0, encode_s=0.4, token_s=0.01, context_s=0.3, own_token_s=0.02)
    call, spoken = estimator.estimate(1800.0, speech_s=180.0, windows=8), estimator.estimate(180.0)
    assert (call.estimated_output_tokens, call.windows) == (540, 8)
    assert call.size_s == pytest.approx(8 * 0.4 + 540 * 0.01 + 7 * 0.3)
    assert call.own_s == pytest.approx(0.02 * 540 / 8)
    assert spoken.size_s < call.size_s < 1.3 * spoken.size_s < estimator.estimate(1800.0).size_s / 5
    rest = estimator.estimate(900.0, speech_s=90.0, windows=4, is_continued=True)
    assert rest.size_s == pytest.approx(4 * 0.4 + 270 * 0.01 + 4 * 0.3)


def test_silence_still_costs_a_window_and_speech_alone_does_not_say_how_many() -> None:
    silence = Estimator().estimate(600.0, speech_s=0.0, windows=0)
    assert (silence.estimated_output_tokens, silence.windows) == (1, 1)
    assert silence.size_s > 0
    assert Estimator().estimate(600.0, speech_s=5.0).windows == 20


def test_kappa_is_learnt_per_second_of_speech_where_that_was_measured() -> None:
    by_speech, by_audio = Estimator(learns=True), Estimator(learns=True)
    for n in range(300):
        for estimator, speech_s in ((by_speech, 10.0), (by_audio, None)):
            estimate = estimator.estimate(100.0, speech_s=speech_s, windows=1)
            job = Job(id=str(n), arrival_s=0.0, audio_s=100.0, estimate=estimate, speech_s=speech_s)
            estimator.observe(job, tokens=40, service_s=estimate.size_s)
    assert by_speech.kappa == pytest.approx(4.0, rel=0.02)
    assert by_audio.kappa == pytest.approx(0.4, rel=0.1)
    assert by_speech.estimate(1000.0, speech_s=10.0, windows=1).estimated_output_tokens == pytest.approx(40, abs=1)


def test_without_learning_nothing_moves() -> None:
    estimator = Estimator()
    before = estimator.estimate(77.7, language="ja", client="a")
    finished(estimator, num_jobs=50, tokens_per_s=9, service_s=9.0, language="ja")
    assert estimator.estimate(77.7, language="ja", client="a") == before
    assert (estimator.kappa, estimator.encode_s, estimator.token_s) == (3.0, 0.4, 0.0065)


def test_learnt_sizes_are_those_seen() -> None:
    estimator = Estimator(learns=True)
    finished(estimator, num_jobs=400, tokens_per_s=6, service_s=2.0, language="ja")
    estimate = estimator.estimate(10.0, client="a")
    assert estimate.estimated_output_tokens == pytest.approx(60, rel=0.06)
    assert estimate.size_s == pytest.approx(2.0, rel=0.06)
    assert estimator.estimate(10.0, language="ja").estimated_output_tokens == pytest.approx(60, rel=0.06)


def test_costs_are_learnt_from_the_windows_that_ran() -> None:
    by_two, by_one = Estimator(learns=True), Estimator(learns=True)
    job = Job(id="a", arrival_s=0.0, audio_s=30.0, estimate=by_two.estimate(30.0))
    for _ in range(300):
        by_two.observe(job, tokens=90, service_s=2.0, num_windows=2)
        by_one.observe(job, tokens=90, service_s=2.0)
    assert by_one.size_s(windows=1, tokens=90) == pytest.approx(2.0, rel=0.06)
    assert by_two.size_s(windows=2, tokens=90) == pytest.approx(2.0, rel=0.06)


def test_recent_errors_forget() -> None:
    estimator = Estimator(kappa=3.0, encode_s=0.35, token_s=0.005)  # 10 s: 30 tokens, 0.5 s
    assert estimator.statistics().token_error is None
    assert estimator.statistics().service_error is None
    finished(estimator, num_jobs=100, tokens_per_s=6, service_s=2.0)
    assert estimator.statistics().token_error == pytest.approx(1.0)
    assert estimator.statistics().service_error == pytest.approx(3.0)
    finished(estimator, num_jobs=500)
    assert estimator.statistics().token_error == pytest.approx(0.0, abs=0.01)
    assert estimator.statistics().service_error == pytest.approx(0.0, abs=0.03)


def test_what_cannot_be_learnt_from_is_not_recorded() -> None:
    estimator = Estimator(learns=True)
    with pytest.raises(ValueError, match="finite numbers"):
        finished(estimator, num_jobs=1, service_s=math.nan)
    assert estimator.statistics().num_jobs == 0
    assert estimator.state() == Estimator().state()


def test_a_saved_estimator_predicts_as_the_one_it_was() -> None:
    estimator = Estimator(learns=True)
    finished(estimator, num_jobs=70, tokens_per_s=5, service_s=1.0, language="ja")
    again = Estimator(learns=True)
    again.load_state(json.loads(json.dumps(estimator.state())))
    assert again.state() == estimator.state()
    assert again.estimate(100.0, client="a") == estimator.estimate(100.0, client="a")


@pytest.mark.parametrize("damage", [{"version": 2}, {"kappa": None}, {"costs": {}}])
def test_a_damaged_state_changes_nothing(damage: dict[str, object]) -> None:
    learnt, estimator = Estimator(learns=True), Estimator(learns=True)
    finished(learnt, num_jobs=5, tokens_per_s=5)
    before = estimator.state()
    for state in (learnt.state() | damage, [], None):
        with pytest.raises(LearntStateError, match="delete or move the saved state"):
            estimator.load_state(state)
    assert estimator.state() == before


def test_the_default_kappa_fits_its_source() -> None:
    corpus = librispeech_test_clean()
    tokens_per_s = sum(u.num_tokens for u in corpus) / sum(u.audio_s for u in corpus)
    assert len(corpus) == 2620
    assert Estimator().kappa == pytest.approx(tokens_per_s, rel=0.02)
