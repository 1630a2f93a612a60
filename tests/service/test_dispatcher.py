"""The asyncio shell with a scripted engine: order, sizes, text as it comes, cancellation, failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from sooner import Estimate, Estimator, Job, Limits
from sooner.engines.base import Segment
from sooner.errors import EngineError, QueueFullError, SoonerError
from sooner.service.dispatcher import Progress
from tests.service.stage import run, stage


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
            s.manual_clock.advance(0.5)
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
    """Notes what it is asked, and told of finished jobs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []

    def estimate(self, audio_s: float, **facts: Any) -> Estimate:
        self.asked.append({"audio_s": audio_s, **facts})
        return super().estimate(audio_s, **facts)

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
            (switch,) = s.dispatcher.recent_switches
            assert (switch.before, switch.after, switch.at_s) == ("fcfs", "boost", 0.0)
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


def test_text_is_handed_on_window_by_window() -> None:
    async def scenario() -> None:
        async with stage("sjf") as s:
            heard: list[tuple[str, float]] = []

            def listen(segments: Sequence[Segment]) -> None:
                heard.extend((segment.text, s.clock.now_s()) for segment in segments)

            meeting = s.send("meeting", 70.0, on_text=listen)
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await s.end_window()
            assert heard == [(" window 0 of 3", 1.0)]
            await s.end_window()
            assert (await clip).first_text_s == 2.0
            assert len(heard) == 1
            await s.end_window()
            await s.end_window()
            text = await meeting
            assert heard == [(" window 0 of 3", 1.0), (" window 1 of 3", 3.0), (" window 2 of 3", 4.0)]
            assert "".join(said for said, _ in heard).strip() == text.text
            assert (text.first_text_s, text.num_preemptions, text.num_restarts) == (1.0, 1, 0)

    run(scenario)


@pytest.mark.parametrize("audio_s", [3.0, 90.0])
def test_a_listener_that_fails_takes_nobody_with_it(audio_s: float, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_segments: Sequence[Segment]) -> None:
        raise ZeroDivisionError("a bug")

    async def scenario() -> None:
        async with stage() as s:
            bad, good = s.send("bad", audio_s, on_text=fail), s.send("good", 3.0)
            s.run_dry()
            with pytest.raises(SoonerError, match="a bug"):
                await bad
            assert (await good).text == "window 0 of 1"
            assert [window.job_id for window in s.windows] == ["bad", "good"]
        assert "the listener of job bad failed" in caplog.text

    run(scenario)


def test_a_recording_without_a_voice_needs_no_worker() -> None:
    async def scenario() -> None:
        async with stage(limits=Limits(max_waiting=1)) as s:
            running = s.send("running", 3.0)
            await s.window_begins()
            waiting = s.send("waiting", 3.0)
            silent = await s.send("silent", 600.0, speech=(), allowed_s=0.0)  # past a full queue
            assert (silent.text, silent.segments, silent.num_tokens, silent.num_windows) == ("", (), 0, 0)
            assert (silent.wait_s, silent.service_s, silent.first_text_s) == (0.0, 0.0, None)
            assert (silent.language, silent.job.speech_s) == ("en", 0.0)
            assert (await s.send("quiet", 60.0, "de", speech=())).language == "de"
            assert s.dispatcher.scheduler.statistics().num_submitted == 2
            s.run_dry()
            await asyncio.gather(running, waiting)
            assert s.estimator.statistics().num_jobs == 2

    run(scenario)


def test_a_job_is_sized_by_its_voices_and_its_client() -> None:
    """Half an hour with two stretches of speech costs three windows, and two once the first is done."""

    async def scenario() -> None:
        estimator = RecordingEstimator(kappa=2.0, encode_s=1.0, token_s=0.1, context_s=5.0)
        async with stage("sjf", estimator=estimator) as s:
            speech = ((100.0, 140.0), (900.0, 910.0))
            meeting = s.send("meeting", 1800.0, "de", speech=speech, client="key:a", priority=1)
            await s.window_begins()
            (row,) = s.dispatcher.scheduler.forecast(0.0)
            assert (row.job.size_s, row.job.speech_s) == (3 * 1.0 + 100 * 0.1 + 2 * 5.0, 50.0)
            assert (row.job.client, row.job.language, row.job.priority) == ("key:a", "de", 1)
            for _ in range(4):  # the fake engine goes through the silence
                await s.end_window()
            (row,) = s.dispatcher.scheduler.forecast(4.0)
            assert row.remaining_s == pytest.approx(2 * 1.0 + 60 * 0.1 + 2 * 5.0)  # from 120 s on
            s.run_dry()
            await meeting
            assert {(asked["client"], asked["language"]) for asked in estimator.asked} == {("key:a", "de")}

    run(scenario)


def test_how_far_a_job_is() -> None:
    async def scenario() -> None:
        async with stage() as s:
            meeting = s.send("meeting", 70.0)
            await s.window_begins()
            assert s.dispatcher.progress("meeting") == Progress()
            await s.end_window()
            await s.end_window()
            assert s.dispatcher.progress("meeting") == Progress(done_s=60.0, num_windows=2)
            assert s.dispatcher.progress("nobody") == Progress()
            s.run_dry()
            await meeting
            assert s.dispatcher.progress("meeting") == Progress()

    run(scenario)


def test_how_long_workers_were_busy() -> None:
    async def scenario() -> None:
        async with stage(num_workers=2) as s:
            first, second = s.send("first", 3.0), s.send("second", 3.0)
            await s.windows_begin(2)
            assert (s.dispatcher.num_workers, s.dispatcher.worker_busy_s(0.0)) == (2, 0.0)
            await s.end_window("first", after_s=2.0)
            await first
            assert s.dispatcher.worker_busy_s(2.0) == 4.0
            assert s.dispatcher.worker_busy_s(3.0) == 5.0  # one of two goes on
            second.cancel()
            await asyncio.wait([second])
            assert s.dispatcher.worker_busy_s(3.0) == 5.0  # its window still has the worker
            await s.end_window(after_s=3.0)
            assert s.dispatcher.worker_busy_s(9.0) == 7.0

    run(scenario)


def test_a_cancelled_job_is_let_go_of() -> None:
    """What a waiting one has open at once, what a running one has at the end of its window."""

    async def scenario() -> None:
        async with stage("sjf") as s:
            meeting = s.send("meeting", 90.0)
            await s.window_begins()
            clip = s.send("clip", 3.0)
            await s.end_window()
            await s.window_begins()
            works = s.dispatcher._works
            waiting, running = works["meeting"].decoding, works["clip"].decoding
            for client in (meeting, clip):
                client.cancel()
                await asyncio.wait([client])
            assert works == {}
            assert (waiting._closed, running._closed) == (True, False)  # type: ignore[union-attr]
            await s.end_window()
            assert running._closed  # type: ignore[union-attr]

    run(scenario)


@pytest.mark.parametrize("audio_s", [3.0, 90.0])
def test_a_client_that_leaves_in_the_very_turn_is_told_nothing(audio_s: float) -> None:
    async def scenario() -> None:
        async with stage() as s:
            heard: list[Sequence[Segment]] = []
            client = s.send("client", audio_s, on_text=heard.append)
            await s.window_begins()
            s.at_end = client.cancel
            await s.end_window()
            await asyncio.wait([client])
            assert client.cancelled()
            assert heard == []

    run(scenario)
