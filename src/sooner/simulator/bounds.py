"""What no order could beat, even one that knows the future: lower bounds of E2E for a trace on an engine.

A bound is the best of an easier problem, of which every schedule of the engine is a solution. There are two.

*The pooled machine.* The engine becomes one machine that may leave a job at any moment and go on with it later.
Of workers it has the speed of all together. Of an engine that batches, a step's seconds are shared out among the
windows in it: to each what it adds, and of ``step_s`` an equal part, either of what a full step admits or of what
may run at once, whichever makes more work. With one deadline D for the E2E of all, jobs are due in the order in
which they come, so that the most that can be on time is known exactly (Kise, Ibaraki and Mine 1978, "A Solvable
Case of the One-Machine Scheduling Problem with Ready and Due Times", https://doi.org/10.1287/opre.26.1.121; their
proof has a gap, closed in 2010, https://doi.org/10.1007/s10951-010-0210-0). The least mean is that of shortest
remaining time first (Schrage 1968, https://doi.org/10.1287/opre.16.3.687), the least maximum that of first come,
first served.

*The admissions*, where the engine batches: each takes at least its part of a step that admits as many as may be,
then a window decodes for steps of its own. Of a request only its last window is looked at, which is not admitted
before those in front of it have been; theirs are free for others. Each takes a slot of that length on a grid: the
most on time is a matching (Glover 1967, "Maximum matching in a convex bipartite graph",
https://doi.org/10.1002/nav.3800140304).

Either way a request that would take longer than D alone is late. The number that can be on time grows with D, so
the least D at which enough are is found by bisection; what is returned is a D at which they are not.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sooner.simulator.batching import tokens_of_windows
from sooner.simulator.profile import BatchingProfile, Profile, WorkersProfile
from sooner.simulator.workers import works_of
from sooner.workload.trace import TraceRequest

__all__ = ["LowerBounds", "lower_bounds", "most_matched", "most_on_time"]

Seconds = NDArray[np.float64]

_PRECISION = 1e-4  # of the bisection, relative; a bound is by so much lower than it could be
_SLACK_S = 1e-9  # what the rounding of sums may add to a time; it must not make a job late


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBounds:
    """No order gives lower figures of E2E, seconds; each for itself, and not all at once.

    Attributes:
        percentiles_s: by percent, as ``sooner.core.latency.percentile`` defines it.
        mean_s: of the mean.
        max_s: of the maximum.
    """

    percentiles_s: Mapping[float, float]
    mean_s: float
    max_s: float


def lower_bounds(
    profile: Profile,
    trace: Sequence[TraceRequest],
    *,
    percents: Sequence[float],
    seed: int = 0,
    among: Callable[[TraceRequest], bool] | None = None,
) -> LowerBounds:
    """What the E2E of a trace is at least, under any order, with or without preemption.

    O(n · jobs in a busy period) a step of bisection, of which there are about fifteen a percentile: a tenth of a
    second for 1,500 requests.

    Args:
        profile: the engine.
        trace: what arrives, in order of arrival.
        percents: the percentiles that are wanted, each in [0, 100].
        seed: of the deviations of a window's time, as in ``sooner.simulator.simulate.simulate``.
        among: of which requests the figures are; the others then take no time at all. ``None``: of all.

    Raises:
        ValueError: there is no such request, or a percent is outside [0, 100].
    """
    if any(not 0 <= percent <= 100 for percent in percents):
        raise ValueError(f"percents must lie in [0, 100], not {', '.join(f'{one:g}' for one in percents)}")
    if isinstance(profile, WorkersProfile):
        jobs = _jobs_of_workers(profile, trace, seed)
    else:
        jobs = _jobs_of_batching(profile, trace)
    if among is not None:
        jobs = jobs.where(np.array([among(request) for request in trace], dtype=np.bool_))
    if not len(jobs.alone_s):
        raise ValueError("no request, so no figure")
    alone_s = np.sort(jobs.alone_s)
    ranks = {percent: math.floor((len(alone_s) - 1) * percent / 100) for percent in percents}
    ends_s = _ends_in_order(jobs.release_s, jobs.work_s)
    return LowerBounds(
        # Between two ranks a percentile is at least the value at the lower one.
        percentiles_s={
            percent: _least_deadline_s(jobs, rank + 1, float(alone_s[rank])) for percent, rank in ranks.items()
        },
        mean_s=jobs.least_mean_s(),
        max_s=_least_deadline_s(jobs, len(alone_s), float(max(alone_s[-1], (ends_s - jobs.arrival_s).max()))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Admissions:
    """The last windows of the requests, in the same order.

    Attributes:
        slot_s: seconds that an admission takes at least.
        release_s: before this none begins.
        own_s: seconds from its end to the end of the request, at least.
    """

    slot_s: float
    release_s: Seconds
    own_s: Seconds

    def most_within(self, due_s: Seconds, able: NDArray[np.bool_]) -> int:
        """The most of those that are ``able`` which can end by ``due_s``."""
        first = np.floor((self.release_s + _SLACK_S) / self.slot_s)
        last = np.floor((due_s - self.own_s + _SLACK_S) / self.slot_s) - 1
        return most_matched(first[able].astype(np.int64).tolist(), last[able].astype(np.int64).tolist())

    def least_mean_end_s(self) -> float:
        """Of the requests. All admissions take equally long, so in which order they are served is all one."""
        slots_s = np.full(len(self.release_s), self.slot_s)
        return float(_ends_in_order(np.sort(self.release_s), slots_s).mean() + self.own_s.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """The requests as the easier problems see them, in order of arrival.

    Attributes:
        arrival_s: where E2E begins.
        release_s: before this nothing is done for it; in rising order.
        work_s: seconds on the pooled machine.
        alone_s: least E2E on an idle engine.
        admissions: ``None`` for workers.
    """

    arrival_s: Seconds
    release_s: Seconds
    work_s: Seconds
    alone_s: Seconds
    admissions: _Admissions | None = None

    def where(self, chosen: NDArray[np.bool_]) -> _Jobs:
        """Those of them."""
        admissions = self.admissions
        if admissions is not None:
            admissions = replace(
                admissions, release_s=admissions.release_s[chosen], own_s=admissions.own_s[chosen]
            )
        return _Jobs(
            arrival_s=self.arrival_s[chosen],
            release_s=self.release_s[chosen],
            work_s=self.work_s[chosen],
            alone_s=self.alone_s[chosen],
            admissions=admissions,
        )

    def most_within(self, deadline_s: float) -> int:
        """The most requests whose E2E can be ``deadline_s`` or less."""
        able = self.alone_s <= deadline_s + _SLACK_S
        due_s = self.arrival_s + deadline_s
        num = most_on_time(self.release_s[able].tolist(), self.work_s[able].tolist(), due_s[able].tolist())
        return num if self.admissions is None else min(num, self.admissions.most_within(due_s, able))

    def least_mean_s(self) -> float:
        """The least mean E2E."""
        ends_s = [_mean_end_by_remaining(self.release_s.tolist(), self.work_s.tolist())]
        if self.admissions is not None:
            ends_s.append(self.admissions.least_mean_end_s())
        return max(float(self.alone_s.mean()), max(ends_s) - float(self.arrival_s.mean()))


def _jobs_of_workers(profile: WorkersProfile, trace: Sequence[TraceRequest], seed: int) -> _Jobs:
    works = list(works_of(trace, profile, seed=seed))
    arrival_s = np.array([request.arrival_s for request in trace])
    release_s = np.array([work.job.arrival_s for work in works])
    service_s = np.array([math.fsum(work.windows_s) for work in works])
    return _Jobs(
        arrival_s=arrival_s,
        release_s=release_s,
        work_s=service_s / profile.num_workers,
        alone_s=release_s - arrival_s + service_s,
    )


def _jobs_of_batching(profile: BatchingProfile, trace: Sequence[TraceRequest]) -> _Jobs:
    """A window of n tokens is in n + 1 steps or more, the first of which admits it; eviction only adds to it."""
    estimator = profile.estimator()
    shares = [tokens_of_windows(request, profile, estimator)[1] for request in trace]
    num_admitted = min(profile.max_windows_per_step, profile.max_running)
    num_windows = np.array([len(tokens) for tokens in shares])
    steps_in = np.array([sum(tokens) + len(tokens) for tokens in shares])  # of all its windows together
    own_steps = np.array([tokens[-1] for tokens in shares])
    num_steps = np.array(
        [max(number // num_admitted + 1 + n for number, n in enumerate(tokens)) for tokens in shares]
    )
    arrival_s = np.array([request.arrival_s for request in trace])
    added_s = profile.admission_s * num_windows + profile.running_step_s * steps_in
    parts_s = (profile.step_s / num_admitted * num_windows, profile.step_s / profile.max_running * steps_in)
    slot_s = profile.step_s / num_admitted + profile.running_step_s + profile.admission_s
    return _Jobs(
        arrival_s=arrival_s,
        release_s=arrival_s,
        work_s=added_s + max(parts_s, key=lambda part_s: float(part_s.sum())),
        alone_s=profile.step_s * num_steps + added_s,
        admissions=_Admissions(
            slot_s=slot_s,
            release_s=arrival_s + slot_s * (num_windows - 1),
            own_s=(profile.step_s + profile.running_step_s) * own_steps,
        ),
    )


def _least_deadline_s(jobs: _Jobs, wanted: int, least_s: float) -> float:
    """A deadline that fewer than ``wanted`` jobs can keep, or ``least_s``, of which as much is known."""
    if jobs.most_within(least_s) >= wanted:
        return least_s
    low_s = high_s = least_s
    while jobs.most_within(high_s := 2 * high_s) < wanted:
        low_s = high_s
    while high_s - low_s > _PRECISION * low_s:
        middle_s = (low_s + high_s) / 2
        if jobs.most_within(middle_s) < wanted:
            low_s = middle_s
        else:
            high_s = middle_s
    return low_s


def most_on_time(release_s: Sequence[float], work_s: Sequence[float], due_s: Sequence[float]) -> int:
    """The most jobs that one machine can end by their due times, whether or not it may put jobs off.

    Jobs are taken in, and where the last one is late, the one goes without which the rest ends earliest. The
    end of what is kept is the maximum over its jobs of release + the work from there on. O(n · jobs in a busy
    period).

    Args:
        release_s: when each can begin, in rising order.
        work_s: how long each takes.
        due_s: when each must have ended, in rising order.

    Source: Kise, Ibaraki and Mine 1978, https://doi.org/10.1287/opre.26.1.121.
    """
    block = _Block(len(release_s))
    num_before = 0
    for begin_s, length_s, end_s in zip(release_s, work_s, due_s, strict=True):
        if begin_s >= block.end_s:  # the machine is idle before: what has been kept delays nobody any more
            num_before += block.num
            block.clear()
        block.append(begin_s, length_s)
        if block.end_s > end_s + _SLACK_S:
            block.drop_one()
    return num_before + block.num


class _Block:
    """Jobs that are kept, one behind the other. O(1) to append, O(jobs) to drop.

    ``_begins_s`` has each job's release less the work in front of it: their maximum and all the work is the end.
    """

    def __init__(self, most: int) -> None:
        self._begins_s = np.empty(most)
        self._works_s = np.empty(most)
        self.clear()

    def clear(self) -> None:
        self.num = 0
        self._total_s = 0.0
        self._latest_s = -math.inf

    @property
    def end_s(self) -> float:
        """When all of it is done; before all time where there is nothing."""
        return self._latest_s + self._total_s

    def append(self, release_s: float, work_s: float) -> None:
        begin_s = release_s - self._total_s
        self._begins_s[self.num] = begin_s
        self._works_s[self.num] = work_s
        self._latest_s = max(self._latest_s, begin_s)
        self._total_s += work_s
        self.num += 1

    def drop_one(self) -> None:
        """Let the job go without which the others end earliest."""
        begins_s, works_s = self._begins_s[: self.num], self._works_s[: self.num]
        before_s, behind_s = np.full((2, self.num), -np.inf)
        np.maximum.accumulate(begins_s[:-1], out=before_s[1:])
        np.maximum.accumulate(begins_s[:0:-1], out=behind_s[-2::-1])
        ends_s = np.maximum(before_s - works_s, behind_s)
        dropped = int(ends_s.argmin())
        work_s = float(works_s[dropped])
        begins_s[dropped:-1] = begins_s[dropped + 1 :] + work_s
        works_s[dropped:-1] = works_s[dropped + 1 :]
        self._latest_s = float(ends_s[dropped]) + work_s
        self._total_s -= work_s
        self.num -= 1


def most_matched(first: Sequence[int], last: Sequence[int]) -> int:
    """The most jobs that each get a slot of their own, from ``first`` to ``last`` of each. O(n log n).

    Each slot goes to the job that may wait least (Glover 1967, https://doi.org/10.1002/nav.3800140304).
    """
    upcoming = sorted(zip(first, last, strict=True), reverse=True)
    waiting: list[int] = []
    num = slot = 0
    while upcoming or waiting:
        if not waiting:
            slot = max(slot, upcoming[-1][0])
        while upcoming and upcoming[-1][0] <= slot:
            heapq.heappush(waiting, upcoming.pop()[1])
        if heapq.heappop(waiting) >= slot:
            num += 1
            slot += 1
    return num


def _ends_in_order(release_s: Seconds, work_s: Seconds) -> Seconds:
    """When each job ends on one machine that serves them in this order."""
    done_s = np.cumsum(work_s)
    return np.maximum.accumulate(release_s - (done_s - work_s)) + done_s


def _mean_end_by_remaining(release_s: Sequence[float], work_s: Sequence[float]) -> float:
    """The mean end on one machine that always serves what has least left. O(n log n)."""
    left_s: list[float] = []
    now_s = total_s = 0.0
    for begin_s, length_s in zip(release_s, work_s, strict=True):
        while left_s and now_s + left_s[0] <= begin_s:
            now_s += heapq.heappop(left_s)
            total_s += now_s
        if left_s:
            heapq.heapreplace(left_s, left_s[0] - (begin_s - now_s))
        now_s = begin_s
        heapq.heappush(left_s, length_s)
    while left_s:
        now_s += heapq.heappop(left_s)
        total_s += now_s
    return total_s / len(release_s)
