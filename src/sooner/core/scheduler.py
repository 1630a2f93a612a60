"""Who is served next: one state machine for every driver.

A job is submitted (or refused), waits, is handed to a worker by ``next``, and after each window either
comes back through ``yield_back`` with what remains, or is finished. It can be cancelled at any moment.
The driver owns the workers and the clock; the scheduler owns the order.

Preemption needs no mechanism of its own. A job that has done a window goes back into the queue and the
freed worker asks ``next``: where the job still ranks first it gets the worker again. Without preemption a
returning job goes to a resume list that ``next`` serves before the queue.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from sooner.core.adaptive import Switch
from sooner.core.guard import Guard
from sooner.core.job import Estimate, Job, Ticket
from sooner.core.policy import Policy
from sooner.core.waiting_line import WaitingLine
from sooner.errors import (
    AdmissionError,
    AudioTooLongError,
    BacklogTooLargeError,
    DuplicateJobError,
    QueueFullError,
    UnknownJobError,
)

__all__ = ["Limits", "QueuedJob", "Scheduler", "SchedulerStatistics"]

_OUTRUN_FROM = 2.0  # times its predicted time at which a job counts as mispredicted
_MAX_OUTRUN = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is refused at the door.

    Attributes:
        max_waiting: most jobs that may wait; running ones do not count.
        max_audio_s: longest audio of one job, seconds.
        max_backlog_s: largest predicted work waiting per worker at which a job is still admitted, seconds;
            ``None`` for no such limit.
    """

    max_waiting: int = 1000
    max_audio_s: float = 4 * 3600.0
    max_backlog_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """One job's place in the forecast.

    Attributes:
        job: the job.
        running: whether a worker has it now.
        position: 0 for a running job, then 1, 2, … in the order of service.
        wait_s: seconds since arrival that were not service.
        remaining_s: predicted service still to come, seconds.
        predicted_start_s: seconds from now until a worker takes the job up, if nothing else arrives;
            0 for a running job.
        num_preemptions: times it was put off after it had started.
    """

    job: Job
    running: bool
    position: int
    wait_s: float
    remaining_s: float
    predicted_start_s: float
    num_preemptions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStatistics:
    """Counts since the scheduler was made, and the load at this moment.

    Attributes:
        policy: name of the policy in force.
        order: name of the order in force: the policy's, or the one that ``adaptive`` has chosen.
        preempt: whether jobs give way at window boundaries.
        num_workers: workers the backlog is divided by.
        num_waiting: jobs in the queue, preempted ones included.
        num_running: jobs on a worker.
        backlog_s: remaining service of all waiting jobs per worker, seconds.
        num_submitted: jobs admitted.
        num_refused: jobs refused.
        num_finished: jobs finished.
        num_cancelled: jobs cancelled, waiting or running.
        num_preemptions: times a worker took up another job while a started one went on waiting.
        num_switches: changes of order that ``adaptive`` made.
    """

    policy: str
    order: str
    preempt: bool
    num_workers: int
    num_waiting: int
    num_running: int
    backlog_s: float
    num_submitted: int
    num_refused: int
    num_finished: int
    num_cancelled: int
    num_preemptions: int
    num_switches: int


@dataclass(slots=True)
class _Record:
    """What the scheduler keeps of a job beside its ticket.

    Attributes:
        started_s: when a worker took it up; ``None`` while it waits.
        lost_s: seconds of service that it had received when it was last begun anew.
    """

    job: Job
    ticket: Ticket
    started_s: float | None = None
    lost_s: float = 0.0
    num_preemptions: int = 0


class Scheduler:
    """Admits jobs, orders them by a policy and follows them to their end. One driver owns it; not thread-safe.

    Args:
        policy: the order.
        num_workers: workers that serve the queue, at least 1; used for the backlog and the forecast.
        limits: what to refuse.
        preempt: whether a job that has done a window competes with those that wait; ``None``: as the
            policy has it. Switching policy later keeps an explicit choice.
        guard: bounds how long a job waits whatever the policy; ``None`` for none.
        max_wait_s: seconds without service after which a job is taken next, before policy, guard, clients' shares
            and classes of priority; ``None`` for no such limit. See ``sooner.core.max_wait``.

    Every operation is O(log n) in the waiting jobs, plus one step per distinct waiting size under hrrn.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        num_workers: int,
        limits: Limits | None = None,
        preempt: bool | None = None,
        guard: Guard | None = None,
        max_wait_s: float | None = None,
    ) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, not {num_workers}")
        self._preempt = preempt
        self._num_workers = num_workers
        self._limits = limits or Limits()
        self._line = WaitingLine(policy, num_workers=num_workers, guard=guard, max_wait_s=max_wait_s)
        self._resume: deque[str] = deque()
        self._records: dict[str, _Record] = {}
        self._running: dict[str, _Record] = {}
        self._returned: str | None = None
        self._num_submitted = 0
        self._num_refused = 0
        self._num_finished = 0
        self._num_cancelled = 0
        self._num_preemptions = 0

    @property
    def preempts(self) -> bool:
        """Whether jobs give way at window boundaries under the policy in force."""
        return self._line.policy.preemptive if self._preempt is None else self._preempt

    @property
    def num_waiting(self) -> int:
        """Jobs that wait, preempted ones included."""
        return len(self._records) - len(self._running)

    @property
    def backlog_s(self) -> float:
        """Predicted service of all waiting jobs, per worker, seconds."""
        return self._waiting_work_s / self._num_workers

    @property
    def retry_after_s(self) -> float:
        """Seconds after which what waits now is predicted to be served: when to try again."""
        return max(1.0, self.backlog_s)

    @property
    def _waiting_work_s(self) -> float:
        resuming_s = sum(
            self._records[job_id].ticket.remaining_s for job_id in self._resume
        )  # at most one a worker
        return self._line.traffic.waiting_s + resuming_s

    @property
    def load(self) -> float | None:
        """ρ as measured: predicted service that arrives in a second over what is served when all are busy.

        ``None`` before the second arrival.
        """
        return self._line.traffic.load

    def is_running(self, job_id: str) -> bool:
        """Whether a worker has this job now."""
        return job_id in self._running

    def num_preemptions(self, job_id: str) -> int:
        """Times that a waiting or running job was put off after it had started; 0 for an unknown one."""
        record = self._records.get(job_id)
        return 0 if record is None else record.num_preemptions

    def submit(
        self,
        job: Job,
        *,
        remaining: Estimate | None = None,
        sequence: int | None = None,
        window_s: float | None = None,
    ) -> int:
        """Admit a job and return its admission number.

        Args:
            job: the job.
            remaining: what is left of it, where a part is served already: that part was admitted, so no limit
                refuses the rest. ``None``: all of it.
            sequence: the admission number it had then, which it keeps. ``None``: the next one.
            window_s: predicted service until it can next be put off, seconds. ``None``: a mean window, or all of
                it where jobs do not give way.

        Raises:
            AudioTooLongError, QueueFullError, BacklogTooLargeError: refused; nothing changed.
            DuplicateJobError: the id is waiting or running already.
        """
        if job.id in self._records:
            raise DuplicateJobError(job.id)
        if remaining is None:
            self._refuse_over_limits(job)
        self._num_submitted += 1
        sequence = self._num_submitted if sequence is None else sequence
        ticket = Ticket(
            id=job.id,
            arrival_s=job.arrival_s,
            size_s=job.size_s,
            remaining_s=job.size_s if remaining is None else remaining.size_s,
            sequence=sequence,
            window_s=self._window_s(job) if window_s is None else window_s,
            own_s=job.estimate.own_s,
            client=job.client,
            priority=job.priority,
        )
        self._records[job.id] = _Record(job, ticket)
        self._line.push(ticket)
        return sequence

    def _window_s(self, job: Job) -> float:
        """Predicted service until the job can next be put off, seconds."""
        return job.estimate.size_s / job.estimate.windows if self.preempts else math.inf

    def check_room(self) -> None:
        """Raise what ``submit`` would raise for any job now: a driver can refuse before it receives one.

        Counts as a refusal.
        """
        self._refuse(self._reason_for_any())

    def _refuse_over_limits(self, job: Job) -> None:
        if job.audio_s > self._limits.max_audio_s:
            self._refuse(AudioTooLongError(limit_s=self._limits.max_audio_s, actual_s=job.audio_s))
        self._refuse(self._reason_for_any())

    def _refuse(self, reason: AdmissionError | None) -> None:
        if reason is not None:
            self._num_refused += 1
            raise reason

    def _reason_for_any(self) -> AdmissionError | None:
        """Why no job at all can be admitted now; ``None`` where there is room."""
        limits = self._limits
        if self.num_waiting >= limits.max_waiting:
            return QueueFullError(
                limit=limits.max_waiting, actual=self.num_waiting, retry_after_s=self.retry_after_s
            )
        if limits.max_backlog_s is not None and self.backlog_s > limits.max_backlog_s:
            return BacklogTooLargeError(limit_s=limits.max_backlog_s, actual_s=self.backlog_s)
        return None

    def peek(self, now_s: float) -> Job | None:
        """The job that ``next`` would hand out at ``now_s``, left where it is; ``None`` where nothing waits."""
        if self._resume:
            return self._records[self._resume[0]].job
        ticket = self._line.peek(now_s)
        return None if ticket is None else self._records[ticket.id].job

    def next(self, now_s: float) -> Job | None:
        """Hand the job to serve now to a worker; ``None`` where nothing waits."""
        if self._resume:
            job_id = self._resume.popleft()
        else:
            ticket = self._line.pop(now_s)
            if ticket is None:
                return None
            job_id = ticket.id
            self._records[job_id].ticket = ticket  # with what a guard has left of its promise
            self._count_preemption(job_id)
        record = self._records[job_id]
        record.started_s = now_s
        self._running[job_id] = record
        return record.job

    def _count_preemption(self, chosen_id: str) -> None:
        if self._returned is not None and self._returned != chosen_id:
            self._num_preemptions += 1
            self._records[self._returned].num_preemptions += 1
        self._returned = None

    def yield_back(self, job_id: str, *, remaining: Estimate, now_s: float) -> None:
        """Take back a running job after a window, with what remains of it. Its arrival does not change.

        A job that has taken more than twice its predicted time so far is taken to go on like that: what remains is
        scaled up, so that one whose size was far too small does not keep the priority of a short one.

        Raises:
            UnknownJobError: no such job is running.
        """
        record = self._leave_worker(job_id, now_s)
        self._put_back(record, remaining.size_s * self._outrun(record, remaining))

    def begin_anew(self, job_id: str, *, now_s: float) -> None:
        """Put a job, waiting or running, back to where all of it remains: what was done of it is lost.

        A running one is taken back from its worker. Service received stays received; only whether a job has taken
        longer than predicted is counted from here.

        Raises:
            UnknownJobError: no such job is waiting or running.
        """
        record = self._records.get(job_id)
        if record is None:
            raise UnknownJobError(job_id, state="waiting or running")
        if job_id in self._running:
            self._put_back(self._leave_worker(job_id, now_s), record.job.size_s)
        elif job_id in self._line:
            record.ticket = self._with_remaining(self._line.remove(job_id), record.job.size_s)
            self._line.push(record.ticket)
        else:
            record.ticket = self._with_remaining(record.ticket, record.job.size_s)
        record.lost_s = record.ticket.served_s

    def _put_back(self, record: _Record, remaining_s: float) -> None:
        """Let a job that has left its worker wait again."""
        record.ticket = self._with_remaining(record.ticket, remaining_s)
        if self.preempts:
            self._returned = record.job.id
            self._line.push(record.ticket)
        else:
            self._resume.append(record.job.id)

    def _with_remaining(self, ticket: Ticket, remaining_s: float) -> Ticket:
        window_s = self._window_s(self._records[ticket.id].job)
        return replace(ticket, remaining_s=remaining_s, window_s=window_s)

    def _outrun(self, record: _Record, remaining: Estimate) -> float:
        """How many times longer than predicted the job has taken since it was begun; 1 below twice."""
        predicted_s = (record.job.size_s - remaining.size_s) / self._line.traffic.speed
        served_s = record.ticket.served_s - record.lost_s
        if predicted_s <= 0 or served_s < _OUTRUN_FROM * predicted_s:
            return 1.0
        return min(_MAX_OUTRUN, served_s / predicted_s)

    def _leave_worker(self, job_id: str, now_s: float) -> _Record:
        record = self._running.pop(job_id, None)
        if record is None or record.started_s is None:
            raise UnknownJobError(job_id, state="running")
        record.ticket = replace(record.ticket, served_s=record.ticket.served_s + now_s - record.started_s)
        record.started_s = None
        return record

    def finish(self, job_id: str, *, now_s: float) -> float:
        """End a running job. Returns the seconds of service it received in all.

        Raises:
            UnknownJobError: no such job is running.
        """
        record = self._leave_worker(job_id, now_s)
        del self._records[job_id]
        self._num_finished += 1
        return record.ticket.served_s

    def cancel(self, job_id: str) -> bool:
        """Forget a job, waiting or running. Returns whether there was one.

        The driver must not report a cancelled job again: its worker simply asks for the ``next``.
        """
        record = self._records.pop(job_id, None)
        if record is None:
            return False
        self._num_cancelled += 1
        if self._returned == job_id:
            self._returned = None
        if self._running.pop(job_id, None) is not None:
            return True
        if job_id in self._line:
            self._line.remove(job_id)
        else:
            self._resume.remove(job_id)
        return True

    def switch_policy(self, policy: Policy) -> None:
        """Order everything that waits by another policy from now on. O(n log n).

        Arrival, sequence, remaining size and service received stay as they are, so nobody gains or loses a
        place but by the new policy's own order, and running jobs go on. Jobs that were promised to run to
        their end resume first, also under a policy that preempts.
        """
        self._line.switch_policy(policy)

    def take_switches(self) -> list[Switch]:
        """The changes of order that ``adaptive`` made since this was last asked, oldest first."""
        return self._line.take_switches()

    def victim(self, now_s: float) -> Job | None:
        """The running job that the policy would put off first; ``None`` where nothing runs. O(running)."""
        running = [self._ticket_now(record, now_s) for record in self._running.values()]
        ticket = self._line.policy.victim(running, now_s)
        return None if ticket is None else self._records[ticket.id].job

    def _ticket_now(self, record: _Record, now_s: float) -> Ticket:
        """The ticket, with the service of the current window counted in."""
        if record.started_s is None:
            return record.ticket
        in_window_s = now_s - record.started_s
        return replace(
            record.ticket,
            served_s=record.ticket.served_s + in_window_s,
            remaining_s=max(0.0, record.ticket.remaining_s - in_window_s),
        )

    def forecast(self, now_s: float) -> list[QueuedJob]:
        """Running jobs, then waiting ones in the order of service, with when each is predicted to start.

        Workers are taken to be free at the end of their window (of their job, without preemption) and then to
        serve jobs whole, in today's order, what is left of the running ones among them. O(n log n).
        """
        running = [self._ticket_now(record, now_s) for record in self._running.values()]
        rows = [self._row(ticket, now_s, position=0, start_s=0.0) for ticket in running]
        free_at_s = sorted(self._worker_free_in_s(ticket) for ticket in running)
        free_at_s = [0.0] * (self._num_workers - len(free_at_s)) + free_at_s
        position = 0
        for ticket in self._in_order_of_service(running, now_s):
            start_s = heapq.heappop(free_at_s)
            heapq.heappush(free_at_s, start_s + ticket.remaining_s)
            if ticket.id not in self._running:
                position += 1
                rows.append(self._row(ticket, now_s, position=position, start_s=start_s))
        return rows

    def _in_order_of_service(self, running: Iterable[Ticket], now_s: float) -> list[Ticket]:
        waiting = [self._records[job_id].ticket for job_id in self._resume] + self._line.ordered(now_s)
        if not self.preempts:
            return waiting
        rests = []
        for ticket in running:
            rest_s = ticket.remaining_s - self._worker_free_in_s(ticket)
            if rest_s > 0:
                rests.append(replace(ticket, remaining_s=rest_s))
        return self._line.merged(waiting, rests, now_s)

    def _worker_free_in_s(self, ticket: Ticket) -> float:
        if not self.preempts:
            return ticket.remaining_s
        estimate = self._records[ticket.id].job.estimate
        return min(ticket.remaining_s, estimate.size_s / estimate.windows)

    def _row(self, ticket: Ticket, now_s: float, *, position: int, start_s: float) -> QueuedJob:
        return QueuedJob(
            job=self._records[ticket.id].job,
            running=position == 0,
            position=position,
            wait_s=now_s - ticket.waiting_since_s,
            remaining_s=ticket.remaining_s,
            predicted_start_s=start_s,
            num_preemptions=self._records[ticket.id].num_preemptions,
        )

    def statistics(self) -> SchedulerStatistics:
        """A frozen snapshot of counts and load. O(1)."""
        return SchedulerStatistics(
            policy=self._line.policy.name,
            order=self._line.order,
            preempt=self.preempts,
            num_workers=self._num_workers,
            num_waiting=self.num_waiting,
            num_running=len(self._running),
            backlog_s=self.backlog_s,
            num_submitted=self._num_submitted,
            num_refused=self._num_refused,
            num_finished=self._num_finished,
            num_cancelled=self._num_cancelled,
            num_preemptions=self._num_preemptions,
            num_switches=self._line.num_switches,
        )

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold. O(n); for tests."""
        self._line.check()
        waiting = {ticket.id for ticket in self._line}
        assert waiting.isdisjoint(self._resume), "a job waits and is to resume"
        assert len(set(self._resume)) == len(self._resume), "a job is to resume twice"
        waiting.update(self._resume)
        assert waiting.isdisjoint(self._running), "a job waits and runs"
        assert waiting | self._running.keys() == self._records.keys(), "a job is lost"
        for job_id, record in self._records.items():
            assert record.ticket.id == job_id
            assert (record.started_s is not None) == (job_id in self._running)
            assert record.ticket.arrival_s == record.job.arrival_s, "an arrival moved"
        work_s = sum(self._records[job_id].ticket.remaining_s for job_id in waiting)
        assert abs(work_s - self._waiting_work_s) <= 1e-6 * max(1.0, work_s), "the backlog drifted"
        assert self._num_submitted == self._num_finished + self._num_cancelled + len(self._records)
