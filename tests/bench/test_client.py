"""What servers send back, right and wrong, over real connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sooner.bench.client import NO_REPLY, PLAIN_TEXT, Answer, Caller, Sending, send_all
from sooner.workload.recordings import clip_named

CLIP = clip_named("austen-0880").path
Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer_to(reply: Reply, *, caller: Caller | None = None, form: Mapping[str, str] = PLAIN_TEXT) -> Answer:
    """Send a clip to a server that replies so."""

    async def talk() -> Answer:
        app = web.Application()
        app.router.add_post("/v1/audio/transcriptions", reply)
        async with TestServer(app) as server:
            sending = Sending(path=CLIP, at_s=0.0, label="0", form=form)
            (answer,) = await send_all(f"http://{server.host}:{server.port}", [sending], caller=caller)
            return answer

    return asyncio.run(asyncio.wait_for(talk(), 30))


def answer_to_events(*events: str, is_cut: bool = False) -> Answer:
    """The reply is a stream of these lines; ``is_cut``: the connection then breaks."""

    async def reply(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(f"{event}\n\n".encode())
        if is_cut:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer_to(reply)


def answer_to_body(
    body: str,
    *,
    status: int = 200,
    content_type: str = "application/json",
    form: Mapping[str, str] = PLAIN_TEXT,
) -> Answer:
    async def reply(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(text=body, status=status, content_type=content_type)

    return answer_to(reply, form=form)


def delta(text: str) -> str:
    return "data: " + json.dumps({"type": "transcript.text.delta", "delta": text})


def test_openai_streams() -> None:
    done = "data: " + json.dumps({"type": "transcript.text.done", "text": "I do not know."})
    answer = answer_to_events("event: transcript.text.delta\n" + delta("I do"), delta(" not know."), done)
    assert (answer.status, answer.error, answer.text) == (200, None, "I do not know.")
    assert answer.is_streamed
    assert answer.sent_s < answer.first_s < answer.answered_s


def test_an_openai_stream_of_one_event_tells_no_first_text() -> None:
    answer = answer_to_events('data: {"type": "transcript.text.done", "text": "all at once"}')
    assert (answer.text, answer.is_streamed) == ("all at once", False)


def test_vllm_streams() -> None:
    events = ["data: " + json.dumps({"choices": [{"delta": {"content": part}}]}) for part in ("", " I", " do")]
    answer = answer_to_events(*events, 'data: {"choices": [], "usage": {"total_tokens": 9}}', "data: [DONE]")
    assert (answer.error, answer.text, answer.is_streamed) == (None, " I do", True)


@pytest.mark.parametrize(
    ("error", "status"),
    [('{"code": 429}', 429), ('{"code": "server_error"}', 500), ('{"message": "no"}', 500), ('"no"', 500)],
)
def test_errors_within_a_stream(error: str, status: int) -> None:
    answer = answer_to_events(delta("And"), f'data: {{"type": "error", "error": {error}}}')
    assert (answer.status, answer.error, answer.is_streamed) == (status, f"HTTP {status}", False)


def test_streams_that_break_off() -> None:
    ended = answer_to_events(delta("And so"))
    assert (ended.status, ended.error, ended.text) == (NO_REPLY, "broken stream", "the stream broke off: And so")
    cut = answer_to_events(delta("And so"), is_cut=True)
    assert (cut.status, cut.error) == (NO_REPLY, "ClientPayloadError")


@pytest.mark.parametrize(
    "event", ["data: {", "data: []", 'data: {"choices": [1]}', 'data: {"type": "transcript.text.delta"}']
)
def test_streams_that_make_no_sense(event: str) -> None:
    answer = answer_to_events(event)
    assert (answer.status, answer.error) == (NO_REPLY, "malformed reply")


def test_json_and_text() -> None:
    assert answer_to_body('{"text": "yes"}').text == "yes"
    assert answer_to_body("yes\n", content_type="text/plain").text == "yes\n"


@pytest.mark.parametrize("form", [{"model": "x"}, {"model": "x", "response_format": "json"}])
def test_a_page_where_json_was_asked_for_is_no_text(form: dict[str, str]) -> None:
    """What a proxy's login page looks like: 200, and not an error to HTTP."""
    page = answer_to_body("<html>Please log in</html>", content_type="text/html", form=form)
    assert (page.status, page.error) == (NO_REPLY, "malformed reply")
    assert answer_to_body('{"text": "yes"}', content_type="text/plain", form=form).text == "yes"


@pytest.mark.parametrize("body", ["{", "[]", "{}", '{"text": null}', '{"text": 5}', ""])
def test_json_that_makes_no_sense(body: str) -> None:
    answer = answer_to_body(body)
    assert (answer.status, answer.error, answer.is_streamed) == (NO_REPLY, "malformed reply", False)


def test_an_http_error_keeps_its_body() -> None:
    answer = answer_to_body('{"error": {"message": "queue full"}}', status=503)
    assert (answer.status, answer.error) == (503, "HTTP 503")
    assert "queue full" in answer.text


def test_a_connection_that_is_dropped() -> None:
    async def reply(request: web.Request) -> web.Response:
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    answer = answer_to(reply)
    assert answer.status == NO_REPLY
    assert answer.error in ("ServerDisconnectedError", "ClientOSError")


def test_a_request_ends_at_its_limit() -> None:
    async def reply(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    answer = answer_to(reply, caller=Caller(timeout_s=0.2))
    assert (answer.status, answer.error) == (NO_REPLY, "timeout")
    assert 0.2 <= answer.e2e_s < 10


def test_a_recording_that_is_gone_is_an_answer() -> None:
    sending = Sending(path=CLIP.with_name("gone.flac"), at_s=0.0, label="0")
    (answer,) = asyncio.run(send_all("http://127.0.0.1:1", [sending]))
    assert answer.error == "FileNotFoundError"


def test_what_the_server_tells_in_headers() -> None:
    told = {"wait-s": "0.25", "service-s": "1.5", "size-s": "0.5", "num-tokens": "12", "num-windows": "nonsense"}

    async def reply(request: web.Request) -> web.Response:
        await request.read()
        assert request.headers["authorization"] == "Bearer secret"
        return web.json_response({"text": ""}, headers={f"x-sooner-{name}": value for name, value in told.items()})

    answer = answer_to(reply, caller=Caller(api_key="secret"))
    assert answer.error is None
    assert (answer.wait_s, answer.service_s, answer.size_s) == (0.25, 1.5, 0.5)
    assert (answer.num_tokens, answer.num_windows) == (12, None)


def test_nobody_waits_for_a_reply_before_the_next_is_sent() -> None:
    """Replies begin when all requests are there: a loop that were closed would never end."""
    number = 30

    async def talk() -> list[Answer]:
        all_here = asyncio.Barrier(number)

        async def reply(request: web.Request) -> web.Response:
            await request.read()
            await all_here.wait()
            return web.json_response({"text": ""})

        app = web.Application()
        app.router.add_post("/v1/audio/transcriptions", reply)
        sendings = [Sending(path=CLIP, at_s=0.001 * index, label=str(index)) for index in range(number)]
        async with TestServer(app) as server:
            return await send_all(f"http://{server.host}:{server.port}", sendings)

    answers = asyncio.run(asyncio.wait_for(talk(), 30))
    assert [answer.error for answer in answers] == [None] * number
    assert all(answer.lag_s == answer.sent_s - answer.due_s >= 0 for answer in answers)
