"""A job as its client sees it (what is asked for, how far it is, what came of it), and on its way to the text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sooner.audio.probe import Audio
from sooner.core.job import Job
from sooner.engines.base import Decoding, DecodingOptions, Engine, Segment, WindowResult
from sooner.errors import DeadlineError

__all__ = ["JobRequest", "OnText", "Progress", "Transcript", "Work"]

OnText = Callable[[Sequence[Segment]], None]
"""Called on the event loop with the segments of each window as it ends; not for windows without text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What is to be transcribed, for whom, and until when.

    Attributes:
        job_id: unique among the jobs under way.
        audio: the upload as measured.
        language: language code, ``None`` to detect.
        options: of the recognition.
        client: whose it is, as the server knows it; ``None`` for nobody's.
        priority: class; a lower one is served first.
        allowed_s: seconds within which the text is of use; ``None`` for any time.
        allowed_from_s: second from which they count; ``None`` for the job's arrival.
    """

    job_id: str
    audio: Audio
    language: str | None = None
    options: DecodingOptions = field(default_factory=DecodingOptions)
    client: str | None = None
    priority: int = 0
    allowed_s: float | None = None
    allowed_from_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        done_s: seconds of audio transcribed, since it was last begun anew.
        num_windows: steps it took on a worker, likewise.
        num_restarts: times it was begun anew because the engine was lost.
    """

    done_s: float = 0.0
    num_windows: int = 0
    num_restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The result of a job.

    Attributes:
        job: the job as admitted.
        segments: all segments, in order.
        language: language code, given or detected.
        num_tokens: tokens the model generated for it.
        num_windows: steps it took on a worker, one window each.
        started_s: second at which a worker first took it up.
        finished_s: second at which the last window was done.
        service_s: seconds of worker time it took, those that were lost with an engine included.
        first_text_s: second at which the first window with text was done; ``None`` where there was no text.
        num_preemptions: times it was put off after it had started.
        num_restarts: times it was begun anew because the engine was lost.
    """

    job: Job
    segments: tuple[Segment, ...]
    language: str
    num_tokens: int
    num_windows: int
    started_s: float
    finished_s: float
    service_s: float
    first_text_s: float | None = None
    num_preemptions: int = 0
    num_restarts: int = 0

    @classmethod
    def of_silence(cls, job: Job, *, language: str) -> Transcript:
        """The result of a recording in which nobody speaks: there at once, and no worker had it."""
        return cls(
            job=job,
            segments=(),
            language=language,
            num_tokens=0,
            num_windows=0,
            started_s=job.arrival_s,
            finished_s=job.arrival_s,
            service_s=0.0,
        )

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def wait_s(self) -> float:
        """Seconds between arrival and end in which no worker had the job."""
        return max(0.0, self.finished_s - self.job.arrival_s - self.service_s)


@dataclass(slots=True, eq=False)
class Work:
    """A job on its way, and who waits for it. All but ``step`` is for the event loop.

    Attributes:
        num_hangs: times the engine was lost because a window of this job took too long.
        num_deaths: times the engine died, nobody knows why, while it ran a window of this job.
        died_at_s: where that was last, seconds of audio done.
        teaches: whether its service tells what a window takes: not where it waited for a new engine or lost one.
    """

    request: JobRequest
    job: Job
    future: asyncio.Future[Transcript]
    on_text: OnText | None = None
    decoding: Decoding | None = None
    segments: list[Segment] = field(default_factory=list)
    remaining_s: float = field(init=False)
    started_s: float | None = None
    first_text_s: float | None = None
    done_s: float = 0.0
    num_tokens: int = 0
    num_windows: int = 0
    num_restarts: int = 0
    num_hangs: int = 0
    num_deaths: int = 0
    died_at_s: float = 0.0
    teaches: bool = True
    _given_until_s: float = -math.inf

    def __post_init__(self) -> None:
        self.remaining_s = self.job.size_s

    def step(self, engine: Engine) -> WindowResult:
        """Run the next window. Called in a worker thread."""
        if self.decoding is None:
            self.decoding = engine.start(self.job, self.request.audio, self.request.options)
        return self.decoding.step()

    @property
    def latest_start_s(self) -> float:
        """Last second at which what remains, served in one piece, is predicted to be done by the deadline."""
        allowed_s, from_s = self.request.allowed_s, self.request.allowed_from_s
        if allowed_s is None:
            return math.inf
        return (self.job.arrival_s if from_s is None else from_s) + allowed_s - self.remaining_s

    def too_late(self, now_s: float) -> DeadlineError:
        """The refusal of a job that can no longer be done in time."""
        assert self.request.allowed_s is not None
        return DeadlineError(deadline_s=self.request.allowed_s, late_s=now_s - self.latest_start_s)

    def take(self, window: WindowResult, now_s: float) -> None:
        """Add what a window gave, and hand on such text as was not given before the job was begun anew.

        Raises:
            Exception: whatever ``on_text`` raises.
        """
        self.segments.extend(window.segments)
        self.num_tokens += window.num_tokens
        self.num_windows += 1
        self.done_s = window.position_s
        fresh = window.segments
        if self.num_restarts:
            fresh = tuple(segment for segment in fresh if segment.end_s > self._given_until_s)
        if not fresh:
            return
        self._given_until_s = max(self._given_until_s, fresh[-1].end_s)
        self.first_text_s = now_s if self.first_text_s is None else self.first_text_s
        if self.on_text is not None and not self.future.done():  # its waiter may have left in this very turn
            self.on_text(fresh)

    def note_death(self) -> None:
        """Note that the engine died, nobody knows why, while it ran a window of this job."""
        self.num_deaths += 1
        speech = self.request.audio.speech
        # The engine skips to the first voice: its window is at that place, though nothing is done.
        self.died_at_s = max(self.done_s, speech[0][0] if speech else 0.0)

    def begin_anew(self) -> None:
        """Forget what was done: the engine that did it is lost. What was given to ``on_text`` stays given."""
        self.release()
        self.remaining_s = self.job.size_s
        self.done_s, self.num_tokens, self.num_windows = 0.0, 0, 0
        self.num_restarts += 1
        self.teaches = False

    def transcript(
        self, *, language: str, finished_s: float, service_s: float, num_preemptions: int
    ) -> Transcript:
        """The result, once the last window is in."""
        assert self.started_s is not None
        return Transcript(
            job=self.job,
            segments=tuple(self.segments),
            language=language,
            num_tokens=self.num_tokens,
            num_windows=self.num_windows,
            started_s=self.started_s,
            finished_s=finished_s,
            service_s=service_s,
            first_text_s=self.first_text_s,
            num_preemptions=num_preemptions,
            num_restarts=self.num_restarts,
        )

    def release(self) -> None:
        """Let go of the decoding and the text so far."""
        self.segments.clear()
        if self.decoding is not None:
            self.decoding.close()
            self.decoding = None
