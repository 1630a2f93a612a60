"""The worker model: ``num_workers`` workers, one window at a time each, as in ``sooner serve``.

An event is an arrival or the end of a window. After a window the job comes back to the scheduler with what
remains of it, and the free worker asks who is next: the same calls in the same order as
``sooner.service.dispatcher`` makes. A window takes as long as its ``Work`` says, whatever was predicted.

The server skips silence, so where a trace tells how much of a recording is speech, that stands for its length. Its
windows are then those of as much speech in one piece, a fair approximation: the trace does not tell where the
pauses are, and a voice far from the last begins a window of its own.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sooner.core.estimator import Estimator
from sooner.core.job import Estimate, Job
from sooner.core.latency import LatencyRecord
from sooner.core.scheduler import Scheduler
from sooner.errors import AdmissionError
from sooner.evidence.run_file import Failure
from sooner.simulator.profile import WorkersProfile
from sooner.simulator.work import Progress
from sooner.workload.trace import TraceRequest

__all__ = ["Work", "serve_by_workers", "works_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A job and what serving it really takes.

    Attributes:
        job: as the scheduler gets it.
        progress: as the record tells of it.
        windows_s: true duration of each window, seconds; none where nobody speaks.
        remaining: what is predicted to remain after each window but the last.
    """

    job: Job
    progress: Progress
    windows_s: Sequence[float]
    remaining: Sequence[Estimate]


def works_of(
    trace: Sequence[TraceRequest],
    profile: WorkersProfile,
    *,
    seed: int,
    size_factors: Sequence[float] | None = None,
) -> Iterator[Work]:
    """What each request of ``trace`` takes on the profile's engine. Equal seeds, equal durations.

    ``size_factors``: see ``sooner.simulator.simulate.simulate``.
    """
    rng = random.Random(seed)
    estimator = profile.estimator()
    for number, request in enumerate(trace):
        work = _work(f"{number}", request, profile, estimator, rng)
        yield work if size_factors is None else _mispredicted(work, size_factors[number])


def _mispredicted(work: Work, factor: float) -> Work:
    """The same work with every prediction of it ``factor`` times as large."""
    return replace(
        work,
        job=replace(work.job, estimate=_scaled(work.job.estimate, factor)),
        remaining=[_scaled(estimate, factor) for estimate in work.remaining],
    )


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return replace(
        estimate,
        estimated_output_tokens=max(1, round(estimate.estimated_output_tokens * factor)),
        size_s=estimate.size_s * factor,
        own_s=estimate.own_s * factor,
    )


def _work(
    job_id: str, request: TraceRequest, profile: WorkersProfile, estimator: Estimator, rng: random.Random
) -> Work:
    estimate = estimator.estimate(request.spoken_s)
    if request.speech_s == 0:
        num_windows, tokens, windows_s = 0, 0, []
    else:
        num_windows = profile.num_windows(request.spoken_s)
        tokens = estimate.estimated_output_tokens if request.num_tokens is None else request.num_tokens
        first_s = profile.encode_s + profile.token_s * tokens / num_windows
        windows_s = [first_s, *[first_s + profile.context_s] * (num_windows - 1)]
    return Work(
        job=Job(
            id=job_id,
            arrival_s=request.arrival_s + profile.overhead_s,
            audio_s=request.audio_s,
            estimate=estimate,
            speech_s=request.speech_s,
            language=request.language,
            client=request.client,
        ),
        progress=Progress(job_id, request, profile.alone_s(estimate), num_windows, tokens),
        windows_s=[window_s * _deviation(rng, profile.spread) for window_s in windows_s],
        remaining=[
            estimator.estimate(request.spoken_s - done * profile.window_s, is_continued=True)
            for done in range(1, num_windows)
        ],
    )


def _deviation(rng: random.Random, spread: float) -> float:
    """A log-normal factor with mean 1, so that spread alone does not change the load."""
    return math.exp(rng.gauss(-spread * spread / 2, spread)) if spread else 1.0


def serve_by_workers(
    works: Iterable[Work], scheduler: Scheduler, *, num_workers: int
) -> Iterator[LatencyRecord | Failure]:
    """Serve ``works``, which come in order of arrival, and yield each request as it ends.

    O(log n) a window beside the scheduler. What the scheduler refuses is a ``Failure``. A recording in which
    nobody speaks ends as it arrives, without a worker.
    """
    works = iter(works)
    upcoming = next(works, None)
    waiting: dict[str, _Standing] = {}
    ends: list[tuple[float, int, _Standing]] = []  # end of a window, a number against ties, whose
    num_started = 0
    ended: LatencyRecord | Failure | None
    while upcoming is not None or ends:
        if upcoming is not None and (not ends or upcoming.job.arrival_s <= ends[0][0]):
            now_s = upcoming.job.arrival_s
            if (ended := _arrive(upcoming, scheduler)) is None:
                waiting[upcoming.job.id] = _Standing(upcoming)
            upcoming = next(works, None)
        else:
            now_s, _, standing = heapq.heappop(ends)
            if (ended := _end_window(standing, scheduler, now_s)) is None:
                waiting[standing.work.job.id] = standing
        if ended is not None:
            yield ended
        while len(ends) < num_workers and (job := scheduler.next(now_s)) is not None:
            num_started += 1
            standing = waiting.pop(job.id)
            standing.resume(now_s)
            heapq.heappush(ends, (now_s + standing.window_s, num_started, standing))


@dataclass(slots=True)
class _Standing:
    """How far a job is."""

    work: Work
    num_done: int = 0
    left_s: float = 0.0

    @property
    def window_s(self) -> float:
        return self.work.windows_s[self.num_done]

    def resume(self, now_s: float) -> None:
        if self.num_done and now_s > self.left_s:
            self.work.progress.num_preemptions += 1


def _arrive(work: Work, scheduler: Scheduler) -> LatencyRecord | Failure | None:
    """Queue a request. Its end, where that is now: nobody speaks in it, or it is refused."""
    now_s = work.job.arrival_s
    if not work.windows_s:
        return work.progress.record(now_s)
    try:
        scheduler.submit(work.job)
    except AdmissionError as error:
        return work.progress.refused(error, now_s)
    return None


def _end_window(standing: _Standing, scheduler: Scheduler, now_s: float) -> LatencyRecord | None:
    """Report a window that ended to the scheduler. The request's record, if it was the last."""
    work = standing.work
    standing.num_done += 1
    standing.left_s = now_s
    if work.progress.first_text_s is None:
        work.progress.first_text_s = now_s
    if standing.num_done < len(work.windows_s):
        scheduler.yield_back(work.job.id, remaining=work.remaining[standing.num_done - 1], now_s=now_s)
        return None
    work.progress.service_s = scheduler.finish(work.job.id, now_s=now_s)
    return work.progress.record(now_s)
