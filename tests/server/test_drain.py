"""Going down: what is accepted is served, what comes is told why not, and a second signal ends it."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sooner import Job
from sooner.engines.fake import FakeEngine
from sooner.errors import ConfigurationError, EngineError
from sooner.server.listening import bind
from sooner.workload.recordings import clip_named

from .conftest import Serve
from .until import until

CLIP = clip_named("austen-0880").path


def test_what_is_accepted_is_served_while_new_uploads_are_turned_away(
    serve: Serve, silent_wav: Callable[[float], Path]
) -> None:
    server = serve(gated=True, policy="fcfs", shutdown_grace_s=600.0)
    with ThreadPoolExecutor(2) as pool:
        meeting = pool.submit(server.post, silent_wav(90.0))
        server.gate.wait_for_windows(1)
        waiting = pool.submit(server.post, CLIP)
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        server.background.stop()
        ready = until(lambda: httpx.get(f"{server.url}/ready"), lambda reply: reply.status_code != 200)
        assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
        assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
        assert server.queue()["state"] == "draining"
        refused = server.post(CLIP)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        server.gate.open()
        assert (meeting.result().status_code, waiting.result().status_code) == (200, 200)
    server.background.join()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_what_cannot_be_done_within_the_grace_is_told_at_once(
    serve: Serve, silent_wav: Callable[[float], Path]
) -> None:
    server = serve(gated=True, policy="fcfs", shutdown_grace_s=2.0)
    with ThreadPoolExecutor(3) as pool:
        running = pool.submit(server.post, CLIP)
        server.gate.wait_for_windows(1)
        meeting = pool.submit(server.post, silent_wav(240.0))
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        server.background.stop()
        assert meeting.result().json()["error"]["code"] == "shutting_down"
        server.gate.open()
        assert running.result().status_code == 200
    server.background.join()


class StuckEngine(FakeEngine):
    """Its windows end only when it is closed, as those of an engine in a process of its own do."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.closed = threading.Event()
        super().__init__(self._hang)

    def _hang(self, _job: Job, _index: int) -> None:
        self.begun.set()
        assert self.closed.wait(60)
        raise EngineError("the engine was closed")

    def close(self) -> None:
        self.closed.set()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(serve: Serve, second: signal.Signals) -> None:
    engine = StuckEngine()
    server = serve(engine, shutdown_grace_s=3600.0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.post, CLIP)
        assert engine.begun.wait(30)
        server.background.server.handle_exit(signal.SIGTERM, None)
        until(lambda: httpx.get(f"{server.url}/ready").status_code, lambda status: status == 503)
        assert not engine.closed.is_set()
        server.background.server.handle_exit(second, None)
        server.background.join()
        assert engine.closed.is_set()
        assert running.result().json()["error"]["code"] == "shutting_down"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_a_port_is_bound_before_anything_else(host: str) -> None:
    sockets = bind(host, 0)
    port = sockets[0].getsockname()[1]
    assert port > 0
    assert {one.getsockname()[1] for one in sockets} == {port}
    for one in sockets:
        one.listen()
    with pytest.raises(ConfigurationError, match=f"^port {port} is in use on {host}; choose another with --port$"):
        bind(host, port)
    for one in sockets:
        one.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_here_is_named(host: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^cannot listen on port 0 of {host}: .*; choose others with"):
        bind(host, 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6_alone() -> None:
    (one,) = bind("::1", 0)
    assert one.family == socket.AF_INET6
    one.close()
