"""From what an engine did to the numbers of its profile, and how far each may be off.

See ``fitting`` for the method. Requests and steps are fitted by what they are made of, windows and tokens; that
length foretells tokens is another matter (κ), so both predictions are judged: from windows and tokens as they
were, and from the length alone, which is all that a scheduler knows when a request comes.

A server of workers skips silence: where its records tell how much of a recording is speech, that stands for its
length in κ, in ``window_s`` and in what length foretells. Windows are always those that were counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sooner.core.estimator import WINDOW_S, Estimator
from sooner.core.latency import LatencyRecord, by_duration_bucket
from sooner.errors import ConfigurationError
from sooner.evidence.comparison import Values
from sooner.evidence.fitting import (
    SIGMA_PER_MEDIAN,
    Accuracy,
    Fitted,
    Residuals,
    Rows,
    accuracy_of,
    costs,
    figure_of,
    fitted_costs,
    held_out_rows,
    independence,
    r_squared,
    residuals_of,
)

__all__ = [
    "MIN_REQUESTS",
    "BatchingFit",
    "Kappa",
    "Spoken",
    "Step",
    "WorkersFit",
    "fit_batching",
    "fit_kappa",
    "fit_workers",
]

MIN_REQUESTS = 20
"""Fewer requests tell nothing; a language with fewer keeps the κ of all."""

_MIN_STEPS = 100  # fewer engine steps tell nothing
_NUM_BLOCKS = 50
_LEAST_INDEPENDENCE = 0.05
_LONG_S = 2 * WINDOW_S
_FEWEST_LONG = 5  # recordings over a minute, to tell what a window that goes on takes more


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """How much text a recording gave.

    Attributes:
        audio_s: its length, seconds; of its speech, where that was measured and silence is skipped.
        num_tokens: tokens decoded for it.
        language: language code, ``None`` where not known.
    """

    audio_s: float
    num_tokens: int
    language: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kappa:
    """κ over some recordings, and how well length foretells tokens.

    Attributes:
        num_requests: requests it comes from.
        kappa: all tokens over all seconds.
        pearson_r: correlation of tokens with seconds, ``None`` where one of them does not vary.
        r_squared: share of the variance of tokens that κ · seconds explains; ``None`` likewise.
    """

    num_requests: int
    kappa: Fitted
    pearson_r: float | None
    r_squared: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One engine step: what it took, seconds, windows that ran in it, and those of them that it admitted."""

    duration_s: float
    num_running: int
    num_admitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersFit:
    """What requests say of an engine of workers.

    Attributes:
        num_requests: requests used.
        num_recordings: recordings among them, told apart by their lengths and seconds of speech.
        encode_s: of a window, seconds, where nothing stalls.
        token_s: of a token, seconds, likewise.
        context_s: of a window that goes on from another, seconds, beside these; ``None`` with few long recordings.
        total_ratio: service of all requests over what these costs predict for all of them.
        overhead_s: median of E2E − wait − service, seconds; ``None`` where no wait is known.
        window_s: audio (speech, where measured) that a window carries a long recording forward, seconds; ``None``
            without more than 60 s of it in any.
        spread: standard deviation of ln(actual / predicted) of one window.
        kappa: of all languages.
        kappa_by_language: of those with enough requests.
        accuracy: service time from windows and tokens as they were.
        accuracy_held_out: the same of recordings that the fit had not seen.
        accuracy_by_length: service time from the length alone, which is all that a scheduler knows.
        accuracy_by_length_held_out: likewise.
        residuals: by duration bucket, from windows and tokens.
    """

    num_requests: int
    num_recordings: int
    encode_s: Fitted
    token_s: Fitted
    context_s: Fitted | None
    total_ratio: Fitted
    overhead_s: Fitted | None
    window_s: Fitted | None
    spread: Fitted
    kappa: Kappa
    kappa_by_language: Mapping[str, Kappa]
    accuracy: Accuracy
    accuracy_held_out: Accuracy
    accuracy_by_length: Accuracy
    accuracy_by_length_held_out: Accuracy
    residuals: tuple[Residuals, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingFit:
    """What steps say of an engine that batches.

    Attributes:
        num_steps: steps used.
        mean_running: windows that ran in a step, on average.
        max_running: most of them.
        max_admitted: most windows that one step admitted.
        step_s: least time of a step, seconds, where nothing stalls.
        running_step_s: what each running window adds, seconds, likewise.
        admission_s: what each admitted window adds, seconds, likewise.
        total_ratio: time of all steps over what these costs predict for all of them.
        accuracy: of step times.
        accuracy_held_out: of stretches of steps that the fit had not seen.
        residuals: by windows admitted.
    """

    num_steps: int
    mean_running: float
    max_running: int
    max_admitted: int
    step_s: Fitted
    running_step_s: Fitted
    admission_s: Fitted
    total_ratio: Fitted
    accuracy: Accuracy
    accuracy_held_out: Accuracy
    residuals: tuple[Residuals, ...]


# An engine of workers


def fit_workers(records: Sequence[LatencyRecord], *, held_out: float = 0.25) -> WorkersFit:
    """Fit an engine of workers to requests that it served; their order does not matter.

    A request that was decoded at fallback temperatures has more tokens than its text, and they count: they cost.

    Args:
        records: requests; those without ``service_s``, ``num_windows`` or ``num_tokens`` are left out, and those
            in which nobody speaks, which no worker had.
        held_out: share of the recordings that is predicted by a fit to the others, in (0, 0.5].

    Raises:
        ConfigurationError: there are too few, or they cannot tell the costs apart, or a value makes no sense.
    """
    used = _used(records)
    audio_s, spoken_s, service_s, windows, tokens = np.array(
        [(r.audio_s, r.spoken_s, *_parts(r)) for r in used], dtype=np.float64
    ).T
    recordings = _groups(audio_s, spoken_s)
    design = _design(np.column_stack([windows, tokens]), audio_s, service_s, recordings)
    fitted, total_ratio = fitted_costs(design, service_s, recordings)
    cost_s = np.array([one.value for one in fitted])
    predicted_s = design @ cost_s
    held = held_out_rows(recordings, held_out)
    known_s, by_length_s = _predictions(design, service_s, spoken_s, ~held)
    kappa = fit_kappa([_spoken(r) for r in used])
    estimates_s = _sizes_s(spoken_s, kappa.kappa.value, cost_s)
    return WorkersFit(
        num_requests=len(used),
        num_recordings=int(recordings.max()) + 1,
        encode_s=fitted[0],
        token_s=fitted[1],
        context_s=fitted[2] if len(fitted) > 2 else None,
        total_ratio=total_ratio,
        overhead_s=_overhead(used),
        window_s=_window(spoken_s, windows),
        spread=_spread(service_s / predicted_s, windows, recordings),
        kappa=kappa,
        kappa_by_language=_kappa_by_language(used),
        accuracy=accuracy_of(predicted_s, service_s),
        accuracy_held_out=accuracy_of(known_s[held], service_s[held]),
        accuracy_by_length=accuracy_of(estimates_s, service_s),
        accuracy_by_length_held_out=accuracy_of(by_length_s[held], service_s[held]),
        residuals=_residuals_by_bucket(used, predicted_s),
    )


def _used(records: Sequence[LatencyRecord]) -> list[LatencyRecord]:
    """The records that say all, in an order of their own."""
    used = [r for r in records if None not in (r.service_s, r.num_windows, r.num_tokens)]
    if records and not used:
        raise ConfigurationError(
            "none of these requests tells its service time, windows and tokens, which only the server knows: "
            "take records that `sooner serve --records FILE` writes"
        )
    used = [r for r in used if r.speech_s != 0]
    if len(used) < MIN_REQUESTS:
        raise ConfigurationError(
            f"{len(used)} requests tell what they took, a fit needs {MIN_REQUESTS}: record more, of many lengths"
        )
    for record in used:
        if (
            not all(0 < value < math.inf for value in (record.audio_s, record.spoken_s, *_parts(record)[:2]))
            or _parts(record)[2] < 0
        ):
            raise ConfigurationError(
                f"request {record.id!r} makes no sense: {record.audio_s} s of audio, {record.spoken_s} s of it "
                f"to transcribe; service time, windows, tokens: {_parts(record)}. Take it out"
            )
    return sorted(used, key=_row)


def _design(design: Values, audio_s: Values, service_s: Values, recordings: Rows) -> Values:
    """What each request is made of: windows, tokens and, where enough are long, windows behind the first.

    A recording of one window that was decoded again has several "windows" and went on from none of them.

    Raises:
        ConfigurationError: windows and tokens cannot be told apart.
    """
    _check_can_be_told_apart(design, service_s, recordings)
    with_context = np.column_stack([design, np.where(audio_s > WINDOW_S, design[:, 0] - 1, 0.0)])
    num_long = len(np.unique(recordings[audio_s > _LONG_S]))
    can_tell = num_long >= _FEWEST_LONG and independence(with_context, service_s) >= _LEAST_INDEPENDENCE
    return with_context if can_tell else design


def _check_can_be_told_apart(design: Values, service_s: Values, recordings: Rows) -> None:
    if not recordings.any() or independence(design, service_s) < _LEAST_INDEPENDENCE:
        raise ConfigurationError(
            "windows and tokens rise together in these requests, or all recordings have one length: their costs "
            f"cannot be told apart, only their sum, {np.median(service_s):.3g} s a request. Record requests from "
            "2 s to some minutes"
        )


def _parts(record: LatencyRecord) -> tuple[float, int, int]:
    """Service time, windows, tokens."""
    assert record.service_s is not None
    assert record.num_windows is not None
    assert record.num_tokens is not None
    return record.service_s, record.num_windows, record.num_tokens


def _row(record: LatencyRecord) -> tuple[object, ...]:
    lengths_s = (record.audio_s, record.spoken_s)
    return (*lengths_s, record.service_s, record.num_windows, record.num_tokens, record.e2e_s, record.id)


def _predictions(
    design: Values, service_s: Values, spoken_s: Values, known: NDArray[np.bool_]
) -> tuple[Values, Values]:
    """All service times as a fit to the ``known`` requests predicts them: from windows and tokens, from length."""
    cost_s = costs(design[known], service_s[known])
    kappa = float(design[known, 1].sum() / spoken_s[known].sum())
    return design @ cost_s, _sizes_s(spoken_s, kappa, cost_s)


def _sizes_s(spoken_s: Values, kappa: float, cost_s: Values) -> Values:
    """What the scheduler would predict, but for windows that pauses add."""
    estimator = Estimator(kappa=kappa, encode_s=float(cost_s[0]), token_s=float(cost_s[1]))
    return np.array([estimator.estimate(one_s).size_s for one_s in spoken_s])


def _overhead(records: Sequence[LatencyRecord]) -> Fitted | None:
    timed = [r for r in records if r.wait_s is not None]
    if not timed:
        return None
    beside_s = np.array([r.e2e_s - (r.wait_s or 0.0) - (r.service_s or 0.0) for r in timed])
    return figure_of(
        lambda rows: max(0.0, float(np.median(beside_s[rows]))), _groups(np.array([r.audio_s for r in timed]))
    )


def _window(spoken_s: Values, windows: Values) -> Fitted | None:
    """Seconds to transcribe per window of long recordings, from n = 1 + ⌈(seconds − 30) / window_s⌉.

    The last window is a half too many on average: what rounding up adds.
    """
    is_long = (spoken_s > _LONG_S) & (windows >= 2)
    if not is_long.any():
        return None
    rest_s, moves = spoken_s[is_long] - WINDOW_S, windows[is_long] - 1.5
    return figure_of(
        lambda rows: min(WINDOW_S, float(rest_s[rows].sum() / moves[rows].sum())), _groups(spoken_s[is_long])
    )


def _spread(ratio: Values, windows: Values, recordings: Rows) -> Fitted:
    """Standard deviation of ln(actual / predicted) of a window.

    That of n windows together is √n smaller where they vary independently, so √n · |ln(actual / predicted)| of a
    request has the spread of one window. Its median times 1.4826 is the standard deviation without the outliers.
    """
    of_a_window = np.sqrt(windows) * np.abs(np.log(ratio))
    return figure_of(lambda rows: SIGMA_PER_MEDIAN * float(np.median(of_a_window[rows])), recordings)


def _residuals_by_bucket(records: Sequence[LatencyRecord], predicted_s: Values) -> tuple[Residuals, ...]:
    predicted_of = {id(record): value for record, value in zip(records, predicted_s, strict=True)}
    return tuple(
        residuals_of(
            label,
            np.array([predicted_of[id(r)] for r in part]),
            np.array([r.service_s for r in part], dtype=np.float64),
        )
        for label, part in by_duration_bucket(records).items()
    )


def _groups(*lengths_s: Values) -> Rows:
    """A number for each recording, in order of length: those of equal lengths, to the millisecond, are one."""
    rows = np.round(np.column_stack(lengths_s), 3)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


# κ


def fit_kappa(spoken: Sequence[Spoken]) -> Kappa:
    """κ of some recordings: the ratio of all tokens to all seconds, so that long recordings count by length.

    Raises:
        ConfigurationError: there are fewer than ``MIN_REQUESTS``, or a value makes no sense.
    """
    if len(spoken) < MIN_REQUESTS:
        raise ConfigurationError(
            f"{len(spoken)} requests tell their tokens, and κ needs {MIN_REQUESTS}: record more"
        )
    if not all(0 < one.audio_s < math.inf and 0 <= one.num_tokens < math.inf for one in spoken):
        raise ConfigurationError("audio_s must be finite and above 0, and num_tokens finite and at least 0")
    ordered = sorted(spoken, key=lambda one: (one.audio_s, one.num_tokens))
    seconds = np.array([one.audio_s for one in ordered])
    tokens = np.array([one.num_tokens for one in ordered], dtype=np.float64)
    kappa = figure_of(lambda rows: float(tokens[rows].sum() / seconds[rows].sum()), _groups(seconds))
    varies = bool(np.ptp(seconds) > 0 and np.ptp(tokens) > 0)
    return Kappa(
        num_requests=len(ordered),
        kappa=kappa,
        pearson_r=float(np.corrcoef(seconds, tokens)[0, 1]) if varies else None,
        r_squared=r_squared(kappa.value * seconds, tokens) if varies else None,
    )


def _spoken(record: LatencyRecord) -> Spoken:
    return Spoken(audio_s=record.spoken_s, num_tokens=_parts(record)[2], language=record.language)


def _kappa_by_language(records: Sequence[LatencyRecord]) -> dict[str, Kappa]:
    by_language: dict[str, list[Spoken]] = {}
    for record in records:
        if record.language is not None:
            by_language.setdefault(record.language, []).append(_spoken(record))
    enough = {name: spoken for name, spoken in sorted(by_language.items()) if len(spoken) >= MIN_REQUESTS}
    return {name: fit_kappa(spoken) for name, spoken in enough.items()}


# An engine that batches


def fit_batching(steps: Sequence[Step], *, held_out: float = 0.25) -> BatchingFit:
    """Fit an engine that batches to its steps, in the order in which they were done.

    Args:
        steps: steps of one engine.
        held_out: share of the steps that is predicted by a fit to the others, in (0, 0.5].

    Raises:
        ConfigurationError: there are too few, or they cannot tell the costs apart, or a value makes no sense.
    """
    _check(steps)
    running, admitted, actual_s = np.array(
        [(one.num_running, one.num_admitted, one.duration_s) for one in steps], dtype=np.float64
    ).T
    design = np.column_stack([np.ones(len(steps)), running, admitted])
    if independence(design, actual_s) < _LEAST_INDEPENDENCE:
        raise ConfigurationError(
            "these steps are too alike: what a step takes and what each running and each admitted window adds "
            "cannot be told apart. Record one upload alone, a few at a time, and more than the engine has slots"
        )
    blocks = np.arange(len(steps)) * _NUM_BLOCKS // len(steps)
    (step, running_step, admission), total_ratio = fitted_costs(design, actual_s, blocks)
    predicted_s = design @ np.array([step.value, running_step.value, admission.value])
    held = held_out_rows(blocks, held_out)
    unseen_s = design[held] @ costs(design[~held], actual_s[~held])
    return BatchingFit(
        num_steps=len(steps),
        mean_running=float(running.mean()),
        max_running=int(running.max()),
        max_admitted=int(admitted.max()),
        step_s=step,
        running_step_s=running_step,
        admission_s=admission,
        total_ratio=total_ratio,
        accuracy=accuracy_of(predicted_s, actual_s),
        accuracy_held_out=accuracy_of(unseen_s, actual_s[held]),
        residuals=_residuals_by_admission(admitted, predicted_s, actual_s),
    )


def _check(steps: Sequence[Step]) -> None:
    if len(steps) < _MIN_STEPS:
        raise ConfigurationError(f"{len(steps)} engine steps, and a fit needs {_MIN_STEPS}: record more uploads")
    if not all(0 < one.duration_s < math.inf and 0 <= one.num_admitted <= one.num_running for one in steps):
        raise ConfigurationError(
            "a step must take a finite time above 0 and admit no more windows than run in it; "
            "did the clock of the machine jump?"
        )


def _residuals_by_admission(admitted: Values, predicted_s: Values, actual_s: Values) -> tuple[Residuals, ...]:
    parts = (("none admitted", admitted == 0), ("1 admitted", admitted == 1), ("more admitted", admitted > 1))
    return tuple(residuals_of(label, predicted_s[part], actual_s[part]) for label, part in parts if part.any())
