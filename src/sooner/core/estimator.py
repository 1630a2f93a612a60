"""From seconds of audio to predicted service time.

Whisper pads every window to 30 s before it encodes it, so a 2 s clip pays the same encoder as a 30 s one,
and then one decoder step per output token. The cost of an upload is therefore affine in its length:
``size_s = encode_s · windows + token_s · n̂`` with ``n̂ = max(1, int(audio_s · κ))``. n̂ is the estimate of
"Duration Aware Scheduling for ASR Serving Under Workload Drift" (https://arxiv.org/abs/2603.11273, §3);
``encode_s=0, token_s=1`` gives the paper's order exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sooner.core.job import Estimate, Job

__all__ = ["WINDOW_S", "Estimator", "EstimatorStatistics"]

WINDOW_S = 30.0
"""Longest stretch of audio that Whisper encodes at once (https://arxiv.org/abs/2212.04356, §2.2), seconds."""


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
    """

    num_jobs: int = 0
    audio_s: float = 0.0
    predicted_tokens: int = 0
    actual_tokens: int = 0
    predicted_service_s: float = 0.0
    actual_service_s: float = 0.0


class Estimator:
    """Predicts the size of an upload from its length, and keeps the record of how right it was.

    Args:
        kappa: κ, output tokens per second of audio. Default 3.0: the 2,620 utterances of LibriSpeech
            test-clean (https://www.openslr.org/12) hold 3.02 tokens of Whisper's own vocabulary per second
            (Pearson r with the length 0.96); English read speech by whisper-base gave 3.3.
        encode_s: seconds to encode one window. Default: tiny.en, int8, one thread of the machine that
            ``benchmarks/`` was run on. Orders depend only on its ratio to ``token_s``.
        token_s: seconds to decode one token, same machine, beam size 5.

    Raises:
        ValueError: a parameter is negative or not finite, or κ and both costs leave every job without a size.
    """

    def __init__(self, *, kappa: float = 3.0, encode_s: float = 0.4, token_s: float = 0.0065) -> None:
        for name, value in (("kappa", kappa), ("encode_s", encode_s), ("token_s", token_s)):
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a finite number of at least 0, not {value}")
        if encode_s + token_s == 0:
            raise ValueError("encode_s and token_s are both 0, so every job would have size 0")
        self.kappa = kappa
        self.encode_s = encode_s
        self.token_s = token_s
        self._statistics = EstimatorStatistics()

    def estimate(self, audio_s: float) -> Estimate:
        """Predict what serving ``audio_s`` seconds of audio takes. O(1)."""
        windows = max(1, math.ceil(audio_s / WINDOW_S))
        tokens = max(1, int(audio_s * self.kappa))
        return Estimate(
            estimated_output_tokens=tokens,
            windows=windows,
            size_s=self.size_s(windows=windows, tokens=tokens),
        )

    def size_s(self, *, windows: int, tokens: int) -> float:
        """Predicted service time of encoding ``windows`` windows and decoding ``tokens`` tokens, seconds."""
        return self.encode_s * windows + self.token_s * tokens

    def observe(self, job: Job, *, tokens: int, service_s: float) -> None:
        """Record what a finished job really took: ``tokens`` emitted, ``service_s`` seconds on a worker."""
        seen = self._statistics
        self._statistics = EstimatorStatistics(
            num_jobs=seen.num_jobs + 1,
            audio_s=seen.audio_s + job.audio_s,
            predicted_tokens=seen.predicted_tokens + job.estimate.estimated_output_tokens,
            actual_tokens=seen.actual_tokens + tokens,
            predicted_service_s=seen.predicted_service_s + job.size_s,
            actual_service_s=seen.actual_service_s + service_s,
        )

    def statistics(self) -> EstimatorStatistics:
        """A frozen snapshot of predicted against actual totals."""
        return self._statistics
