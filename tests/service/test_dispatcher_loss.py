"""An engine that is lost with all that it was doing: who begins anew, who is suspected, who fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial

import pytest

from sooner.engines.base import Segment
from sooner.errors import DeadlineError, EngineLostError
from sooner.service import dispatcher
from sooner.service.clock import MonotonicClock
from sooner.service.dispatcher import Progress, Transcript
from tests.service.stage import a_second_a_window, run, stage

LOST = EngineLostError("the engine died (exit code -11)")


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


def note_text(heard: list[str], segments: Sequence[Segment]) -> None:
    heard.extend(segment.text for segment in segments)
