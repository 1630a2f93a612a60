"""Connections are bounded in number and in time, and a client that leaves is noticed."""

from __future__ import annotations

import http.client
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest

from sooner.server import app, connections
from sooner.server.connections import backlog_of, max_connections, protocol_for
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve
from .until import until

CLIP = clip_named("austen-0880").path
HEAD = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


def connect(server: Running) -> socket.socket:
    return socket.create_connection(server.background.server.address, timeout=30)


def is_closed(connection: socket.socket, drip: bytes = b"") -> bool:
    """Send a byte, and look for the end for a moment, past whatever reply there is."""
    try:
        connection.sendall(drip)
        connection.settimeout(0.02)
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    ("begin", "drip"),
    [(b"", b""), (b"GET /health HTTP/1.1\r\nHost: x\r\nA: b", b"b"), (HEAD, b"x")],
    ids=["idle", "half a head", "a refused body without an end"],
)
def test_without_a_request_a_connection_ends(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, begin: bytes, drip: bytes
) -> None:
    monkeypatch.setattr(connections, "_HEAD_S", 0.3)
    server = serve()
    with connect(server) as connection:
        connection.sendall(begin)
        until(lambda: is_closed(connection, drip), lambda closed: closed)


def test_a_request_under_way_may_take_as_long_as_it_takes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_S", 0.1)
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool, connect(server) as idle:
        reply = pool.submit(server.post, CLIP)
        server.gate.wait_for_windows(1)
        until(lambda: is_closed(idle), lambda closed: closed)
        with connect(server) as later:
            until(lambda: is_closed(later), lambda closed: closed)
        server.gate.open()
        assert reply.result().status_code == 200


def test_a_client_that_still_takes_its_reply_is_left_to_it() -> None:
    class Line:
        unsent_bytes = 0
        is_aborted = False
        num_looks = 0

        def get_write_buffer_size(self) -> int:
            return self.unsent_bytes

        def abort(self) -> None:
            self.is_aborted = True

        def call_later(self, _delay_s: float, _look: Callable[[], None]) -> None:
            self.num_looks += 1

    line = Line()
    protocol = object.__new__(protocol_for(1))
    protocol.transport = protocol.loop = line  # type: ignore[attr-defined]
    for line.unsent_bytes in (5000, 3000):
        protocol._end()  # type: ignore[attr-defined]
    assert (line.is_aborted, line.num_looks) == (False, 2)
    protocol._end()  # type: ignore[attr-defined]
    assert (line.is_aborted, line.num_looks) == (True, 2)


def test_one_connection_too_many_is_closed_and_the_others_are_served(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "max_connections", lambda: 3)
    server = serve()
    held = [connect(server) for _ in range(3)]
    until(lambda: len(server.background.server.server_state.connections), lambda number: number == 3)
    for _ in range(5):
        with connect(server) as one:
            until(partial(is_closed, one), lambda closed: closed)
    held[0].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert held[0].recv(65536).startswith(b"HTTP/1.1 200 ")
    for one in held:
        one.close()
    until(lambda: len(server.background.server.server_state.connections), lambda number: number == 0)
    assert httpx.get(f"{server.url}/health").status_code == 200


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
@pytest.mark.parametrize(
    ("limit", "most", "backlog"), [(150, 28, 7), (1024, 320, 80), (65536, 21824, 2048), (8, 1, 1)]
)
def test_there_are_files_for_all_that_is_let_in(
    monkeypatch: pytest.MonkeyPatch, limit: int, most: int, backlog: int
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert (max_connections(), backlog_of(max_connections())) == (most, backlog)


def test_a_connection_serves_one_upload_after_the_other(serve: Serve, silent_wav: Callable[[float], Path]) -> None:
    server = serve()
    connection = http.client.HTTPConnection(*server.background.server.address, timeout=30)
    body = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        + silent_wav(4.0).read_bytes()  # more than uvicorn takes in before it is asked for it
        + b"\r\n--b--\r\n"
    )
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request(
            "POST", "/v1/audio/transcriptions", body, {"Content-Type": "multipart/form-data; boundary=b"}
        )
        with connection.getresponse() as reply:
            assert reply.status == 200
            reply.read()
        assert connection.sock is first
    connection.close()


@pytest.mark.parametrize("is_late", [False, True], ids=["with it", "after it"])
def test_a_client_that_leaves_is_noticed_whatever_it_sent_behind_its_request(
    serve: Serve, silent_wav: Callable[[float], Path], is_late: bool
) -> None:
    server = serve(gated=True)
    behind = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 3
    with server.send(silent_wav(600.0), behind=b"" if is_late else behind) as connection:
        server.gate.wait_for_windows(1)
        if is_late:
            connection.sendall(behind)
    server.wait_for_queue(lambda q: q["num_cancelled"] == 1)
