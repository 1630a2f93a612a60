"""The dispatcher with the real model and real speech."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sooner import Estimator, Scheduler, policy_named
from sooner.audio.probe import Audio, Probe
from sooner.engines.base import Segment
from sooner.engines.whisper import WhisperEngine
from sooner.service.clock import MonotonicClock
from sooner.service.dispatcher import Dispatcher, JobRequest
from sooner.workload.recordings import clip_named
from tests.service.stage import run


def measured(name: str, whisper: WhisperEngine) -> Audio:
    probe = Probe(clip_named(name).path, max_audio_s=60.0, log_mel=whisper.log_mel)
    while (audio := probe.step()) is None:
        pass
    return audio


def test_speech_is_handed_on_as_it_is_in_the_transcript(whisper: WhisperEngine) -> None:
    async def scenario() -> None:
        dispatcher = Dispatcher(
            engine=whisper,
            scheduler=Scheduler(policy_named("adaptive"), num_workers=2),
            estimator=Estimator(),
            clock=MonotonicClock(),
            num_workers=2,
        )
        heard: list[str] = []

        def listen(segments: Sequence[Segment]) -> None:
            heard.extend(segment.text for segment in segments)

        audio = measured("jfk", whisper)
        text = await dispatcher.transcribe(JobRequest(job_id="jfk", audio=audio, language="en"), on_text=listen)
        assert "ask what you can do for your country" in text.text.lower()
        assert "".join(heard).strip() == text.text
        assert text.first_text_s is not None
        assert text.started_s < text.first_text_s <= text.finished_s
        assert dispatcher.worker_busy_s(text.finished_s) == pytest.approx(text.service_s)
        await dispatcher.close(grace_s=0.0)

    run(scenario)
