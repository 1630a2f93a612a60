"""What the API process does to a request on its way to the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from vllm.sampling_params import SamplingParams

from sooner import Estimator
from sooner.errors import ConfigurationError, UnsupportedVllmError
from sooner.vllm_plugin import capture
from sooner.vllm_plugin.capture import Upload, capture_engine_client, capture_speech, sized
from sooner.vllm_plugin.chunk import ESTIMATE_KEY, UPLOAD_KEY, chunks_of_upload
from sooner.vllm_plugin.metrics import RequestTable

RATE_HZ = 16_000
ESTIMATOR = Estimator(kappa=3.0)
(CHUNK,) = chunks_of_upload("u", [10.0], ESTIMATOR)


def vllm_config(policy: str = "hrrn", **section: Any) -> Any:
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(policy=policy, scheduler_cls=None),
        additional_config={"sooner": section},
    )


@dataclass
class FakeClient:
    """An engine client that notes what it is given."""

    vllm_config: Any = field(default_factory=vllm_config)
    logger_manager: Any = None
    given: list[tuple[Any, SamplingParams, str]] = field(default_factory=list)

    async def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, **_: Any
    ) -> AsyncIterator[str]:
        self.given.append((prompt, sampling_params, request_id))
        yield "text"


class FakeServing:
    """The part of vLLM's speech endpoints that matters: cut, detect the language, submit every chunk."""

    def __init__(self, client: FakeClient, chunks_s: list[float], while_decoding: Any = lambda: None) -> None:
        self.engine_client = client
        self.asr_config = SimpleNamespace(sample_rate=RATE_HZ)
        self._chunks_s = chunks_s
        self._while_decoding = while_decoding

    async def _decode_and_chunk_speech_async(self, audio_data: bytes) -> Any:
        await asyncio.sleep(0)
        self._while_decoding()
        return [np.zeros(round(s * RATE_HZ), np.float32) for s in self._chunks_s], sum(self._chunks_s)

    async def _preprocess_speech_to_text(self, request: Any, audio_data: bytes, request_id: str) -> Any:
        chunks, _ = await self._decode_and_chunk_speech_async(audio_data)
        if request.language is None:
            await drain(
                self.engine_client.generate({"raw": 1}, SamplingParams(max_tokens=1), f"{request_id}-lang_detect")
            )
        return [{"type": "enc_dec", "arrival_time": 9e9} for _ in chunks]

    async def transcribe(
        self, request_id: str, *, xargs: dict[str, Any] | None = None, language: str | None = "en"
    ) -> None:
        prompts = await self._preprocess_speech_to_text(
            request=SimpleNamespace(language=language), audio_data=b"", request_id=request_id
        )
        params = SamplingParams(max_tokens=448, extra_args=xargs)
        names = [request_id] if len(prompts) == 1 else [f"{request_id}-{n}" for n in range(len(prompts))]
        for prompt, name in zip(prompts, names, strict=True):
            await drain(self.engine_client.generate(prompt, params, name))


async def drain(generator: AsyncIterator[str]) -> None:
    assert [item async for item in generator] == ["text"]


def captured(chunks_s: list[float], **options: Any) -> tuple[FakeClient, FakeServing]:
    client = FakeClient(vllm_config(**options.pop("section", {})))
    serving = FakeServing(client, chunks_s, **options)
    capture_engine_client(client)
    capture_speech(serving)
    return client, serving


def test_every_chunk_gets_its_own_size_and_the_uploads() -> None:
    client, serving = captured([30.0, 29.5, 4.0])
    xargs = {"theirs": 1}
    asyncio.run(serving.transcribe("transcribe-1", xargs=xargs))
    args = [params.extra_args for _, params, _ in client.given]
    assert [a[ESTIMATE_KEY] for a in args] == [90, 88, 12]
    assert [a[UPLOAD_KEY]["number"] for a in args] == [0, 1, 2]
    assert [a[UPLOAD_KEY]["later_tokens"] for a in args] == [100, 12, 0]
    assert {a[UPLOAD_KEY]["upload_tokens"] for a in args} == {190}
    assert {a[UPLOAD_KEY]["audio_s"] for a in args} == {63.5}
    assert len({a[UPLOAD_KEY]["upload_id"] for a in args}) == 1
    assert [a["theirs"] for a in args] == [1, 1, 1]
    assert xargs == {"theirs": 1}, "the shared dictionary was changed"


def test_a_beam_arrives_when_its_upload_did() -> None:
    """vLLM makes a new prompt for every beam and token, without a time in it."""
    client, serving = captured([5.0])

    async def search() -> None:
        await serving._preprocess_speech_to_text(
            request=SimpleNamespace(language="en"), audio_data=b"", request_id="transcribe-1"
        )
        params = SamplingParams(max_tokens=1)
        await drain(client.generate({"type": "enc_dec"}, params, "transcribe-1-abc-beam-0"))

    before_s = time.time()
    asyncio.run(search())
    ((prompt, params, _),) = client.given
    assert before_s <= prompt["arrival_time"] <= time.time()
    assert params.extra_args[ESTIMATE_KEY] == 15


def test_only_whole_chunks_are_held_against_their_estimates() -> None:
    upload = Upload(request_id="transcribe-1", arrival_s=0.0)
    upload.cut([30.0, 5.0], ESTIMATOR)
    assert [upload.engine_request_id(chunk) for chunk in upload.chunks] == ["transcribe-1-0", "transcribe-1-1"]
    upload.cut([5.0], ESTIMATOR)
    assert upload.engine_request_id(upload.chunks[0]) == "transcribe-1"


def test_kappa_is_the_operators() -> None:
    client, serving = captured([10.0], section={"kappa": 4.5})
    asyncio.run(serving.transcribe("transcribe-1"))
    assert client.given[0][1].extra_args[ESTIMATE_KEY] == 45


def test_arrival_is_when_the_upload_came_not_when_it_was_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [50.0]
    monkeypatch.setattr(capture.time, "time", lambda: now_s[0])

    def ten_seconds_pass() -> None:
        now_s[0] += 10.0

    client, serving = captured([30.0, 5.0], while_decoding=ten_seconds_pass)
    asyncio.run(serving.transcribe("transcribe-1"))
    assert [prompt["arrival_time"] for prompt, _, _ in client.given] == [50.0, 50.0]
    assert now_s == [60.0]


def test_uploads_at_the_same_time_do_not_mix() -> None:
    client = FakeClient()
    capture_engine_client(client)
    servings = [FakeServing(client, [seconds]) for seconds in (3.0, 7.0, 11.0)]
    for serving in servings:
        capture_speech(serving)

    async def all_at_once() -> None:
        await asyncio.gather(*(serving.transcribe(f"transcribe-{n}") for n, serving in enumerate(servings)))

    asyncio.run(all_at_once())
    sizes = {request_id: params.extra_args[ESTIMATE_KEY] for _, params, request_id in client.given}
    assert sizes == {"transcribe-0": 9, "transcribe-1": 21, "transcribe-2": 33}
    assert len({params.extra_args[UPLOAD_KEY]["upload_id"] for _, params, _ in client.given}) == 3


def test_language_detection_is_one_token() -> None:
    client, serving = captured([20.0])
    asyncio.run(serving.transcribe("transcribe-1", language=None))
    (_, detection, name), (_, chunk, _) = client.given
    assert name == "transcribe-1-lang_detect"
    assert detection.extra_args == {ESTIMATE_KEY: 1}
    assert chunk.extra_args[ESTIMATE_KEY] == 60


@pytest.mark.parametrize(
    ("suffix", "index"), [("-0", 0), ("-2", 2), ("-1-abc123-beam-0", 1), ("-7", None), ("-x", None), ("", None)]
)
def test_the_chunk_is_found_by_what_vllm_appends(suffix: str, index: int | None) -> None:
    upload = Upload(request_id="transcribe-a-2", arrival_s=0.0)
    upload.cut([30.0, 30.0, 5.0], ESTIMATOR)
    chunk = upload.chunk_named(f"transcribe-a-2{suffix}")
    assert (None if chunk is None else chunk.number) == index


@pytest.mark.parametrize("suffix", ["", "-12", "-abc-beam-3"])
def test_a_lone_chunk_is_whatever_is_not_language_detection(suffix: str) -> None:
    upload = Upload(request_id="transcribe-me-lang_detect", arrival_s=0.0)
    upload.cut([5.0], ESTIMATOR)
    assert upload.chunk_named(f"transcribe-me-lang_detect{suffix}") is upload.chunks[0]
    assert upload.chunk_named("transcribe-me-lang_detect-lang_detect") is None
    assert upload.chunk_named("transcribe-other") is None


@pytest.mark.parametrize("chunk", [None, CHUNK])
def test_what_a_client_says_of_its_size_is_dropped_on_every_endpoint(chunk: Any) -> None:
    theirs = {ESTIMATE_KEY: 1, UPLOAD_KEY: {"upload_id": "x"}, "harmless": True}
    params = SamplingParams(max_tokens=5, extra_args=theirs)
    extra_args = sized(params, chunk).extra_args
    assert extra_args == {"harmless": True} | ({} if chunk is None else CHUNK.extra_args())
    assert params.extra_args is theirs


def test_a_request_without_anything_of_ours_passes_as_it_is() -> None:
    params = SamplingParams(max_tokens=5)
    assert sized(params, None) is params


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_under_vllms_own_policies_nothing_is_touched(policy: str) -> None:
    client = FakeClient(vllm_config(policy))
    serving = FakeServing(client, [3.0])
    before = (dict(vars(client)), dict(vars(serving)))
    capture_engine_client(client)
    capture_speech(serving)
    assert (dict(vars(client)), dict(vars(serving))) == before


def test_a_client_is_captured_once_and_its_logger_added_once() -> None:
    client = FakeClient(logger_manager=SimpleNamespace(stat_loggers=[]))
    capture_engine_client(client)
    generate = client.generate
    capture_engine_client(client)
    assert client.generate is generate
    assert len(client.logger_manager.stat_loggers) == 1


def test_a_serving_object_that_lacks_something_is_named() -> None:
    serving = FakeServing(FakeClient(), [3.0])
    del serving.asr_config
    with pytest.raises(UnsupportedVllmError, match=r"lacks FakeServing\(\).asr_config"):
        capture_speech(serving)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="kapa is not an option"):
        capture_engine_client(FakeClient(vllm_config(kapa=3)))


def test_the_table_of_requests_is_bounded() -> None:
    table = RequestTable(max_requests=2)
    for name in "abc":
        table.put(name, CHUNK)
    assert len(table) == 2
    assert table.take("a") is None
    assert table.take("c") is CHUNK
    assert table.take("c") is None
    assert table.take(None) is None
