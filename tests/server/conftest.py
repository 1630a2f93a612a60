"""Real servers in threads, with the scripted or the real engine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sooner import Job
from sooner.engines.base import Engine
from sooner.engines.fake import FakeEngine
from sooner.server.app import make_app
from sooner.server.background import BackgroundServer
from sooner.server.options import ServeOptions
from sooner.service.clock import ManualClock

from .until import until


class Gate:
    """Lets the windows of a fake engine begin, and end when the test says so.

    Args:
        clock: where given, each window takes a second on it; for one worker.
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self._clock = clock
        self._begun: list[tuple[str, int]] = []
        self._changed = threading.Condition()
        self._may_end = threading.Semaphore(0)

    def on_step(self, job: Job, index: int) -> None:
        with self._changed:
            self._begun.append((job.id, index))
            self._changed.notify_all()
        self._may_end.acquire()
        if self._clock is not None:
            self._clock.advance(1.0)

    def wait_for_windows(self, number: int) -> list[tuple[str, int]]:
        """Wait until so many windows have begun in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._begun) >= number, timeout=20)
            return list(self._begun)

    def open(self, number: int = 1000) -> None:
        self._may_end.release(number)


@dataclass
class Running:
    """A server under test."""

    background: BackgroundServer
    url: str
    spool: Path
    gate: Gate
    client: httpx.Client

    def post(self, path: Path, **fields: str) -> httpx.Response:
        data = {"model": "whisper-1", **fields}
        return self.client.post(
            "/v1/audio/transcriptions", data=data, files={"file": (path.name, path.read_bytes())}
        )

    def send(self, path: Path, *, behind: bytes = b"") -> socket.socket:
        """Send a recording and wait for no answer; whoever closes the connection is a client that leaves.

        Args:
            path: the recording.
            behind: what is sent behind the request.
        """
        host, port = self.background.server.address
        body = (
            b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
            + path.read_bytes()
            + b"\r\n--b--\r\n"
        )
        connection = socket.create_connection((host, port))
        connection.sendall(
            f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
            + body
            + behind
        )
        return connection

    def queue(self) -> dict[str, Any]:
        body: dict[str, Any] = self.client.get("/v1/queue").json()
        return body

    def metrics(self) -> dict[tuple[str, ...], float]:
        """What ``/metrics`` says: values by name and labels' values, in the order of the labels' names."""
        page = self.client.get("/metrics").text
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    def stop(self) -> None:
        """Shut it down and wait until it is."""
        self.background.stop()
        self.background.join()

    def wait_for_queue(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask ``/v1/queue`` until ``condition`` holds for it."""
        give_up_s = time.monotonic() + 30
        while True:
            body = self.queue()
            if condition(body):
                return body
            assert time.monotonic() < give_up_s, f"the queue never got there: {body}"
            time.sleep(0.005)  # between two looks, not in place of one: a busy loop starves the server


Serve = Callable[..., Running]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server; every one started is stopped at the end.

    Before that its requests must have left nothing on disk, and after it neither must the server.
    """
    with ExitStack() as stack:

        def start(
            engine: Engine | None = None,
            *,
            gated: bool = False,
            num_workers: int = 1,
            clock: ManualClock | None = None,
            **options: Any,
        ) -> Running:
            gate = Gate(clock)
            if engine is None:
                engine = FakeEngine(gate.on_step if gated else None)
            spool = tmp_path / "spool"
            spool.mkdir(exist_ok=True)
            serve_options = ServeOptions(port=0, spool_dir=spool, **options)
            app = make_app(serve_options, engine=engine, num_workers=num_workers, clock=clock)
            background = stack.enter_context(BackgroundServer(app, serve_options))

            def no_upload_is_left() -> None:
                gate.open()
                until(lambda: app.state.service.requests.num_open, lambda number: number == 0)
                assert list(spool.glob("sooner-spool-*/*")) == [], "uploads outlive their requests"

            stack.callback(no_upload_is_left)
            client = stack.enter_context(
                httpx.Client(base_url=background.url, timeout=60, limits=httpx.Limits(max_connections=None))
            )
            return Running(background, background.url, spool, gate, client)

        yield start
    left = list((tmp_path / "spool").rglob("*")) if (tmp_path / "spool").exists() else []
    assert left == [], "the server left its folder on disk"
