"""Continuous batching as in vLLM, step by step.

A step admits waiting windows, gives every running window one token and takes
``step_s + running_step_s · running + admission_s · admitted`` seconds. A window runs for one step per token of its
text and one for the token that ends it; its encoding and prefill are in the step that admits it, which gives the
first token. Arrivals within a step are seen at its end.

A recording of several windows is what the vLLM plugin makes of it: one place in the queue, with the size of the
whole recording and what is left of it, from which its windows are taken in order; they may run at the same time.
vLLM does not skip silence, so a recording counts with all its length, however little of it is speech.

Where memory is bounded, a running window that needs another block when there is none evicts whom the policy
names. What is evicted waits again, keeps its tokens, and is encoded anew; a step that evicts admits nobody.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sooner.core.estimator import WINDOW_S, Estimator
from sooner.core.guard import Guard
from sooner.core.job import Estimate, Job, Ticket
from sooner.core.latency import LatencyRecord
from sooner.core.policy import Policy
from sooner.core.scheduler import Limits, Scheduler
from sooner.errors import AdmissionError
from sooner.evidence.run_file import Failure
from sooner.simulator.profile import BatchingProfile
from sooner.simulator.work import Progress
from sooner.workload.trace import TraceRequest

__all__ = ["serve_by_batching", "tokens_of_windows"]


def serve_by_batching(
    trace: Sequence[TraceRequest],
    policy: Policy,
    profile: BatchingProfile,
    *,
    limits: Limits | None = None,
    guard: Guard | None = None,
    size_factors: Sequence[float] | None = None,
) -> Iterator[LatencyRecord | Failure]:
    """Serve a trace, which comes in order of arrival, and yield each request as it ends.

    ``size_factors``, of which see ``sooner.simulator.simulate.simulate``, scale n̂ here: an encoder pass is known.

    Steps in which nobody waits are taken together up to the next arrival or end. O(log running) an admission
    beside the scheduler; with bounded memory O(running) a step.
    """
    engine = _BatchingEngine(policy, profile, limits, guard)
    estimator = profile.estimator()
    factors = [1.0] * len(trace) if size_factors is None else size_factors
    uploads = (
        _upload(f"{number}", request, profile, estimator, factors[number]) for number, request in enumerate(trace)
    )
    upcoming = next(uploads, None)
    now_s = 0.0
    while upcoming is not None or engine.is_busy:
        if upcoming is not None and not engine.is_busy:
            now_s = max(now_s, upcoming.request.arrival_s)
        while upcoming is not None and upcoming.request.arrival_s <= now_s:
            try:
                engine.submit(upcoming)
            except AdmissionError as error:
                yield upcoming.progress.refused(error, now_s)
            upcoming = next(uploads, None)
        if engine.is_busy:
            until_s = math.inf if upcoming is None else upcoming.request.arrival_s
            now_s, ended = engine.step(now_s, until_s)
            yield from ended


@dataclass(slots=True)
class _Upload:
    """A request, and which of its windows wait."""

    progress: Progress
    predicted_tokens: int
    waiting: list[_Window] = field(default_factory=list)  # by number; the first one stands in the queue
    sequence: int | None = None
    num_ended: int = 0
    num_running: int = 0
    running_since_s: float = 0.0

    @property
    def request(self) -> TraceRequest:
        return self.progress.request

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
    """One window. Its tokens are counted by the steps it has been in.

    Attributes:
        id: the job's id; one job stands for the upload, with its first waiting window.
        upload: what it is a part of.
        number: 0 for the first.
        num_tokens: tokens of its text.
        predicted_tokens: n̂ of it.
        later_tokens: n̂ of all windows behind it.
        num_decoded: tokens it had when it was admitted last.
        admitted_at: steps the engine had made by then.
        num_blocks: blocks of memory it holds.
    """

    id: str
    upload: _Upload
    number: int
    num_tokens: int
    predicted_tokens: int
    later_tokens: int
    num_decoded: int = 0
    admitted_at: int = 0
    num_blocks: int = 0

    @property
    def ends_at(self) -> int:
        return self.admitted_at + self.num_tokens - self.num_decoded + 1

    def decoded_at(self, num_steps: int) -> int:
        return self.num_decoded + num_steps - self.admitted_at

    def estimates(self, estimator: Estimator, num_decoded: int) -> tuple[Estimate, Estimate]:
        """Of the whole upload, and of this window with all behind it; tokens it has are off both."""
        decoded = min(num_decoded, self.predicted_tokens - 1)
        windows = self.upload.progress.num_windows
        own_s = estimator.own_token_s * (self.predicted_tokens - decoded)
        rest = self.predicted_tokens + self.later_tokens - decoded
        return (
            _estimate(estimator, windows, self.upload.predicted_tokens - decoded, own_s),
            _estimate(estimator, windows - self.number, rest, own_s),
        )

    def size_s(self, estimator: Estimator) -> float:
        """Predicted service of this window alone, seconds; tokens it has are off."""
        decoded = min(self.num_decoded, self.predicted_tokens - 1)
        return estimator.size_s(windows=1, tokens=self.predicted_tokens - decoded)


def _estimate(estimator: Estimator, windows: int, tokens: int, own_s: float = 0.0) -> Estimate:
    return Estimate(
        estimated_output_tokens=tokens,
        windows=windows,
        size_s=estimator.size_s(windows=windows, tokens=tokens),
        own_s=own_s,
    )


def _upload(
    name: str, request: TraceRequest, profile: BatchingProfile, estimator: Estimator, size_factor: float
) -> _Upload:
    """The upload with its windows: true tokens in even shares, predicted ones by each window's length."""
    right, tokens = tokens_of_windows(request, profile, estimator)
    num = len(tokens)
    alone_s = profile.alone_s(_estimate(estimator, num, sum(right)))
    predicted = [max(1, round(n * size_factor)) for n in right]
    later = sum(predicted)
    upload = _Upload(Progress(name, request, alone_s, num, sum(tokens)), later)
    for number in range(num):
        later -= predicted[number]
        upload.waiting.append(
            _Window(f"{name}-{number}", upload, number, tokens[number], predicted[number], later)
        )
    return upload


def tokens_of_windows(
    request: TraceRequest, profile: BatchingProfile, estimator: Estimator
) -> tuple[list[int], list[int]]:
    """Tokens of each window of a recording: predicted by its length, and true, which are shared out evenly."""
    num = profile.num_windows(request.audio_s)
    lengths_s = (min(WINDOW_S, request.audio_s - WINDOW_S * number) for number in range(num))
    predicted = [estimator.estimate(length_s).estimated_output_tokens for length_s in lengths_s]
    total = sum(predicted) if request.num_tokens is None else request.num_tokens
    return predicted, [total * (number + 1) // num - total * number // num for number in range(num)]


class _BatchingEngine:
    """What waits, what runs, and the steps made so far."""

    def __init__(
        self, policy: Policy, profile: BatchingProfile, limits: Limits | None, guard: Guard | None
    ) -> None:
        self._policy = policy
        self._scheduler = Scheduler(policy, num_workers=1, limits=limits, guard=guard)
        self._profile = profile
        self._estimator = profile.estimator()
        self._queued: dict[str, _Window] = {}  # the first waiting window of each upload
        self._running: dict[str, _Window] = {}  # in order of admission
        self._ends: list[tuple[int, int, _Window]] = []  # step, a number against ties, whose; stale if evicted
        self._num_steps = 0
        self._num_admitted = 0
        self._is_bounded = profile.memory_blocks is not None
        self._num_free = math.inf if profile.memory_blocks is None else profile.memory_blocks

    @property
    def is_busy(self) -> bool:
        return bool(self._queued or self._running)

    def submit(self, upload: _Upload) -> None:
        """Queue a request. Raises ``AdmissionError``."""
        self._queue(upload, is_new=True)

    def _queue(self, upload: _Upload, *, is_new: bool = False) -> None:
        """Let the upload stand in the queue with the first window that waits."""
        window = upload.waiting[0]
        whole, rest = window.estimates(self._estimator, window.num_decoded)
        request = upload.request
        job = Job(
            id=window.id,
            arrival_s=request.arrival_s,
            audio_s=request.audio_s,
            estimate=whole,
            language=request.language,
            client=request.client,
        )
        upload.sequence = self._scheduler.submit(
            job,
            remaining=None if is_new else rest,
            sequence=upload.sequence,
            window_s=window.size_s(self._estimator),
        )
        self._queued[window.id] = window

    def step(self, now_s: float, until_s: float) -> tuple[float, list[LatencyRecord]]:
        """Make one step, or several alike, none of which begins after ``until_s``.

        Returns the second at which it ends and the requests that end with it.
        """
        admitted = [] if self._make_room_to_grow(now_s) else self._admit(now_s)
        profile = self._profile
        step_s = profile.step_s + profile.running_step_s * len(self._running)
        step_s += profile.admission_s * len(admitted)
        num_alike = 1 if admitted or self._queued or self._is_bounded else self._num_alike(until_s - now_s, step_s)
        self._num_steps += num_alike
        now_s += num_alike * step_s
        for window in admitted:
            progress = window.upload.progress
            if progress.first_text_s is None:
                progress.first_text_s = now_s
        return now_s, list(self._take_ended(now_s))

    def _num_alike(self, within_s: float, step_s: float) -> int:
        """Steps until something changes: a window ends or ``within_s`` is over."""
        num_until_end = self._ends[0][0] - self._num_steps
        return num_until_end if within_s == math.inf else min(num_until_end, max(1, math.ceil(within_s / step_s)))

    def _admit(self, now_s: float) -> list[_Window]:
        """Take the scheduler's choices into the batch, as far as budget, slots and memory allow."""
        admitted: list[_Window] = []
        while (
            len(admitted) < self._profile.max_windows_per_step and len(self._running) < self._profile.max_running
        ):
            job = self._scheduler.peek(now_s)
            if job is None:
                break
            window = self._queued[job.id]
            num_blocks = self._profile.blocks(window.num_decoded + 1) if self._is_bounded else 0
            if num_blocks > self._num_free and self._running:
                break
            self._scheduler.next(now_s)
            self._start(window, num_blocks, now_s)
            admitted.append(window)
        return admitted

    def _start(self, window: _Window, num_blocks: int, now_s: float) -> None:
        upload = window.upload
        del self._queued[window.id], upload.waiting[0]
        self._running[window.id] = window
        self._num_free -= num_blocks
        window.num_blocks = num_blocks
        window.admitted_at = self._num_steps
        self._num_admitted += 1
        heapq.heappush(self._ends, (window.ends_at, self._num_admitted, window))
        upload.start_window(now_s)
        if upload.waiting:
            self._queue(upload)

    def _make_room_to_grow(self, now_s: float) -> bool:
        """Give every running window the block that its next token may need. Whether somebody was evicted."""
        if not self._is_bounded:
            return False
        evicted = False
        for window in list(self._running.values()):
            wanted = self._profile.blocks(window.decoded_at(self._num_steps) + 1) - window.num_blocks
            while wanted > self._num_free and len(self._running) > 1 and window.id in self._running:
                self._evict(now_s)
                evicted = True
            if window.id in self._running:
                self._num_free -= wanted
                window.num_blocks += wanted
        return evicted

    def _evict(self, now_s: float) -> None:
        window = self._victim(now_s)
        upload = window.upload
        del self._running[window.id]
        self._scheduler.cancel(window.id)
        window.num_decoded = window.decoded_at(self._num_steps)
        self._num_free += window.num_blocks
        upload.stop_window(now_s)
        upload.progress.num_preemptions += 1
        if upload.waiting:
            self._scheduler.cancel(upload.waiting[0].id)
            del self._queued[upload.waiting[0].id]
        else:
            upload.sequence = None  # it had left the queue, and comes as the last of those with its arrival
        insort(upload.waiting, window, key=lambda one: one.number)
        self._queue(upload)

    def _victim(self, now_s: float) -> _Window:
        """Whom the policy puts off, of what runs: an encoder pass and the tokens to come are what remains."""
        running = list(self._running.values())
        tickets = []
        for index, window in enumerate(running):
            whole, rest = window.estimates(self._estimator, window.decoded_at(self._num_steps))
            tickets.append(
                Ticket(
                    id=window.id,
                    arrival_s=window.upload.request.arrival_s,
                    size_s=whole.size_s,
                    remaining_s=rest.size_s,
                    sequence=index,
                )
            )
        victim = self._policy.victim(tickets, now_s)
        assert victim is not None
        return running[victim.sequence]

    def _take_ended(self, now_s: float) -> Iterator[LatencyRecord]:
        while self._ends and self._ends[0][0] <= self._num_steps:
            ends_at, _, window = heapq.heappop(self._ends)
            if self._running.get(window.id) is not window or window.ends_at != ends_at:
                continue  # evicted since
            del self._running[window.id]
            self._num_free += window.num_blocks
            self._scheduler.finish(window.id, now_s=now_s)
            upload = window.upload
            upload.stop_window(now_s)
            upload.num_ended += 1
            if upload.num_ended == upload.progress.num_windows:
                yield upload.progress.record(now_s)
