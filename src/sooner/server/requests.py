"""The requests on their way: from the moment their head is read until the last byte of the reply."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sooner.audio.probe import Audio
from sooner.errors import RequestIdTakenError, RequestNotFoundError
from sooner.server.access import Caller
from sooner.service.clock import Clock
from sooner.service.dispatcher import Transcript

__all__ = ["OpenRequest", "OpenRequests"]


@dataclass(slots=True)
class OpenRequest:
    """One request, filled in as it goes.

    Attributes:
        id: its id, and its job's.
        caller: whose it is.
        opened_s: second at which its head was read.
        priority: class that it asked for; see ``access.PRIORITIES``.
        audio: the upload, once measured.
        arrival_s: second at which it was measured and went to the queue.
        transcript: its text, once there is one.
        error: why it has none.
        cancelled: set when somebody cancels it from elsewhere.
    """

    id: str
    caller: Caller
    opened_s: float
    priority: int = 1
    audio: Audio | None = None
    arrival_s: float | None = None
    transcript: Transcript | None = None
    error: BaseException | None = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class OpenRequests:
    """All requests on their way, by id.

    Args:
        clock: the time.
        on_end: told of each request when it is over, with the second: for the log, metrics and records.
    """

    def __init__(self, *, clock: Clock, on_end: Callable[[OpenRequest, float], None]) -> None:
        self._clock = clock
        self._on_end = on_end
        self._requests: dict[str, OpenRequest] = {}

    @contextmanager
    def open(self, caller: Caller, *, request_id: str | None = None) -> Iterator[OpenRequest]:
        """Follow a request until the context ends.

        Args:
            caller: whose it is.
            request_id: the id that the client wants it to have; ``None`` for one of ours.

        Raises:
            RequestIdTakenError: another with this id is on its way.
        """
        entry = OpenRequest(request_id or uuid.uuid4().hex, caller, self._clock.now_s())
        if entry.id in self._requests:
            raise RequestIdTakenError(entry.id)
        self._requests[entry.id] = entry
        try:
            yield entry
        except BaseException as error:
            entry.error = error
            raise
        finally:
            del self._requests[entry.id]
            self._on_end(entry, self._clock.now_s())

    def get(self, request_id: str, caller: Caller) -> OpenRequest:
        """A request of this caller's. Raises ``RequestNotFoundError`` where there is none."""
        entry = self._requests.get(request_id)
        if entry is None or entry.caller.client != caller.client:
            raise RequestNotFoundError(request_id)
        return entry

    def measured(self, entry: OpenRequest, audio: Audio) -> None:
        """Note how long the upload is.

        Raises:
            ClientLimitError: its client has too much audio on its way.
        """
        entry.audio = audio
        entry.arrival_s = self._clock.now_s()
