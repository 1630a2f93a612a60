"""Faults of the server: who hears of what, and who sends the same thing again."""

from __future__ import annotations

import errno
import shutil
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from sooner import Job
from sooner.engines.fake import FakeEngine
from sooner.engines.whisper import WhisperEngine
from sooner.errors import (
    DeadlineError,
    EngineError,
    EngineLostError,
    RequestCancelledError,
    RequestIdTakenError,
    SoonerError,
)
from sooner.server.errors import error_response
from sooner.server.queue_view import QueueView
from sooner.server.spool import Spool
from sooner.server.upload import Intake
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve
from .until import until

CLIP = clip_named("austen-0880").path


def post(server: Running, path: Path = CLIP, **fields: str) -> httpx.Response:
    return server.client.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1", **fields},
        files={"file": path.read_bytes()},
        headers={"x-request-id": "mine"},
    )


def error_of(reply: httpx.Response) -> tuple[int, str, str]:
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["message"]


def fail(_job: Job, _index: int) -> None:
    raise EngineError("the model failed at 0.0 s: no /models/tiny")


@pytest.fixture
def patient() -> Iterator[Callable[[Running], openai.OpenAI]]:
    """OpenAI's client with its own retries."""
    clients: list[openai.OpenAI] = []

    def make(server: Running) -> openai.OpenAI:
        clients.append(openai.OpenAI(base_url=f"{server.url}/v1", api_key="none"))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_openai_s_client_does_not_send_again_what_was_cancelled(
    serve: Serve, patient: Callable[[Running], openai.OpenAI]
) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(
            patient(server).audio.transcriptions.create,
            file=CLIP,
            model="whisper-1",
            extra_headers={"x-request-id": "mine"},
        )
        server.gate.wait_for_windows(1)
        assert server.client.delete("/v1/queue/mine").status_code == 200
        with pytest.raises(openai.ConflictError, match="was cancelled"):
            reply.result()
    assert server.metrics()["sooner_requests_total", "cancelled"] == 1


def test_openai_s_client_does_not_send_again_what_is_too_late_or_fails(
    serve: Serve, patient: Callable[[Running], openai.OpenAI]
) -> None:
    server = serve(FakeEngine(fail))
    transcriptions = patient(server).audio.transcriptions
    with pytest.raises(openai.InternalServerError, match="within"):
        transcriptions.create(file=CLIP, model="whisper-1", extra_body={"deadline_s": "0.001"})
    assert server.metrics()["sooner_requests_total", "deadline"] == 1
    with pytest.raises(openai.InternalServerError, match="the engine failed"):
        transcriptions.create(file=CLIP, model="whisper-1")
    assert server.metrics()["sooner_requests_total", "engine_failed"] == 1


@pytest.mark.parametrize(
    ("kind", "should_retry"),
    [
        (RequestCancelledError, "false"),
        (DeadlineError, "false"),
        (EngineError, "false"),
        (EngineLostError, "false"),
        (RequestIdTakenError, None),  # the id is free again in a moment
        (SoonerError, None),
    ],
)
def test_what_is_not_to_be_sent_again_says_so(kind: type[SoonerError], should_retry: str | None) -> None:
    assert error_response(kind.__new__(kind)).headers.get("x-should-retry") == should_retry


def test_who_lost_the_engine_is_not_asked_to_do_so_once_more() -> None:
    error = EngineLostError("a window took more than 300 s; send the request again")
    assert b'"a window took more than 300 s"' in error_response(error).body


class LosingEngine:
    """The real one, which finds the recording gone."""

    def __init__(self, engine: WhisperEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def start(self, job: Job, audio: Any, options: Any) -> Any:
        audio.path.unlink()
        return self._engine.start(job, audio, options)


def test_no_reply_tells_where_files_lie_and_the_log_does(
    serve: Serve, whisper: WhisperEngine, silent_wav: Callable[[float], Path], caplog: pytest.LogCaptureFixture
) -> None:
    lost = serve(LosingEngine(whisper), vad=False)
    replies = [post(lost), post(lost, stream="true"), post(lost, Path(__file__))]
    assert [error_of(reply)[:2] for reply in replies] == [
        (500, "engine_failed"),
        (500, "engine_failed"),
        (400, "unreadable_audio"),
    ]
    assert "request 'mine'" in caplog.text
    assert f"{lost.spool}/" in caplog.text

    def fail_later(job: Job, index: int) -> None:
        if index == 1:
            fail(job, index)

    caplog.clear()
    failing = serve(FakeEngine(fail_later))
    replies += [post(failing, silent_wav(60.0)), post(failing, silent_wav(60.0), stream="true")]
    assert caplog.text.count("request 'mine': the model failed at 0.0 s: no /models/tiny") == 2
    shutil.rmtree(failing.spool)
    replies.append(post(failing))
    assert error_of(replies[-1]) == (500, "internal_error", "the server made a mistake; its log says more")
    for reply in replies:
        assert str(lost.spool) not in reply.text + str(reply.headers)
        assert "/models" not in reply.text
    failing.spool.mkdir()
    assert post(failing).status_code == 200


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_no_room_for_a_folder_is_no_fault(serve: Serve, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def new_folder(_: Spool) -> Path:
        raise OSError(number, "nothing left")

    monkeypatch.setattr(Spool, "new_folder", new_folder)
    reply = post(serve())
    assert error_of(reply)[:2] == (503, "spool_full")
    assert int(reply.headers["retry-after"]) >= 1


def raise_bug(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug")


def test_a_bug_is_answered_and_logged_with_the_request_s_id(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(QueueView, "queue", raise_bug)
    server = serve()
    reply = server.client.get("/v1/queue", headers={"x-request-id": "mine"})
    assert error_of(reply) == (500, "internal_error", "the server made a mistake; its log says more")
    assert reply.headers["x-request-id"] == "mine"
    assert len(server.client.get("/v1/queue").headers["x-request-id"]) == 32
    assert "request mine met a bug" in caplog.text
    assert "ZeroDivisionError: a bug" in caplog.text


def test_who_meets_a_bug_while_sending_hears_of_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "_check_room", raise_bug)
    server = serve()
    head = (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-request-id: mine\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 2000000\r\n\r\n"
    )
    with socket.create_connection(server.background.server.address, timeout=30) as connection:
        connection.sendall(head + bytes(2_000_000))
        reply = b""
        while data := connection.recv(65536):
            reply += data
    assert reply.startswith(b"HTTP/1.1 500 ")
    assert b"x-request-id: mine" in reply
    assert server.metrics()["sooner_requests_total", "internal_error"] == 1


def test_who_was_told_to_go_on_sending_hears_of_the_end(serve: Serve) -> None:
    """It sends when the request is cancelled already; after a reset, many a client reads no more."""
    server = serve()
    begin = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    with socket.create_connection(server.background.server.address, timeout=30) as connection:
        connection.sendall(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nx-request-id: mine\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 3000000\r\n\r\n"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(begin)
        assert server.client.delete("/v1/queue/mine").status_code == 200
        until(lambda: server.client.get("/v1/queue/mine").status_code, lambda status: status == 404)
        connection.sendall(bytes(3_000_000 - len(begin)))
        assert connection.recv(65536).startswith(b"HTTP/1.1 409 ")
