"""What one client may have on its way, and the ids that it may give."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.audio.probe import Audio
from sooner.errors import ClientLimitError, RequestIdTakenError
from sooner.server.access import Caller
from sooner.server.options import ServeOptions
from sooner.server.requests import ClientLimits, OpenRequest, OpenRequests
from sooner.service.clock import ManualClock
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve

CLIP = clip_named("austen-0880").path
ALICE, BOB = {"Authorization": "Bearer alice-0123456789abc"}, {"Authorization": "Bearer bob-0123456789abc"}
HEAD = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.touch(mode=0o600)
    path.write_text("alice-0123456789abc alice\nbob-0123456789abc bob\n")
    return path


def post(server: Running, path: Path = CLIP, **headers: str) -> httpx.Response:
    return server.client.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1"},
        files={"file": path.read_bytes()},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


def code_of(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


def test_one_client_cannot_take_all_places(serve: Serve, keys: Path) -> None:
    server = serve(gated=True, api_keys=keys, max_client_jobs=2)
    with ThreadPoolExecutor(3) as pool:
        mine = [pool.submit(post, server, **ALICE)]
        server.gate.wait_for_windows(1)
        server.client.headers = httpx.Headers(ALICE)
        mine.append(pool.submit(post, server, **ALICE))
        backlog_s = server.wait_for_queue(lambda q: q["num_waiting"] == 1)["backlog_s"]
        refused = post(server, **ALICE)
        assert code_of(refused) == (429, "client_limit", None)
        assert "you have 2 requests on their way" in refused.json()["error"]["message"]
        assert "--max-client-jobs" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) == max(1, -(-backlog_s // 1))
        theirs = pool.submit(post, server, **BOB)
        server.wait_for_queue(lambda q: q["num_waiting"] == 2)
        server.gate.open()
        assert [one.result().status_code for one in (*mine, theirs)] == [200] * 3
    assert post(server, **ALICE).status_code == 200  # the place is free again
    assert server.metrics()["sooner_refusals_total", "client_limit"] == 1


def test_a_client_over_its_limit_is_refused_before_its_body_is_read(serve: Serve) -> None:
    server = serve(max_client_jobs=1)
    with socket.create_connection(server.background.server.address, timeout=30) as first:
        first.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
        server.wait_for_queue(lambda q: q["num_arriving"] == 1)
        with socket.create_connection(server.background.server.address, timeout=30) as second:
            second.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
            assert second.recv(65536).startswith(b"HTTP/1.1 429 ")
    server.wait_for_queue(lambda q: q["num_arriving"] == 0)
    assert server.post(CLIP).status_code == 200


def test_the_seconds_of_one_client_are_bounded_but_not_those_of_a_lone_upload(
    serve: Serve, silent_wav: Callable[[float], Path]
) -> None:
    server = serve(gated=True, max_client_audio_s=100.0)
    with ThreadPoolExecutor(2) as pool:
        long = pool.submit(server.post, silent_wav(300.0))
        server.gate.wait_for_windows(1)
        refused = server.post(CLIP)
        assert code_of(refused) == (429, "client_limit", None)
        assert "you have 300 seconds of audio on their way" in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
        server.gate.open()
        assert long.result().status_code == 200
    assert server.post(CLIP).status_code == 200


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 902),
        ({"max_queue": 10}, 11),
        ({"max_queue": 11}, 12),
        ({"max_queue": 9}, None),
        ({"max_queue": 1}, None),
        ({"max_queue": 1, "max_client_jobs": 3}, 3),
        ({"max_client_jobs": 1}, 1),
    ],
)
def test_the_default_leaves_a_tenth_of_the_queue_to_others(options: dict[str, int], limit: int | None) -> None:
    assert ServeOptions(**options).client_jobs_on(2) == limit  # type: ignore[arg-type]


def test_a_client_names_its_requests(serve: Serve) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, server, x_request_id="mine.1_-Z")
        server.gate.wait_for_windows(1)
        taken = post(server, x_request_id="mine.1_-Z")
        assert code_of(taken) == (409, "request_id_taken", None)
        server.gate.open()
        assert first.result().headers["x-request-id"] == "mine.1_-Z"
    assert post(server, x_request_id="mine.1_-Z").status_code == 200  # it is over, and the id free


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "<script>", "x" * 65, "\u00e9", "a\tb"])
def test_a_malformed_id_is_refused_and_not_repeated(serve: Serve, bad: str) -> None:
    server = serve()
    refused = server.client.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1"},
        files={"file": CLIP.read_bytes()},
        headers=[(b"x-request-id", bad.encode("latin-1"))],
    )
    assert code_of(refused) == (400, "invalid_parameter", "x-request-id")
    assert len(refused.headers["x-request-id"]) == 32
    assert not bad or bad not in refused.text


def test_every_reply_bears_an_id(serve: Serve) -> None:
    server = serve()
    assert post(server, x_request_id="a").headers["x-request-id"] == "a"
    for reply in (server.client.get("/nope"), server.client.get("/health"), server.post(Path(__file__))):
        assert len(reply.headers["x-request-id"]) == 32
    unreadable = post(server, Path(__file__), x_request_id="b")
    assert (unreadable.status_code, unreadable.headers.get_list("x-request-id")) == (400, ["b"])
    assert server.client.get("/health", headers={"x-request-id": "c c"}).status_code == 200


CALLERS = [Caller(client=name, highest="standard") for name in ("a", "b", "c")]


@given(seed=st.integers(0, 2**32), max_jobs=st.integers(1, 4), max_audio_s=st.none() | st.floats(1.0, 50.0))
def test_nothing_is_miscounted_and_no_limit_passed(seed: int, max_jobs: int, max_audio_s: float | None) -> None:
    """Requests come, are measured and go in any order."""
    rng = random.Random(seed)
    ended: list[OpenRequest] = []
    requests = OpenRequests(
        clock=ManualClock(),
        on_end=lambda entry, _: ended.append(entry),
        limits=ClientLimits(max_jobs=max_jobs, max_audio_s=max_audio_s),
        retry_after_s=lambda: 7.0,
    )
    opened: list[tuple[OpenRequest, ExitStack]] = []
    num_refused = 0
    for step in range(60):
        caller = rng.choice(CALLERS)
        same = [entry for entry, _ in opened if entry.caller == caller]
        if rng.random() < 0.5:
            stack = ExitStack()
            is_taken = f"r{step % 20}" in {entry.id for entry, _ in opened}
            refusal = RequestIdTakenError if is_taken else ClientLimitError
            if is_taken or len(same) == max_jobs:
                with pytest.raises(refusal), requests.open(caller, request_id=f"r{step % 20}"):
                    raise AssertionError("it was let in")
                num_refused += 1
            else:
                opened.append((stack.enter_context(requests.open(caller, request_id=f"r{step % 20}")), stack))
        elif opened:
            entry, stack = opened.pop(rng.randrange(len(opened)))
            if entry.audio is None and rng.random() < 0.5:
                measure(requests, entry, opened, rng.uniform(1.0, 30.0), max_audio_s)
                opened.append((entry, stack))
            else:
                stack.close()
        requests.check()
        assert requests.num_open == len(opened)
    for _, stack in opened:
        stack.close()
    requests.check()
    assert requests.num_open == 0
    assert sum(entry.error is not None for entry in ended) == num_refused


def measure(
    requests: OpenRequests,
    entry: OpenRequest,
    others: list[tuple[OpenRequest, ExitStack]],
    audio_s: float,
    limit_s: float | None,
) -> None:
    before = sum(
        other.audio.num_samples
        for other, _ in others
        if other.caller == entry.caller and other.audio is not None and other.arrival_s is not None
    )
    audio = Audio(path=Path("x"), num_samples=round(audio_s * 16000))
    if limit_s is None or before == 0 or before + audio.num_samples <= limit_s * 16000:
        requests.measured(entry, audio)
    else:
        with pytest.raises(ClientLimitError, match="seconds of audio on their way") as caught:
            requests.measured(entry, audio)
        assert caught.value.retry_after_s == 7.0


def test_what_has_ended_leaves_no_fraction_of_a_second_behind() -> None:
    """In seconds as floats, 0.1 + 0.2 - 0.1 - 0.2 is 2.8e-17, and a lone upload would come second to it."""
    requests = OpenRequests(
        clock=ManualClock(),
        on_end=lambda *_: None,
        limits=ClientLimits(max_audio_s=60.0),
        retry_after_s=lambda: 1.0,
    )
    with requests.open(CALLERS[0]) as lone:
        with requests.open(CALLERS[0]) as first, requests.open(CALLERS[0]) as second:
            requests.measured(first, Audio(path=Path("x"), num_samples=1600))
            requests.measured(second, Audio(path=Path("x"), num_samples=3200))
        requests.measured(lone, Audio(path=Path("x"), num_samples=600 * 16000))
        requests.check()


def test_who_is_told_of_the_end_also_hears_of_a_client_that_left() -> None:
    ended: list[BaseException | None] = []
    requests = OpenRequests(
        clock=ManualClock(),
        on_end=lambda entry, _: ended.append(entry.error),
        limits=ClientLimits(),
        retry_after_s=lambda: 1.0,
    )
    with pytest.raises(asyncio.CancelledError), requests.open(CALLERS[0]):
        raise asyncio.CancelledError
    with requests.open(CALLERS[0]) as entry:
        assert len(entry.id) == 32
    assert [type(error) for error in ended] == [asyncio.CancelledError, type(None)]
