"""Text as it is recognised: order and shape of the events, errors before and after the first, who leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect
from starlette.types import Message

from sooner.bench.client import Sending, send_all
from sooner.core.job import Job
from sooner.engines.base import Segment
from sooner.engines.fake import FakeEngine
from sooner.errors import EngineError
from sooner.evidence.run_file import Failure, read_runs
from sooner.server import stream
from sooner.server.stream import EventStream
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve

CLIP = clip_named("austen-0880").path
THREE = "window 0 of 3 window 1 of 3 window 2 of 3"
MakeWav = Callable[[float], Path]


@contextmanager
def streaming(server: Running, path: Path, **fields: str) -> Iterator[httpx.Response]:
    """A stream under way; leaving the block closes the connection."""
    form = {"model": "whisper-1", "stream": "true", **fields}
    files = {"file": path.read_bytes()}
    with (
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", "/v1/audio/transcriptions", data=form, files=files) as response,
    ):
        yield response


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
        else:
            assert line in ("", ": waiting")


def failing_at(window: int) -> FakeEngine:
    def on_step(_: Job, index: int) -> None:
        if index == window:
            raise EngineError("the model failed")

    return FakeEngine(on_step)


def test_the_events(serve: Serve, silent_wav: MakeWav) -> None:
    with streaming(serve(), silent_wav(90.0)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-cache"
        assert len(response.headers["x-request-id"]) == 32
        found = list(events(response.iter_lines()))
    assert found == [
        {"type": "transcript.text.delta", "delta": "window 0 of 3"},
        {"type": "transcript.text.delta", "delta": " window 1 of 3"},
        {"type": "transcript.text.delta", "delta": " window 2 of 3"},
        {"type": "transcript.text.done", "text": THREE, "usage": {"type": "duration", "seconds": 90}},
    ]


def test_text_comes_before_the_next_window_is_done(serve: Serve, silent_wav: MakeWav) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.gate.open, 1)
        with streaming(server, silent_wav(90.0)) as response:
            lines = response.iter_lines()
            assert next(events(lines))["delta"] == "window 0 of 3"
            assert server.gate.wait_for_windows(2)
            assert server.queue()["num_running"] == 1
            server.gate.open()
            assert [event["type"] for event in events(lines)][-1] == "transcript.text.done"


def test_streams_of_text_and_translations(serve: Serve, silent_wav: MakeWav) -> None:
    server = serve()
    with streaming(server, CLIP, response_format="text") as response:
        assert list(events(response.iter_lines()))[-1]["text"] == "window 0 of 1"
    reply = server.client.post(
        "/v1/audio/translations",
        data={"model": "whisper-1", "stream": "true"},
        files={"file": silent_wav(60.0).read_bytes()},
    )
    *deltas, done = events(iter(reply.text.splitlines()))
    assert (
        done["text"]
        == "".join(delta["delta"] for delta in deltas)
        == "translated window 0 of 2 translated window 1 of 2"
    )


def test_an_error_before_the_first_text_keeps_its_status(serve: Serve) -> None:
    server = serve(failing_at(0))
    with streaming(server, CLIP) as response:
        assert response.status_code == 500
        assert json.loads(response.read())["error"]["code"] == "engine_failed"
    with streaming(server, Path(__file__)) as response:
        assert response.status_code == 400
        assert json.loads(response.read())["error"]["code"] == "unreadable_audio"


def test_an_error_after_the_first_text_is_an_event_and_is_noted(
    serve: Serve, silent_wav: MakeWav, tmp_path: Path
) -> None:
    records = tmp_path / "records.jsonl"
    server = serve(failing_at(1), records=records)
    with streaming(server, silent_wav(90.0)) as response:
        assert response.status_code == 200
        delta, error = events(response.iter_lines())
    assert delta["delta"] == "window 0 of 3"
    assert error["error"] == {
        "message": "the engine failed on this recording; the server's log says more",
        "type": "server_error",
        "param": None,
        "code": "engine_failed",
    }
    server.stop()
    (run,) = read_runs([records])
    assert [(failure.error, failure.audio_s) for failure in run.failures] == [("EngineError", 90.0)]
    assert isinstance(run.failures[0], Failure)


def test_a_comment_says_that_a_stream_waits(
    serve: Serve, silent_wav: MakeWav, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_WAITING_S", 0.01)
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.gate.open, 1)
        with streaming(server, silent_wav(60.0)) as response:
            lines = response.iter_lines()
            assert next(events(lines))["delta"] == "window 0 of 2"
            assert next(line for line in lines if line.startswith(":")) == ": waiting"
            server.gate.open()
            *_, done = events(lines)
            assert done["text"] == "window 0 of 2 window 1 of 2"


def test_a_client_that_leaves_a_stream_stops_its_job(serve: Serve, silent_wav: MakeWav) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.gate.open, 1)
        with streaming(server, silent_wav(600.0)) as response:
            next(events(response.iter_lines()))
            server.gate.wait_for_windows(2)
    server.wait_for_queue(lambda q: q["num_cancelled"] == 1)
    server.gate.open()
    assert server.post(CLIP).status_code == 200
    assert len(server.gate.wait_for_windows(3)) == 3  # two of its twenty, and the clip's


def test_a_stream_that_is_cancelled_from_elsewhere_says_so(serve: Serve, silent_wav: MakeWav) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.gate.open, 1)
        with streaming(server, silent_wav(600.0)) as response:
            lines = response.iter_lines()
            next(events(lines))
            server.client.delete(f"/v1/queue/{response.headers['x-request-id']}").raise_for_status()
            assert [event["error"]["code"] for event in events(lines)] == ["cancelled"]
    server.gate.open()


def test_a_server_that_closes_says_so_in_the_stream(serve: Serve, silent_wav: MakeWav) -> None:
    server = serve(gated=True, shutdown_grace_s=0.0)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.gate.open, 1)
        with streaming(server, silent_wav(600.0)) as response:
            lines = response.iter_lines()
            next(events(lines))
            server.background.stop()
            assert [event["error"]["code"] for event in events(lines)] == ["shutting_down"]
    server.gate.open()


def test_the_load_generator_reads_our_streams(serve: Serve, silent_wav: MakeWav) -> None:
    form = {"model": "whisper-1", "response_format": "json", "stream": "true"}
    sending = Sending(path=silent_wav(90.0), at_s=0.0, label="0", form=form)
    (answer,) = asyncio.run(send_all(serve().url, [sending]))
    assert (answer.error, answer.text, answer.is_streamed) == (None, THREE, True)
    assert answer.sent_s < answer.first_s <= answer.answered_s


def test_many_streams_at_once(serve: Serve, silent_wav: MakeWav) -> None:
    server = serve(num_workers=2)
    path = silent_wav(61.0)

    def text_of(_: int) -> str:
        with streaming(server, path) as response:
            *deltas, done = events(response.iter_lines())
        assert "".join(delta["delta"] for delta in deltas) == done["text"]
        text: str = done["text"]
        return text

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(text_of, range(16))) == {THREE}


class Client:
    """Takes what ``EventStream`` sends."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def take(self, message: Message) -> None:
        self.messages.append(message)

    def events(self) -> list[dict[str, Any]]:
        assert [message["type"] for message in self.messages].count("http.response.start") == 1
        body = b"".join(message.get("body", b"") for message in self.messages).decode("ascii")
        return list(events(iter(body.split("\n"))))


@settings(max_examples=50)
@given(st.lists(st.lists(st.text(max_size=5), max_size=3), max_size=5))
def test_the_deltas_are_the_stripped_text(windows: list[list[str]]) -> None:
    client = Client()

    async def talk() -> None:
        out = EventStream(client.take)

        async def work() -> Any:
            for window in windows:
                out.add([Segment(start_s=0.0, end_s=1.0, text=text) for text in window])
                await asyncio.sleep(0)
            return None

        await out.follow(work(), {})
        await out.finish({"type": "transcript.text.done"})

    asyncio.run(talk())
    *deltas, done = client.events()
    whole = "".join(text for window in windows for text in window)
    assert "".join(delta["delta"] for delta in deltas) == whole.strip()
    assert "" not in [delta["delta"] for delta in deltas]
    assert done == {"type": "transcript.text.done"}
    assert [message.get("more_body") for message in client.messages[1:]] == [True] * len(deltas) + [False]


def test_a_client_that_takes_nothing_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_SEND_LIMIT_S", 0.01)
    ended: list[str] = []

    async def never(_: Message) -> None:
        await asyncio.Event().wait()

    async def talk() -> None:
        out = EventStream(never)

        async def work() -> Any:
            out.add([Segment(start_s=0.0, end_s=1.0, text="And so")])
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        with pytest.raises(ClientDisconnect):
            await out.follow(work(), {})

    asyncio.run(talk())
    assert ended == ["cancelled"]
