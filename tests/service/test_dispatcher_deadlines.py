"""Jobs that are of no use after a while: refused as soon as they cannot be done by then, and no moment sooner."""

from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.errors import DeadlineError
from sooner.service.clock import MonotonicClock
from sooner.service.deadlines import Deadlines
from tests.service.stage import a_second_a_window, run, stage


def test_what_cannot_be_done_in_time_is_not_queued() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window()) as s:
            with pytest.raises(DeadlineError) as caught:
                await s.send("file", 600.0, allowed_s=15.0)
            assert (caught.value.deadline_s, caught.value.late_s) == (15.0, 5.0)
            assert s.dispatcher.scheduler.statistics().num_submitted == 0
            s.run_dry()
            assert (await s.send("just", 600.0, allowed_s=20.0)).num_windows == 20

    run(scenario)


def test_a_waiting_job_is_refused_when_it_has_become_hopeless() -> None:
    """Whatever happens next: here somebody else comes."""

    async def scenario() -> None:
        async with stage(estimator=a_second_a_window()) as s:
            running = s.send("running", 3.0)
            await s.window_begins()
            hurried, patient = s.send("hurried", 3.0, allowed_s=5.0), s.send("patient", 3.0, allowed_s=7.0)
            await asyncio.sleep(0)
            s.manual_clock.advance(4.0)
            others = [s.send("at 4.0 s", 3.0)]
            await asyncio.sleep(0)
            assert s.dispatcher.scheduler.num_waiting == 3
            s.manual_clock.advance(0.5)
            others.append(s.send("at 4.5 s", 3.0))
            with pytest.raises(DeadlineError) as caught:
                await hurried
            assert (caught.value.deadline_s, caught.value.late_s) == (5.0, 0.5)
            assert s.dispatcher.scheduler.num_waiting == 3
            s.run_dry()
            await asyncio.gather(running, patient, *others)
            assert [window.job_id for window in s.windows] == ["running", "patient", "at 4.0 s", "at 4.5 s"]

    run(scenario)


def test_a_freed_worker_does_not_take_up_a_hopeless_job() -> None:
    async def scenario() -> None:
        async with stage("fcfs", estimator=a_second_a_window()) as s:
            running = s.send("running", 3.0)
            await s.window_begins()
            hopeless, other = s.send("hopeless", 3.0, allowed_s=2.0), s.send("other", 3.0)
            await asyncio.sleep(0)
            s.let_windows_end(after_s=1.5)
            assert await s.window_begins() == ("other", 0)
            with pytest.raises(DeadlineError):
                await hopeless
            s.run_dry()
            await asyncio.gather(running, other)

    run(scenario)


def test_a_waiting_job_is_refused_though_nothing_happens() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window(), clock=MonotonicClock()) as s:
            running = s.send("running", 3.0)
            await s.window_begins()
            with pytest.raises(DeadlineError) as caught:
                await s.send("hurried", 3.0, allowed_s=1.05)
            assert 0.0 < caught.value.late_s < 5.0
            s.run_dry()
            await running

    run(scenario)


def test_a_job_that_has_become_hopeless_stops_after_its_window() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window()) as s:
            meeting, clip = s.send("meeting", 90.0, allowed_s=5.0), s.send("clip", 3.0)
            await s.window_begins()
            s.let_windows_end(after_s=3.5)  # two more would take until 5.5
            with pytest.raises(DeadlineError) as caught:
                await meeting
            assert (caught.value.deadline_s, caught.value.late_s) == (5.0, 0.5)
            assert await s.window_begins() == ("clip", 0)
            s.run_dry()
            await clip

    run(scenario)


def test_a_text_that_is_there_is_delivered_however_late() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window()) as s:
            meeting = s.send("meeting", 60.0, allowed_s=2.0)
            await s.window_begins()
            await s.end_window()
            await s.window_begins()
            s.manual_clock.advance(50.0)
            other = s.send("other", 3.0)
            await asyncio.sleep(0)
            s.run_dry()
            assert (await meeting).finished_s == 51.0
            await other

    run(scenario)


@pytest.mark.parametrize(("clip_s", "in_time"), [(7.0, True), (7.5, False)])
def test_a_preempted_job_may_wait_as_long_as_its_rest_allows(clip_s: float, in_time: bool) -> None:
    async def scenario() -> None:
        async with stage("sjf", estimator=a_second_a_window()) as s:
            meeting = s.send("meeting", 90.0, allowed_s=10.0)  # may wait until 7 s, and after a window until 8 s
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await asyncio.sleep(0)
            await s.end_window(after_s=1.0)
            assert await s.window_begins() == ("clip", 0)
            s.let_windows_end(after_s=clip_s)
            s.run_dry()
            await clip
            if in_time:
                assert (await meeting).num_preemptions == 1
            else:
                with pytest.raises(DeadlineError):
                    await meeting

    run(scenario)


JOBS = st.sampled_from(["a", "b", "c", "d"])
LATEST = st.one_of(st.integers(0, 9).map(float), st.just(math.inf))
CHANGES = st.lists(st.tuples(st.sampled_from(["set", "discard", "take"]), JOBS, LATEST), max_size=60)


@settings(max_examples=200, deadline=None)
@given(CHANGES)
def test_the_heap_of_latest_starts_is_what_a_plain_dictionary_is(changes: list[tuple[str, str, float]]) -> None:
    deadlines, naive = Deadlines(), dict[str, float]()
    for what, job_id, second_s in changes:
        if what == "set":
            deadlines.set(job_id, second_s)
            naive[job_id] = second_s
        elif what == "discard":
            deadlines.discard(job_id)
            naive.pop(job_id, None)
        else:
            now_s = min(second_s, 9.0)
            passed = sorted((latest_s, name) for name, latest_s in naive.items() if latest_s < now_s)
            assert deadlines.take_passed(now_s) == [name for _, name in passed]
            for _, name in passed:
                del naive[name]
        hurried = [latest_s for latest_s in naive.values() if latest_s < math.inf]
        assert deadlines.earliest_s == min(hurried, default=None)
        deadlines.check()


def test_deadlines_that_are_far_away_leave_nothing_behind() -> None:
    deadlines = Deadlines()
    deadlines.set("first", 1.0)
    for number in range(1000):
        deadlines.set(str(number), 1e9)
        deadlines.discard(str(number))
        deadlines.check()
    assert deadlines.earliest_s == 1.0


def test_the_time_of_an_upload_counts_where_the_server_says_so() -> None:
    async def scenario() -> None:
        async with stage("fcfs") as s:
            s.clock.advance(100.0)
            with pytest.raises(DeadlineError, match=r"within 5\.0 s") as refused:
                await s.send("late", 3.0, allowed_s=5.0, allowed_from_s=95.1)
            assert refused.value.deadline_s == 5.0
            in_time = s.send("in time", 3.0, allowed_s=5.0, allowed_from_s=99.0)
            await s.window_begins()
            s.let_windows_end()
            assert (await in_time).num_windows == 1

    run(scenario)
