"""Calibration finds the costs that made the records, whatever a shared machine does to some of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.core.latency import LatencyRecord
from sooner.errors import ConfigurationError
from sooner.evidence.calibration import (
    MIN_REQUESTS,
    Spoken,
    Step,
    WorkersFit,
    fit_batching,
    fit_kappa,
    fit_workers,
)
from sooner.evidence.fitting import Fitted, held_out_rows

ENCODE_S, TOKEN_S, KAPPA, SPREAD, WINDOW_S, OVERHEAD_S = 0.4, 0.0065, 3.0, 0.1, 26.0, 0.02


def request(
    number: int, audio_s: float, rng: random.Random, *, stalls: float = 0.0, context_s: float = 0.0
) -> LatencyRecord:
    """One request whose windows deviate one by one; a share of ``stalls`` takes 3 to 20 times as long."""
    num_windows = 1 + max(0, math.ceil((audio_s - 30) / WINDOW_S))
    num_tokens = round(audio_s * KAPPA * rng.lognormvariate(0.0, 0.1))
    window_s = ENCODE_S + TOKEN_S * num_tokens / num_windows
    service_s = sum(
        (window_s + context_s * (index > 0)) * rng.lognormvariate(0.0, SPREAD) for index in range(num_windows)
    )
    if rng.random() < stalls:
        service_s *= rng.uniform(3, 20)
    return LatencyRecord(
        id=f"r{number}",
        audio_s=audio_s,
        size_s=1.0,
        arrival_s=float(number),
        finished_s=number + 5.0 + service_s + OVERHEAD_S,
        wait_s=5.0,
        service_s=service_s,
        num_windows=num_windows,
        num_tokens=num_tokens,
        language="en",
    )


def requests(num: int = 600, *, seed: int = 1, stalls: float = 0.0, context_s: float = 0.0) -> list[LatencyRecord]:
    """Nine clips of 1 to 30 s for each file of one to ten minutes; each recording twice."""
    rng = random.Random(seed)
    clips, files = num * 9 // 20, num // 20
    lengths = [1 + 29 * n / clips for n in range(clips)] + [60 + 540 * (n + 1) / files for n in range(files)]
    return [request(n, audio_s, rng, stalls=stalls, context_s=context_s) for n, audio_s in enumerate(lengths * 2)]


def steps(num: int = 2000, *, seed: int = 1, stalls: float = 0.0) -> list[Step]:
    rng = random.Random(seed)
    made = []
    for _ in range(num):
        num_running = rng.randint(1, 32)
        num_admitted = int(rng.random() < 0.1)
        duration_s = (0.014 + 0.0003 * num_running + 0.033 * num_admitted) * rng.lognormvariate(0.0, 0.1)
        if rng.random() < stalls:
            duration_s *= rng.uniform(3, 20)
        made.append(Step(duration_s=duration_s, num_running=num_running, num_admitted=num_admitted))
    return made


def near(fitted: Fitted | None, value: float, within: float) -> bool:
    """Within so much of the truth, and within what the standard error allows for."""
    assert fitted is not None
    assert fitted.standard_error is not None
    return fitted.value == pytest.approx(value, rel=within) and (
        abs(fitted.value - value) < 5 * fitted.standard_error + 0.01 * value
    )


@pytest.mark.parametrize("stalls", [0.0, 0.05])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_workers_come_back_from_noise_and_stalls(seed: int, stalls: float) -> None:
    records = requests(seed=seed, stalls=stalls)
    fit = fit_workers(records)
    assert fit.num_requests == 600
    assert fit.num_recordings == 300
    assert near(fit.encode_s, ENCODE_S, 0.04)
    assert near(fit.token_s, TOKEN_S, 0.04)
    assert near(fit.kappa.kappa, KAPPA, 0.03)
    assert near(fit.overhead_s, OVERHEAD_S, 1e-6)
    assert near(fit.window_s, WINDOW_S, 0.03)
    assert near(fit.spread, SPREAD, 0.2)
    assert fit.context_s is not None
    assert fit.context_s.value < 0.02  # there was none
    predicted_s = sum(
        fit.encode_s.value * (r.num_windows or 0)
        + fit.token_s.value * (r.num_tokens or 0)
        + fit.context_s.value * ((r.num_windows or 0) - 1)
        for r in records
    )
    assert fit.total_ratio.value == pytest.approx(sum(r.service_s or 0 for r in records) / predicted_s)
    assert near(fit.total_ratio, 1 + 10.5 * stalls, 0.25 if stalls else 0.01)
    assert fit.accuracy.median_error < 0.1
    assert fit.accuracy_held_out.median_error < 0.1


@pytest.mark.parametrize("stalls", [0.0, 0.05])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_a_window_that_goes_on_takes_more_comes_back(seed: int, stalls: float) -> None:
    fit = fit_workers(requests(seed=seed, stalls=stalls, context_s=0.3))
    assert near(fit.context_s, 0.3, 0.1)
    assert near(fit.encode_s, ENCODE_S, 0.05)
    assert near(fit.token_s, TOKEN_S, 0.05)


def test_windows_of_a_retry_went_on_from_nothing() -> None:
    """Clips decoded three times over have three windows, and no context to read."""
    rng = random.Random(1)
    clips = [request(n, 1 + n % 29, rng) for n in range(400)]
    retried = [replace(r, num_windows=3, service_s=2 * (r.service_s or 0)) for r in clips[::5]]
    assert fit_workers([*clips, *retried]).context_s is None


def test_clips_alone_do_not_tell_it() -> None:
    rng = random.Random(1)
    clips = [request(n, 1 + n % 40, rng, context_s=0.3) for n in range(400)]
    assert fit_workers(clips).context_s is None


@pytest.mark.parametrize("stalls", [0.0, 0.05])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_steps_come_back_from_noise_and_stalls(seed: int, stalls: float) -> None:
    fit = fit_batching(steps(seed=seed, stalls=stalls))
    assert near(fit.step_s, 0.014, 0.05)
    assert near(fit.running_step_s, 0.0003, 0.1)
    assert near(fit.admission_s, 0.033, 0.05)
    assert near(fit.total_ratio, 1 + 10.5 * stalls, 0.15 if stalls else 0.01)
    assert fit.accuracy_held_out.median_error < 0.1
    assert (fit.max_running, fit.max_admitted) == (32, 1)
    assert [one.label for one in fit.residuals] == ["none admitted", "1 admitted"]


def test_plain_least_squares_would_not_have_found_them() -> None:
    """The stalls of the tests above are worth the trouble."""
    records = requests(stalls=0.05)
    design = np.array([(r.num_windows, r.num_tokens) for r in records], dtype=np.float64)
    plain = np.linalg.lstsq(design, np.array([r.service_s for r in records], dtype=np.float64), rcond=None)[0]
    assert max(abs(plain[0] / ENCODE_S - 1), abs(plain[1] / TOKEN_S - 1)) > 0.25


def test_a_cost_of_nothing_is_never_below_nothing() -> None:
    free = [
        replace(r, service_s=ENCODE_S * (r.num_windows or 0) * (1 + n % 7 / 50)) for n, r in enumerate(requests())
    ]
    fit = fit_workers(free)
    assert 0 <= fit.token_s.value < 1e-4
    assert fit.encode_s.value == pytest.approx(ENCODE_S, rel=0.1)


def test_exact_records_give_exact_costs() -> None:
    exact = [
        replace(r, service_s=ENCODE_S * (r.num_windows or 0) + TOKEN_S * (r.num_tokens or 0)) for r in requests()
    ]
    fit = fit_workers(exact)
    assert fit.encode_s.value == pytest.approx(ENCODE_S)
    assert fit.token_s.value == pytest.approx(TOKEN_S)
    assert fit.accuracy.r_squared == pytest.approx(1.0)
    assert fit.spread.value == pytest.approx(0.0, abs=1e-9)


@settings(max_examples=5, deadline=None)
@given(factor=st.floats(0.01, 100.0), seed=st.integers(0, 5))
def test_a_machine_c_times_slower_costs_c_times_more(factor: float, seed: int) -> None:
    records = requests(60, seed=seed, stalls=0.05)
    base = fit_workers(records)
    slower = fit_workers([replace(r, service_s=(r.service_s or 0.0) * factor) for r in records])
    assert slower.encode_s.value == pytest.approx(base.encode_s.value * factor, rel=1e-6)
    assert slower.token_s.value == pytest.approx(base.token_s.value * factor, rel=1e-6)
    assert slower.spread.value == pytest.approx(base.spread.value, rel=1e-6)
    assert slower.accuracy_held_out.p90_error == pytest.approx(base.accuracy_held_out.p90_error, rel=1e-6)


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_the_order_of_the_records_changes_nothing(data: st.DataObject) -> None:
    records = requests(60, stalls=0.05)
    assert fit_workers(data.draw(st.permutations(records))) == fit_workers(records)


def test_kappa_is_all_tokens_over_all_seconds_and_rare_languages_keep_it() -> None:
    records = requests(200)
    records += [
        replace(r, id=f"de{r.id}", language="de", num_tokens=2 * (r.num_tokens or 0))
        for r in records[:MIN_REQUESTS]
    ]
    records += [replace(r, id=f"fr{r.id}", language="fr") for r in records[: MIN_REQUESTS - 1]]
    fit = fit_workers(records)
    tokens = sum(r.num_tokens or 0 for r in records)
    assert fit.kappa.kappa.value == pytest.approx(tokens / sum(r.audio_s for r in records))
    assert list(fit.kappa_by_language) == ["de", "en"]
    german = fit.kappa_by_language["de"]
    assert german.num_requests == MIN_REQUESTS
    assert german.kappa.value == pytest.approx(2 * KAPPA, rel=0.15)
    assert german.pearson_r is not None
    assert german.pearson_r > 0.9
    assert german.r_squared is not None
    assert german.r_squared > 0.8


def with_silence(record: LatencyRecord, number: int) -> LatencyRecord:
    """The same speech, in a recording that is two or three times as long."""
    return replace(record, audio_s=record.audio_s * (2 + number % 2), speech_s=record.audio_s)


def test_half_silent_records_tell_the_kappa_of_speech() -> None:
    """And the costs, and how far a window carries; without the seconds of speech, κ is diluted."""
    records = requests(200)
    silent = replace(records[0], speech_s=0.0, service_s=0.0, num_windows=0, num_tokens=0)
    mixed = [with_silence(r, n) if n % 2 else r for n, r in enumerate(records)]
    whole, fit = fit_workers(records), fit_workers([*mixed, silent])
    assert fit.num_requests == 200
    assert fit.kappa.kappa.value == pytest.approx(whole.kappa.kappa.value)
    assert near(fit.kappa.kappa, KAPPA, 0.05)
    assert fit.kappa_by_language["en"].kappa.value == pytest.approx(whole.kappa.kappa.value)
    assert near(fit.encode_s, ENCODE_S, 0.05)
    assert near(fit.token_s, TOKEN_S, 0.05)
    assert fit.window_s is not None
    assert whole.window_s is not None
    assert fit.window_s.value == pytest.approx(whole.window_s.value)
    assert fit.accuracy_by_length.median_error == pytest.approx(whole.accuracy_by_length.median_error, abs=0.01)
    diluted = fit_workers([replace(r, speech_s=None) for r in mixed])
    assert diluted.kappa.kappa.value < 0.75 * KAPPA


def test_recordings_of_one_length_are_told_apart_by_their_speech() -> None:
    cut = [replace(r, audio_s=600.0, speech_s=r.audio_s) for r in requests(60)]
    assert fit_workers(cut).num_recordings == 30


def test_kappa_of_one_length_has_no_correlation() -> None:
    kappa = fit_kappa([Spoken(audio_s=10.0, num_tokens=30)] * MIN_REQUESTS)
    assert kappa.kappa.value == 3.0
    assert kappa.kappa.standard_error is None
    assert kappa.pearson_r is None
    assert kappa.r_squared is None


def test_a_repeated_recording_is_not_more_evidence() -> None:
    """The same twenty recordings, ten times each: the standard error is that of twenty."""
    rng = random.Random(4)
    once = [request(n, rng.uniform(2, 300), rng) for n in range(40)]
    tenfold = [replace(r, id=f"{r.id}-{n}") for r in once for n in range(10)]
    alone, repeated = fit_workers(once), fit_workers(tenfold)
    assert repeated.encode_s.standard_error == pytest.approx(alone.encode_s.standard_error, rel=0.05)
    assert repeated.num_recordings == alone.num_recordings == 40


def test_the_held_out_recordings_are_unseen() -> None:
    """Every fourth length takes three times as long, and those are held out: a fit to the others cannot know."""
    rng = random.Random(6)
    records = [request(n, 2.0 + n, rng) for n in range(80)]
    odd = [replace(r, service_s=3 * (r.service_s or 0.0)) if n % 4 == 2 else r for n, r in enumerate(records)]
    fit = fit_workers(odd)
    assert fit.accuracy_held_out.num == 20
    assert fit.accuracy_held_out.median_error == pytest.approx(2 / 3, abs=0.05)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.3, 0.4, 0.45, 0.5])
def test_as_many_groups_are_held_out_as_asked_for(share: float) -> None:
    held = held_out_rows(np.arange(200), share)
    assert held.sum() == round(200 * share)
    assert np.diff(np.flatnonzero(held)).max(initial=0) <= math.ceil(1 / share)  # spread over all lengths


def test_of_two_groups_one_is_held_out() -> None:
    assert held_out_rows(np.array([0, 0, 1]), 0.1).tolist() == [True, True, False]


def test_residuals_show_where_the_line_does_not_fit() -> None:
    """Clips over 15 s take half as long again as their windows and tokens say."""
    records = [replace(r, service_s=1.5 * (r.service_s or 0)) if 15 < r.audio_s <= 30 else r for r in requests()]
    bias = {one.label: one.bias for one in fit_workers(records).residuals}
    assert list(bias) == ["0-5 s", "5-15 s", "15-30 s", "30-120 s", "120-600 s"]
    assert bias["15-30 s"] > 0.1 > bias["5-15 s"]


def test_what_nobody_recorded_is_not_known() -> None:
    fit = fit_workers([replace(r, wait_s=None) for r in requests() if r.audio_s <= 60])
    assert fit.overhead_s is None
    assert fit.window_s is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r[: MIN_REQUESTS - 1], "19 requests tell what they took, a fit needs 20: record more"),
        (lambda r: [], "0 requests"),
        (lambda r: [replace(one, service_s=None) for one in r], "`sooner serve --records FILE`"),
        (lambda r: [replace(one, num_tokens=None) for one in r], "`sooner serve --records FILE`"),
        (lambda r: [replace(one, num_windows=1, num_tokens=30) for one in r], "cannot be told apart"),
        (lambda r: [replace(one, audio_s=10.0) for one in r], "all recordings have one length"),
        (lambda r: [*r, replace(r[0], id="odd", service_s=math.nan)], "request 'odd' makes no sense"),
        (lambda r: [*r, replace(r[0], id="odd", service_s=-1.0)], "request 'odd' makes no sense"),
        (lambda r: [*r, replace(r[0], id="odd", audio_s=0.0)], "request 'odd' makes no sense"),
        (lambda r: [*r, replace(r[0], id="odd", num_windows=0)], "request 'odd' makes no sense"),
        (lambda r: [*r, replace(r[0], id="odd", num_tokens=-3)], "request 'odd' makes no sense"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_a_way_out(
    change: Callable[[list[LatencyRecord]], Sequence[LatencyRecord]], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        fit_workers(change(requests(60)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[:99], "99 engine steps, and a fit needs 100"),
        (lambda s: [replace(one, num_running=8) for one in s], "too alike"),
        (lambda s: [replace(one, num_admitted=0) for one in s], "too alike"),
        (lambda s: [*s, replace(s[0], duration_s=-0.5)], "did the clock of the machine jump"),
        (lambda s: [*s, replace(s[0], num_admitted=99)], "admit no more windows than run in it"),
    ],
)
def test_steps_that_cannot_be_fitted_are_refused(change: Callable[[list[Step]], list[Step]], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        fit_batching(change(steps(200)))


@pytest.mark.parametrize("share", [0.0, 0.6, math.nan])
def test_a_held_out_share_without_sense_is_refused(share: float) -> None:
    with pytest.raises(ConfigurationError, match="held-out share"):
        fit_workers(requests(60), held_out=share)


def test_equal_records_give_equal_fits() -> None:
    fits: list[WorkersFit] = [fit_workers(requests(60, stalls=0.05)) for _ in range(2)]
    assert fits[0] == fits[1]
