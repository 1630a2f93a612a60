"""The requests on their way: from the moment their head is read until the last byte of the reply."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sooner.audio.decode import SAMPLE_RATE_HZ
from sooner.audio.probe import Audio
from sooner.core.scheduler import SchedulerStatistics
from sooner.errors import ClientLimitError, InvalidParameterError, RequestIdTakenError, RequestNotFoundError
from sooner.server.access import Caller
from sooner.server.door import is_request_id
from sooner.service.clock import Clock
from sooner.service.dispatcher import Transcript

__all__ = ["ClientLimits", "OpenRequest", "OpenRequests"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """What one client may have on its way; ``None`` for no limit.

    Attributes:
        max_jobs: requests, those included that are being received or served.
        max_audio_s: seconds of audio of measured uploads. A lone upload is always within it.
    """

    max_jobs: int | None = None
    max_audio_s: float | None = None


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


@dataclass(slots=True)
class _Usage:
    """What one client has on its way."""

    num_jobs: int = 0
    num_samples: int = 0  # and not seconds: what rounding left of them would be audio on its way


class OpenRequests:
    """All requests on their way, by id, within bounds for each client. Every operation is O(1).

    Args:
        clock: the time.
        on_end: told of each request when it is over, with the second: for the log, metrics and records. Also of
            those that were refused.
        limits: see ``ClientLimits``.
        retry_after_s: seconds until it makes sense to try again, for whoever is over a limit.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        on_end: Callable[[OpenRequest, float], None],
        limits: ClientLimits,
        retry_after_s: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._on_end = on_end
        self._limits = limits
        self._retry_after_s = retry_after_s
        self._requests: dict[str, OpenRequest] = {}
        self._usage: dict[str, _Usage] = {}

    @property
    def num_open(self) -> int:
        """Requests on their way."""
        return len(self._requests)

    def num_arriving(self, now: SchedulerStatistics) -> int:
        """Those that the scheduler does not know: being received, measured, or answered."""
        return max(0, self.num_open - now.num_waiting - now.num_running)

    @contextmanager
    def open(self, caller: Caller, *, request_id: str | None = None) -> Iterator[OpenRequest]:
        """Follow a request until the context ends.

        Args:
            caller: whose it is.
            request_id: the id that the client wants it to have; ``None`` for one of ours.

        Raises:
            InvalidParameterError: the id is malformed.
            RequestIdTakenError: another with this id is on its way.
            ClientLimitError: its client has as many on their way as it may.
        """
        is_malformed = request_id is not None and not is_request_id(request_id)
        usable_id = None if is_malformed else request_id
        entry = OpenRequest(usable_id or uuid.uuid4().hex, caller, self._clock.now_s())
        try:
            if is_malformed:
                raise InvalidParameterError(
                    "x-request-id must be 1 to 64 of the characters A-Z a-z 0-9 . _ -", param="x-request-id"
                )
            self._enter(entry)
            try:
                yield entry
            finally:
                self._leave(entry)
        except BaseException as error:
            entry.error = error
            raise
        finally:
            self._on_end(entry, self._clock.now_s())

    def _enter(self, entry: OpenRequest) -> None:
        if entry.id in self._requests:
            raise RequestIdTakenError(entry.id)
        client = entry.caller.client
        num_jobs = self._usage[client].num_jobs if client in self._usage else 0
        if self._limits.max_jobs is not None and num_jobs >= self._limits.max_jobs:
            raise ClientLimitError(
                what="requests",
                limit=self._limits.max_jobs,
                actual=num_jobs,
                option="--max-client-jobs",
                retry_after_s=self._retry_after_s(),
            )
        self._requests[entry.id] = entry
        self._usage.setdefault(client, _Usage()).num_jobs += 1

    def _leave(self, entry: OpenRequest) -> None:
        del self._requests[entry.id]
        usage = self._usage[entry.caller.client]
        usage.num_jobs -= 1
        if usage.num_jobs == 0:  # who has nothing here is forgotten
            del self._usage[entry.caller.client]
        elif entry.arrival_s is not None and entry.audio is not None:
            usage.num_samples -= entry.audio.num_samples

    def get(self, request_id: str, caller: Caller) -> OpenRequest:
        """A request of this caller's. Raises ``RequestNotFoundError`` where there is none."""
        entry = self._requests.get(request_id)
        if entry is None or entry.caller.client != caller.client:
            raise RequestNotFoundError(request_id)
        return entry

    def measured(self, entry: OpenRequest, audio: Audio) -> None:
        """Note how long the upload is.

        Raises:
            ClientLimitError: with it, its client has too much audio on its way.
        """
        entry.audio = audio
        usage, limit_s = self._usage[entry.caller.client], self._limits.max_audio_s
        num_samples = usage.num_samples + audio.num_samples
        if limit_s is not None and usage.num_samples > 0 and limit_s * SAMPLE_RATE_HZ < num_samples:
            raise ClientLimitError(
                what="seconds of audio",
                limit=limit_s,
                actual=round(usage.num_samples / SAMPLE_RATE_HZ, 1),
                option="--max-client-audio-s",
                retry_after_s=self._retry_after_s(),
            )
        usage.num_samples = num_samples
        entry.arrival_s = self._clock.now_s()

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold. O(n); for tests."""
        clients = [entry.caller.client for entry in self._requests.values()]
        assert self._usage.keys() == set(clients), "a client is forgotten, or kept for nothing"
        for client, usage in self._usage.items():
            assert usage.num_jobs == clients.count(client), "requests of a client are miscounted"
            num_samples = sum(
                entry.audio.num_samples
                for entry in self._requests.values()
                if entry.caller.client == client and entry.audio is not None and entry.arrival_s is not None
            )
            assert usage.num_samples == num_samples, "the audio of a client is miscounted"
