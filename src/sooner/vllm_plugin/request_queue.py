"""vLLM's queue of waiting requests, in the order of a policy from ``sooner.core``.

Implements vLLM's ``RequestQueue`` without importing it (that every method is there is checked at load).
What the policy orders is uploads: the chunks of one wait together, first chunk first, and take their turn by
the size of the whole recording. Otherwise a ten-minute file is twenty jobs of half a minute, and its last,
shortest chunk comes out first.

Within one scheduling step time stands still (``now_s``), so what ``peek_request`` shows is what
``pop_request`` takes. vLLM often looks and leaves (no memory, no budget left): at the next step, with
another ``now_s``, the order is asked for anew.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar, cast

from sooner.core.adaptive import Switch
from sooner.core.estimator import Estimator
from sooner.core.guard import Guard
from sooner.core.job import Ticket
from sooner.core.policy import Policy
from sooner.core.waiting_line import WaitingLine
from sooner.vllm_plugin.chunk import Chunk, EngineRequest, chunk_of, ticket_of

__all__ = ["PolicyRequestQueue", "QueueObserver"]

QueueObserver = Callable[[str, EngineRequest, Chunk, Ticket], None]
"""Called with what happened (``"added"``, ``"taken"`` or ``"removed"``), to which request, and the standing
of its upload: just after it was added, just before it was taken or removed."""

_Entry = tuple[int, int, Chunk, EngineRequest]  # number in the upload, number of the addition (unique), ...
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _timed(
    method: Callable[Concatenate[PolicyRequestQueue, _P], _R],
) -> Callable[Concatenate[PolicyRequestQueue, _P], _R]:
    """Add the time spent in ``method`` to ``spent_ns``."""

    @wraps(method)
    def timed(self: PolicyRequestQueue, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        begin_ns = time.perf_counter_ns()
        try:
            return method(self, *args, **kwargs)
        finally:
            self.spent_ns += time.perf_counter_ns() - begin_ns

    return cast("Callable[Concatenate[PolicyRequestQueue, _P], _R]", timed)


class _Upload:
    """The waiting chunks of one upload, in order, and what is left of what a guard has promised it."""

    __slots__ = ("allowance_s", "entries", "sequence")

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.entries: list[_Entry] = []
        self.allowance_s: float | None = None

    def ticket(self, estimator: Estimator) -> Ticket:
        _, _, chunk, request = self.entries[0]
        ticket = ticket_of(request, chunk, estimator, sequence=self.sequence)
        return ticket if self.allowance_s is None else ticket.with_allowance(self.allowance_s)


class PolicyRequestQueue:
    """Waiting requests of a vLLM scheduler, ordered by a policy.

    Adding, taking and removing cost what the policy's own queue costs, O(log n) for sjf and the number of
    distinct sizes for hrrn, plus O(chunks of the upload).

    Args:
        policy: the order.
        estimator: makes sizes of windows and tokens.
        read: what to make of a request.
        observer: see ``QueueObserver``; ``None`` to watch nothing.
        guard: see ``Guard``; ``None`` for none.

    Attributes:
        now_s: the second at which the order is asked for, on the clock of the requests' ``arrival_time``. The
            scheduler sets it before each step.
        spent_ns: nanoseconds spent in this queue since it was made.
    """

    def __init__(
        self,
        policy: Policy,
        estimator: Estimator,
        *,
        read: Callable[[EngineRequest], Chunk] = chunk_of,
        observer: QueueObserver | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.now_s = 0.0
        self.spent_ns = 0
        self._estimator = estimator
        self._read = read
        self._observer = observer
        self._ready = WaitingLine(policy, num_workers=1, guard=guard)
        self._uploads: dict[str, _Upload] = {}
        self._upload_id_of: dict[str, str] = {}  # by request id
        self._num_added = 0
        self._is_over: Callable[[], bool] | None = None

    def begin_step(self, now_s: float, is_over: Callable[[], bool] | None = None) -> None:
        """Begin a scheduling step at ``now_s``, in which the queue looks empty to vLLM's scan once ``is_over()``.

        It keeps its length. This is for the windows that the encoder's budget admits in a step: with that spent,
        vLLM 0.33 takes every waiting request out to look at it and puts all back, 0.4 s at 10,000 waiting.
        """
        self.now_s = now_s
        self._is_over = is_over

    def end_step(self) -> None:
        """Show all that waits again."""
        self._is_over = None

    @property
    def order(self) -> str:
        """Name of the order in force: the policy's, or the one that ``adaptive`` has chosen."""
        return self._ready.order

    def take_switches(self) -> list[Switch]:
        """The changes of order that ``adaptive`` made since this was last asked, oldest first."""
        return self._ready.take_switches()

    @_timed
    def add_request(self, request: EngineRequest) -> None:
        """Let a request wait. Its arrival time is its own, whenever it comes (back)."""
        chunk = self._read(request)
        self._num_added += 1
        upload = self._uploads.get(chunk.upload_id)
        if upload is None:
            upload = self._uploads[chunk.upload_id] = _Upload(self._num_added)
        entry = (chunk.number, self._num_added, chunk, request)
        comes_first = not upload.entries or entry[:2] < upload.entries[0][:2]
        if comes_first and upload.entries:
            upload.allowance_s = self._ready.remove(chunk.upload_id).allowance_s
        insort(upload.entries, entry)
        self._upload_id_of[request.request_id] = chunk.upload_id
        ticket = upload.ticket(self._estimator)
        if comes_first:  # else the upload stands as it does; pushed anew it would count as another arrival
            self._ready.push(ticket, counts=not chunk.detects_language)
        if self._observer is not None:
            self._observer("added", request, chunk, ticket)

    def prepend_request(self, request: EngineRequest) -> None:
        """Take back a preempted request: its turn comes by the policy, not before all others."""
        self.add_request(request)

    def prepend_requests(self, requests: Iterable[EngineRequest]) -> None:
        """Take back requests that a scan skipped."""
        for request in requests:
            self.add_request(request)

    @_timed
    def peek_request(self) -> EngineRequest:
        """The request to start next. Raises ``IndexError`` where none waits."""
        ticket = self._ready.peek(self.now_s)
        if ticket is None:
            raise IndexError("peek from an empty queue")
        return self._uploads[ticket.id].entries[0][-1]

    @_timed
    def pop_request(self) -> EngineRequest:
        """Take the request that ``peek_request`` shows. Raises ``IndexError`` where none waits."""
        ticket = self._ready.pop(self.now_s)
        if ticket is None:
            raise IndexError("pop from an empty queue")
        return self._leave("taken", ticket, position=0)

    def remove_request(self, request: EngineRequest) -> None:
        """Take one request out wherever it stands. A stranger is ignored."""
        self.remove_requests((request,))

    @_timed
    def remove_requests(self, requests: Iterable[EngineRequest]) -> None:
        """Take requests out wherever they stand; strangers are ignored. The length of the queue costs nothing."""
        for request in requests:
            upload_id = self._upload_id_of.get(request.request_id)
            if upload_id is not None:
                entries = self._uploads[upload_id].entries
                position = next(i for i, e in enumerate(entries) if e[-1].request_id == request.request_id)
                self._leave("removed", self._ready.remove(upload_id), position=position)

    def _leave(self, event: str, ticket: Ticket, *, position: int) -> EngineRequest:
        """Drop one chunk of an upload whose ticket is out of the ready queue; the rest waits on."""
        upload = self._uploads[ticket.id]
        _, _, chunk, request = upload.entries.pop(position)
        del self._upload_id_of[request.request_id]
        if upload.entries:
            upload.allowance_s = ticket.allowance_s
            self._ready.push(upload.ticket(self._estimator))
        else:
            del self._uploads[ticket.id]
        if self._observer is not None:
            self._observer(event, request, chunk, ticket)
        return request

    def __bool__(self) -> bool:
        return bool(self._upload_id_of) and not (self._is_over is not None and self._is_over())

    def __len__(self) -> int:
        return len(self._upload_id_of)

    def __iter__(self) -> Iterator[EngineRequest]:
        """All requests as they would start if nothing came and no time passed. O(n log n)."""
        for ticket in self._ready.ordered(self.now_s):
            yield from (entry[-1] for entry in self._uploads[ticket.id].entries)

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold. O(n log n); for tests."""
        self._ready.check()
        assert {ticket.id for ticket in self._ready} == self._uploads.keys()
        waiting: dict[str, str] = {}
        for upload_id, upload in self._uploads.items():
            assert upload.entries, "an upload without a waiting chunk was kept"
            assert upload.entries == sorted(upload.entries, key=lambda entry: entry[:2])
            waiting |= {entry[-1].request_id: upload_id for entry in upload.entries}
        assert waiting == self._upload_id_of
