"""The maximum wait against a scan, its theorem in a simulation, and what it does to shares and forecasts."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import Estimator, Job, ReadyQueue, Scheduler, StaticPolicy, Ticket, policy_named
from sooner.core.groups import GroupedQueue
from sooner.core.guard import Guard
from sooner.core.max_wait import MaxWaitQueue
from sooner.core.policy import Policy
from sooner.core.waiting_line import WaitingLine
from sooner.errors import ConfigurationError, UnknownJobError
from tests.core.test_groups import (
    QUEUES,
    WINDOW_S,
    after_a_window,
    fcfs,
    grid_s,
    guarded,
    size_s,
    sjf,
    ticket,
)

MAX_WAIT_S = 16.0


def queue_of(make: Callable[[], ReadyQueue], max_wait_s: float = MAX_WAIT_S) -> MaxWaitQueue:
    return MaxWaitQueue(GroupedQueue(make), max_wait_s=max_wait_s)


class MaxWaitAgainstScan(RuleBasedStateMachine):
    """Every operation is done on the queue and on a grouped one, out of which a scan takes who is overdue."""

    @initialize(make=st.sampled_from(QUEUES))
    def begin(self, make: Callable[[], ReadyQueue]) -> None:
        self.queue, self.inner = queue_of(make), GroupedQueue(make)
        self.now_s = self.looked_at_s = 0.0
        self.shown: Ticket | None = None
        self.sequence = 0
        self.running: list[Ticket] = []

    def overdue(self, now_s: float) -> list[Ticket]:
        late = [one for one in self.inner if now_s - one.arrival_s - one.served_s >= MAX_WAIT_S]
        return sorted(late, key=lambda one: (one.arrival_s + one.served_s, one.arrival_s, one.sequence))

    def push(self, new: Ticket) -> None:
        self.queue.push(new)
        self.inner.push(new)
        self.shown = None

    @rule(seconds=grid_s)
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(client=st.sampled_from([None, "a", "b"]), priority=st.sampled_from([0, 0, 1]), size_s=size_s)
    def arrive(self, client: str | None, priority: int, size_s: float) -> None:
        self.sequence += 1
        self.push(ticket(self.sequence, client=client, priority=priority, arrival_s=self.now_s, size_s=size_s))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        back = after_a_window(self.running.pop(data.draw(st.integers(0, len(self.running) - 1))))
        if back.remaining_s > 0:
            self.push(back)

    @rule()
    def peek(self) -> None:
        late = self.overdue(self.now_s)
        self.shown = self.queue.peek(self.now_s)
        expected = late[0] if late else self.inner.peek(self.now_s)
        assert (self.shown and self.shown.id) == (expected and expected.id)

    @rule()
    def pop(self) -> None:
        late = self.overdue(self.now_s)
        if self.shown is not None:  # the one shown, though another may have fallen due
            taken = self.queue.pop(self.now_s)
            assert taken.id == self.shown.id
            assert taken == self.inner.take(taken.id, self.now_s)
        else:
            taken = self.queue.pop(self.now_s)
            assert taken == (self.inner.take(late[0].id, self.now_s) if late else self.inner.pop(self.now_s))
        self.shown = None
        if taken is not None:
            self.running.append(taken)

    @precondition(lambda self: len(self.inner))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(list(self.inner)))
        assert self.queue.remove(victim.id) == self.inner.remove(victim.id)
        self.shown = None

    @rule()
    def list_in_order(self) -> None:
        late = self.overdue(self.now_s)
        others = [one for one in self.inner.ordered(self.now_s) if one not in late]
        assert self.queue.ordered(self.now_s) == late + others

    @invariant()
    def holds_what_it_should(self) -> None:
        self.queue.check()
        assert list(self.queue) == list(self.inner)
        assert len(self.queue) == len(self.inner)
        assert all(one.id in self.queue for one in self.inner)


MaxWaitAgainstScan.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestMaxWaitAgainstScan = MaxWaitAgainstScan.TestCase


# The theorem: workers that are never idle while a job waits, and sizes that are right.

LIFO = StaticPolicy(name="lifo", summary="", rank=lambda one: -one.arrival_s, preemptive=True)
LARGEST = StaticPolicy(name="largest", summary="", rank=lambda one: -one.remaining_s, preemptive=True)
ADVERSARIES: list[Policy] = [LIFO, LARGEST, policy_named("sjf"), policy_named("hrrn"), policy_named("adaptive")]


@dataclass
class Simulation:
    """Serves tickets in virtual time, and notes by when each has to be taken, once it is overdue."""

    line: WaitingLine
    num_workers: int
    arriving: list[Ticket]
    by_s: dict[str, float] = field(default_factory=dict)
    waiting: dict[str, Ticket] = field(default_factory=dict)  # as each was last pushed
    running: dict[str, tuple[float, Ticket]] = field(default_factory=dict)  # since when
    events: list[tuple[float, int, str, Ticket]] = field(default_factory=list)
    num_overdue: int = 0

    def run(self) -> None:
        for one in self.arriving:
            self.plan(one.arrival_s, ARRIVAL, one)
        while self.events:
            now_s, kind, job_id, one = heapq.heappop(self.events)
            if kind == ARRIVAL:
                self.wait(one, now_s)
            elif kind == END:
                del self.running[job_id]
                if (back := after_a_window(one)).remaining_s > 0:
                    self.wait(back, now_s)
            elif job_id in self.line and self.waiting[job_id] is one:  # and was not taken before
                self.num_overdue += 1
                self.by_s[job_id] = now_s + WINDOW_S + self.owed_s(one, now_s) / self.num_workers
            while len(self.line) and len(self.running) < self.num_workers:
                self.take(now_s)

    def plan(self, at_s: float, kind: int, one: Ticket) -> None:
        heapq.heappush(self.events, (at_s, kind, one.id, one))

    def wait(self, one: Ticket, now_s: float) -> None:
        self.line.push(one)
        self.waiting[one.id] = one
        self.plan(max(now_s, one.waiting_since_s + MAX_WAIT_S), OVERDUE, one)

    def take(self, now_s: float) -> None:
        taken = self.line.pop(now_s)
        assert now_s <= self.by_s.pop(taken.id, now_s), "the theorem does not hold"
        self.running[taken.id] = (now_s, taken)
        self.plan(now_s + taken.next_service_s, END, taken)

    def owed_s(self, one: Ticket, now_s: float) -> float:
        """What jobs that have waited as long still need, one itself left out."""
        waits = [(now_s - t.waiting_since_s, t.remaining_s) for t in self.line if t.id != one.id] + [
            (since_s - t.waiting_since_s, t.remaining_s - (now_s - since_s))
            for since_s, t in self.running.values()
        ]
        return sum(rest_s for wait_s, rest_s in waits if wait_s >= now_s - one.waiting_since_s)


ARRIVAL, END, OVERDUE = range(3)
floods = st.lists(
    st.tuples(
        st.integers(0, 64 * 3).map(lambda n: n / 64),
        size_s,
        st.sampled_from(["flood", "flood", "flood", "other", None]),
        st.sampled_from([0, 0, 0, 1]),
    ),
    min_size=20,
    max_size=60,
)


@settings(deadline=None, max_examples=60)
@given(
    jobs=floods,
    policy=st.sampled_from(ADVERSARIES),
    num_workers=st.integers(1, 3),
    guard=st.sampled_from([None, Guard(scale=1.0, slack_s=5.0)]),
)
def test_an_overdue_job_is_put_off_for_jobs_that_have_waited_as_long_and_a_window(
    jobs: list[tuple[float, float, str | None, int]], policy: Policy, num_workers: int, guard: Guard | None
) -> None:
    arriving, now_s = [], 0.0
    for number, (seconds, one_s, client, priority) in enumerate(jobs, start=1):
        now_s += seconds
        arriving.append(ticket(number, client=client, priority=priority, arrival_s=now_s, size_s=one_s))
    line = WaitingLine(policy, num_workers=num_workers, guard=guard, max_wait_s=MAX_WAIT_S)
    simulation = Simulation(line, num_workers, arriving)
    simulation.run()
    assert not len(line)
    assert not simulation.by_s
    event(f"overdue jobs: {min(simulation.num_overdue, 3)}")


@pytest.mark.parametrize("policy", ADVERSARIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("max_wait_s", [MAX_WAIT_S, None])
def test_one_worker_puts_nobody_off_much_longer_than_first_come_first_served(
    policy: Policy, max_wait_s: float | None
) -> None:
    """A file first, and clips of a class that is served before it, for as long as the test lasts."""
    line = WaitingLine(policy, num_workers=1, max_wait_s=max_wait_s)
    line.push(ticket(1, size_s=WINDOW_S))
    line.pop(0.0)
    line.push(ticket(2, client="file", size_s=40.0, priority=1))
    now_s = 0.0
    for number in range(3, 100):
        now_s += WINDOW_S
        line.push(ticket(number, client="flood", arrival_s=now_s, size_s=WINDOW_S))
        if line.pop(now_s).id == "job2":
            break
    fcfs_s = WINDOW_S
    assert (now_s <= fcfs_s + MAX_WAIT_S + WINDOW_S) == (max_wait_s is not None)


def test_in_overload_the_order_is_first_come_first_served() -> None:
    queue = queue_of(sjf)
    for number in range(20):
        queue.push(ticket(number, client="ab"[number % 2], arrival_s=number / 4, size_s=float(20 - number)))
    assert [queue.pop(100.0).id for _ in range(20)] == [f"job{number}" for number in range(20)]


def test_a_job_is_overdue_at_the_very_second_and_what_it_was_served_does_not_count() -> None:
    queue = queue_of(sjf)
    queue.push(replace(ticket(0, size_s=30.0), served_s=WINDOW_S, remaining_s=26.0))
    queue.push(ticket(1, arrival_s=18.0))
    assert queue.peek(MAX_WAIT_S + WINDOW_S - 1 / 64).id == "job1"
    assert queue.peek(MAX_WAIT_S + WINDOW_S).id == "job0"


def test_pop_hands_out_what_peek_showed_though_another_fell_due() -> None:
    queue = queue_of(sjf)
    queue.push(ticket(0, size_s=30.0))
    queue.push(ticket(1, arrival_s=1.0))
    assert queue.peek(15.0).id == "job1"
    assert queue.pop(16.0).id == "job1"
    assert queue.pop(16.0).id == "job0"
    assert queue.pop(16.0) is None


def test_what_is_taken_as_overdue_is_charged_to_its_client_and_to_the_promises_of_others() -> None:
    queue = queue_of(guarded(sjf, Guard(scale=0.0, slack_s=5.0)))  # 10 s of two workers
    for number in range(3):
        queue.push(ticket(number, client="a", size_s=40.0))
    queue.push(replace(ticket(3, client="b", arrival_s=1.0, size_s=40.0), served_s=8.0, remaining_s=32.0))
    queue.push(ticket(4, client="a", arrival_s=3.0, size_s=41.0))
    queue.remove("job0")
    queue.remove("job1")
    queue.remove("job2")
    queue.push(ticket(5, client="c", arrival_s=4.0, size_s=30.0))
    assert queue.pop(19.0).id == "job4"
    assert {one.id: one.turn_allowance_s for one in queue} == {"job3": 10.0 - WINDOW_S, "job5": 10.0}
    queue.push(ticket(6, client="a", arrival_s=19.0))
    assert queue.pop(19.5).id == "job5"  # a is ahead now
    queue.check()


def test_misuse_is_named() -> None:
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="above 0"):
            queue_of(fcfs, wrong)
    with pytest.raises(UnknownJobError, match="'job1'"):
        queue_of(fcfs).remove("job1")


# In a scheduler

ESTIMATOR = Estimator(kappa=3.0, encode_s=0.5, token_s=0.005)  # a full window: 0.95 s


def job(job_id: str, *, arrival_s: float = 0.0, audio_s: float = 3.0, priority: int = 0) -> Job:
    estimate = ESTIMATOR.estimate(audio_s)
    return Job(id=job_id, arrival_s=arrival_s, audio_s=audio_s, estimate=estimate, priority=priority)


@pytest.mark.parametrize("policy", ["adaptive", "sjf", "hrrn", "fcfs"])
@pytest.mark.parametrize(("max_wait_s", "is_rescued"), [(30.0, True), (None, False)])
def test_a_batch_is_rescued_from_lasting_load_of_a_class_before_it(
    policy: str, max_wait_s: float | None, *, is_rescued: bool
) -> None:
    s = Scheduler(policy_named(policy), num_workers=1, guard=Guard.parse("scaled:5,120"), max_wait_s=max_wait_s)
    s.submit(job("batch", audio_s=120.0, priority=10))
    now_s, seen = 0.0, []
    for number in range(150):
        s.submit(job(f"clip{number}", arrival_s=now_s))
        taken = s.next(now_s)
        assert taken is not None
        seen.append(taken.id)
        left = 3 - seen.count("batch")
        now_s += 0.95 if taken.id == "batch" else 0.6
        if taken.id == "batch" and left:
            s.yield_back("batch", remaining=ESTIMATOR.estimate(30.0 * left), now_s=now_s)
        else:
            s.finish(taken.id, now_s=now_s)
        if taken.id == "batch" and not left:
            break
    s.check()
    assert ("batch" in seen) == is_rescued
    if is_rescued:
        assert seen[-3:] == ["batch"] * 3  # overdue once, it is put off no more
        assert now_s <= 30.0 + 0.6 + 3 * 0.95


def test_the_forecast_has_overdue_jobs_first_also_before_what_is_left_of_running_ones() -> None:
    s = Scheduler(policy_named("sjf"), num_workers=1, max_wait_s=20.0)
    s.submit(job("running", audio_s=90.0))
    s.next(0.0)
    s.submit(job("file", arrival_s=0.5, audio_s=600.0))
    s.submit(job("batch", arrival_s=0.25, audio_s=600.0, priority=1))
    s.submit(job("clip", arrival_s=20.0))
    rows = s.forecast(20.25)
    assert [(row.job.id, row.position) for row in rows] == [("running", 0), ("batch", 1), ("clip", 2), ("file", 3)]
    assert rows[1].predicted_start_s == pytest.approx(0.0, abs=1.0)  # at the end of a window
    assert [row.job.id for row in s.forecast(20.5)] == ["running", "batch", "file", "clip"]
    s.finish("running", now_s=20.5)
    assert s.peek(20.5).id == "batch"
    assert s.next(20.5).id == "batch"
