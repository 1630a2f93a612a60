"""Real speech through a real server and the real model, with the real OpenAI client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from sooner.bench.accuracy import is_right, word_errors
from sooner.bench.joined import join_clips
from sooner.engines.whisper import WhisperEngine
from sooner.workload.recordings import clip_named, clips

from .conftest import Running, Serve

DATA = Path(__file__).parents[1] / "data"
JFK = clip_named("jfk")
CONCORD = "concord returned to its place amidst the tents"


@pytest.fixture
def server(serve: Serve, whisper: WhisperEngine) -> Running:
    return serve(whisper, num_workers=2)


@pytest.fixture
def client(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_the_openai_client(client: openai.OpenAI) -> None:
    with JFK.path.open("rb") as file:
        result = client.audio.transcriptions.create(file=file, model="whisper-1", language="en")
    assert is_right(JFK.transcript, result.text)


def test_the_openai_client_verbose(client: openai.OpenAI) -> None:
    with JFK.path.open("rb") as file:
        result = client.audio.transcriptions.create(
            file=file,
            model="tiny.en",
            response_format="verbose_json",
            temperature=0,
            prompt="A speech.",
            timestamp_granularities=["segment"],
        )
    assert result.duration == pytest.approx(11.0)
    assert result.language == "en"
    assert is_right(JFK.transcript, "".join(segment.text for segment in result.segments))
    assert result.segments[-1].end <= 11.0


def test_the_openai_client_text(client: openai.OpenAI) -> None:
    with JFK.path.open("rb") as file:
        text = client.audio.transcriptions.create(file=file, model="whisper-1", response_format="text")
    assert is_right(JFK.transcript, text)


def test_the_openai_client_understands_our_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no audio") as bad:
        client.audio.transcriptions.create(file=("a.wav", b"not audio"), model="whisper-1")
    assert (bad.value.code, bad.value.param) == ("unreadable_audio", "file")
    with pytest.raises(openai.NotFoundError, match=r"tiny\.en"), JFK.path.open("rb") as file:
        client.audio.transcriptions.create(file=file, model="large-v9")
    assert [model.id for model in client.models.list()] == ["tiny.en"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jfk_declared_2s_but_11s.wav", JFK.transcript),
        ("jfk_streaming_header_ffffffff.wav", JFK.transcript),
        ("jfk_truncated50pct.mp3", "and so my fellow americans ask not what"),
        ("speech3.5s_then_silence_to_30s.flac", CONCORD),
        ("silence_zero_30s.flac", ""),
        ("short_100ms.wav", ""),
        ("empty.flac", None),
        ("not_audio.wav", None),
        ("random_bytes.flac", None),
    ],
)
def test_hostile_files(server: Running, name: str, said: str | None) -> None:
    response = server.post(DATA / "hostile" / name)
    if said is None:
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "unreadable_audio"
    else:
        assert response.status_code == 200
        text = response.json()["text"]
        assert is_right(said, text) if said else text == ""
    assert server.client.get("/health").status_code == 200


def test_a_wav_that_declares_2_s_is_scheduled_as_the_11_s_it_holds(serve: Serve, whisper: WhisperEngine) -> None:
    server = serve(whisper, learn=False)
    forged = server.post(DATA / "hostile" / "jfk_declared_2s_but_11s.wav", response_format="verbose_json")
    honest = server.post(JFK.path)
    assert forged.json()["duration"] == pytest.approx(11.0)
    assert forged.headers["x-sooner-size-s"] == honest.headers["x-sooner-size-s"]


@pytest.mark.parametrize("name", ["jfk.m4a", "jfk.mp3"])
def test_other_formats(server: Running, name: str) -> None:
    # lossy copies cost the tiny model a word more than the original does
    assert word_errors(JFK.transcript, server.post(DATA / name).json()["text"]).rate < 0.2


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


def test_everybody_gets_their_own_text_under_load(server: Running) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda clip: server.post(clip.path), clips()))
    for clip, answer in zip(clips(), answers, strict=True):
        assert is_right(clip.transcript, answer.json()["text"]), clip.path.stem
