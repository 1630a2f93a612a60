"""κ as it is learnt."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.core.kappa import HIGHEST, LOWEST, MAX_CLIENTS, MAX_LANGUAGES, KappaModel
from sooner.errors import LearntStateError

NAMES = st.none() | st.sampled_from(["a", "b", "c"])
JOBS = st.lists(
    st.tuples(st.floats(0.0, 1e6), st.integers(0, 10**9), NAMES, NAMES).map(
        lambda job: dict(zip(("audio_s", "tokens", "language", "client"), job, strict=True))
    ),
    max_size=40,
)


def spoken(model: KappaModel, rate: int, *, num_jobs: int, **whose: str) -> None:
    for _ in range(num_jobs):
        model.observe(audio_s=10.0, tokens=10 * rate, **whose)


def test_before_anything_is_seen_all_is_as_configured() -> None:
    model = KappaModel(kappa=3.775)
    assert model.kappa() == model.kappa("de") == model.kappa("de", "a") == model.kappa(None, "a") == 3.775


@given(st.floats(0.0, 1e3), JOBS)
def test_whatever_is_observed_kappa_is_one_that_can_be(prior: float, jobs: list[dict[str, Any]]) -> None:
    model = KappaModel(kappa=prior)
    for job in jobs:
        model.observe(**job)
        model.check()
        for whose in ((None, None), ("a", None), (None, "a"), ("a", "b")):
            assert LOWEST * 0.999 <= model.kappa(*whose) <= HIGHEST * 1.001


@given(JOBS)
def test_a_saved_model_goes_on_as_the_one_it_was(jobs: list[dict[str, Any]]) -> None:
    model = KappaModel(kappa=3.0)
    for job in jobs:
        model.observe(**job)
    again = KappaModel.from_state(json.loads(json.dumps(model.state())), kappa=3.0)
    assert again.state() == model.state()
    for one in (model, again):
        one.observe(audio_s=7.0, tokens=50, language="b", client="c")
    assert again.state() == model.state()
    assert again.kappa("b", "c") == model.kappa("b", "c")


@pytest.mark.parametrize("audio_s", [0.5, 10.0, 600.0])
def test_twice_the_tokens_are_followed_within_300_jobs(audio_s: float) -> None:
    model = KappaModel(kappa=3.0)
    for rate in (3, 6):
        for _ in range(300):
            model.observe(audio_s=audio_s, tokens=int(rate * audio_s), language="en", client="a")
    true = int(6 * audio_s) / audio_s
    for whose in ((None, None), ("en", None), ("en", "a"), (None, "a")):
        assert model.kappa(*whose) == pytest.approx(true, rel=0.06)


@pytest.mark.parametrize("tokens", [0, 3_000])
def test_one_wild_job_moves_kappa_little(tokens: int) -> None:
    model = KappaModel(kappa=3.0)
    spoken(model, 3, num_jobs=200, language="en", client="a")
    model.observe(audio_s=10.0, tokens=tokens, language="en", client="a")
    for whose in ((None, None), ("en", None), ("en", "a")):
        assert 3.0 != model.kappa(*whose) == pytest.approx(3.0, rel=0.035)


def test_after_long_silence_speech_is_followed() -> None:
    model = KappaModel(kappa=3.0)
    spoken(model, 0, num_jobs=1000)
    assert model.kappa() == pytest.approx(LOWEST, rel=0.01)
    spoken(model, 3, num_jobs=300)
    assert model.kappa() == pytest.approx(3.0, rel=0.1)


def test_an_hour_counts_like_a_window() -> None:
    hour, window = KappaModel(kappa=3.0), KappaModel(kappa=3.0)
    hour.observe(audio_s=3600.0, tokens=3600 * 5)
    window.observe(audio_s=30.0, tokens=30 * 5)
    assert hour.kappa() == pytest.approx(window.kappa())


def test_languages_and_clients_have_their_own() -> None:
    model = KappaModel(kappa=3.0)
    for _ in range(300):
        model.observe(audio_s=10.0, tokens=30, language="en", client="a")
        model.observe(audio_s=10.0, tokens=60, language="ja", client="a")
        model.observe(audio_s=10.0, tokens=90, language="ja", client="b")
    assert model.kappa("en", "a") == pytest.approx(3.0, rel=0.06)
    assert model.kappa("ja") == pytest.approx(7.5, rel=0.06)
    assert model.kappa("ja", "a") == pytest.approx(6.0, rel=0.06)
    assert model.kappa("ja", "b") == pytest.approx(9.0, rel=0.06)
    assert model.kappa("ja", "new") == model.kappa("ja")
    assert model.kappa("xx", "a") == model.kappa()  # of what was never heard, as of all


def test_a_client_that_names_no_language_is_known_by_what_it_sends() -> None:
    model = KappaModel(kappa=3.0)
    for _ in range(300):
        model.observe(audio_s=10.0, tokens=30, language="en", client="a")
        model.observe(audio_s=10.0, tokens=60, language="ja", client="b")
    assert model.kappa(None, "a") == pytest.approx(3.0, rel=0.1)
    assert model.kappa(None, "b") == pytest.approx(6.0, rel=0.1)


def test_memory_is_bounded_and_the_least_recent_go_first() -> None:
    model = KappaModel(kappa=3.0)
    for n in range(MAX_CLIENTS):
        model.observe(audio_s=5.0, tokens=10, language=f"l{n % (2 * MAX_LANGUAGES)}", client=f"c{n}")
        model.observe(audio_s=5.0, tokens=50, language="en", client="loyal")
        model.check()
    assert len(model.state()["levels"]) == MAX_LANGUAGES + 1 + MAX_CLIENTS
    assert model.kappa(None, "loyal") > 1.2 * model.kappa()
    assert model.kappa("l1", "c1") == model.kappa("l1") == model.kappa()


@pytest.mark.parametrize(
    "job",
    [
        {"audio_s": math.nan, "tokens": 1},
        {"audio_s": math.inf, "tokens": 1},
        {"audio_s": -1.0, "tokens": 1},
        {"audio_s": 1.0, "tokens": -1},
    ],
)
def test_what_cannot_be_is_refused_and_nothing_learnt(job: dict[str, Any]) -> None:
    model = KappaModel(kappa=3.0)
    with pytest.raises(ValueError, match="must be a finite number"):
        model.observe(**job)
    assert model.state() == {"levels": []}


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {},
        {"levels": {}},
        {"levels": [[None, None, 30.0]]},
        {"levels": [[1, None, 30.0, 10.0]]},
        {"levels": [[None, None, "30", 10.0]]},
        {"levels": [[None, None, True, 10.0]]},
        {"levels": [[None, None, math.nan, 10.0]]},
        {"levels": [[None, None, 30.0, math.inf]]},
        {"levels": [[None, None, 30.0, 0.0]]},
        {"levels": [[None, None, -30.0, 10.0]]},
        {"levels": [[None, None, 3e9, 10.0]]},
        {"levels": [[None, None, 30.0, 10.0], [None, None, 30.0, 10.0]]},
        {"levels": [["en", None, 30.0, 10.0]]},
        {"levels": [[None, None, 30.0, 10.0], *([f"l{n}", None, 30.0, 10.0] for n in range(MAX_LANGUAGES + 1))]},
    ],
)
def test_a_damaged_state_is_refused(state: object) -> None:
    with pytest.raises(LearntStateError, match="delete or move the saved state"):
        KappaModel.from_state(state, kappa=3.0)
