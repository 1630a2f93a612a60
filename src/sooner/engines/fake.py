"""A scripted engine: windows of exact length, known text, no model.

It keeps the contract of the real engine (the same test suite runs over both), so that servers and drivers
can be tested for order, cancellation and failure without waiting for a model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sooner.audio.mel import LogMel
from sooner.audio.probe import Audio
from sooner.audio.voice import VoiceDetector
from sooner.core.estimator import WINDOW_S
from sooner.core.job import Job
from sooner.engines.base import DecodingOptions, Segment, WindowResult, Word
from sooner.errors import SchedulerUsageError

__all__ = ["FakeDecoding", "FakeEngine", "OnStep"]

OnStep = Callable[[Job, int], None]
"""Called in the worker thread before a window is done, with its index: may block, raise or take notes."""


class FakeEngine:
    """Answers ``" window 0 of 3"`` and so on, one 30 s window a step, or ``" translated window 0 of 3"``.

    Args:
        on_step: the script; see ``OnStep``.
        tokens_per_window: how many tokens each window claims to have generated.
    """

    model_id = "fake"
    languages = ("en",)
    log_mel: LogMel | None = None
    voice: VoiceDetector | None = None
    can_translate = True
    ready = True
    num_restarts = 0

    def __init__(self, on_step: OnStep | None = None, *, tokens_per_window: int = 90) -> None:
        self._on_step = on_step
        self._tokens_per_window = tokens_per_window

    def start(self, job: Job, audio: Audio, options: DecodingOptions) -> FakeDecoding:
        return FakeDecoding(job, audio, options, self._on_step, self._tokens_per_window)

    def close(self) -> None:
        """Nothing is held."""


class FakeDecoding:
    """See ``FakeEngine``."""

    def __init__(
        self,
        job: Job,
        audio: Audio,
        options: DecodingOptions,
        on_step: OnStep | None,
        tokens_per_window: int,
    ) -> None:
        self._job = job
        self._options = options
        self._audio_s = audio.audio_s
        self._on_step = on_step
        self._tokens_per_window = tokens_per_window
        self._num_windows = max(1, math.ceil(audio.audio_s / WINDOW_S))
        self._index = 0
        self._closed = False

    def step(self) -> WindowResult:
        if self._closed or self._index == self._num_windows:
            raise SchedulerUsageError("this decoding is finished or closed")
        if self._on_step is not None:
            self._on_step(self._job, self._index)
        start_s = self._index * WINDOW_S
        end_s = min(self._audio_s, start_s + WINDOW_S)
        kind = " translated window" if self._options.task == "translate" else " window"
        text = f"{kind} {self._index} of {self._num_windows}"
        words = _spread(text, start_s, end_s) if self._options.words else ()
        self._index += 1
        return WindowResult(
            segments=(Segment(start_s=start_s, end_s=end_s, text=text, words=words),),
            num_tokens=self._tokens_per_window,
            position_s=end_s,
            done=self._index == self._num_windows,
            language=self._job.language or "en",
        )

    def close(self) -> None:
        self._closed = True


def _spread(text: str, start_s: float, end_s: float) -> tuple[Word, ...]:
    """The words of a text, each as long as the others."""
    words = text.split()
    word_s = (end_s - start_s) / len(words)
    return tuple(
        Word(start_s=start_s + index * word_s, end_s=start_s + (index + 1) * word_s, text=f" {word}")
        for index, word in enumerate(words)
    )
