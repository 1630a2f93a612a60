"""Continuous batching as in vLLM, step by step.

A step admits waiting windows, gives every running window one token and takes
``step_s + running_step_s · running + admission_s · admitted`` seconds. A window runs for one step per token of its
text and one for the token that ends it; its encoding and prefill are in the step that admits it, which gives the
first token. Arrivals within a step are seen at its end.

A recording of several windows is what the vLLM plugin makes of it: one place in the queue, with the size of the
whole recording and what is left of it, from which its windows are taken in order; they may run at the same time.

Where memory is bounded, a running window that needs another block when there is none evicts whom the policy
names. What is evicted waits again, keeps its tokens, and is encoded anew; a step that evicts admits nobody.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sooner.core.estimator import WINDOW_S, Estimator
from sooner.core.job import Estimate, Job
from sooner.core.latency import LatencyRecord
from sooner.core.scheduler import Scheduler
from sooner.errors import AdmissionError
from sooner.evidence.run_file import Failure
from sooner.simulator.profile import BatchingProfile
from sooner.simulator.work import Progress
from sooner.workload.trace import TraceRequest

__all__ = ["serve_by_batching"]


def serve_by_batching(
    trace: Iterable[TraceRequest], scheduler: Scheduler, profile: BatchingProfile
) -> Iterator[LatencyRecord | Failure]:
    """Serve a trace, which comes in order of arrival, and yield each request as it ends.

    Steps in which nobody waits are taken together up to the next arrival or end. O(log running) an admission
    beside the scheduler; with bounded memory O(running) a step.
    """
    engine = _BatchingEngine(scheduler, profile)
    estimator = profile.estimator()
    uploads = (_Upload.of(number, request, profile, estimator) for number, request in enumerate(trace))
    upcoming = next(uploads, None)
    now_s = 0.0
    while upcoming is not None or engine.is_busy:
        if upcoming is not None and not engine.is_busy:
            now_s = max(now_s, upcoming.progress.request.arrival_s)
        while upcoming is not None and upcoming.progress.request.arrival_s <= now_s:
            try:
                engine.submit(upcoming)
            except AdmissionError as error:
                yield upcoming.progress.refused(error, now_s)
            upcoming = next(uploads, None)
        if engine.is_busy:
            until_s = math.inf if upcoming is None else upcoming.progress.request.arrival_s
            now_s, ended = engine.step(now_s, until_s)
            yield from ended


@dataclass(slots=True)
class _Upload:
    """A request, and how many of its windows are where."""

    progress: Progress
    estimate: Estimate
    num_submitted: int = 0
    num_ended: int = 0
    num_running: int = 0
    running_since_s: float = 0.0

    @classmethod
    def of(cls, number: int, request: TraceRequest, profile: BatchingProfile, estimator: Estimator) -> _Upload:
        estimate = estimator.estimate(request.audio_s)
        tokens = estimate.estimated_output_tokens if request.num_tokens is None else request.num_tokens
        num_windows = profile.num_windows(request.audio_s)
        return cls(
            Progress(f"{number}", request, profile.alone_s(estimate), num_windows, tokens), estimate=estimate
        )

    def tokens_of(self, index: int) -> int:
        """Tokens of one window: an even share of the text's."""
        tokens, n = self.progress.num_tokens, self.progress.num_windows
        return tokens * (index + 1) // n - tokens * index // n

    def start_window(self, now_s: float) -> None:
        if not self.num_running:
            self.running_since_s = now_s
        self.num_running += 1

    def stop_window(self, now_s: float) -> None:
        self.num_running -= 1
        if not self.num_running:
            self.progress.service_s += now_s - self.running_since_s


@dataclass(slots=True)
class _Window:
    """One window, a job of its own for the scheduler. Its tokens are counted by the steps it has been in."""

    job: Job
    upload: _Upload
    remaining: Estimate
    num_tokens: int
    num_decoded: int = 0  # when it was admitted last
    admitted_at: int = 0  # steps the engine had made by then
    num_blocks: int = 0

    @property
    def ends_at(self) -> int:
        return self.admitted_at + self.num_tokens - self.num_decoded + 1

    def decoded_at(self, num_steps: int) -> int:
        return self.num_decoded + num_steps - self.admitted_at


class _BatchingEngine:
    """What waits, what runs, and the steps made so far."""

    def __init__(self, scheduler: Scheduler, profile: BatchingProfile) -> None:
        self._scheduler = scheduler
        self._profile = profile
        self._estimator = profile.estimator()
        self._waiting: dict[str, _Window] = {}
        self._running: dict[str, _Window] = {}  # in order of admission
        self._ends: list[tuple[int, int, _Window]] = []  # step, a number against ties, whose; stale if evicted
        self._num_steps = 0
        self._num_admitted = 0
        self._num_free = math.inf if profile.memory_blocks is None else profile.memory_blocks

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._running)

    def submit(self, upload: _Upload) -> None:
        """Queue a request: its first window. Raises ``AdmissionError``."""
        self._submit_next(upload, remaining=None)

    def _submit_next(self, upload: _Upload, *, remaining: Estimate | None) -> None:
        index = upload.num_submitted
        request = upload.progress.request
        job = Job(
            id=f"{upload.progress.id}-{index}",
            arrival_s=request.arrival_s,
            audio_s=request.audio_s,
            estimate=upload.estimate,
            language=request.language,
        )
        self._scheduler.submit(job, remaining=remaining)
        upload.num_submitted += 1
        self._waiting[job.id] = _Window(job, upload, remaining or upload.estimate, upload.tokens_of(index))

    def step(self, now_s: float, until_s: float) -> tuple[float, list[LatencyRecord]]:
        """Make one step, or several alike, none of which begins after ``until_s``.

        Returns the second at which it ends and the requests that end with it.
        """
        admitted = [] if self._make_room_to_grow(now_s) else self._admit(now_s)
        profile = self._profile
        step_s = profile.step_s + profile.running_step_s * len(self._running)
        step_s += profile.admission_s * len(admitted)
        num_alike = (
            1 if admitted or self._waiting or self._is_bounded else self._num_alike(until_s - now_s, step_s)
        )
        self._num_steps += num_alike
        now_s += num_alike * step_s
        for window in admitted:
            progress = window.upload.progress
            if progress.first_text_s is None:
                progress.first_text_s = now_s
        return now_s, list(self._take_ended(now_s))

    @property
    def _is_bounded(self) -> bool:
        return self._profile.memory_blocks is not None

    def _num_alike(self, within_s: float, step_s: float) -> int:
        """Steps until something changes: a window ends or ``within_s`` is over."""
        num_until_end = self._ends[0][0] - self._num_steps
        return num_until_end if within_s == math.inf else min(num_until_end, max(1, math.ceil(within_s / step_s)))

    def _admit(self, now_s: float) -> list[_Window]:
        admitted: list[_Window] = []
        while (
            self._waiting
            and len(admitted) < self._profile.max_windows_per_step
            and len(self._running) < self._profile.max_running
        ):
            window = self._next_window(now_s)
            if window is None:
                break
            admitted.append(window)
        return admitted

    def _next_window(self, now_s: float) -> _Window | None:
        """Take the scheduler's choice into the batch; ``None`` where memory has no room for it."""
        job = self._scheduler.next(now_s)
        assert job is not None
        window = self._waiting[job.id]
        num_blocks = self._profile.blocks(window.num_decoded + 1)
        if num_blocks > self._num_free and self._running:
            self._scheduler.yield_back(job.id, remaining=window.remaining, now_s=now_s)
            return None
        del self._waiting[job.id]
        self._running[job.id] = window
        self._num_free -= num_blocks
        window.num_blocks = num_blocks
        window.admitted_at = self._num_steps
        self._num_admitted += 1
        heapq.heappush(self._ends, (window.ends_at, self._num_admitted, window))
        window.upload.start_window(now_s)
        self._queue_rest_of(window.upload)
        return window

    def _queue_rest_of(self, upload: _Upload) -> None:
        done = upload.num_submitted
        if done < upload.progress.num_windows:
            left_s = upload.progress.request.audio_s - done * WINDOW_S
            self._submit_next(upload, remaining=self._estimator.estimate(left_s))

    def _make_room_to_grow(self, now_s: float) -> bool:
        """Give every running window the block that its next token may need. Whether somebody was evicted."""
        if not self._is_bounded:
            return False
        evicted = False
        for job_id, window in list(self._running.items()):
            if job_id not in self._running:
                continue
            wanted = self._profile.blocks(window.decoded_at(self._num_steps) + 1) - window.num_blocks
            while wanted > self._num_free and len(self._running) > 1 and job_id in self._running:
                self._evict(now_s)
                evicted = True
            if job_id in self._running:
                self._num_free -= wanted
                window.num_blocks += wanted
        return evicted

    def _evict(self, now_s: float) -> None:
        victim = self._scheduler.victim(now_s)
        assert victim is not None
        window = self._running.pop(victim.id)
        window.num_decoded = window.decoded_at(self._num_steps)
        self._num_free += window.num_blocks
        self._waiting[victim.id] = window
        window.upload.stop_window(now_s)
        window.upload.progress.num_preemptions += 1
        self._scheduler.yield_back(victim.id, remaining=self._rest(window), now_s=now_s)

    def _rest(self, window: _Window) -> Estimate:
        """What remains of a window that was evicted, and of those behind it: its tokens are kept."""
        tokens = max(1, window.remaining.estimated_output_tokens - window.num_decoded)
        windows = window.remaining.windows
        return Estimate(
            estimated_output_tokens=tokens,
            windows=windows,
            size_s=self._estimator.size_s(windows=windows, tokens=tokens),
        )

    def _take_ended(self, now_s: float) -> Iterator[LatencyRecord]:
        while self._ends and self._ends[0][0] <= self._num_steps:
            ends_at, _, window = heapq.heappop(self._ends)
            if self._running.get(window.job.id) is not window or window.ends_at != ends_at:
                continue  # evicted since
            del self._running[window.job.id]
            self._num_free += window.num_blocks
            self._scheduler.finish(window.job.id, now_s=now_s)
            upload = window.upload
            upload.stop_window(now_s)
            upload.num_ended += 1
            if upload.num_ended == upload.progress.num_windows:
                yield upload.progress.record(now_s)
