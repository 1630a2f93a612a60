"""A real server in a thread, for demos, benchmarks and tests."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

from fastapi import FastAPI

from sooner.errors import ConfigurationError
from sooner.server.app import Server
from sooner.server.options import ServeOptions

__all__ = ["BackgroundServer"]


class _AnnouncingServer(Server):
    """Sets an event once it listens, so that nobody needs to poll."""

    def __init__(self, app: FastAPI, options: ServeOptions) -> None:
        super().__init__(app, options)
        self.listening = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class BackgroundServer:
    """Context manager: the application is reachable inside the block, and shut down at its end.

    Args:
        app: see ``make_app``.
        options: the same options; ``port=0`` finds a free port.
    """

    def __init__(self, app: FastAPI, options: ServeOptions) -> None:
        self.server = _AnnouncingServer(app, options)
        self._thread = threading.Thread(target=self._run, name="sooner-server", daemon=True)

    def _run(self) -> None:
        try:
            self.server.run()
        finally:
            self.server.listening.set()  # also where start-up failed: nobody may wait for ever

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server.address
        return f"http://{host}:{port}"

    def stop(self) -> None:
        """Ask it to shut down, as a stop signal would; does not wait."""
        self.server.should_exit = True

    def join(self) -> None:
        """Wait until it is down."""
        self._thread.join()

    def __enter__(self) -> BackgroundServer:
        self._thread.start()
        self.server.listening.wait()
        if not self.server.started:
            raise ConfigurationError("the server did not start; its log says why")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self.join()
