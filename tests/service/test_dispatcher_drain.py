"""Closing: who can be done within the grace is served, who cannot is told at once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sooner import Estimate, Job
from sooner.core.scheduler import QueuedJob
from sooner.errors import ServiceClosedError
from sooner.service import dispatcher
from sooner.service.drain import beyond_grace
from tests.service.stage import a_second_a_window, run, stage


def row(job_id: str, remaining_s: float, *, running: bool = False, windows: int = 1) -> QueuedJob:
    estimate = Estimate(estimated_output_tokens=1, windows=windows, size_s=remaining_s)
    return QueuedJob(
        job=Job(id=job_id, arrival_s=0.0, audio_s=1.0, estimate=estimate),
        running=running,
        position=0 if running else 1,
        wait_s=0.0,
        remaining_s=remaining_s,
        predicted_start_s=0.0,
    )


@pytest.mark.parametrize(
    ("rows", "num_workers", "beyond"),
    [
        ([], 1, []),
        ([row("a", 10.0)], 1, []),
        ([row("a", 10.1)], 1, ["a"]),
        ([row("a", 6.0), row("b", 6.0), row("c", 4.0)], 1, ["b"]),  # what is refused takes up no time
        ([row("a", 6.0), row("b", 6.0), row("c", 4.0), row("d", 4.1)], 2, ["d"]),
        ([row("a", 4.0, running=True), row("b", 6.0), row("c", 0.1)], 1, ["c"]),
        ([row("a", 9.0, running=True), row("b", 2.0, running=True), row("c", 8.0)], 2, []),
        ([row("a", 60.0, running=True, windows=20), row("b", 7.0), row("c", 0.1)], 1, ["a", "c"]),  # frees at 3 s
        ([row("a", 60.0, running=True, windows=2), row("b", 7.0)], 1, ["a", "b"]),
        ([row("a", 60.0, running=True, windows=2), row("b", 7.0)], 2, ["a"]),
    ],
)
def test_who_cannot_be_done(rows: list[QueuedJob], num_workers: int, beyond: list[str]) -> None:
    assert beyond_grace(rows, num_workers=num_workers, grace_s=10.0) == beyond


def test_closing_serves_who_can_be_done_and_refuses_the_others_at_once() -> None:
    async def scenario() -> None:
        async with stage("fcfs", estimator=a_second_a_window()) as s:
            started = s.send("started", 60.0)
            await s.window_begins()
            file, clip = s.send("file", 600.0), s.send("clip", 3.0)
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(s.dispatcher.close(grace_s=5.0))
            with pytest.raises(ServiceClosedError):
                await file
            assert s.dispatcher.closing
            for speech in (None, ()):
                with pytest.raises(ServiceClosedError):
                    await s.send("late", 3.0, speech=speech)
            for _ in range(2):
                s.let_windows_end()
                await s.window_begins()
            s.let_windows_end()
            assert (await started).text == "window 0 of 2 window 1 of 2"
            assert (await clip).text == "window 0 of 1"
            await closing
            assert s.log == [("started", 0), ("started", 1), ("clip", 0)]

    run(scenario)


def test_closing_refuses_a_started_file_that_would_outlast_the_grace() -> None:
    """And serves the clip behind it, after the window under way."""

    async def scenario() -> None:
        async with stage("fcfs", estimator=a_second_a_window()) as s:
            file = s.send("file", 600.0)
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(s.dispatcher.close(grace_s=5.0))
            with pytest.raises(ServiceClosedError):
                await file
            s.run_dry()
            assert (await clip).text == "window 0 of 1"
            await closing
            assert [window.job_id for window in s.windows] == ["file", "clip"]

    run(scenario)


def test_who_is_left_when_the_grace_ends_is_refused() -> None:
    async def scenario() -> None:
        async with stage("fcfs", estimator=a_second_a_window(), num_workers=2) as s:
            done, file, waiting = s.send("done", 3.0), s.send("file", 90.0), s.send("waiting", 3.0)
            await s.windows_begin(2)
            closing = asyncio.ensure_future(s.dispatcher.close(grace_s=5.0))
            await asyncio.sleep(0)
            assert not waiting.done()
            s.let_windows_end(after_s=5.0, of="done")  # takes five times as long as predicted
            assert (await done).text == "window 0 of 1"
            for late in (file, waiting):
                with pytest.raises(ServiceClosedError):
                    await late
            assert not closing.done()  # the window of the file runs
            s.let_windows_end(of="file")
            await closing
            assert {window.job_id for window in s.windows} == {"done", "file"}

    run(scenario)


def test_the_grace_ends_though_nothing_happens() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window()) as s:
            started = s.send("started", 3.0)
            await s.window_begins()
            s.manual_clock.advance(0.99)
            closing = asyncio.ensure_future(s.dispatcher.close(grace_s=0.02))
            with pytest.raises(ServiceClosedError):
                await started
            s.let_windows_end()
            await closing

    run(scenario)


def test_closing_without_grace_refuses_what_was_started_too() -> None:
    async def scenario() -> None:
        async with stage() as s:
            started = s.send("started", 600.0)
            await s.window_begins()
            closing = asyncio.ensure_future(s.dispatcher.close(grace_s=0.0))
            with pytest.raises(ServiceClosedError):
                await started
            assert not closing.done()  # the window still runs
            s.let_windows_end()
            await closing

    run(scenario)


def test_a_second_close_ends_the_grace_of_the_first() -> None:
    async def scenario() -> None:
        async with stage(estimator=a_second_a_window()) as s:
            started = s.send("started", 60.0)
            await s.window_begins()
            first = asyncio.ensure_future(s.dispatcher.close(grace_s=20.0))
            await asyncio.sleep(0)
            assert not started.done()
            second = asyncio.ensure_future(s.dispatcher.close(grace_s=0.0))
            with pytest.raises(ServiceClosedError):
                await started
            s.let_windows_end()
            await asyncio.gather(first, second)

    run(scenario)


def test_a_window_that_does_not_end_does_not_keep_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatcher, "_LAST_WINDOWS_S", 0.01)

    async def scenario() -> None:
        async with stage() as s:
            stuck = s.send("stuck", 3.0)
            await s.window_begins()
            await s.dispatcher.close(grace_s=0.0)
            with pytest.raises(ServiceClosedError):
                await stuck
            assert "1 windows still run 0.01 s after the grace" in caplog.text
            await s.end_window()
        for thread in threading.enumerate():
            if thread.name.startswith("sooner-worker"):
                thread.join(20.0)
                assert not thread.is_alive()

    run(scenario)
