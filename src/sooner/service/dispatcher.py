"""Workers: takes jobs from the scheduler, runs windows in threads, and brings results to their waiters.

All bookkeeping happens on the event loop, so nothing here needs a lock. A worker is a thread that runs one
window; when it is back, the scheduler decides anew who gets it.

An engine may be lost, and with it all that is not at its end: every job that has a part done begins anew. Where a
window took too long its job is the cause, and fails the second time. Where the engine died, each job that had a
window under way is suspected. Until it is past the place its windows run alone: if the engine dies again, it was
this job, and nobody else fails for it. A suspect's window keeps others away for a few seconds only, so that one
that hangs does not hold up all; whoever is not alone when the engine dies has some more tries.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sooner.core.adaptive import Switch
from sooner.core.estimator import Estimator
from sooner.core.job import Estimate, Job
from sooner.core.scheduler import Scheduler
from sooner.engines.base import Engine, WindowResult
from sooner.errors import EngineError, EngineLostError, ServiceClosedError, SoonerError
from sooner.service.clock import Clock
from sooner.service.deadlines import Deadlines
from sooner.service.drain import beyond_grace
from sooner.service.jobs import JobRequest, OnText, Progress, Transcript, Work

__all__ = ["Dispatcher", "JobRequest", "OnText", "Progress", "Transcript", "WindowRecord"]

_log = logging.getLogger(__name__)
_ALONE_S = 10.0
_MAX_DEATHS = 3  # of the engine, for which a job is begun anew
_LAST_WINDOWS_S = 30.0
_TIMER_MARGIN_S = 0.001  # behind the moment itself: at that moment nothing has passed yet
_MAX_SWITCHES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRecord:
    """One step of one job on a worker: between its two times no other scheduling decision was made for it."""

    job_id: str
    started_s: float
    ended_s: float


class Dispatcher:
    """Serves jobs on ``num_workers`` threads in the scheduler's order. Create and use it on one event loop.

    Args:
        engine: what recognises.
        scheduler: who is next; owned by this dispatcher from now on.
        estimator: sizes jobs and what remains of them.
        clock: the time.
        num_workers: windows that run at once.
        on_window: called on the event loop after each window, for benchmarks and timelines.

    Attributes:
        recent_switches: the last changes of order that ``adaptive`` made, oldest first.
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
        self.recent_switches: deque[Switch] = deque(maxlen=_MAX_SWITCHES)
        self._engine = engine
        self._estimator = estimator
        self._clock = clock
        self._num_workers = num_workers
        self._on_window = on_window
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="sooner-worker")
        self._works: dict[str, Work] = {}
        self._running: dict[Work, float] = {}  # when its window began; cancelled ones stay until it ends
        self._suspects: set[Work] = set()
        self._alone: Work | None = None  # whose window began with no other under way, the last one to begin
        self._away_s = -math.inf  # when the engine was last seen not to be ready
        self._windows: set[asyncio.Task[None]] = set()
        self._busy_s = 0.0
        self._deadlines = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._closes_at_s = math.inf

    @property
    def closing(self) -> bool:
        """Whether ``close`` was called: no further job is taken."""
        return self._closing

    @property
    def num_workers(self) -> int:
        """Windows that run at once."""
        return self._num_workers

    def worker_busy_s(self, now_s: float) -> float:
        """Seconds that workers were busy until ``now_s``, all together, windows under way included."""
        return self._busy_s + sum(now_s - began_s for began_s in self._running.values())

    async def transcribe(self, request: JobRequest, *, on_text: OnText | None = None) -> Transcript:
        """Queue an upload and wait for its text. Cancelling the caller cancels the job, waiting or running.

        A recording in which nobody speaks has its (empty) text at once, without a worker. Its language is the one
        given, else English: nothing was said that would tell. If ``on_text`` raises, this job fails.

        Raises:
            AdmissionError: refused, see ``Scheduler.submit``.
            DeadlineError: it cannot be done within ``allowed_s`` any more, by prediction.
            ServiceClosedError: the service is shutting down.
            EngineError: the model failed on it.
            EngineLostError: the engine hung on it twice, or died on it again.
        """
        if self._closing:
            raise ServiceClosedError
        job = self._job(request)
        if request.audio.speech == ():
            return Transcript.of_silence(job, language=request.language or self._language_of_silence())
        work = Work(request, job, asyncio.get_running_loop().create_future(), on_text)
        self._submit(work)
        try:
            return await work.future
        except asyncio.CancelledError:
            self._drop(work)
            self._turn()
            raise

    def _job(self, request: JobRequest) -> Job:
        return Job(
            id=request.job_id,
            arrival_s=self._clock.now_s(),
            audio_s=request.audio.audio_s,
            estimate=self._estimate(request),
            speech_s=request.audio.speech_s,
            language=request.language,
            client=request.client,
            priority=request.priority,
        )

    def _estimate(self, request: JobRequest, position_s: float = 0.0) -> Estimate:
        """Predicted service of what lies behind ``position_s``."""
        rest = request.audio.rest(position_s)
        return self._estimator.estimate(
            rest.audio_s,
            speech_s=rest.speech_s,
            windows=rest.windows,
            language=request.language,
            client=request.client,
            is_continued=position_s > 0.0,
        )

    def _language_of_silence(self) -> str:
        languages = self._engine.languages
        return "en" if "en" in languages else languages[0]

    def progress(self, job_id: str) -> Progress:
        """How far a job is that waits or runs; of an unknown one, nothing is done."""
        work = self._works.get(job_id)
        if work is None:
            return Progress()
        return Progress(done_s=work.done_s, num_windows=work.num_windows, num_restarts=work.num_restarts)

    def _submit(self, work: Work) -> None:
        job = work.job
        if work.latest_start_s < job.arrival_s:
            raise work.too_late(job.arrival_s)
        self.scheduler.submit(job)
        self._works[job.id] = work
        self._deadlines.set(job.id, work.latest_start_s)
        self._turn()

    def _turn(self) -> None:
        """After each event: refuse what has become hopeless, give free workers jobs, and set the timer."""
        now_s = self._clock.now_s()
        if not self._engine.ready:
            self._away_s = now_s
        for job_id in self._deadlines.take_passed(now_s):
            work = self._works[job_id]
            self._fail(work, work.too_late(now_s))
        if now_s >= self._closes_at_s:
            self._refuse_all()
        self._assign(now_s)
        self._set_timer(now_s)

    def _assign(self, now_s: float) -> None:
        """Give every free worker the job that the scheduler names."""
        while len(self._running) < self._num_workers and not self._next_runs_alone(now_s):
            job = self.scheduler.next(now_s)
            if job is None:
                break
            work = self._works[job.id]
            self._deadlines.discard(job.id)
            work.started_s = now_s if work.started_s is None else work.started_s
            work.teaches = work.teaches and self._engine.ready
            self._alone = None if self._running else work
            self._running[work] = now_s
            task = asyncio.get_running_loop().create_task(self._run_window(work, now_s))
            self._windows.add(task)
            task.add_done_callback(self._windows.discard)
        for switch in self.scheduler.take_switches():
            self.recent_switches.append(switch)
            _log.info("order %s instead of %s: %s", switch.after, switch.before, switch.reason)

    def _next_runs_alone(self, now_s: float) -> bool:
        """Whether the next window has to wait for one under way, because a suspect's runs alone."""
        if not self._suspects:
            return False
        recent = {work for work, began_s in self._running.items() if now_s < self._alone_until_s(began_s)}
        if not recent.isdisjoint(self._suspects):
            return True
        job = self.scheduler.peek(now_s)
        return bool(recent) and job is not None and self._works[job.id] in self._suspects

    def _alone_until_s(self, began_s: float) -> float:
        """Until when a suspect's window has a worker to itself; what it waits for a new engine does not count."""
        return max(began_s, self._away_s) + _ALONE_S

    def _set_timer(self, now_s: float) -> None:
        """Have a turn at the next moment at which a job becomes hopeless, or was alone for long enough."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moments_s = [] if self._deadlines.earliest_s is None else [self._deadlines.earliest_s]
        if self._suspects and self.scheduler.num_waiting:
            ends_s = map(self._alone_until_s, self._running.values())
            moments_s.extend(end_s for end_s in ends_s if end_s > now_s)
            if self._away_s == now_s:  # nobody tells when the engine is ready
                moments_s.append(now_s + _ALONE_S / 10)
        if moments_s:
            delay_s = max(0.0, min(moments_s) - now_s) + _TIMER_MARGIN_S
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._turn)

    async def _run_window(self, work: Work, began_s: float) -> None:
        outcome = await self._step(work)
        now_s = self._clock.now_s()
        del self._running[work]
        self._busy_s += now_s - began_s
        if self._on_window is not None:
            self._on_window(WindowRecord(job_id=work.job.id, started_s=began_s, ended_s=now_s))
        if self._works.get(work.job.id) is not work:
            work.release()  # cancelled while its window ran
        elif isinstance(outcome, EngineLostError):
            self._lose_window(work, outcome, now_s)
        elif isinstance(outcome, SoonerError):
            self._fail(work, outcome)
        else:
            self._take_window(work, outcome, now_s)
        if isinstance(outcome, EngineLostError) and outcome.is_cause is not False:
            self._begin_waiting_ones_anew(now_s)
        self._turn()

    async def _step(self, work: Work) -> WindowResult | SoonerError:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work.step, self._engine)
        except SoonerError as error:
            return error
        except Exception as error:  # noqa: BLE001  a worker survives whatever a file does to the libraries below
            _log.exception("job %s failed", work.job.id)
            return EngineError(f"the engine failed: {error}")

    def _take_window(self, work: Work, window: WindowResult, now_s: float) -> None:
        try:
            work.take(window, now_s)
        except Exception as error:  # noqa: BLE001  whatever a listener does fails its own job alone
            _log.exception("the listener of job %s failed", work.job.id)
            self._fail(work, SoonerError(f"the text could not be handed on: {error}"))
            return
        if work.done_s > work.died_at_s:
            self._suspects.discard(work)
        if window.done:
            self._finish(work, window.language, now_s)
        else:
            remaining = self._estimate(work.request, window.position_s)
            work.remaining_s = remaining.size_s
            self.scheduler.yield_back(work.job.id, remaining=remaining, now_s=now_s)
            self._deadlines.set(work.job.id, work.latest_start_s)

    def _finish(self, work: Work, language: str, now_s: float) -> None:
        job = work.job
        num_preemptions = self.scheduler.num_preemptions(job.id)
        service_s = self.scheduler.finish(job.id, now_s=now_s)
        if work.teaches:
            self._estimator.observe(
                job,
                tokens=work.num_tokens,
                service_s=service_s,
                num_windows=work.num_windows,
                language=language,
            )
        self._forget(work)
        transcript = work.transcript(
            language=language, finished_s=now_s, service_s=service_s, num_preemptions=num_preemptions
        )
        work.release()
        if not work.future.done():  # its waiter may have been cancelled in this very turn of the loop
            work.future.set_result(transcript)

    def _lose_window(self, work: Work, loss: EngineLostError, now_s: float) -> None:
        if self._fails_for(work, loss):
            self._fail(work, loss)
        else:
            _log.warning("the engine was lost during job %s, at %.1f s; it begins anew", work.job.id, work.done_s)
            self._begin_anew(work, now_s)

    def _fails_for(self, work: Work, loss: EngineLostError) -> bool:
        """Whether a job is to blame for the loss of its engine; from now on it is suspected where it may be."""
        if loss.is_cause is None:
            work.note_death()
            is_named = work in self._suspects and work is self._alone
            self._suspects.add(work)
            return is_named or work.num_deaths > _MAX_DEATHS
        work.num_hangs += loss.is_cause
        return work.num_hangs > 1

    def _begin_waiting_ones_anew(self, now_s: float) -> None:
        """Let go of what waiting jobs had open in the engine that was lost; running ones hear of it themselves."""
        for work in self._works.values():
            if work not in self._running and work.decoding is not None:
                self._begin_anew(work, now_s)

    def _begin_anew(self, work: Work, now_s: float) -> None:
        work.begin_anew()
        self.scheduler.begin_anew(work.job.id, now_s=now_s)
        self._deadlines.set(work.job.id, work.latest_start_s)

    def _fail(self, work: Work, error: SoonerError) -> None:
        self._drop(work)
        if not work.future.done():  # its waiter may be gone
            work.future.set_exception(error)

    def _drop(self, work: Work) -> None:
        """Forget a job. A window of it that runs is left to end; its decoding is released then."""
        if self._works.get(work.job.id) is not work:
            return
        self._forget(work)
        self.scheduler.cancel(work.job.id)
        if work not in self._running:
            work.release()

    def _forget(self, work: Work) -> None:
        del self._works[work.job.id]
        self._suspects.discard(work)
        self._deadlines.discard(work.job.id)

    async def close(self, *, grace_s: float) -> None:
        """Take no more jobs, refuse those that cannot be done within ``grace_s`` seconds, and serve the others.

        Who can be done is predicted, once. Whoever is left when the grace ends is refused, so every waiter gets
        its text or ``ServiceClosedError``. Returns once no window runs, or with a warning where one does not end.
        """
        self._closing = True
        now_s = self._clock.now_s()
        self._closes_at_s = now_s + grace_s
        rows = self.scheduler.forecast(now_s)
        for job_id in beyond_grace(rows, num_workers=self._num_workers, grace_s=grace_s):
            self._fail(self._works[job_id], ServiceClosedError())
        self._turn()
        waiters = [work.future for work in self._works.values()]
        if waiters:
            await asyncio.wait(waiters, timeout=grace_s)
        self._refuse_all()
        if self._windows:
            _, hanging = await asyncio.wait(set(self._windows), timeout=_LAST_WINDOWS_S)
            if hanging:
                _log.warning("%d windows still run %g s after the grace", len(hanging), _LAST_WINDOWS_S)
        self._pool.shutdown(wait=False)

    def _refuse_all(self) -> None:
        for work in list(self._works.values()):
            self._fail(work, ServiceClosedError())
