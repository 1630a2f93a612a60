"""The life of jobs, step by step and under random operations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import Estimator, Job, Limits, Scheduler, policies, policy_named
from sooner.core.guard import Guard
from sooner.errors import (
    AudioTooLongError,
    BacklogTooLargeError,
    DuplicateJobError,
    QueueFullError,
    UnknownJobError,
)

NAMES = [policy.name for policy in policies()]
ESTIMATOR = Estimator(kappa=3.0, encode_s=0.5, token_s=0.005)  # a full window: 0.95 s


GUARDS = [None, Guard(scale=1.0, slack_s=5.0), Guard(max_wait_s=20.0)]


def job(job_id: str, *, arrival_s: float = 0.0, audio_s: float = 3.0) -> Job:
    return Job(id=job_id, arrival_s=arrival_s, audio_s=audio_s, estimate=ESTIMATOR.estimate(audio_s))


def scheduler(policy: str = "hrrn", **options) -> Scheduler:
    return Scheduler(policy_named(policy), num_workers=options.pop("num_workers", 1), **options)


def run_one_window(s: Scheduler, job_id: str, *, left_s: float, now_s: float) -> None:
    s.yield_back(job_id, remaining=ESTIMATOR.estimate(left_s), now_s=now_s)


@pytest.mark.parametrize("policy", ["sjf", "srpt", "hrrn", "fair"])
def test_a_clip_overtakes_a_long_file_at_the_next_window(policy: str) -> None:
    s = scheduler(policy)
    s.submit(job("meeting", audio_s=600.0))
    assert s.next(0.0).id == "meeting"
    run_one_window(s, "meeting", left_s=570.0, now_s=1.0)
    assert s.next(1.0).id == "meeting"  # alone, it goes on
    s.submit(job("clip", arrival_s=1.5))
    run_one_window(s, "meeting", left_s=540.0, now_s=2.0)
    assert s.next(2.0).id == "clip"
    s.finish("clip", now_s=2.6)
    assert s.next(2.6).id == "meeting"
    assert s.statistics().num_preemptions == 1
    s.check()


@pytest.mark.parametrize("window", range(1, 20))
def test_under_hrrn_a_clip_waits_for_one_window_however_near_its_end_the_file_is(window: int) -> None:
    """A file that had a worker to itself has not waited, so its ratio stays 1."""
    s = scheduler("hrrn")
    s.submit(job("meeting", audio_s=600.0))
    s.next(0.0)
    for done in range(1, window):
        run_one_window(s, "meeting", left_s=600.0 - 30 * done, now_s=float(done))
        s.next(float(done))
    s.submit(job("clip", arrival_s=window - 0.01))
    run_one_window(s, "meeting", left_s=600.0 - 30 * window, now_s=float(window))
    assert s.next(float(window)).id == "clip"


@pytest.mark.parametrize("policy", NAMES)
def test_without_preemption_a_started_job_goes_on(policy: str) -> None:
    s = scheduler(policy, preempt=False)
    s.submit(job("meeting", audio_s=600.0))
    s.next(0.0)
    s.submit(job("clip", arrival_s=0.5))
    run_one_window(s, "meeting", left_s=570.0, now_s=1.0)
    s.check()
    assert s.num_waiting == 2
    assert s.next(1.0).id == "meeting"
    assert s.statistics().num_preemptions == 0


def test_preemptions_are_counted_for_the_job_that_was_put_off() -> None:
    s = scheduler("sjf")
    s.submit(job("meeting", audio_s=600.0))
    s.next(0.0)
    for times in (1, 2):
        s.submit(job(f"clip{times}", arrival_s=float(times)))
        run_one_window(s, "meeting", left_s=600.0 - 30 * times, now_s=float(times))
        assert s.next(times + 0.5).id == f"clip{times}"
        assert {row.job.id: row.num_preemptions for row in s.forecast(times + 0.5)} == {
            f"clip{times}": 0,
            "meeting": times,
        }
        s.finish(f"clip{times}", now_s=times + 0.6)
        assert s.next(times + 0.6).id == "meeting"
    run_one_window(s, "meeting", left_s=510.0, now_s=3.0)
    assert s.next(3.0).id == "meeting"  # it goes on
    assert s.num_preemptions("meeting") == 2 == s.statistics().num_preemptions
    assert s.num_preemptions("clip1") == 0
    s.finish("meeting", now_s=4.0)
    assert s.num_preemptions("meeting") == 0


def test_fcfs_does_not_preempt_by_default() -> None:
    assert not scheduler("fcfs").preempts
    assert all(scheduler(policy.name).preempts for policy in policies() if policy.name != "fcfs")


def test_sjf_goes_by_what_remains() -> None:
    s = scheduler("sjf")
    s.submit(job("old", audio_s=300.0))
    s.next(0.0)
    run_one_window(s, "old", left_s=60.0, now_s=9.0)
    s.submit(job("new", arrival_s=9.0, audio_s=120.0))
    assert s.next(9.0).id == "old"


def test_served_time_is_what_workers_gave() -> None:
    s = scheduler()
    s.submit(job("file", audio_s=60.0))
    s.next(1.0)
    run_one_window(s, "file", left_s=30.0, now_s=2.0)
    s.next(5.0)
    assert s.finish("file", now_s=5.5) == pytest.approx(1.5)


def test_backlog_is_remaining_work_per_worker() -> None:
    s = scheduler(num_workers=2)
    for n in range(5):
        s.submit(job(f"job{n}", audio_s=30.0))
    assert s.backlog_s == pytest.approx(5 * 0.95 / 2)
    s.next(0.0)
    assert s.backlog_s == pytest.approx(4 * 0.95 / 2)
    assert s.cancel("job4")
    assert s.backlog_s == pytest.approx(3 * 0.95 / 2)


def test_cancel_waiting_running_and_unknown() -> None:
    s = scheduler()
    s.submit(job("a"))
    s.submit(job("b"))
    assert s.next(0.0).id == "a"
    assert s.cancel("a")
    assert s.cancel("b")
    assert not s.cancel("b")
    s.check()
    assert s.next(0.0) is None
    with pytest.raises(UnknownJobError, match="running"):
        s.finish("a", now_s=1.0)
    assert s.statistics().num_cancelled == 2


def test_cancel_a_job_that_is_to_resume() -> None:
    s = scheduler(preempt=False)
    s.submit(job("file", audio_s=60.0))
    s.next(0.0)
    run_one_window(s, "file", left_s=30.0, now_s=1.0)
    assert s.cancel("file")
    s.check()
    assert s.next(1.0) is None
    assert s.backlog_s == 0.0


def test_refusals_carry_limit_and_actual_and_change_nothing() -> None:
    s = scheduler(limits=Limits(max_waiting=2, max_audio_s=60.0))
    with pytest.raises(AudioTooLongError) as too_long:
        s.submit(job("long", audio_s=61.0))
    assert (too_long.value.limit_s, too_long.value.actual_s) == (60.0, 61.0)
    s.submit(job("a"))
    s.submit(job("b"))
    with pytest.raises(QueueFullError) as full:
        s.submit(job("c"))
    assert (full.value.limit, full.value.actual) == (2, 2)
    assert full.value.retry_after_s == pytest.approx(max(1.0, s.backlog_s))
    with pytest.raises(DuplicateJobError):
        s.submit(job("a"))
    s.check()
    assert s.statistics().num_refused == 2
    s.next(0.0)
    s.submit(job("c"))  # there is room again


def test_refusal_by_backlog() -> None:
    s = scheduler(limits=Limits(max_backlog_s=10.0))
    s.submit(job("hour", audio_s=3600.0))
    with pytest.raises(BacklogTooLargeError) as refused:
        s.submit(job("clip"))
    assert refused.value.actual_s == pytest.approx(s.backlog_s)
    assert refused.value.retry_after_s == pytest.approx(s.backlog_s - 10.0)


def test_a_job_that_does_not_run_cannot_be_reported() -> None:
    s = scheduler()
    s.submit(job("a"))
    with pytest.raises(UnknownJobError):
        run_one_window(s, "a", left_s=1.0, now_s=1.0)
    with pytest.raises(UnknownJobError):
        s.finish("a", now_s=1.0)
    s.check()


def test_workers_must_be_at_least_one() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        scheduler(num_workers=0)


def test_forecast_in_order_of_service() -> None:
    s = scheduler("sjf", num_workers=2)
    s.submit(job("file", audio_s=300.0))
    s.submit(job("file2", arrival_s=0.1, audio_s=300.0))
    s.next(0.0)
    s.next(0.0)
    s.submit(job("mid", arrival_s=0.2, audio_s=30.0))
    s.submit(job("clip", arrival_s=0.3))
    rows = s.forecast(0.5)
    assert [(row.job.id, row.position, row.running) for row in rows] == [
        ("file", 0, True),
        ("file2", 0, True),
        ("clip", 1, False),
        ("mid", 2, False),
    ]
    assert rows[2].predicted_start_s == pytest.approx(0.95)  # the end of a window, not of a file
    assert rows[2].wait_s == pytest.approx(0.2)


def test_forecast_without_preemption_waits_for_whole_jobs() -> None:
    s = scheduler("fcfs")
    s.submit(job("file", audio_s=300.0))
    s.next(0.0)
    s.submit(job("clip", arrival_s=0.1))
    assert s.forecast(1.0)[1].predicted_start_s == pytest.approx(9.5 - 1.0)


def test_victim_is_the_policys_choice_among_running_jobs() -> None:
    s = scheduler("sjf", num_workers=2)
    assert s.victim(0.0) is None
    s.submit(job("clip"))
    s.submit(job("file", audio_s=300.0))
    s.next(0.0)
    s.next(0.0)
    assert s.victim(0.1).id == "file"


@pytest.mark.parametrize("policy", NAMES)
def test_peek_shows_what_next_hands_out(policy: str) -> None:
    s = scheduler(policy)
    assert s.peek(0.0) is None
    for name, audio_s in (("file", 300.0), ("clip", 3.0), ("song", 20.0)):
        s.submit(job(name, audio_s=audio_s))
    while (shown := s.peek(1.0)) is not None:
        assert s.peek(1.0) is shown
        assert s.num_waiting + s.statistics().num_running == 3
        assert s.next(1.0) is shown
    assert s.num_waiting == 0


def test_peek_shows_a_job_that_resumes() -> None:
    s = scheduler("fcfs")
    s.submit(job("file", audio_s=300.0))
    s.submit(job("clip", arrival_s=0.1))
    s.next(0.0)
    run_one_window(s, "file", left_s=270.0, now_s=1.0)
    assert s.peek(1.0).id == s.next(1.0).id == "file"


def test_the_rest_of_a_job_keeps_its_place_and_is_never_refused() -> None:
    """Served in parts elsewhere: the second part ranks by what is left, under the first one's number."""
    s = scheduler("sjf", limits=Limits(max_waiting=2))
    whole = job("first part", audio_s=90.0)
    number = s.submit(whole)
    s.next(0.0)
    assert s.submit(job("equal", audio_s=60.0)) == number + 1
    s.submit(job("clip"))
    with pytest.raises(QueueFullError):
        s.submit(job("another"))
    rest = job("second part", audio_s=90.0)
    assert s.submit(rest, remaining=ESTIMATOR.estimate(60.0), sequence=number) == number
    assert s.statistics().num_refused == 1
    assert [s.next(1.0).id for _ in range(3)] == ["clip", "second part", "equal"]
    s.check()


@pytest.mark.parametrize("preempt", [True, False])
def test_a_job_that_is_begun_anew_has_all_of_it_to_go(preempt: bool) -> None:
    s = scheduler("sjf", preempt=preempt, num_workers=2)
    whole_s = s.submit(job("waiting", audio_s=90.0)) and ESTIMATOR.estimate(90.0).size_s
    s.submit(job("running", audio_s=90.0))
    for _ in range(2):
        s.next(0.0)
    run_one_window(s, "waiting", left_s=30.0, now_s=1.0)
    s.begin_anew("waiting", now_s=1.0)
    assert s.backlog_s == pytest.approx(whole_s / 2)
    s.begin_anew("running", now_s=1.0)
    s.check()
    assert (s.num_waiting, s.backlog_s) == (2, pytest.approx(whole_s))
    assert [s.next(1.0).id for _ in range(2)] == ["waiting", "running"]
    assert s.finish("running", now_s=3.0) == 3.0  # what was lost was served
    with pytest.raises(UnknownJobError, match="waiting or running"):
        s.begin_anew("running", now_s=3.0)


class LifeOfJobs(RuleBasedStateMachine):
    """Random drivers with several workers: nothing is lost, doubled or served out of order."""

    @initialize(
        policy=st.sampled_from(NAMES),
        preempt=st.sampled_from([None, False, True]),
        workers=st.integers(1, 3),
        max_waiting=st.integers(1, 12),
        guard=st.sampled_from(GUARDS),
    )
    def begin(
        self, policy: str, preempt: bool | None, workers: int, max_waiting: int, guard: Guard | None
    ) -> None:
        self.scheduler = Scheduler(
            policy_named(policy),
            num_workers=workers,
            preempt=preempt,
            limits=Limits(max_waiting=max_waiting, max_audio_s=1000.0),
            guard=guard,
        )
        self.max_waiting = max_waiting
        self.now_s = 0.0
        self.left_s: dict[str, float] = {}
        self.audio_s: dict[str, float] = {}
        self.running: set[str] = set()
        self.submitted = 0

    @rule(
        audio_s=st.sampled_from([1.0, 2.0, 5.0, 29.0, 31.0, 300.0, 999.0]),
        client=st.sampled_from([None, None, "a", "b"]),
        priority=st.sampled_from([0, 0, 0, 1]),
    )
    def submit(self, audio_s: float, client: str | None, priority: int) -> None:
        new = job(f"job{self.submitted}", arrival_s=self.now_s, audio_s=audio_s)
        new = replace(new, client=client, priority=priority)
        if len(self.left_s) - len(self.running) >= self.max_waiting:
            with pytest.raises(QueueFullError):
                self.scheduler.submit(new)
            return
        self.submitted += 1
        self.scheduler.submit(new)
        self.left_s[new.id] = self.audio_s[new.id] = audio_s

    @rule(seconds=st.integers(1, 640).map(lambda n: n / 64))
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def next(self) -> None:
        waiting = self.left_s.keys() - self.running
        first = [row.job.id for row in self.scheduler.forecast(self.now_s) if row.position == 1]
        chosen = self.scheduler.next(self.now_s)
        if chosen is None:
            assert not waiting
            return
        assert [chosen.id] == first
        assert chosen.id in waiting
        self.running.add(chosen.id)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end_window(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.running)))
        self.running.remove(job_id)
        self.left_s[job_id] -= 30.0
        if self.left_s[job_id] > 0:
            run_one_window(self.scheduler, job_id, left_s=self.left_s[job_id], now_s=self.now_s)
        else:
            self.scheduler.finish(job_id, now_s=self.now_s)
            del self.left_s[job_id]

    @precondition(lambda self: self.left_s)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.left_s)))
        assert self.scheduler.cancel(job_id)
        del self.left_s[job_id]
        self.running.discard(job_id)

    @precondition(lambda self: self.left_s)
    @rule(data=st.data())
    def begin_anew(self, data: st.DataObject) -> None:
        job_id = data.draw(st.sampled_from(sorted(self.left_s)))
        self.scheduler.begin_anew(job_id, now_s=self.now_s)
        self.left_s[job_id] = self.audio_s[job_id]
        self.running.discard(job_id)

    @rule(policy=st.sampled_from(NAMES))
    def switch_policy(self, policy: str) -> None:
        self.scheduler.switch_policy(policy_named(policy))

    @invariant()
    def agrees(self) -> None:
        self.scheduler.check()
        statistics = self.scheduler.statistics()
        assert statistics.num_running == len(self.running)
        assert statistics.num_waiting == len(self.left_s) - len(self.running)
        rows = self.scheduler.forecast(self.now_s)
        assert sorted(row.job.id for row in rows) == sorted(self.left_s)
        num_waiting = len(rows) - len(self.running)
        assert [row.position for row in rows] == [0] * len(self.running) + list(range(1, num_waiting + 1))
        assert all(row.running == (row.job.id in self.running) for row in rows)
        starts = [row.predicted_start_s for row in rows if not row.running]
        assert starts == sorted(starts)


LifeOfJobs.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestLifeOfJobs = LifeOfJobs.TestCase
