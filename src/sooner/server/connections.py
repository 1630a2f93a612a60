"""Connections within bounds: how many there are, and how long one may be open without a request under way.

uvicorn bounds neither, and a server that has used up its open files can accept nobody, read no recording and, with
asyncio's way of trying again, do little else than say so.
"""

from __future__ import annotations

import asyncio
import sys

from uvicorn.protocols.http.h11_impl import H11Protocol

if sys.platform != "win32":
    import resource

__all__ = ["backlog_of", "max_connections", "protocol_for"]

_HEAD_S = 20.0
"""How long a client may take over the head of a request, and over what follows an answered one, seconds."""

_OTHER_FILES = 64  # the libraries, the engine's pipe, the event loop, the listening sockets
_USUAL_LIMIT = 65536  # where there is none, or none that is known


def max_connections() -> int:
    """Connections that this process has open files for.

    A third of the files is for them, a third for the recordings that come over them, and a third for those beyond,
    which have to be accepted before they can be closed.
    """
    limit = _USUAL_LIMIT
    if sys.platform != "win32":
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = _USUAL_LIMIT if soft == resource.RLIM_INFINITY else soft
    return max(1, (limit - _OTHER_FILES) // 3)


def backlog_of(most: int) -> int:
    """Connections to accept in one turn of the event loop; it takes four turns until one too many is closed."""
    return max(1, min(2048, most // 4))


def protocol_for(most: int) -> type[asyncio.Protocol]:
    """uvicorn's protocol for at most so many connections at a time; more are closed at once."""

    class Bounded(_BoundedProtocol):
        most_connections = most

    return Bounded


class _BoundedProtocol(H11Protocol):
    most_connections: int
    _timer: asyncio.TimerHandle | None = None
    _unsent_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.cycle and not self.cycle.more_body and not self.cycle.response_complete:
            # uvicorn would keep what follows a request until that is answered, and read no more: nor would it
            # notice that the client has left. So it is dropped; who wants it answered sends it again.
            self.cycle.keep_alive = False
        else:
            super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._unwatch()

    def on_response_complete(self) -> None:
        self._watch()
        super().on_response_complete()

    def _watch(self) -> None:
        self._unwatch()
        self._timer = self.loop.call_later(_HEAD_S, self._end)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        before, self._unsent_bytes = self._unsent_bytes, self.transport.get_write_buffer_size()
        if 0 < self._unsent_bytes != before:  # it still takes a long reply, on a slow line
            self._watch()
        else:
            self.transport.abort()
