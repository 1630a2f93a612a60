"""Workers: takes jobs from the scheduler, runs windows in threads, and brings results to their waiters.

All bookkeeping happens on the event loop, so nothing here needs a lock. A worker is a thread that runs one
window; when it is back, the scheduler decides anew who gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sooner.audio.probe import Audio
from sooner.core.estimator import Estimator
from sooner.core.job import Job
from sooner.core.scheduler import Scheduler
from sooner.engines.base import Decoding, DecodingOptions, Engine, Segment, WindowResult
from sooner.errors import EngineError, ServiceClosedError, SoonerError
from sooner.service.clock import Clock

__all__ = ["Dispatcher", "JobRequest", "OnText", "Progress", "Transcript", "WindowRecord"]

_log = logging.getLogger(__name__)


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
        allowed_s: seconds from now within which the text is of use; ``None`` for any time.
    """

    job_id: str
    audio: Audio
    language: str | None = None
    options: DecodingOptions = field(default_factory=DecodingOptions)
    client: str | None = None
    priority: int = 0
    allowed_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a job is.

    Attributes:
        done_s: seconds of audio transcribed.
        num_windows: steps it took on a worker.
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
        service_s: seconds of worker time it took.
        first_text_s: second at which the first window with text was done; ``None`` where there was no text.
        num_preemptions: times it was put off after it had started.
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

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(segment.text for segment in self.segments).strip()

    @property
    def wait_s(self) -> float:
        """Seconds between arrival and end in which no worker had the job."""
        return max(0.0, self.finished_s - self.job.arrival_s - self.service_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """One step of one job on a worker: between its two times no other scheduling decision was made for it."""

    job_id: str
    started_s: float
    ended_s: float


@dataclass(slots=True)
class _Work:
    """A job on its way, and who waits for it."""

    job: Job
    audio: Audio
    options: DecodingOptions
    future: asyncio.Future[Transcript]
    decoding: Decoding | None = None
    segments: list[Segment] = field(default_factory=list)
    num_tokens: int = 0
    num_windows: int = 0
    started_s: float | None = None
    first_text_s: float | None = None
    done_s: float = 0.0
    on_text: OnText | None = None

    def step(self, engine: Engine) -> WindowResult:
        """Run the next window. Called in a worker thread."""
        if self.decoding is None:
            self.decoding = engine.start(self.job, self.audio, self.options)
        return self.decoding.step()

    def release(self) -> None:
        if self.decoding is not None:
            self.decoding.close()


class Dispatcher:
    """Serves jobs on ``num_workers`` threads in the scheduler's order. Create and use it on one event loop.

    Args:
        engine: what recognises.
        scheduler: who is next; owned by this dispatcher from now on.
        estimator: sizes jobs and what remains of them.
        clock: the time.
        num_workers: windows that run at once.
        on_window: called on the event loop after each window, for benchmarks and timelines.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        scheduler: Scheduler,
        estimator: Estimator,
        clock: Clock,
        num_workers: int,
        on_window: Callable[[WindowRecord], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self._engine = engine
        self._estimator = estimator
        self._clock = clock
        self._num_workers = num_workers
        self._on_window = on_window
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="sooner-worker")
        self._works: dict[str, _Work] = {}
        self._windows: set[asyncio.Task[None]] = set()
        self._num_busy = 0
        self._closing = False

    @property
    def closing(self) -> bool:
        """Whether ``close`` was called: no further job is taken."""
        return self._closing

    async def transcribe(self, request: JobRequest, *, on_text: OnText | None = None) -> Transcript:
        """Queue an upload and wait for its text. Cancelling the caller cancels the job, waiting or running.

        Raises:
            AdmissionError: refused, see ``Scheduler.submit``.
            DeadlineError: it cannot be done within ``allowed_s`` any more.
            ServiceClosedError: the service is shutting down.
            EngineError: the model failed on it.
        """
        work = self._submit(request)
        work.on_text = on_text
        try:
            return await work.future
        except asyncio.CancelledError:
            self._drop(work)
            raise

    def progress(self, job_id: str) -> Progress:
        """How far a job is that waits or runs; of an unknown one, nothing is done."""
        work = self._works.get(job_id)
        return Progress() if work is None else Progress(done_s=work.done_s, num_windows=work.num_windows)

    def _submit(self, request: JobRequest) -> _Work:
        if self._closing:
            raise ServiceClosedError
        audio, language = request.audio, request.language
        job = Job(
            id=request.job_id,
            arrival_s=self._clock.now_s(),
            audio_s=audio.audio_s,
            estimate=self._estimator.estimate(audio.audio_s, language=language),
            language=language,
            client=request.client,
            priority=request.priority,
        )
        self.scheduler.submit(job)
        work = _Work(job, audio, request.options, asyncio.get_running_loop().create_future())
        self._works[job.id] = work
        self._assign()
        return work

    def _assign(self) -> None:
        """Give every free worker the job that the scheduler names."""
        while self._num_busy < self._num_workers:
            now_s = self._clock.now_s()
            job = self.scheduler.next(now_s)
            if job is None:
                break
            work = self._works[job.id]
            if work.started_s is None:
                work.started_s = now_s
            self._num_busy += 1
            task = asyncio.get_running_loop().create_task(self._run_window(work, now_s))
            self._windows.add(task)
            task.add_done_callback(self._windows.discard)
        for switch in self.scheduler.take_switches():
            _log.info("order %s instead of %s: %s", switch.after, switch.before, switch.reason)

    async def _run_window(self, work: _Work, started_s: float) -> None:
        loop = asyncio.get_running_loop()
        outcome: WindowResult | SoonerError
        try:
            outcome = await loop.run_in_executor(self._pool, work.step, self._engine)
        except SoonerError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001  a worker survives whatever a file does to the libraries below
            _log.exception("job %s failed", work.job.id)
            outcome = EngineError(f"the engine failed: {error}")
        self._num_busy -= 1
        now_s = self._clock.now_s()
        if self._on_window is not None:
            self._on_window(WindowRecord(job_id=work.job.id, started_s=started_s, ended_s=now_s))
        if self._works.get(work.job.id) is not work:
            work.release()  # cancelled while its window ran
        elif isinstance(outcome, SoonerError):
            self._fail(work, outcome)
        else:
            self._take_window(work, outcome, now_s)
        self._assign()

    def _take_window(self, work: _Work, window: WindowResult, now_s: float) -> None:
        work.segments.extend(window.segments)
        work.num_tokens += window.num_tokens
        work.num_windows += 1
        work.done_s = window.position_s
        if window.segments:
            work.first_text_s = now_s if work.first_text_s is None else work.first_text_s
            if work.on_text is not None:
                work.on_text(window.segments)
        if not window.done:
            remaining = self._estimator.estimate(
                work.job.audio_s - window.position_s, language=work.job.language, is_continued=True
            )
            self.scheduler.yield_back(work.job.id, remaining=remaining, now_s=now_s)
            return
        service_s = self.scheduler.finish(work.job.id, now_s=now_s)
        self._estimator.observe(
            work.job,
            tokens=work.num_tokens,
            service_s=service_s,
            num_windows=work.num_windows,
            language=window.language,
        )
        del self._works[work.job.id]
        work.release()
        assert work.started_s is not None
        transcript = Transcript(
            job=work.job,
            segments=tuple(work.segments),
            language=window.language,
            num_tokens=work.num_tokens,
            num_windows=work.num_windows,
            started_s=work.started_s,
            finished_s=now_s,
            service_s=service_s,
            first_text_s=work.first_text_s,
        )
        if not work.future.done():  # its waiter may have been cancelled in this very turn of the loop
            work.future.set_result(transcript)

    def _fail(self, work: _Work, error: SoonerError) -> None:
        self._drop(work)
        work.release()
        _settle(work, error)

    def _drop(self, work: _Work) -> None:
        """Forget a job. A window of it that runs is left to end; its decoding is released then."""
        if self._works.pop(work.job.id, None) is None:
            return
        is_running = self.scheduler.is_running(work.job.id)
        self.scheduler.cancel(work.job.id)
        if not is_running:
            work.release()

    async def close(self, *, grace_s: float) -> None:
        """Take no more jobs, refuse those not yet started, give started ones ``grace_s`` seconds to finish.

        Every waiter gets its text or ``ServiceClosedError``. Returns once no window runs.
        """
        self._closing = True
        for work in [work for work in self._works.values() if work.started_s is None]:
            self._refuse(work)
        started = [work.future for work in self._works.values()]
        if started:
            await asyncio.wait(started, timeout=grace_s)
        for work in list(self._works.values()):
            self._refuse(work)
        if self._windows:
            await asyncio.wait(set(self._windows))
        self._pool.shutdown(wait=False)

    def _refuse(self, work: _Work) -> None:
        self._drop(work)
        _settle(work, ServiceClosedError())


def _settle(work: _Work, error: SoonerError) -> None:
    if not work.future.done():  # its waiter may be gone
        work.future.set_exception(error)
