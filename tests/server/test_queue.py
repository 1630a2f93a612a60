"""The queue to look at, one's own request in it, and taking that out."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from sooner.core.latency import LatencyRecord
from sooner.engines.fake import FakeEngine
from sooner.errors import RequestCancelledError
from sooner.server import queue_view
from sooner.server.recent import Recent
from sooner.server.transcriptions import _unless
from sooner.service.clock import ManualClock
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve
from .until import until

CLIP = clip_named("austen-0880").path
ROW = {
    *("id", "status", "priority", "audio_s", "speech_s", "size_s", "remaining_s", "done_s", "wait_s", "position"),
    *("predicted_start_s", "predicted_end_s", "num_preemptions"),
}
ALONE = ROW | {"progress", "num_windows", "num_restarts"}


def post(server: Running, path: Path, request_id: str, **fields: str) -> httpx.Response:
    return server.client.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1", **fields},
        files={"file": path.read_bytes()},
        headers={"x-request-id": request_id},
    )


def begin_upload(server: Running, request_id: str) -> socket.socket:
    """Send the head of a request and the first bytes of its body."""
    connection = socket.create_connection(server.background.server.address, timeout=30)
    connection.sendall(
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\nx-request-id: " + request_id.encode() + b"\r\n\r\n"
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF'
    )
    server.wait_for_queue(lambda q: q["num_arriving"] == 1)
    return connection


def test_a_request_can_be_followed_from_its_first_byte_to_its_text(
    serve: Serve, silent_wav: Callable[[float], Path]
) -> None:
    clock = ManualClock()
    server = serve(gated=True, clock=clock, policy="sjf", encode_s=1.0, token_s=0.0, context_s=0.0, learn=False)

    def request(request_id: str) -> dict[str, Any]:
        body: dict[str, Any] = server.client.get(f"/v1/queue/{request_id}").json()
        return body

    with begin_upload(server, "arriving"):
        body = request("arriving")
        assert body.keys() == ALONE
        assert (body["status"], body["audio_s"], body["position"], body["progress"]) == ("arriving", None, None, 0)
    server.wait_for_queue(lambda q: q["num_arriving"] == 0)

    with ThreadPoolExecutor(2) as pool:
        meeting = pool.submit(post, server, silent_wav(90.0), "meeting")
        server.gate.wait_for_windows(1)
        assert request("meeting")["status"] == "running"
        assert request("meeting")["progress"] == 0
        server.gate.open(1)
        server.gate.wait_for_windows(2)
        clip = pool.submit(post, server, CLIP, "clip", priority="batch")
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        body = request("meeting")
        assert (body["status"], body["progress"], body["num_windows"]) == ("running", round(1 / 3, 4), 1)
        assert (body["done_s"], body["remaining_s"], body["predicted_end_s"]) == (30.0, 2.0, 2.0)
        body = request("clip")
        assert body.keys() == ALONE
        assert (body["status"], body["priority"], body["position"]) == ("waiting", "batch", 1)
        assert (body["predicted_start_s"], body["predicted_end_s"], body["audio_s"]) == (2.0, 3.0, 2.99)
        server.gate.open()
        assert (meeting.result().status_code, clip.result().status_code) == (200, 200)
    assert server.client.get("/v1/queue/clip").status_code == 404


def test_a_request_that_was_put_off_is_shown_as_such(serve: Serve, silent_wav: Callable[[float], Path]) -> None:
    server = serve(gated=True, policy="sjf")
    with ThreadPoolExecutor(2) as pool:
        pool.submit(post, server, silent_wav(90.0), "meeting")
        server.gate.wait_for_windows(1)
        pool.submit(post, server, CLIP, "clip")
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        server.gate.open(1)
        server.gate.wait_for_windows(2)
        queue = server.queue()
        (running,), (waiting,) = queue["running"], queue["waiting"]
        assert running.keys() == waiting.keys() == ROW
        assert (running["id"], running["status"]) == ("clip", "running")
        assert (waiting["id"], waiting["status"], waiting["num_preemptions"]) == ("meeting", "preempted", 1)
        assert waiting["done_s"] == 30.0
        assert server.client.get("/v1/queue/meeting").json()["num_preemptions"] == 1
        server.gate.open()


def test_nobody_sees_or_cancels_the_requests_of_another(serve: Serve, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.touch(mode=0o600)
    keys.write_text(f"{'a' * 16} alice\n{'b' * 16} bob\n")
    server = serve(gated=True, api_keys=keys)
    server.client.headers["Authorization"] = f"Bearer {'a' * 16}"
    other = {"Authorization": f"Bearer {'b' * 16}"}
    with ThreadPoolExecutor(1) as pool:
        mine = pool.submit(post, server, CLIP, "mine")
        server.gate.wait_for_windows(1)
        for method in ("GET", "DELETE"):
            missing = server.client.request(method, "/v1/queue/none")
            foreign = server.client.request(method, "/v1/queue/mine", headers=other)
            assert (missing.status_code, foreign.status_code) == (404, 404)
            assert foreign.json()["error"]["code"] == "request_not_found"
            assert foreign.text.replace("mine", "none") == missing.text, "it tells that there is one"
        assert server.client.get("/v1/queue/mine").status_code == 200
        server.gate.open()
        assert mine.result().status_code == 200


def cancel(server: Running, request_id: str) -> None:
    reply = server.client.delete(f"/v1/queue/{request_id}")
    assert (reply.status_code, reply.json()) == (200, {"id": request_id, "status": "cancelled"})


def assert_cancelled(reply: httpx.Response) -> None:
    assert (reply.status_code, reply.json()["error"]["code"]) == (409, "cancelled")


def test_a_waiting_request_is_cancelled(serve: Serve) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, server, CLIP, "first")
        server.gate.wait_for_windows(1)
        second = pool.submit(post, server, CLIP, "second")
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        cancel(server, "second")
        assert_cancelled(second.result())
        assert server.queue()["num_waiting"] == 0
        server.gate.open()
        assert first.result().status_code == 200
    assert len(server.gate.wait_for_windows(1)) == 1
    assert server.metrics()["sooner_requests_total", "cancelled"] == 1
    assert server.metrics()["sooner_jobs_total", "cancelled"] == 1


def test_a_running_request_is_cancelled_at_its_next_window(
    serve: Serve, silent_wav: Callable[[float], Path]
) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        meeting = pool.submit(post, server, silent_wav(600.0), "meeting")
        server.gate.wait_for_windows(1)
        cancel(server, "meeting")
        assert_cancelled(meeting.result())
        server.gate.open()
        assert server.post(CLIP).status_code == 200
    assert len(server.gate.wait_for_windows(2)) == 2  # one of the meeting's twenty, and the clip's


def test_an_upload_on_its_way_is_cancelled(serve: Serve) -> None:
    server = serve()
    with begin_upload(server, "arriving") as connection:
        cancel(server, "arriving")
        assert connection.recv(65536).startswith(b"HTTP/1.1 409 ")
        assert server.client.get("/v1/queue/arriving").status_code == 404


def test_what_is_all_but_sent_cannot_be_cancelled(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is there, and its upload is being removed."""
    removing, may_end = threading.Event(), threading.Event()

    def remove(folder: Path, **_: object) -> None:
        removing.set()
        assert may_end.wait(30)
        rmtree(folder)

    rmtree = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", remove)
    server = serve()
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(post, server, CLIP, "mine")
        assert removing.wait(30)
        refused = server.client.delete("/v1/queue/mine")
        may_end.set()
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "request_not_found")
        assert reply.result().status_code == 200
        monkeypatch.undo()


def test_who_cancels_in_the_moment_of_the_text_is_told_the_truth() -> None:
    async def text() -> str:
        return "here"

    async def meet() -> None:
        cancelled = asyncio.Event()
        cancelled.set()
        await _unless(cancelled.wait(), RequestCancelledError, text())

    with pytest.raises(RequestCancelledError):
        asyncio.run(meet())


def test_the_last_minutes(serve: Serve, silent_wav: Callable[[float], Path]) -> None:
    clock = ManualClock()
    server = serve(gated=True, clock=clock, num_workers=1)
    server.gate.open()
    assert server.queue()["recent"] == {
        "window_s": 1.0,
        "num_finished": 0,
        "audio_s": 0.0,
        "rtfx": 0.0,
        "by_bucket": [],
    }
    assert server.post(CLIP).status_code == 200
    assert server.post(silent_wav(60.0)).status_code == 200
    body = server.queue()
    assert (body["state"], body["switches"]) == ("ok", [])
    recent = body["recent"]
    assert (recent["window_s"], recent["num_finished"], recent["audio_s"]) == (3.0, 2, 63.0)
    assert recent["rtfx"] == pytest.approx(62.99 / 3.0, abs=1e-3)
    assert recent["by_bucket"] == [
        {"bucket": "0-5 s", "num": 1, "wait_p50_s": 0, "wait_p90_s": 0, "e2e_p50_s": 1, "e2e_p90_s": 1},
        {"bucket": "30-120 s", "num": 1, "wait_p50_s": 0, "wait_p90_s": 0, "e2e_p50_s": 2, "e2e_p90_s": 2},
    ]
    clock.advance(301.0)
    assert server.queue()["recent"]["num_finished"] == 0


def test_a_thousand_of_the_last_five_minutes_are_kept() -> None:
    recent = Recent(started_s=0.0)
    for number in range(3000):
        recent.note(
            LatencyRecord(
                id="",
                audio_s=1.0,
                size_s=1.0,
                arrival_s=number / 100,
                finished_s=number / 100 + 0.5,
                wait_s=0.25,
            )
        )
    body = recent.body(30.5)
    assert body["num_finished"] == 1000
    assert body["window_s"] == pytest.approx(10.0, abs=0.1)  # of which all is known
    assert body["rtfx"] == pytest.approx(100.0, rel=0.01)


def test_changes_of_order_are_shown_with_their_reason(serve: Serve) -> None:
    clock = ManualClock()
    server = serve(gated=True, clock=clock)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(server.post, CLIP) for _ in range(8)]
        server.wait_for_queue(lambda q: q["num_switches"] == 1 and q["num_waiting"] == 7)
        clock.advance(4.0)
        (switch,) = server.queue()["switches"]
        assert (switch["ago_s"], switch["before"], switch["after"]) == (4.0, "fcfs", "boost")
        assert "sizes are alike" in switch["reason"]
        server.gate.open()
        assert [future.result().status_code for future in futures] == [200] * 8


def test_rows_can_be_limited(serve: Serve) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(server.post, CLIP) for _ in range(3)]
        whole = server.wait_for_queue(lambda q: q["num_waiting"] == 2)
        body = server.client.get("/v1/queue?limit=2").json()
        assert (body["num_waiting"], body["num_running"]) == (2, 1)
        assert [row["id"] for row in body["running"] + body["waiting"]] == [
            whole["running"][0]["id"],
            whole["waiting"][0]["id"],
        ]
        assert server.client.get("/v1/queue?limit=0").json()["running"] == []
        server.gate.open()
        assert [future.result().status_code for future in futures] == [200] * 3
    for wrong in ("-1", "few", "1.5", "", "9" * 10, "\u0663"):
        reply = server.client.get("/v1/queue", params={"limit": wrong})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "limit")


def test_where_many_wait_a_forecast_serves_everybody_for_half_a_second(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_view, "_KEPT_FROM", 1)
    real = ManualClock(1e6)
    monkeypatch.setattr(queue_view, "monotonic", real.now_s)
    server = serve(gated=True)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(server.post, CLIP) for _ in range(2)]
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)  # few enough to look each time
        futures += [pool.submit(server.post, CLIP) for _ in range(2)]
        server.wait_for_queue(lambda q: q["num_waiting"] == 3)
        real.advance(1.0)
        assert len(server.queue()["waiting"]) == 3
        cancel(server, server.queue()["waiting"][2]["id"])
        until(lambda: server.queue()["num_waiting"], lambda number: number == 2)  # counts are always new
        assert len(server.queue()["waiting"]) == 3
        real.advance(0.5)
        assert len(server.queue()["waiting"]) == 2
        server.gate.open()
        assert sorted(future.result().status_code for future in futures) == [200, 200, 200, 409]


def test_the_state_tells_of_an_engine_that_is_replaced(serve: Serve) -> None:
    engine = FakeEngine()
    server = serve(engine)
    assert (server.client.get("/ready").status_code, server.client.get("/ready").json()) == (
        200,
        {"status": "ready"},
    )
    engine.ready = False
    for path, status in (("/ready", 503), ("/health", 200)):
        assert server.client.get(path).status_code == status
        assert server.client.head(path).status_code == status
    assert server.client.get("/ready").json() == {"status": "engine_restarting"}
    assert server.queue()["state"] == "engine_restarting"
    assert server.metrics()["sooner_engine_ready",] == 0


def test_the_page_is_one_file_that_may_call_nobody_else(serve: Serve) -> None:
    reply = serve().client.get("/")
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == (
        "'none'",
        "'self'",
        "'none'",
    )
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-cache"
