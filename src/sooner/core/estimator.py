"""From seconds of audio, and of speech in it, to predicted service time.

Whisper pads every window to 30 s before it encodes it, so a 2 s clip pays the same encoder as a 30 s one,
and then one decoder step per output token. The cost of an upload is therefore affine in its length:
``size_s = encode_s · windows + token_s · n̂`` with ``n̂ = max(1, int(audio_s · κ))``. n̂ is the estimate of
"Duration Aware Scheduling for ASR Serving Under Workload Drift" (https://arxiv.org/abs/2603.11273, §3);
``encode_s=0, token_s=1`` gives the paper's order exactly. An engine that reads the text so far before each further
window takes ``context_s`` more for it.

Where it was measured in how many seconds somebody speaks, those stand for the audio in n̂, and the windows that the
engine will need are given: half an hour in which three minutes are spoken costs about what three minutes do.

The numbers are those that were configured, or, with ``learns``, what finished jobs have taught: κ in
``sooner.core.kappa``, costs in ``sooner.core.costs``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sooner.core.costs import CostModel, Costs
from sooner.core.job import Estimate, Job
from sooner.core.kappa import KappaModel
from sooner.errors import LearntStateError

__all__ = ["WINDOW_S", "Estimator", "EstimatorStatistics"]

WINDOW_S = 30.0
"""Longest stretch of audio that Whisper encodes at once (https://arxiv.org/abs/2212.04356, §2.2), seconds."""

_STATE_VERSION = 1
_RECENT_JOBS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorStatistics:
    """What was predicted for all observed jobs, beside what really happened.

    Attributes:
        num_jobs: jobs observed.
        audio_s: their audio, seconds.
        predicted_tokens: sum of n̂.
        actual_tokens: sum of tokens that the engine emitted.
        predicted_service_s: sum of ``size_s``.
        actual_service_s: sum of measured service time, seconds.
        token_error: mean of |actual - predicted| / predicted tokens over about the last 100 jobs, ``None`` before
            the first.
        service_error: the same of service time.
    """

    num_jobs: int = 0
    audio_s: float = 0.0
    predicted_tokens: int = 0
    actual_tokens: int = 0
    predicted_service_s: float = 0.0
    actual_service_s: float = 0.0
    token_error: float | None = None
    service_error: float | None = None


class Estimator:
    """Predicts the size of an upload from its length, and keeps the record of how right it was.

    Args:
        kappa: κ, output tokens per second of audio, or of speech for jobs of which that is measured. Default 3.0:
            the 2,620 utterances of LibriSpeech test-clean (https://www.openslr.org/12) hold 3.02 tokens of
            Whisper's own vocabulary per second (Pearson r with the length 0.96); English read speech by
            whisper-base gave 3.3.
        encode_s: seconds to encode one window. Default: tiny.en, int8, one thread of the machine that
            ``benchmarks/`` was run on. Orders depend only on its ratio to ``token_s``.
        token_s: seconds to decode one token, same machine, beam size 5.
        context_s: seconds that each window takes more which goes on from another.
        own_token_s: seconds a token of the last window in which a job holds nobody up; see ``Estimate.own_s``.
        learns: follow what ``observe`` is told, from these numbers on. Without it they stay as they are.

    Raises:
        ValueError: a parameter is negative or not finite, or κ and both costs leave every job without a size.
    """

    def __init__(
        self,
        *,
        kappa: float = 3.0,
        encode_s: float = 0.4,
        token_s: float = 0.0065,
        context_s: float = 0.0,
        own_token_s: float = 0.0,
        learns: bool = False,
    ) -> None:
        costs = {"encode_s": encode_s, "token_s": token_s, "context_s": context_s}
        for name, value in {"kappa": kappa, **costs, "own_token_s": own_token_s}.items():
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a finite number of at least 0, not {value}")
        if encode_s + token_s == 0:
            raise ValueError("encode_s and token_s are both 0, so every job would have size 0")
        self.learns = learns
        self.own_token_s = own_token_s
        self._configured_kappa = kappa
        self._configured_costs = Costs(**costs)
        self._kappa = KappaModel(kappa=kappa)
        self._costs = CostModel(prior=self._configured_costs)
        self._statistics = EstimatorStatistics()

    @property
    def kappa(self) -> float:
        """κ of a job of which neither language nor client is known, tokens per second of audio or speech."""
        return self._kappa.kappa()

    @property
    def encode_s(self) -> float:
        """Seconds to encode one window, as sizes have it now."""
        return self._costs.costs.encode_s

    @property
    def token_s(self) -> float:
        """Seconds to decode one token, as sizes have it now."""
        return self._costs.costs.token_s

    @property
    def context_s(self) -> float:
        """Seconds that a window takes more which goes on from another, as sizes have it now."""
        return self._costs.costs.context_s

    def estimate(
        self,
        audio_s: float,
        *,
        speech_s: float | None = None,
        windows: int | None = None,
        language: str | None = None,
        client: str | None = None,
        is_continued: bool = False,
    ) -> Estimate:
        """Predict what serving ``audio_s`` seconds of audio takes. O(1).

        Args:
            audio_s: seconds of decoded audio.
            speech_s: seconds of it in which somebody speaks; ``None`` where not measured: all of it.
            windows: windows that the engine will need; ``None`` where not known: as many as the audio has.
            language: its language code, ``None`` where not known.
            client: whose it is, ``None`` where nobody's in particular.
            is_continued: it is the rest of an upload, so that its first window goes on from another, too.
        """
        windows = max(1, math.ceil(audio_s / WINDOW_S) if windows is None else windows)
        tokens = max(1, int((audio_s if speech_s is None else speech_s) * self._kappa.kappa(language, client)))
        return Estimate(
            estimated_output_tokens=tokens,
            windows=windows,
            size_s=self.size_s(windows=windows, tokens=tokens, is_continued=is_continued),
            own_s=self.own_token_s * tokens / windows,
        )

    def size_s(self, *, windows: int, tokens: int, is_continued: bool = False) -> float:
        """Predicted service time of encoding ``windows`` windows and decoding ``tokens`` tokens, seconds."""
        contexts = windows if is_continued else windows - 1
        return self._costs.costs.size_s(windows=windows, tokens=tokens, contexts=contexts)

    def observe(
        self,
        job: Job,
        *,
        tokens: int,
        service_s: float,
        num_windows: int | None = None,
        language: str | None = None,
    ) -> None:
        """Record what a finished job really took, and learn from it where the estimator learns. O(1).

        Args:
            job: as admitted. Its tokens are per second of speech where it says how many there are, else of audio.
            tokens: tokens emitted.
            service_s: seconds on a worker.
            num_windows: windows run, ``None`` where not known: those predicted.
            language: the language that was detected, for a job that names none.

        Raises:
            ValueError: a number that is learnt from is negative or not finite; nothing is recorded.
        """
        if self.learns:
            windows = job.estimate.windows if num_windows is None else num_windows
            self._costs.observe(windows=windows, tokens=tokens, service_s=service_s)
            self._kappa.observe(
                audio_s=job.audio_s if job.speech_s is None else job.speech_s,
                tokens=tokens,
                language=language if job.language is None else job.language,
                client=job.client,
            )
        self._statistics = _recorded(self._statistics, job, tokens, service_s)

    def statistics(self) -> EstimatorStatistics:
        """A frozen snapshot of predicted against actual totals."""
        return self._statistics

    def state(self) -> dict[str, Any]:
        """All that was learnt, for JSON, without the statistics."""
        return {"version": _STATE_VERSION, "kappa": self._kappa.state(), "costs": self._costs.state()}

    def load_state(self, state: object) -> None:
        """Go on from what an estimator had learnt whose ``state()`` this is.

        Raises:
            LearntStateError: it is damaged, of another version, or far from what is configured; nothing changes.
        """
        if not isinstance(state, dict) or state.get("version") != _STATE_VERSION:
            raise LearntStateError(reason=f"this is not a state of version {_STATE_VERSION}")
        kappa = KappaModel.from_state(state.get("kappa"), kappa=self._configured_kappa)
        self._costs = CostModel.from_state(state.get("costs"), prior=self._configured_costs)
        self._kappa = kappa

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold; for tests."""
        self._kappa.check()
        self._costs.check()


def _recorded(seen: EstimatorStatistics, job: Job, tokens: int, service_s: float) -> EstimatorStatistics:
    num_jobs = seen.num_jobs + 1
    predicted = job.estimate.estimated_output_tokens
    return EstimatorStatistics(
        num_jobs=num_jobs,
        audio_s=seen.audio_s + job.audio_s,
        predicted_tokens=seen.predicted_tokens + predicted,
        actual_tokens=seen.actual_tokens + tokens,
        predicted_service_s=seen.predicted_service_s + job.size_s,
        actual_service_s=seen.actual_service_s + service_s,
        token_error=_recent(seen.token_error, abs(tokens - predicted) / predicted, num_jobs),
        service_error=_recent(seen.service_error, abs(service_s - job.size_s) / job.size_s, num_jobs),
    )


def _recent(mean: float | None, error: float, num_jobs: int) -> float:
    """The mean with one error more: of all jobs at first, then of about the last ``_RECENT_JOBS``."""
    return error if mean is None else mean + (error - mean) / min(num_jobs, _RECENT_JOBS)
