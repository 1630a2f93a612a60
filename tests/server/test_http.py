"""The HTTP surface over a scripted engine: shapes, limits, errors, cancellation, closing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sooner.server.upload import Upload, _FormWriter
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"
JFK = clip_named("jfk").path
CLIP = clip_named("austen-0880").path
GRANULARITIES = "timestamp_granularities[]"


def error_of(response: httpx.Response) -> dict[str, object]:
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


def raw_request(server: Running, body: bytes, *, headers: str = "", declared: int | None = None) -> bytes:
    """A request written by hand, for bodies that no client would send."""
    host, port = server.background.server.address
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}"
        f"Content-Length: {len(body) if declared is None else declared}\r\n\r\n"
    )
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(head.encode() + body)
        reply = b""
        while data := connection.recv(65536):
            reply += data
    return reply


def test_json_and_headers(serve: Serve) -> None:
    response = serve().post(JFK)
    assert response.status_code == 200
    assert response.json() == {"text": "window 0 of 1", "usage": {"type": "duration", "seconds": 11}}
    assert len(response.headers["x-request-id"]) == 32
    assert float(response.headers["x-sooner-wait-s"]) >= 0
    assert float(response.headers["x-sooner-service-s"]) >= 0
    assert float(response.headers["x-sooner-size-s"]) == pytest.approx(0.4 + 33 * 0.0065, abs=1e-3)
    assert (response.headers["x-sooner-num-tokens"], response.headers["x-sooner-num-windows"]) == ("90", "1")


def test_text(serve: Serve) -> None:
    response = serve().post(JFK, response_format="text")
    assert response.text == "window 0 of 1\n"
    assert response.headers["content-type"].startswith("text/plain")


def test_verbose_json(serve: Serve) -> None:
    body = serve().post(JFK, response_format="verbose_json", language="EN").json()
    assert body.keys() == {"task", "language", "duration", "text", "segments", "usage"}
    assert body["task"] == "transcribe"
    assert body["language"] == "english"
    assert body["duration"] == pytest.approx(11.0)
    assert [s["text"] for s in body["segments"]] == [" window 0 of 1"]
    assert body["segments"][0].keys() == {
        *("id", "seek", "start", "end", "text", "tokens", "temperature"),
        *("avg_logprob", "compression_ratio", "no_speech_prob"),
    }


def test_empty_fields_mean_the_default(serve: Serve) -> None:
    fields = ("language", "prompt", "temperature", "response_format", "priority", "deadline_s")
    response = serve().post(CLIP, **dict.fromkeys(fields, ""), stream="false")
    assert response.json()["text"] == "window 0 of 1"


def test_an_upload_that_takes_too_long_is_given_up(serve: Serve) -> None:
    reply = raw_request(
        serve(max_upload_s=1.0, upload_idle_s=600.0),
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF',
        headers="Content-Type: multipart/form-data; boundary=b\r\n",
        declared=100_000,
    )
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in reply.lower()


def test_a_spool_folder_that_was_cleaned_away_is_made_again(serve: Serve) -> None:
    server = serve()
    for folder in server.spool.iterdir():
        folder.rmdir()
    assert server.post(CLIP).status_code == 200


def test_models_and_health(serve: Serve) -> None:
    server = serve()
    assert server.client.get("/v1/models/fake").json()["id"] == "fake"
    assert server.client.get("/v1/models/org/other").status_code == 404
    assert server.client.head("/health").status_code == 200
    models = server.client.get("/v1/models").json()
    assert models["object"] == "list"
    assert [m["id"] for m in models["data"]] == ["fake"]
    health = server.client.get("/health")
    assert (health.status_code, health.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"model": ""}, 400, "model", "invalid_parameter"),
        ({"model": "gpt-4o"}, 404, "model", "model_not_found"),
        ({"temperature": "hot"}, 400, "temperature", "invalid_parameter"),
        ({"temperature": "1.5"}, 400, "temperature", "invalid_parameter"),
        ({"temperature": "nan"}, 400, "temperature", "invalid_parameter"),
        ({"response_format": "docx"}, 400, "response_format", "invalid_parameter"),
        ({"language": "tlh"}, 400, "language", "invalid_parameter"),
        ({"stream": " yes"}, 400, "stream", "invalid_parameter"),
        ({"stream": "true", "response_format": "srt"}, 400, "response_format", "invalid_parameter"),
        ({"stream": "true", "response_format": "verbose_json"}, 400, "response_format", "invalid_parameter"),
        ({"timestamp_granularities": "word"}, 400, GRANULARITIES, "invalid_parameter"),
        (
            {"timestamp_granularities[]": ["word", "segment"]},
            400,
            "timestamp_granularities[]",
            "invalid_parameter",
        ),
        (
            {"timestamp_granularities[]": "letter", "response_format": "verbose_json"},
            400,
            "timestamp_granularities[]",
            "invalid_parameter",
        ),
        ({"include[]": "logprobs"}, 400, "include", "invalid_parameter"),
        ({"include": "logprobs"}, 400, "include", "invalid_parameter"),
        ({"priority": "urgent"}, 400, "priority", "invalid_parameter"),
        ({"deadline_s": "soon"}, 400, "deadline_s", "invalid_parameter"),
        ({"deadline_s": "0"}, 400, "deadline_s", "invalid_parameter"),
        ({"deadline_s": "inf"}, 400, "deadline_s", "invalid_parameter"),
        ({"deadline_s": "nan"}, 400, "deadline_s", "invalid_parameter"),
        ({"prompt": "x" * 70_000}, 400, "prompt", "invalid_parameter"),
        ({"language": "x" * 40_000, "prompt": "x" * 40_000}, 400, "prompt", "invalid_parameter"),
    ],
)
def test_bad_parameters(serve: Serve, fields: dict[str, str], status: int, param: str, code: str) -> None:
    response = serve().post(CLIP, **fields)
    assert response.status_code == status
    error = error_of(response)
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


@pytest.mark.parametrize(
    ("header", "value", "status", "param", "code"),
    [
        ("x-sooner-priority", "urgent", 400, "x-sooner-priority", "invalid_parameter"),
        ("x-sooner-deadline-s", "-1", 400, "x-sooner-deadline-s", "invalid_parameter"),
        ("x-sooner-priority", "interactive", 403, "priority", "priority_not_open"),
    ],
)
def test_bad_headers(serve: Serve, header: str, value: str, status: int, param: str, code: str) -> None:
    response = serve().client.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1"},
        files={"file": CLIP.read_bytes()},
        headers={header: value},
    )
    assert response.status_code == status
    assert (error_of(response)["param"], error_of(response)["code"]) == (param, code)


def test_fields_that_change_nothing_are_ignored(serve: Serve) -> None:
    assert serve().post(CLIP, user="someone", chunking_strategy="x" * 70_000).status_code == 200


def test_of_fields_that_change_nothing_nothing_is_kept(tmp_path: Path) -> None:
    upload = Upload(tmp_path)
    form = _FormWriter("b", upload)
    for number in range(60):
        form.write(b'--b\r\nContent-Disposition: form-data; name="f%d"\r\n\r\n' % number + bytes(60_000) + b"\r\n")
    form.write(b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n--b--\r\n')
    form.finish()
    assert upload.fields == {"model": "whisper-1"}
    assert form._text == b"whisper-1"


def test_no_file(serve: Serve) -> None:
    response = serve().client.post("/v1/audio/transcriptions", data={"model": "whisper-1"}, files={"x": b"y"})
    assert (response.status_code, error_of(response)["param"]) == (400, "file")


@pytest.mark.parametrize("name", ["empty.flac", "not_audio.wav", "random_bytes.flac"])
def test_unreadable(serve: Serve, name: str) -> None:
    response = serve().post(HOSTILE / name)
    assert response.status_code == 400
    assert error_of(response)["code"] == "unreadable_audio"


def test_not_a_form(serve: Serve) -> None:
    response = serve().client.post("/v1/audio/transcriptions", json={"file": "jfk"})
    assert response.status_code == 400
    assert "multipart/form-data" in str(error_of(response)["message"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b\r\n",
        b"no boundary at all",
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nhalf a fi',
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n\xff\xfe\r\n--b--\r\n',
        b'--b\r\nContent-Disposition: form-data; name="\xff"\r\n\r\n1\r\n--b--\r\n',
        b'--b\r\nContent-Disposition: form-data; name="m' + b"m" * 9000 + b'"\r\n\r\n\r\n--b--\r\n',
        b"".join(b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' for _ in range(200))
        + b"--b--\r\n",
    ],
)
def test_malformed_forms(serve: Serve, body: bytes) -> None:
    reply = raw_request(serve(), body, headers="Content-Type: multipart/form-data; boundary=b\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert b'"invalid_request_error"' in reply
    assert b"Error(" not in reply, "it tells what the parser is made of"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nope", 404, "not_found"), ("GET", "/v1/audio/transcriptions", 405, "method_not_allowed")],
)
def test_framework_errors_have_the_same_shape(
    serve: Serve, method: str, path: str, status: int, code: str
) -> None:
    response = serve().client.request(method, path)
    assert (response.status_code, error_of(response)["code"]) == (status, code)
    assert str(error_of(response)["message"]).startswith(f"{method} {path}: ")


def test_upload_too_large_by_its_own_word(serve: Serve) -> None:
    response = serve(max_upload_bytes=1000).post(CLIP)
    assert response.status_code == 413
    assert error_of(response)["code"] == "upload_too_large"


def test_upload_too_large_without_a_word(serve: Serve) -> None:
    def endless() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(64):
            yield bytes(65536)

    response = serve(max_upload_bytes=200_000).client.post(
        "/v1/audio/transcriptions",
        content=endless(),
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )
    assert response.status_code == 413


def test_audio_too_long(serve: Serve, silent_wav) -> None:
    response = serve(max_audio_s=100.0).post(silent_wav(200.0))
    assert response.status_code == 413
    error = error_of(response)
    assert error["code"] == "audio_too_long"
    assert "100.0 s" in str(error["message"])


def test_an_upload_that_stalls_is_given_up(serve: Serve) -> None:
    reply = raw_request(
        serve(upload_idle_s=1.0),
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF',
        headers="Content-Type: multipart/form-data; boundary=b\r\n",
        declared=100_000,
    )
    assert reply.startswith(b"HTTP/1.1 408 ")


def test_queue_full(serve: Serve) -> None:
    server = serve(gated=True, max_queue=2)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(server.post, CLIP)
        server.gate.wait_for_windows(1)
        waiting = [pool.submit(server.post, CLIP) for _ in range(2)]
        body = server.wait_for_queue(lambda q: q["num_waiting"] == 2)
        refused = server.post(CLIP)
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) == max(1, -(-body["backlog_s"] // 1))
        server.gate.open()
        assert [f.result().status_code for f in (first, *waiting)] == [200] * 3


def test_backlog_too_large(serve: Serve, silent_wav) -> None:
    server = serve(gated=True, max_backlog_s=5.0)
    long = silent_wav(600.0)
    with ThreadPoolExecutor(2) as pool:
        accepted = [pool.submit(server.post, long) for _ in range(2)]
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        refused = server.post(CLIP)
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "backlog_too_large"
        assert int(refused.headers["retry-after"]) >= 1
        server.gate.open()
        assert all(f.result().status_code == 200 for f in accepted)


def test_spool_full(serve: Serve) -> None:
    server = serve(gated=True, max_spool_bytes=CLIP.stat().st_size + 2000)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.post, CLIP)
        server.gate.wait_for_windows(1)
        refused = server.post(CLIP)
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "spool_full"
        server.gate.open()
        assert first.result().status_code == 200
    assert server.post(CLIP).status_code == 200  # the room is free again


def test_the_queue_is_visible(serve: Serve, silent_wav) -> None:
    server = serve(gated=True, policy="hrrn")
    meeting = silent_wav(300.0)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(server.post, meeting)]
        server.gate.wait_for_windows(1)
        futures.append(pool.submit(server.post, CLIP))
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        body = server.queue()
        assert (body["policy"], body["num_workers"], body["num_running"]) == ("hrrn", 1, 1)
        assert (body["order"], body["num_switches"]) == ("hrrn", 0)
        (running,), (waiting,) = body["running"], body["waiting"]
        assert running["audio_s"] == pytest.approx(300.0)
        assert running["position"] == 0
        assert waiting["position"] == 1
        assert waiting["audio_s"] == pytest.approx(2.99)
        assert waiting["size_s"] == pytest.approx(0.4 + 8 * 0.0065)
        assert 0 < waiting["predicted_start_s"] <= 1.3  # the end of a window, not of the meeting
        assert body["backlog_s"] == pytest.approx(waiting["size_s"])
        server.gate.open()
        assert [f.result().status_code for f in futures] == [200, 200]


def test_no_header_moves_a_job(serve: Serve, silent_wav) -> None:
    """A client that lies about sizes in headers, fields and the file's own header is ordered by its audio."""
    server = serve(gated=True, policy="sjf")
    liar = HOSTILE / "jfk_declared_2s_but_11s.wav"
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(server.post, silent_wav(20.0))
        server.gate.wait_for_windows(1)
        lying = pool.submit(
            server.client.post,
            "/v1/audio/transcriptions",
            data={"model": "whisper-1", "audio_s": "0.1", "estimated_output_tokens": "1", "rank": "-100"},
            files={"file": (liar.name, liar.read_bytes())},
            headers={"x-sooner-size-s": "0.001", "x-request-id": "mine", "x-sooner-wait-s": "9999"},
        )
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        honest = pool.submit(server.post, clip_named("austen-0890").path)
        body = server.wait_for_queue(lambda q: q["num_waiting"] == 2)
        assert [round(row["audio_s"], 1) for row in body["waiting"]] == [5.3, 11.0]
        server.gate.open()
        assert lying.result().headers["x-request-id"] == "mine"  # a name, and no place in the queue
        assert {f.result().status_code for f in (first, lying, honest)} == {200}


def test_a_client_that_leaves_while_waiting_frees_its_place(serve: Serve) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.post, CLIP)
        server.gate.wait_for_windows(1)
        connection = server.send(CLIP)
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        connection.close()
        server.wait_for_queue(lambda q: q["num_waiting"] == 0 and q["num_cancelled"] == 1)
        server.gate.open()
        assert first.result().status_code == 200
    assert len(server.gate.wait_for_windows(1)) == 1


def test_a_client_that_leaves_while_running_stops_at_the_next_window(serve: Serve, silent_wav) -> None:
    server = serve(gated=True)
    connection = server.send(silent_wav(600.0))
    server.gate.wait_for_windows(1)
    connection.close()
    server.wait_for_queue(lambda q: q["num_cancelled"] == 1)
    server.gate.open()
    assert server.post(CLIP).status_code == 200
    assert len(server.gate.wait_for_windows(2)) == 2  # one of the meeting's twenty, and the clip's


def test_a_client_that_leaves_in_the_middle_of_its_upload(serve: Serve) -> None:
    server = serve()
    host, port = server.background.server.address
    connection = socket.create_connection((host, port))
    connection.sendall(
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF'
    )
    server.wait_for_queue(lambda q: q["num_arriving"] == 1)
    connection.close()
    server.wait_for_queue(lambda q: q["num_arriving"] == 0)


def test_health_answers_while_workers_are_busy_and_a_hundred_uploads_wait(serve: Serve) -> None:
    server = serve(gated=True, num_workers=2)
    with ThreadPoolExecutor(102) as pool:
        futures = [pool.submit(server.post, CLIP) for _ in range(102)]
        server.gate.wait_for_windows(2)
        server.wait_for_queue(lambda q: q["num_waiting"] == 100)
        for _ in range(50):
            assert server.client.get("/health", timeout=5).status_code == 200
        server.gate.open()
        assert [f.result().status_code for f in futures] == [200] * 102


def test_shutdown_serves_what_is_done_within_the_grace_and_refuses_the_rest(serve: Serve, silent_wav) -> None:
    server = serve(gated=True, shutdown_grace_s=15.0, policy="fcfs")
    with ThreadPoolExecutor(3) as pool:
        started = pool.submit(server.post, silent_wav(90.0))
        server.gate.wait_for_windows(1)
        waiting = pool.submit(server.post, CLIP)
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        too_long = pool.submit(server.post, silent_wav(600.0))
        server.wait_for_queue(lambda q: q["num_waiting"] == 2)
        server.background.stop()
        refused = too_long.result()
        assert refused.status_code == 503
        assert error_of(refused)["code"] == "shutting_down"
        server.gate.open()
        assert started.result().json()["text"] == "window 0 of 3 window 1 of 3 window 2 of 3"
        assert waiting.result().json()["text"] == "window 0 of 1"
    server.background.join()


def test_shutdown_does_not_hang_on_a_stalled_upload(serve: Serve) -> None:
    server = serve(upload_idle_s=600.0)
    replies: list[bytes] = []
    body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF'
    sender = threading.Thread(
        target=lambda: replies.append(
            raw_request(server, body, headers="Content-Type: multipart/form-data; boundary=b\r\n", declared=10_000)
        )
    )
    sender.start()
    server.wait_for_queue(lambda q: q["num_arriving"] == 1)
    server.background.stop()
    server.background.join()
    sender.join()
    assert replies[0].startswith(b"HTTP/1.1 503 ")


def test_shutdown_after_the_grace_refuses_even_started_jobs(serve: Serve, silent_wav) -> None:
    server = serve(gated=True, shutdown_grace_s=0.0)
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(server.post, silent_wav(600.0))
        server.gate.wait_for_windows(1)
        server.background.stop()
        assert started.result().status_code == 503
        server.gate.open()


def test_many_clients_at_once_all_get_their_own_text(serve: Serve, silent_wav) -> None:
    server = serve(num_workers=2)
    paths = {windows: silent_wav(30.0 * windows) for windows in (1, 2, 3)}

    async def one(client: httpx.AsyncClient, windows: int) -> str:
        response = await client.post(
            "/v1/audio/transcriptions", data={"model": "fake"}, files={"file": paths[windows].read_bytes()}
        )
        text: str = response.json()["text"]
        return text

    async def all_of_them() -> list[str]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            return await asyncio.gather(*(one(client, 1 + n % 3) for n in range(60)))

    for n, text in enumerate(asyncio.run(all_of_them())):
        total = 1 + n % 3
        assert text == " ".join(f"window {i} of {total}" for i in range(total))


def test_who_is_refused_while_sending_hears_of_it(serve: Serve) -> None:
    """No reset in place of the reply, whatever lies unread: here the client sends all before it reads."""
    server = serve(max_upload_bytes=1000)
    host, port = server.background.server.address
    body = bytes(2_000_000)
    head = (
        f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(10):
        with socket.create_connection((host, port), timeout=30) as connection:
            connection.sendall(head.encode() + body)
            reply = b""
            while data := connection.recv(65536):
                reply += data
        assert reply.startswith(b"HTTP/1.1 413 ")
        assert b"upload_too_large" in reply
