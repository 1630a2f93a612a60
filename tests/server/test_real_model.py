"""Real speech through a real server and the real model: sizes and order. Its text: ``test_files``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sooner.bench.accuracy import is_right
from sooner.bench.joined import join_clips
from sooner.engines.whisper import WhisperEngine
from sooner.workload.recordings import clip_named

from .conftest import Serve

DATA = Path(__file__).parents[1] / "data"
JFK = clip_named("jfk")


def test_a_wav_that_declares_2_s_is_scheduled_as_the_11_s_it_holds(serve: Serve, whisper: WhisperEngine) -> None:
    server = serve(whisper, learn=False)
    forged = server.post(DATA / "hostile" / "jfk_declared_2s_but_11s.wav", response_format="verbose_json")
    honest = server.post(JFK.path)
    assert forged.json()["duration"] == pytest.approx(11.0)
    assert forged.headers["x-sooner-size-s"] == honest.headers["x-sooner-size-s"]


@pytest.mark.parametrize("policy", ["sjf", "hrrn"])
def test_a_clip_is_answered_long_before_the_file_it_came_behind(
    serve: Serve, whisper: WhisperEngine, tmp_path: Path, policy: str
) -> None:
    server = serve(whisper, num_workers=1, policy=policy)
    meeting = join_clips(tmp_path / "meeting.wav", at_least_s=150.0, seed=4)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(server.post, meeting.path)
        server.wait_for_queue(lambda q: q["num_running"] == 1)
        clip = server.post(clip_named("austen-0930").path)
        assert not slow.done()
        assert is_right(clip_named("austen-0930").transcript, clip.json()["text"])
        assert is_right(meeting.transcript, slow.result().json()["text"])
    assert server.queue()["num_preemptions"] >= 1
