"""A stock vLLM server with real Whisper base and real speech, under each of our policies."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI

from sooner.bench.joined import JoinedRecording, join_clips
from sooner.bench.vllm_server import MODEL_NAME, VllmServer
from sooner.workload.recordings import clip_named, clips
from tests_vllm.journal import Line, read_journal, replay

KAPPA = 3.0
LIMIT_S = 240.0
SHORT = clip_named("jfk")


@dataclass
class Running:
    """A server under one policy, and what its queue did."""

    policy: str
    server: VllmServer
    journal: Path

    def lines(self, since: int = 0) -> list[Line]:
        return read_journal(self.journal)[since:]

    def client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.server.url}/v1", api_key="none", max_retries=0, timeout=LIMIT_S)


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> JoinedRecording:
    """Three chunks of speech."""
    return join_clips(tmp_path_factory.mktemp("audio") / "long.wav", at_least_s=70.0, seed=3)


@pytest.fixture(scope="module")
def fcfs_texts(
    model: Path, long_file: JoinedRecording, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """What vLLM says under its own policy, by file name."""
    with VllmServer(model, log=tmp_path_factory.mktemp("fcfs") / "log", policy="fcfs") as server:
        running = Running("fcfs", server, Path())
        paths = [long_file.path, *(clip.path for clip in clips())]
        texts = asyncio.run(transcribe_all(running, paths))
        assert "sooner" not in server.metrics()
    return texts


@pytest.fixture(scope="module", params=["sjf", "hrrn"])
def running(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Two sequence slots, so that a handful of uploads makes a queue."""
    folder = tmp_path_factory.mktemp(request.param)
    journal = folder / "journal.jsonl"
    with VllmServer(
        model,
        log=folder / "log",
        policy=request.param,
        num_slots=2,
        additional_config={"sooner": {"journal_path": str(journal), "guard": "off"}},  # a scan knows no guard
    ) as server:
        yield Running(request.param, server, journal)


async def transcribe(client: AsyncOpenAI, path: Path, **parameters: Any) -> str:
    parameters = {"language": "en", "temperature": 0.0} | parameters
    with path.open("rb") as file:
        return (await client.audio.transcriptions.create(file=file, model=MODEL_NAME, **parameters)).text


async def transcribe_all(running: Running, paths: list[Path]) -> dict[str, str]:
    async with running.client() as client:
        texts = await asyncio.gather(*(transcribe(client, path) for path in paths))
    return {path.name: text for path, text in zip(paths, texts, strict=True)}


async def stream(client: AsyncOpenAI, path: Path) -> str:
    said = []
    with path.open("rb") as file:
        events = await client.audio.transcriptions.create(
            file=file, model=MODEL_NAME, language="en", temperature=0.0, stream=True
        )
        async for event in events:
            choices = event.model_dump().get("choices") or []
            said += [choice["delta"].get("content") or "" for choice in choices]
    return "".join(said)


@dataclass
class Burst:
    """Every clip and the long file, sent at once: when, what came back, what the queue did."""

    begin_s: float
    texts: dict[str, str]
    lines: list[Line]


@pytest.fixture(scope="module")
def burst(running: Running, long_file: JoinedRecording) -> Burst:
    begin_s, num_lines = time(), len(running.lines())
    texts = asyncio.run(transcribe_all(running, [long_file.path, *(clip.path for clip in clips())]))
    return Burst(begin_s, texts, running.lines(num_lines))


def test_adaptive_leaves_fcfs_in_a_rush_and_texts_are_those_of_fcfs(
    model: Path, long_file: JoinedRecording, fcfs_texts: Mapping[str, str], tmp_path: Path
) -> None:
    """First in this file, so that no other server runs beside its own."""
    options = {"sooner": {"journal_path": str(tmp_path / "journal.jsonl")}}
    with VllmServer(
        model, log=tmp_path / "log", policy="adaptive", num_slots=2, additional_config=options
    ) as server:
        running = Running("adaptive", server, tmp_path / "journal.jsonl")
        texts = asyncio.run(transcribe_all(running, [long_file.path, *(clip.path for clip in clips())]))
        metrics, log = server.metrics(), server.log_text()
    assert texts == fcfs_texts
    assert not waiting_in(running.lines())
    assert 'policy="adaptive"' in metrics
    assert "adaptive: " in log
    assert "Guard: scaled:5,120." in log
    assert re.search(r"order \w+ instead of fcfs: \d+ wait, [0-9.]+ s of work", log)


def test_starts_are_those_of_a_naive_scan_and_texts_are_those_of_fcfs(
    running: Running, burst: Burst, fcfs_texts: Mapping[str, str]
) -> None:
    assert burst.texts == fcfs_texts
    for line in burst.lines:
        if line["event"] == "taken":
            assert burst.begin_s <= line["arrival_s"] <= line["now_s"] <= time()
    decisions = replay(burst.lines, running.policy)
    assert len(decisions) == len(clips()) + 3
    assert [decision.taken for decision in decisions] == [decision.expected for decision in decisions]
    assert max(decision.num_waiting for decision in decisions) >= 6, "the queue was never full"
    assert any(decision.taken != decision.oldest for decision in decisions), "this was no other than fcfs"


def test_estimates_are_those_of_the_decoded_length(burst: Burst) -> None:
    def estimate(audio_s: float) -> tuple[float, int]:
        return round(audio_s, 2), max(1, int(audio_s * KAPPA))

    seen = {
        (round(line["audio_s"], 2), line["estimated_output_tokens"])
        for line in burst.lines
        if line["num_chunks"] == 1 and line["audio_s"] is not None
    }
    assert {estimate(clip.audio_s) for clip in clips()} <= seen


def test_a_long_upload_is_ordered_by_its_whole_length_and_comes_back_whole(
    running: Running, long_file: JoinedRecording, fcfs_texts: Mapping[str, str]
) -> None:
    begin = len(running.lines())

    async def all_at_once() -> tuple[str, str]:
        async with running.client() as client:
            whole, streamed, *_ = await asyncio.gather(
                transcribe(client, long_file.path),
                stream(client, long_file.path),
                *(transcribe(client, clip.path) for clip in clips()),
            )
        return whole, streamed

    whole, streamed = asyncio.run(all_at_once())
    assert whole == fcfs_texts[long_file.path.name]
    assert streamed.strip() == whole.strip()
    lines = running.lines(begin)
    decisions = replay(lines, running.policy)
    assert [decision.taken for decision in decisions] == [decision.expected for decision in decisions]
    longs = [line for line in lines if line["num_chunks"] > 1]
    assert {round(line["audio_s"]) for line in longs} == {round(long_file.audio_s)}
    for upload_id in {line["upload_id"] for line in longs}:
        taken = [line["number"] for line in longs if line["upload_id"] == upload_id and line["event"] == "taken"]
        assert taken == [0, 1, 2]


def test_clients_that_leave_leave_the_queue_clean(running: Running, long_file: JoinedRecording) -> None:
    begin = len(running.lines())

    async def leave_midway() -> None:
        async with running.client() as client:
            tasks = [
                asyncio.create_task(transcribe(client, path))
                for path in [long_file.path, *(clip.path for clip in clips()[:5])]
            ]
            await until(lambda: sum(line["event"] == "taken" for line in running.lines(begin)) >= 2)
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            await until(lambda: not waiting_in(running.lines(begin)))
            await transcribe(client, SHORT.path)

    asyncio.run(asyncio.wait_for(leave_midway(), LIMIT_S))
    events = [line["event"] for line in running.lines(begin)]
    assert events.count("removed") >= 1
    assert events.count("added") == events.count("taken") + events.count("removed")


def waiting_in(lines: list[Line]) -> set[str]:
    waiting: set[str] = set()
    for line in lines:
        if line["event"] == "added":
            waiting.add(line["request_id"])
        else:
            waiting.discard(line["request_id"])
    return waiting


async def until(condition: Any) -> None:
    """Wait for a condition of the server's journal, which only grows."""
    deadline_s = monotonic() + LIMIT_S
    while not condition():
        assert monotonic() < deadline_s, "this never came"
        await asyncio.sleep(0.05)


def test_a_client_cannot_set_its_own_size(running: Running) -> None:
    begin = len(running.lines())
    forged = {
        "estimated_output_tokens": 1,
        "sooner_upload": "mine",
        "harmless": "kept",
    }

    async def send() -> None:
        async with running.client() as client:
            await transcribe(client, SHORT.path, extra_body={"vllm_xargs": json.dumps(forged)})

    asyncio.run(send())
    estimates = {line["estimated_output_tokens"] for line in running.lines(begin)}
    assert estimates == {int(SHORT.audio_s * KAPPA)}


def test_an_id_that_looks_like_language_detection_gains_nothing(running: Running) -> None:
    begin = len(running.lines())

    async def send() -> None:
        async with running.client() as client:
            await transcribe(client, SHORT.path, extra_headers={"X-Request-Id": "me-lang_detect"})

    asyncio.run(send())
    assert {line["estimated_output_tokens"] for line in running.lines(begin)} == {int(SHORT.audio_s * KAPPA)}


def test_language_detection_is_a_tiny_job_of_its_own(running: Running) -> None:
    begin = len(running.lines())

    async def send() -> str:
        async with running.client() as client:
            return await transcribe(client, SHORT.path, language=None)

    assert "country" in asyncio.run(send())
    first, *rest = [line for line in running.lines(begin) if line["event"] == "taken"]
    assert "lang_detect" in first["request_id"]
    assert first["estimated_output_tokens"] == 1
    assert [line["estimated_output_tokens"] for line in rest] == [int(SHORT.audio_s * KAPPA)]


def test_translations_are_sized_too(running: Running) -> None:
    begin = len(running.lines())

    async def send() -> str:
        form = aiohttp.FormData({"model": MODEL_NAME})
        form.add_field("file", SHORT.path.read_bytes(), filename="speech.flac")
        url = f"{running.server.url}/v1/audio/translations"
        async with aiohttp.ClientSession() as session, session.post(url, data=form) as response:
            text: str = (await response.json())["text"]
        return text

    assert "country" in asyncio.run(send())
    last = running.lines(begin)[-1]
    assert last["request_id"].startswith("translate-")
    assert last["estimated_output_tokens"] == int(SHORT.audio_s * KAPPA)


def test_metrics_are_on_vllms_own_page(running: Running) -> None:
    asyncio.run(transcribe_all(running, [SHORT.path]))
    metrics = running.server.metrics()

    def total(name: str) -> float:
        found = re.findall(rf'^{name}{{[^}}]*policy="{running.policy}"[^}}]*}} ([0-9.e+-]+)$', metrics, re.M)
        assert found, name
        return sum(map(float, found))

    assert total("sooner_requests_waiting") == 0
    assert total("sooner_requests_running") == 0
    assert total("sooner_queue_wait_seconds_count") >= 1
    assert 'audio="5-15 s"' in metrics
    predicted, actual = total("sooner_predicted_output_tokens_total"), total("sooner_output_tokens_total")
    assert 0.3 < actual / predicted < 3
    assert total("sooner_output_tokens_ratio_count") >= 1
    assert total("sooner_preemptions_total") == 0
    assert 0 < total("sooner_scheduling_overhead_seconds_total") < 1


def test_the_log_tells_how_many_windows_a_step_admits(running: Running) -> None:
    log = running.server.log_text()
    assert f"{running.policy}: " in log
    assert "An engine step admits 1 window of 30 s (2048 encoder positions, 1500 a window)" in log
    assert "--max-num-batched-tokens 6000 would admit 4 a step" in log
    assert "Recordings sent to OpenAIServingTranscription are scheduled by their length" in log
