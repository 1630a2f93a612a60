"""Joined recordings, what counts as a right text, and the client that sends them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sooner.audio.decode import SAMPLE_RATE_HZ, decode_all
from sooner.bench.accuracy import is_right, word_errors
from sooner.bench.client import NO_REPLY, PLAIN_TEXT, Answer, Sending, send_all
from sooner.bench.joined import join_clips
from sooner.workload.recordings import clip_named


def test_joined_clips(tmp_path: Path) -> None:
    joined = join_clips(tmp_path / "a.wav", at_least_s=100.0, seed=1)
    samples = decode_all(joined.path)
    assert len(samples) / SAMPLE_RATE_HZ == pytest.approx(joined.audio_s)
    assert 100.0 <= joined.audio_s < 120.0
    assert JFK_WORDS in joined.transcript
    again = join_clips(tmp_path / "b.wav", at_least_s=100.0, seed=1)
    assert again.path.read_bytes() == joined.path.read_bytes()
    other = join_clips(tmp_path / "c.wav", at_least_s=100.0, seed=2)
    assert other.transcript != joined.transcript


JFK_WORDS = "ask not what your country can do for you"


def test_right_and_wrong_texts() -> None:
    said = clip_named("jfk").transcript
    assert word_errors(said, said.upper() + "!").rate == 0.0
    assert word_errors("mister dashwood", "Mr. Dashwood.").rate == 0.0
    assert is_right(said, said.replace("americans", "american"))
    assert not is_right(said, "")
    assert not is_right(said, clip_named("austen-0870").transcript)
    assert not is_right(said, f"{said} {said}")


def streamed(*parts: str) -> list[str]:
    """Events as vLLM sends them."""
    return [json.dumps({"choices": [{"delta": {"content": part}}]}) for part in parts]


def answer_from(events: list[str], *, pause_s: float = 0.0) -> Answer:
    """Send a clip to a server that replies with these events, a pause before each, and then closes."""

    async def reply(request: web.Request) -> web.StreamResponse:
        assert (await request.post())["stream"] == "true"
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in events:
            await asyncio.sleep(pause_s)
            await response.write(f"data: {event}\n\n".encode())
        return response

    async def talk() -> Answer:
        app = web.Application()
        app.router.add_post("/v1/audio/transcriptions", reply)
        async with TestServer(app) as server:
            form = {**PLAIN_TEXT, "stream": "true"}
            sending = Sending(path=clip_named("jfk").path, at_s=0.0, label="clip", form=form)
            (answer,) = await send_all(f"http://{server.host}:{server.port}", [sending])
            return answer

    return asyncio.run(talk())


def test_a_streamed_answer_tells_when_its_first_text_came() -> None:
    answer = answer_from([*streamed("", " And so", "", ", my", " fellow"), "[DONE]"], pause_s=0.05)
    assert (answer.status, answer.text) == (200, " And so, my fellow")
    assert 0.1 <= answer.ttft_s <= answer.e2e_s - 0.2


def test_streams_that_fail_are_errors() -> None:
    failed = answer_from([*streamed("And"), '{"error": {"code": 500, "message": "no"}}', "[DONE]"])
    assert failed.status == 500
    assert "no" in failed.text
    broken_off = answer_from(streamed("And"))
    assert broken_off.status == NO_REPLY
    assert broken_off.first_s == broken_off.answered_s


def test_no_server_is_an_answer_without_a_reply() -> None:
    sending = Sending(path=clip_named("jfk").path, at_s=0.0, label="clip")
    (answer,) = asyncio.run(send_all("http://127.0.0.1:1", [sending]))
    assert answer.status == NO_REPLY
