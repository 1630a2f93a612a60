"""The contract as OpenAI's own client sees it, sync and async, over the scripted engine and the real models."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from openai.types.audio import TranscriptionTextDeltaEvent, TranscriptionTextDoneEvent

from sooner.bench.accuracy import is_right
from sooner.bench.joined import join_clips
from sooner.core.job import Job
from sooner.engines.base import Engine
from sooner.engines.fake import FakeEngine
from sooner.engines.whisper import WhisperEngine
from sooner.errors import EngineError
from sooner.server.app import make_app
from sooner.server.background import BackgroundServer
from sooner.server.options import ServeOptions
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve

DATA = Path(__file__).parents[1] / "data"
JFK = clip_named("jfk")
CLIP = clip_named("austen-0880").path
OLD = pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # what the client says of translations


def client_of(url: str, timeout_s: float = 60.0) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=timeout_s)


def serving(engine: Engine) -> Iterator[openai.OpenAI]:
    options = ServeOptions(port=0)
    app = make_app(options, engine=engine, num_workers=2)
    with BackgroundServer(app, options) as server, client_of(server.url) as client:
        yield client


@pytest.fixture(scope="module")
def client(whisper: WhisperEngine) -> Iterator[openai.OpenAI]:
    yield from serving(whisper)


@pytest.fixture(scope="module")
def base_client(whisper_base: WhisperEngine) -> Iterator[openai.OpenAI]:
    yield from serving(whisper_base)


def test_json(client: openai.OpenAI) -> None:
    result = client.audio.transcriptions.create(file=JFK.path, model="whisper-1", language="en")
    assert is_right(JFK.transcript, result.text)
    assert result.usage is not None
    assert result.usage.type == "duration"
    assert result.usage.seconds == 11


def test_verbose_json(client: openai.OpenAI) -> None:
    result = client.audio.transcriptions.create(
        file=JFK.path, model="tiny.en", response_format="verbose_json", temperature=0, prompt="A speech."
    )
    assert result.duration == pytest.approx(11.0)
    assert result.language == "english"
    assert result.words is None
    assert result.segments is not None
    assert is_right(JFK.transcript, "".join(segment.text for segment in result.segments))
    assert result.segments[-1].end <= 11.0
    assert [segment.id for segment in result.segments] == list(range(len(result.segments)))
    assert result.usage is not None
    assert result.usage.seconds == 11


def test_words(client: openai.OpenAI) -> None:
    def ask(*granularities: str) -> openai.types.audio.TranscriptionVerbose:
        return client.audio.transcriptions.create(
            file=JFK.path,
            model="whisper-1",
            response_format="verbose_json",
            timestamp_granularities=list(granularities),  # type: ignore[arg-type]
        )

    with ThreadPoolExecutor(2) as pool:
        words, both = pool.map(lambda some: ask(*some), [("word",), ("word", "segment")])
    assert words.segments is None
    assert words.words is not None
    assert both.segments is not None
    assert both.words == words.words
    assert " ".join(word.word for word in words.words) == words.text
    times = [time for word in words.words for time in (word.start, word.end)]
    assert times == sorted(times)
    assert 0 <= times[0] < times[-1] <= 11.0


@pytest.mark.parametrize("response_format", ["text", "srt", "vtt"])
def test_plain_formats(client: openai.OpenAI, response_format: str) -> None:
    text = client.audio.transcriptions.create(
        file=JFK.path,
        model="whisper-1",
        response_format=response_format,  # type: ignore[call-overload]
    )
    assert isinstance(text, str)
    if response_format == "text":
        assert is_right(JFK.transcript, text)
    else:
        head = {"srt": "1\n00:00:0", "vtt": "WEBVTT\n\n00:00:0"}[response_format]
        assert text.startswith(head)
        assert "country" in text


def test_a_stream(client: openai.OpenAI, tmp_path: Path) -> None:
    """Two windows and their text, in order; what came is what is there in the end."""
    recording = join_clips(tmp_path / "joined.wav", at_least_s=35.0, seed=3)
    stream = client.audio.transcriptions.create(file=recording.path, model="whisper-1", stream=True)
    *deltas, done = stream
    assert isinstance(done, TranscriptionTextDoneEvent)
    assert len(deltas) >= 2
    parts = [event.delta for event in deltas if isinstance(event, TranscriptionTextDeltaEvent)]
    assert "".join(parts) == done.text
    assert is_right(recording.transcript, done.text)


def test_an_async_client_streams(serve: Serve) -> None:
    url = serve().url

    async def talk() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            stream = await client.audio.transcriptions.create(file=CLIP, model="whisper-1", stream=True)
            return [event.type async for event in stream]

    assert asyncio.run(talk()) == ["transcript.text.delta", "transcript.text.done"]


def test_a_stream_that_fails_raises(serve: Serve, silent_wav) -> None:
    def on_step(_: Job, index: int) -> None:
        if index == 1:
            raise EngineError("the model failed")

    with client_of(serve(FakeEngine(on_step)).url) as client:
        stream = client.audio.transcriptions.create(file=silent_wav(90.0), model="whisper-1", stream=True)
        assert next(stream).type == "transcript.text.delta"
        with pytest.raises(openai.APIError, match="the engine failed on this recording") as failed:
            next(stream)
    assert (failed.value.code, failed.value.type) == ("engine_failed", "server_error")


@OLD
def test_errors(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not audio") as bad:
        client.audio.transcriptions.create(file=("a.wav", b"not audio"), model="whisper-1")
    assert (bad.value.code, bad.value.param) == ("unreadable_audio", "file")
    with pytest.raises(openai.BadRequestError, match="verbose_json") as bad:
        client.audio.transcriptions.create(file=CLIP, model="whisper-1", timestamp_granularities=["word"])
    assert bad.value.param == "timestamp_granularities[]"
    with pytest.raises(openai.BadRequestError, match="avg_logprob") as bad:
        client.audio.transcriptions.create(file=CLIP, model="whisper-1", include=["logprobs"])
    assert bad.value.param == "include"
    with pytest.raises(openai.BadRequestError, match="multilingual") as bad:
        client.audio.translations.create(file=CLIP, model="whisper-1")
    assert bad.value.param == "model"
    with pytest.raises(openai.NotFoundError, match=r"tiny\.en"):
        client.audio.transcriptions.create(file=CLIP, model="large-v9")
    with pytest.raises(openai.PermissionDeniedError, match="interactive"):
        client.audio.transcriptions.create(
            file=CLIP, model="whisper-1", extra_headers={"x-sooner-priority": "interactive"}
        )
    with pytest.raises(openai.BadRequestError, match="deadline_s"):
        client.audio.transcriptions.create(file=CLIP, model="whisper-1", extra_body={"deadline_s": "soon"})
    assert [model.id for model in client.models.list()] == ["tiny.en"]


def test_limits(serve: Serve) -> None:
    with client_of(serve(max_upload_bytes=1000).url) as client:
        with pytest.raises(openai.APIStatusError) as too_large:
            client.audio.transcriptions.create(file=CLIP, model="whisper-1")
        assert (too_large.value.status_code, too_large.value.code) == (413, "upload_too_large")
    server: Running = serve(gated=True, max_queue=1, max_client_jobs=10)
    with client_of(server.url) as client, ThreadPoolExecutor(2) as pool:
        accepted = [pool.submit(server.post, CLIP)]
        server.gate.wait_for_windows(1)
        accepted += [pool.submit(server.post, CLIP)]
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        with pytest.raises(openai.InternalServerError) as full:
            client.audio.transcriptions.create(file=CLIP, model="whisper-1")
        assert (full.value.status_code, full.value.code) == (503, "queue_full")
        assert int(full.value.response.headers["retry-after"]) >= 1
        server.gate.open()
        assert [future.result().status_code for future in accepted] == [200, 200]


def test_a_deadline_that_cannot_be_kept(serve: Serve, silent_wav) -> None:
    with client_of(serve().url) as client, pytest.raises(openai.APIStatusError) as late:
        client.audio.transcriptions.create(
            file=silent_wav(300.0), model="whisper-1", extra_headers={"x-sooner-deadline-s": "0.5"}
        )
    assert (late.value.status_code, late.value.code) == (504, "deadline")


@OLD
def test_translation(base_client: openai.OpenAI) -> None:
    """Spanish in, English out."""
    spanish = DATA / "es_test_clip.wav"
    plain = base_client.audio.translations.create(file=spanish, model="whisper-1")
    assert "recording" in plain.text.lower()
    verbose = base_client.audio.translations.create(
        file=spanish, model="whisper-1", response_format="verbose_json"
    )
    assert verbose.language == "english"
    assert verbose.text == plain.text
    assert verbose.segments is not None
    original = base_client.audio.transcriptions.create(
        file=spanish, model="whisper-1", response_format="verbose_json"
    )
    assert original.language == "spanish"
    assert "grabaciones" in original.text.lower()
