"""The seam between scheduling and recognition.

An engine starts a ``Decoding`` for a job; each ``step`` runs exactly one window. Between steps the decoding
holds as little as it can, because it may wait there for a long time while shorter jobs are served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sooner.audio.mel import LogMel
from sooner.audio.probe import Audio
from sooner.audio.voice import VoiceDetector
from sooner.core.job import Job

__all__ = ["Decoding", "DecodingOptions", "Engine", "Segment", "Task", "WindowResult", "Word"]

Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """What a client may ask of the recognition itself.

    Attributes:
        prompt: text that precedes the audio, to steer spelling and style.
        temperature: sampling temperature in [0, 1]; 0 for beam search, with higher temperatures tried where
            the text looks wrong.
        task: ``translate`` for English text whatever is spoken; needs ``Engine.can_translate``.
        words: give each segment its words with their times. Costs some more time a window.
    """

    prompt: str | None = None
    temperature: float = 0.0
    task: Task = "transcribe"
    words: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a segment.

    Attributes:
        start_s: where it begins in the recording, seconds.
        end_s: where it ends, seconds.
        text: the word with its punctuation, and with the leading space the model gave it.
        probability: mean probability of its tokens.
    """

    start_s: float
    end_s: float
    text: str
    probability: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of recognised speech; the fields of OpenAI's ``verbose_json`` segments.

    Attributes:
        start_s: where it begins in the recording, seconds.
        end_s: where it ends, seconds.
        text: what was said, with the leading space the model gave it.
        tokens: token ids, timestamps included.
        temperature: sampling temperature that gave the text.
        avg_logprob: mean log probability of its window's tokens.
        compression_ratio: length of the window's text over its compressed length; high for repetitions.
        no_speech_prob: the model's probability that the window holds no speech.
        seek: first frame (10 ms) of its window.
        words: its words, where they were asked for.
    """

    start_s: float
    end_s: float
    text: str
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 1.0
    no_speech_prob: float = 0.0
    seek: int = 0
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """What one step gave.

    Attributes:
        segments: segments of this window, in order; empty for silence.
        num_tokens: tokens the model generated for it.
        position_s: seconds of audio done so far.
        done: whether the recording is finished.
        language: language code in use, given or detected.
    """

    segments: tuple[Segment, ...]
    num_tokens: int
    position_s: float
    done: bool
    language: str


class Decoding(Protocol):
    """One job's recognition under way. CPU work: call ``step`` in a thread, one call at a time."""

    def step(self) -> WindowResult:
        """Run the next window.

        Raises:
            SchedulerUsageError: the recording is finished or the decoding closed.
            EngineError: the model failed.
            EngineLostError: the engine hangs or died; start the job anew.
        """

    def close(self) -> None:
        """Release files and buffers. Idempotent."""


class Engine(Protocol):
    """Recognises speech for one model; shared by all workers and safe to call from several threads."""

    @property
    def model_id(self) -> str:
        """The name that requests and ``/v1/models`` use."""

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that it recognises."""

    @property
    def log_mel(self) -> LogMel | None:
        """The front end whose peak the probe must measure; ``None`` where the engine needs none."""

    @property
    def voice(self) -> VoiceDetector | None:
        """What finds voices for the probe; ``None`` where the engine hears silence by itself."""

    @property
    def can_translate(self) -> bool:
        """Whether it translates into English."""

    @property
    def ready(self) -> bool:
        """Whether a window would be begun at once: false while the engine is being replaced."""

    @property
    def num_restarts(self) -> int:
        """Times that it was started again after it had hung or died."""

    def start(self, job: Job, audio: Audio, options: DecodingOptions) -> Decoding:
        """Begin a job. Cheap; the work is in ``step``."""

    def close(self) -> None:
        """Let go of what the engine holds; windows under way may fail. Idempotent."""
