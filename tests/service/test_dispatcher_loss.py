"""An engine that is lost with all that it was doing: who begins anew, who is suspected, who fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sooner.engines.base import Segment, WindowResult
from sooner.engines.fake import FakeDecoding, FakeEngine
from sooner.errors import DeadlineError, EngineLostError
from sooner.service import dispatcher
from sooner.service.clock import MonotonicClock
from sooner.service.dispatcher import Progress, Transcript
from tests.service.stage import Stage, a_second_a_window, run, stage

LOST = EngineLostError("the engine died (exit code -11)")
HANGS = EngineLostError("a window took too long", is_cause=True)
INNOCENT = EngineLostError("a window took too long", is_cause=False)


def test_a_job_whose_engine_was_lost_is_begun_anew() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window(learns=True)) as s:
            heard: list[str] = []
            meeting = s.send("meeting", 90.0, on_text=partial(note_text, heard))
            await s.window_begins()
            await s.end_window()
            s.failures_once["meeting"] = LOST
            await s.end_window()
            assert s.dispatcher.progress("meeting") == Progress(num_restarts=1)
            for _ in range(3):
                await s.end_window()
            text = await meeting
            assert text.text == "window 0 of 3 window 1 of 3 window 2 of 3"
            assert heard == [" window 0 of 3", " window 1 of 3", " window 2 of 3"]  # none of them twice
            assert (text.num_windows, text.num_tokens, text.num_restarts) == (3, 270, 1)
            assert (text.service_s, text.first_text_s) == (5.0, 1.0)
            assert s.estimator.statistics().num_jobs == 0
            await s.windows_begin(4)
            assert s.log == [("meeting", index) for index in (0, 1, 0, 1, 2)]

    run(scenario)


def test_the_second_time_it_fails_and_the_server_goes_on() -> None:
    async def scenario() -> None:
        async with stage("fcfs") as s:
            s.failures["poison"] = LOST
            poison, clip = s.send("poison", 90.0), s.send("clip", 3.0)
            s.run_dry()
            with pytest.raises(EngineLostError, match="exit code -11"):
                await poison
            assert (await clip).text == "window 0 of 1"
            assert [window.job_id for window in s.windows] == ["poison", "poison", "clip"]

    run(scenario)


def test_a_job_begun_anew_competes_as_it_arrived() -> None:
    async def scenario() -> None:
        async with stage("sjf", estimator=a_second_a_window()) as s:
            s.failures_once["meeting"] = LOST
            meeting = s.send("meeting", 90.0)
            await s.window_begins()
            clip, later = s.send("clip", 3.0), s.send("later", 90.0)
            await asyncio.sleep(0)
            await s.end_window()
            rows = s.dispatcher.scheduler.forecast(1.0)
            assert [row.job.id for row in rows] == ["clip", "meeting", "later"]
            assert [row.remaining_s for row in rows] == [1.0, 3.0, 3.0]
            s.run_dry()
            await asyncio.gather(meeting, clip, later)

    run(scenario)


def test_who_only_waited_begins_anew_and_keeps_its_retry() -> None:
    async def scenario() -> None:
        async with stage("sjf") as s:
            meeting = s.send("meeting", 60.0)
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await s.end_window()  # the meeting waits with its first window done
            s.failures_once["clip"] = LOST
            await s.window_begins()
            await s.end_window()
            assert s.dispatcher.progress("meeting") == Progress(num_restarts=1)
            await s.window_begins()
            await s.end_window()
            assert (await clip).num_restarts == 1
            s.failures_once["meeting"] = LOST
            for _ in range(3):
                await s.window_begins()
                await s.end_window()
            text = await meeting
            assert (text.text, text.num_restarts) == ("window 0 of 2 window 1 of 2", 2)
            assert s.log == [
                ("meeting", 0),
                ("clip", 0),
                ("clip", 0),
                ("meeting", 0),
                ("meeting", 0),
                ("meeting", 1),
            ]

    run(scenario)


def test_the_loss_is_noticed_by_the_window_of_a_cancelled_job_too() -> None:
    async def scenario() -> None:
        async with stage("sjf") as s:
            meeting = s.send("meeting", 60.0)
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await s.end_window()
            await s.window_begins()
            clip.cancel()
            await asyncio.wait([clip])
            s.failures_once["clip"] = LOST
            await s.end_window()
            assert await s.window_begins() == ("meeting", 0)
            s.run_dry()
            assert (await meeting).num_restarts == 1

    run(scenario)


def test_suspects_run_alone_so_that_the_second_loss_names_the_cause() -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures["poison"] = s.failures_once["neighbour"] = LOST
            poison, neighbour, other = s.send("poison", 3.0), s.send("neighbour", 3.0), s.send("other", 3.0)
            await s.windows_begin(2)
            s.let_windows_end(of="poison")
            s.let_windows_end(of="neighbour")  # the two are lost together
            await s.ended.get()
            await s.ended.get()
            assert await s.window_begins() in {("poison", 0), ("neighbour", 0)}
            assert (s.entered.empty(), s.dispatcher.scheduler.statistics().num_running) == (True, 1)
            s.run_dry()
            with pytest.raises(EngineLostError):
                await poison
            assert [text.num_restarts for text in await asyncio.gather(neighbour, other)] == [1, 0]
            ends = [(window.job_id, window.started_s, window.ended_s) for window in s.windows]
            assert {job_id for job_id, _, _ in ends[:2]} == {job_id for job_id, _, _ in ends[2:4]}
            assert ends[4][0] == "other"

    run(scenario)


@pytest.mark.parametrize("stays", [True, False])
def test_a_suspect_waits_until_nobody_else_runs(stays: bool) -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures_once["suspect"] = LOST
            suspect, neighbour = s.send("suspect", 3.0), s.send("neighbour", 3.0)
            await s.windows_begin(2)
            await s.end_window("suspect")
            behind = s.send("behind", 3.0)
            await asyncio.sleep(0)
            assert s.dispatcher.scheduler.statistics().num_running == 1
            if stays:
                await s.end_window("neighbour")
                assert await s.window_begins() == ("suspect", 0)
            else:
                suspect.cancel()
                await asyncio.wait([suspect])
                assert s.dispatcher.scheduler.is_running("behind")  # at once: nobody has to be alone any more
            s.run_dry()
            await asyncio.wait([suspect, neighbour, behind])

    run(scenario)


def test_nobody_is_held_up_by_a_suspect_that_is_past_the_place() -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures_once["file"] = LOST
            file = s.send("file", 90.0)
            await s.window_begins()
            await s.end_window()
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await asyncio.sleep(0)
            assert s.dispatcher.scheduler.num_waiting == 1  # though a worker is free
            await s.end_window()
            assert await s.windows_begin(2) == {("file", 1), ("clip", 0)}
            s.run_dry()
            await asyncio.gather(file, clip)

    run(scenario)


def test_a_suspect_that_hangs_holds_up_nobody_for_long() -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures_once["file"] = LOST
            file = s.send("file", 90.0)
            await s.window_begins()
            await s.end_window()
            await s.window_begins()
            first = s.send("first", 3.0)
            await asyncio.sleep(0)
            s.manual_clock.advance(9.0)
            second = s.send("second", 3.0)
            await asyncio.sleep(0)
            assert s.dispatcher.scheduler.num_waiting == 2
            s.manual_clock.advance(1.0)
            third = s.send("third", 3.0)
            assert await s.window_begins() == ("first", 0)
            s.run_dry()
            await asyncio.gather(file, first, second, third)

    run(scenario)


def test_a_worker_that_waited_for_a_suspect_does_not_wait_for_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_ALONE_S", 0.05)

    async def scenario() -> None:
        async with stage("fcfs", num_workers=2, clock=MonotonicClock()) as s:
            s.failures_once["file"] = LOST
            file = s.send("file", 90.0)
            await s.window_begins()
            await s.end_window()
            await s.window_begins()
            clip = s.send("clip", 3.0)
            assert await s.window_begins() == ("clip", 0)
            began_s = [s.clock.now_s() - window.ended_s for window in s.windows]
            assert began_s[0] >= 0.04
            s.run_dry()
            await asyncio.gather(file, clip)

    run(scenario)


@pytest.mark.parametrize("leaves", [True, False])
def test_for_a_hang_nobody_fails_but_the_job_whose_window_it_was(leaves: bool) -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures["poison"] = HANGS
            s.failures_once["file"] = LOST  # suspected already
            file = s.send("file", 90.0)
            await s.window_begins()
            await s.end_window()
            poison = s.send("poison", 90.0)
            await s.window_begins()
            s.manual_clock.advance(10.0)
            clip = s.send("clip", 3.0)
            for number in range(2, 4):
                await s.windows_begin(number - 1)
                if leaves:
                    poison.cancel()
                    await asyncio.wait([poison])
                s.failures_once["file"] = INNOCENT
                await s.end_window("poison")
                await s.end_window("file")
                assert s.dispatcher.progress("file") == Progress(num_restarts=number)
                if leaves:
                    break
                s.manual_clock.advance(10.0)
                s.dispatcher._turn()
            s.run_dry()
            await asyncio.wait([poison])
            assert poison.cancelled() if leaves else poison.exception() is HANGS
            assert (await file).text == "window 0 of 3 window 1 of 3 window 2 of 3"
            assert (await clip).num_restarts == 0

    run(scenario)


def test_who_was_not_alone_when_the_engine_died_has_some_more_tries() -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures["file"] = LOST
            file, others = s.send("file", 90.0), []
            await s.window_begins()
            await s.end_window()
            for number in range(1, 4):
                assert await s.window_begins() == ("file", 0)
                assert s.dispatcher.progress("file") == Progress(num_restarts=number)
                s.manual_clock.advance(10.0)
                others.append(s.send(f"other{number}", 3.0))
                assert await s.window_begins() == (f"other{number}", 0)
                await s.end_window("file")
                await s.end_window(f"other{number}")
            with pytest.raises(EngineLostError):
                await file
            assert [text.num_restarts for text in await asyncio.gather(*others)] == [0, 0, 0]

    run(scenario)


def test_a_suspect_beside_an_old_window_of_a_cancelled_job_was_not_alone() -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures["file"] = LOST
            file, old = s.send("file", 90.0), s.send("old", 90.0)
            await s.windows_begin(2)
            await s.end_window("file")
            old.cancel()
            await asyncio.wait([old])
            s.manual_clock.advance(10.0)
            s.dispatcher._turn()
            assert await s.window_begins() == ("file", 0)
            await s.end_window("file")
            assert s.dispatcher.progress("file") == Progress(num_restarts=2)
            assert await s.window_begins() == ("file", 0)  # still beside it
            s.let_windows_end(of="old")
            await s.ended.get()
            await s.end_window("file")
            assert s.dispatcher.progress("file") == Progress(num_restarts=3)
            await s.end_window("file")  # alone
            with pytest.raises(EngineLostError):
                await file

    run(scenario)


def test_a_suspect_is_alone_from_when_the_engine_is_ready() -> None:
    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures_once["file"] = LOST
            file = s.send("file", 90.0)
            await s.window_begins()
            s.engine.ready = False
            await s.end_window()
            await s.window_begins()
            clips = []
            for number, (seconds, is_ready) in enumerate([(60.0, False), (9.0, True)]):
                s.manual_clock.advance(seconds)
                s.engine.ready = is_ready
                clips.append(s.send(f"clip{number}", 3.0))
                await asyncio.sleep(0)
                assert s.dispatcher.scheduler.num_waiting == number + 1
            s.manual_clock.advance(1.0)
            s.dispatcher._turn()
            assert await s.window_begins() == ("clip0", 0)
            s.run_dry()
            await asyncio.gather(file, *clips)

    run(scenario)


def test_whether_the_engine_is_ready_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_ALONE_S", 0.1)

    async def scenario() -> None:
        async with stage("fcfs", num_workers=2, clock=MonotonicClock()) as s:
            s.failures_once["file"] = LOST
            file = s.send("file", 90.0)
            await s.window_begins()
            s.engine.ready = False
            await s.end_window()
            await s.window_begins()
            clip = s.send("clip", 3.0)
            ready_s: list[float] = []

            def be_ready() -> None:
                s.engine.ready = True
                ready_s.append(s.clock.now_s())

            asyncio.get_running_loop().call_later(0.05, be_ready)
            assert await s.window_begins() == ("clip", 0)
            assert s.clock.now_s() - ready_s[0] >= 0.08  # the last look was some time before
            s.run_dry()
            await asyncio.gather(file, clip)

    run(scenario)


class SkipsSilence(FakeDecoding):
    """Is at the first voice after a first try, of which it accepts nothing, as a real one is."""

    tried = False

    def step(self) -> WindowResult:
        window = super().step()
        if self.tried:
            return window
        self.tried, self._index = True, 0
        return replace(window, segments=(), position_s=3.0, done=False)


def test_a_suspect_is_past_the_place_when_a_window_was_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(engine: FakeEngine, *args: Any) -> SkipsSilence:
        return SkipsSilence(*args, engine._on_step, 90)

    monkeypatch.setattr(FakeEngine, "start", start)

    async def scenario() -> None:
        async with stage("fcfs", num_workers=2) as s:
            s.failures_once["file"] = LOST
            file = s.send("file", 90.0, speech=((3.0, 80.0),))
            await s.window_begins()
            await s.end_window()
            await s.window_begins()
            await s.end_window()  # a try that is not accepted
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await asyncio.sleep(0)
            assert s.dispatcher.progress("file") == Progress(done_s=3.0, num_windows=1, num_restarts=1)
            assert s.dispatcher.scheduler.num_waiting == 1
            await s.end_window()
            assert await s.windows_begin(2) == {("file", 1), ("clip", 0)}
            s.run_dry()
            await asyncio.gather(file, clip)

    run(scenario)


def test_who_waited_is_ranked_by_all_of_it_from_the_loss_on() -> None:
    async def scenario() -> None:
        async with stage("srpt", estimator=a_second_a_window()) as s:
            meeting = s.send("meeting", 600.0)
            for _ in range(17):
                await s.window_begins()
                await s.end_window()
            await s.window_begins()
            middle, clip = s.send("middle", 90.0), s.send("clip", 3.0)
            await s.end_window()  # the meeting waits, with two windows to go
            s.failures_once["clip"] = LOST
            assert await s.window_begins() == ("clip", 0)
            await s.end_window()
            assert remaining_s(s) == {"clip": 1.0, "middle": 3.0, "meeting": 20.0}
            for _ in range(5):
                await s.window_begins()
                await s.end_window()
            assert s.log[-5:] == [("clip", 0), *[("middle", index) for index in range(3)], ("meeting", 0)]
            assert remaining_s(s) == {"meeting": 19.0}  # what was lost did not take long
            s.run_dry()
            await asyncio.gather(meeting, middle, clip)

    run(scenario)


def test_who_hears_of_an_old_loss_begins_anew_and_nobody_else() -> None:
    """Its reply was on its way when the engine died; then its decoding is of an engine that is gone."""

    async def scenario() -> None:
        async with stage("sjf", num_workers=2) as s:
            late, other = s.send("late", 60.0), s.send("other", 120.0)
            await s.windows_begin(2)
            clip = s.send("clip", 3.0)
            await s.end_window("other")  # and waits, with a part done
            await s.window_begins()
            s.failures_once["late"] = INNOCENT
            await s.end_window("late")
            assert s.dispatcher.progress("late") == Progress(num_restarts=1)
            assert s.dispatcher.progress("other") == Progress(done_s=30.0, num_windows=1)
            assert not s.dispatcher._suspects
            s.run_dry()
            assert [text.num_restarts for text in await asyncio.gather(late, other, clip)] == [1, 0, 0]

    run(scenario)


def test_costs_are_not_learnt_from_a_wait_for_a_new_engine() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window(learns=True)) as s:
            s.engine.ready = False
            waits = s.send("waits", 60.0)
            await s.window_begins()
            s.engine.ready = True
            s.run_dry()
            await waits
            assert s.estimator.statistics().num_jobs == 0
            await s.send("next", 3.0)
            assert s.estimator.statistics().num_jobs == 1

    run(scenario)


def test_a_job_that_has_no_time_to_begin_anew_is_refused() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window()) as s:
            meeting = s.send("meeting", 90.0, allowed_s=4.5)
            await s.window_begins()
            await s.end_window()
            s.failures_once["meeting"] = LOST
            await s.end_window()
            with pytest.raises(DeadlineError) as caught:
                await meeting
            assert caught.value.late_s == 0.5  # at 2 s, with three windows to go

    run(scenario)


def test_who_waited_and_has_no_time_to_begin_anew_is_refused() -> None:
    async def scenario() -> None:
        async with stage("sjf", estimator=a_second_a_window()) as s:
            meeting = s.send("meeting", 90.0, allowed_s=4.5)
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await s.end_window()
            s.failures_once["clip"] = LOST
            await s.end_window()
            with pytest.raises(DeadlineError) as caught:
                await meeting
            assert caught.value.late_s == 0.5
            s.run_dry()
            await clip

    run(scenario)


def test_whatever_happens_everybody_hears_of_it_and_nothing_is_left() -> None:
    """Hundreds of clients, of whom some leave, are late, or bring what kills the engine."""

    async def scenario() -> None:
        draw = random.Random(7)
        async with stage("adaptive", num_workers=3, estimator=a_second_a_window(), clock=MonotonicClock()) as s:
            s.run_dry()
            heard: dict[str, list[str]] = {}
            clients: dict[str, asyncio.Task[Transcript]] = {}
            for number in range(300):
                job_id, num_windows = f"job{number}", draw.choice([1, 1, 1, 2, 5])
                fate = draw.choice(["poison", "neighbour", "leaves", "late", *["done"] * 8])
                if fate == "poison":
                    s.failures[job_id] = LOST
                elif fate == "neighbour":
                    s.failures_once[job_id] = LOST
                heard[job_id] = []
                clients[job_id] = s.send(
                    job_id,
                    30.0 * num_windows,
                    allowed_s=num_windows + 0.001 if fate == "late" else None,
                    on_text=partial(note_text, heard[job_id]),
                )
                await asyncio.sleep(0)
                if fate == "leaves":
                    draw.choice(list(clients.values())).cancel()
            await asyncio.wait(clients.values())
            for job_id, client in clients.items():
                error = None if client.cancelled() else client.exception()
                assert isinstance(error, EngineLostError) == (job_id in s.failures) or client.cancelled()
                assert error is None or isinstance(error, EngineLostError | DeadlineError)
                if error is None and not client.cancelled():
                    text = client.result()
                    assert "".join(heard[job_id]).strip() == text.text
                    assert text.text.count("window") == text.job.estimate.windows == text.num_windows
            assert (s.dispatcher._works, s.dispatcher._suspects) == ({}, set())
            assert s.dispatcher._deadlines.earliest_s is None

    run(scenario)


def remaining_s(s: Stage) -> dict[str, float]:
    """What the scheduler takes it that waiting and running jobs have to go, in its order."""
    return {row.job.id: row.remaining_s for row in s.dispatcher.scheduler.forecast(s.clock.now_s())}


def note_text(heard: list[str], segments: Sequence[Segment]) -> None:
    heard.extend(segment.text for segment in segments)
