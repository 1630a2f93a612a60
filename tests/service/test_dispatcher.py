"""The asyncio shell with a scripted engine: order, cancellation, failure, closing. No sleeping, exact logs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sooner import Estimator, Job, Limits, Scheduler, policy_named
from sooner.audio.probe import Audio
from sooner.engines.fake import FakeEngine
from sooner.errors import EngineError, QueueFullError, ServiceClosedError
from sooner.service.clock import ManualClock
from sooner.service.dispatcher import Dispatcher, JobRequest, Transcript, WindowRecord


class Stage:
    """A dispatcher over a fake engine whose windows end when the test says so."""

    def __init__(
        self,
        policy: str,
        *,
        num_workers: int,
        preempt: bool | None,
        limits: Limits,
        estimator: Estimator,
    ) -> None:
        self.clock = ManualClock()
        self.entered: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.log: list[tuple[str, int]] = []
        self.windows: list[WindowRecord] = []
        self.failures: dict[str, Exception] = {}
        self._gate = threading.Semaphore(0)
        self._loop = asyncio.get_running_loop()
        self.estimator = estimator
        self.dispatcher = Dispatcher(
            engine=FakeEngine(self._on_step),
            scheduler=Scheduler(policy_named(policy), num_workers=num_workers, preempt=preempt, limits=limits),
            estimator=self.estimator,
            clock=self.clock,
            num_workers=num_workers,
            on_window=self.windows.append,
        )

    def _on_step(self, job: Job, index: int) -> None:
        self._loop.call_soon_threadsafe(self.entered.put_nowait, (job.id, index))
        self._gate.acquire()
        if job.id in self.failures:
            raise self.failures[job.id]

    def send(self, job_id: str, audio_s: float, language: str | None = None) -> asyncio.Task[Transcript]:
        audio = Audio(path=Path("unused"), num_samples=round(audio_s * 16_000))
        return asyncio.ensure_future(
            self.dispatcher.transcribe(JobRequest(job_id=job_id, audio=audio, language=language))
        )

    async def window_begins(self) -> tuple[str, int]:
        """Wait until a worker is inside a window, and note which."""
        window = await self.entered.get()
        self.log.append(window)
        return window

    def let_windows_end(self, number: int = 1, *, after_s: float = 1.0) -> None:
        self.clock.advance(after_s)
        self._gate.release(number)

    def run_dry(self) -> None:
        """From now on every window ends at once."""
        self._gate.release(1000)


@asynccontextmanager
async def stage(
    policy: str = "hrrn",
    *,
    num_workers: int = 1,
    preempt: bool | None = None,
    limits: Limits | None = None,
    estimator: Estimator | None = None,
) -> AsyncIterator[Stage]:
    s = Stage(
        policy,
        num_workers=num_workers,
        preempt=preempt,
        limits=limits or Limits(),
        estimator=estimator or Estimator(),
    )
    try:
        yield s
    finally:
        s.run_dry()
        await s.dispatcher.close(grace_s=10.0)
        s.dispatcher.scheduler.check()


def run(test: Callable[[], object]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))  # type: ignore[arg-type]


async def clip_behind_a_meeting(policy: str, preempt: bool | None) -> list[tuple[str, int]]:
    async with stage(policy, preempt=preempt) as s:
        meeting = s.send("meeting", 90.0)
        await s.window_begins()
        clip = s.send("clip", 3.0)
        await asyncio.sleep(0)  # let it be submitted
        for _ in range(3):
            s.let_windows_end()
            await s.window_begins()
        s.let_windows_end()
        texts = await asyncio.gather(meeting, clip)
        assert [t.text for t in texts] == [
            "window 0 of 3 window 1 of 3 window 2 of 3",
            "window 0 of 1",
        ]
        assert [(t.num_windows, t.num_tokens) for t in texts] == [(3, 270), (1, 90)]
        return s.log


@pytest.mark.parametrize("policy", ["sjf", "hrrn"])
def test_a_clip_is_served_after_the_window_under_way(policy: str) -> None:
    log = asyncio.run(clip_behind_a_meeting(policy, None))
    assert log == [("meeting", 0), ("clip", 0), ("meeting", 1), ("meeting", 2)]


@pytest.mark.parametrize(("policy", "preempt"), [("fcfs", None), ("sjf", False), ("hrrn", False)])
def test_without_preemption_the_meeting_ends_first(policy: str, preempt: bool | None) -> None:
    log = asyncio.run(clip_behind_a_meeting(policy, preempt))
    assert log == [("meeting", 0), ("meeting", 1), ("meeting", 2), ("clip", 0)]


def test_a_transcript_tells_what_scheduling_did() -> None:
    async def scenario() -> None:
        async with stage("fcfs") as s:
            first = s.send("first", 3.0)
            await s.window_begins()
            s.clock.advance(0.5)
            second = s.send("second", 3.0)
            await asyncio.sleep(0)
            s.let_windows_end(after_s=1.0)
            await s.window_begins()
            s.let_windows_end(after_s=2.0)
            a, b = await asyncio.gather(first, second)
            assert (a.wait_s, a.service_s) == (0.0, 1.5)
            assert (b.wait_s, b.service_s, b.started_s, b.finished_s) == (1.0, 2.0, 1.5, 3.5)
            assert [(w.job_id, w.started_s, w.ended_s) for w in s.windows] == [
                ("first", 0.0, 1.5),
                ("second", 1.5, 3.5),
            ]
            seen = s.estimator.statistics()
            assert (seen.num_jobs, seen.actual_tokens, seen.actual_service_s) == (2, 180, 3.5)

    run(scenario)


class RecordingEstimator(Estimator):
    """Notes what it is told of finished jobs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told: list[dict[str, Any]] = []

    def observe(self, job: Job, **facts: Any) -> None:
        self.told.append({"id": job.id, "asked_for": job.language, **facts})
        super().observe(job, **facts)


def test_the_estimator_is_told_windows_and_language() -> None:
    async def scenario() -> None:
        estimator = RecordingEstimator(learns=True)
        async with stage("fcfs", estimator=estimator) as s:
            meeting, clip = s.send("meeting", 70.0), s.send("clip", 3.0, language="de")
            for _ in range(4):
                await s.window_begins()
                s.let_windows_end()
            await asyncio.gather(meeting, clip)
        assert estimator.told == [
            {
                "id": "meeting",
                "asked_for": None,
                "tokens": 270,
                "service_s": 3.0,
                "num_windows": 3,
                "language": "en",
            },
            {"id": "clip", "asked_for": "de", "tokens": 90, "service_s": 1.0, "num_windows": 1, "language": "de"},
        ]

    run(scenario)


def test_a_job_is_sized_by_what_its_language_has_taught() -> None:
    async def scenario() -> None:
        estimator = Estimator(learns=True)
        taught = estimator.estimate(10.0)
        for number in range(50):
            job = Job(id=str(number), arrival_s=0.0, audio_s=10.0, estimate=taught, language="de")
            estimator.observe(job, tokens=60, service_s=taught.size_s)
        expected = {language: estimator.estimate(10.0, language=language) for language in ("de", "en", None)}
        assert len({estimate.estimated_output_tokens for estimate in expected.values()}) > 1
        async with stage(estimator=estimator, num_workers=3) as s:
            tasks = [s.send(str(language), 10.0, language) for language in expected]
            for _ in expected:
                await s.window_begins()
            s.run_dry()
            texts = await asyncio.gather(*tasks)
        assert [text.job.estimate for text in texts] == list(expected.values())
        assert [text.job.language for text in texts] == list(expected)

    run(scenario)


def test_what_remains_of_a_started_job_goes_on_from_a_window() -> None:
    async def scenario() -> None:
        async with stage("sjf", estimator=Estimator(encode_s=0.5, token_s=0.25, context_s=1.0)) as s:
            meeting = s.send("meeting", 90.0)
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await asyncio.sleep(0)
            s.let_windows_end()
            assert await s.window_begins() == ("clip", 0)
            (waiting,) = [row for row in s.dispatcher.scheduler.forecast(s.clock.now_s()) if not row.running]
            assert waiting.job.size_s == 3 * 0.5 + 270 * 0.25 + 2 * 1.0
            assert waiting.remaining_s == 2 * 0.5 + 180 * 0.25 + 2 * 1.0
            s.run_dry()
            await asyncio.gather(meeting, clip)

    run(scenario)


def test_changes_of_order_are_logged_as_they_come(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sooner")

    async def scenario() -> None:
        async with stage("adaptive") as s:
            tasks = [s.send(f"clip{n}", 3.0) for n in range(8)]
            await s.window_begins()
            (line,) = [one.getMessage() for one in caplog.records]
            assert line.startswith("order boost instead of fcfs: 4 wait, ")
            s.run_dry()
            assert len(await asyncio.gather(*tasks)) == 8

    run(scenario)


def test_workers_run_side_by_side() -> None:
    async def scenario() -> None:
        async with stage(num_workers=2) as s:
            tasks = [s.send(name, 3.0) for name in ("a", "b", "c")]
            assert {(await s.window_begins())[0], (await s.window_begins())[0]} == {"a", "b"}
            assert s.entered.empty()
            s.let_windows_end()
            assert await s.window_begins() == ("c", 0)
            s.run_dry()
            await asyncio.gather(*tasks)

    run(scenario)


def test_cancel_while_waiting() -> None:
    async def scenario() -> None:
        async with stage() as s:
            first = s.send("first", 3.0)
            await s.window_begins()
            waiting = s.send("waiting", 3.0)
            await asyncio.sleep(0)
            assert s.dispatcher.scheduler.num_waiting == 1
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert s.dispatcher.scheduler.num_waiting == 0
            s.let_windows_end()
            await first
            assert s.log == [("first", 0)]

    run(scenario)


def test_cancel_while_running_stops_at_the_next_window() -> None:
    async def scenario() -> None:
        async with stage() as s:
            meeting = s.send("meeting", 600.0)
            await s.window_begins()
            after = s.send("after", 3.0)
            await asyncio.sleep(0)
            meeting.cancel()
            await asyncio.gather(meeting, return_exceptions=True)
            s.let_windows_end()
            assert await s.window_begins() == ("after", 0)  # not the second of twenty windows
            s.let_windows_end()
            await after
            assert s.dispatcher.scheduler.statistics().num_cancelled == 1

    run(scenario)


@pytest.mark.parametrize("error", [EngineError("out of memory"), ZeroDivisionError("a bug")])
def test_a_failing_job_takes_nobody_with_it(error: Exception) -> None:
    async def scenario() -> None:
        async with stage() as s:
            s.failures["bad"] = error
            bad, good = s.send("bad", 90.0), s.send("good", 3.0)
            await s.window_begins()
            s.let_windows_end()
            with pytest.raises(EngineError, match=str(error)):
                await bad
            await s.window_begins()
            s.let_windows_end()
            assert (await good).text == "window 0 of 1"

    run(scenario)


def test_a_full_queue_refuses() -> None:
    async def scenario() -> None:
        async with stage(limits=Limits(max_waiting=1)) as s:
            running = s.send("running", 3.0)
            await s.window_begins()
            waiting = s.send("waiting", 3.0)
            await asyncio.sleep(0)
            with pytest.raises(QueueFullError):
                await s.send("refused", 3.0)
            s.run_dry()
            await asyncio.gather(running, waiting)

    run(scenario)


def test_closing_finishes_what_was_started_and_refuses_the_rest() -> None:
    async def scenario() -> None:
        async with stage() as s:
            started = s.send("started", 60.0)
            await s.window_begins()
            waiting = s.send("waiting", 3.0)
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(s.dispatcher.close(grace_s=20.0))
            with pytest.raises(ServiceClosedError):
                await waiting
            with pytest.raises(ServiceClosedError):
                await s.send("late", 3.0)
            s.run_dry()
            assert (await started).text == "window 0 of 2 window 1 of 2"
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
