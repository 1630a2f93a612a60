"""How big an engine request is, and which upload it is a part of.

vLLM cuts a recording into chunks of at most 30 s and submits each as a request of its own, so the engine
never sees the upload. The API process, which does, writes a chunk's place in it into ``extra_args`` of the
request's ``SamplingParams``; the scheduler, in another process, reads it back. ``estimated_output_tokens``
keeps the name it has in the paper (https://arxiv.org/abs/2603.11273).

Nothing here imports vLLM: a request is anything that has the attributes of ``EngineRequest``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from sooner.core.estimator import Estimator
from sooner.core.job import Ticket

__all__ = [
    "ESTIMATE_KEY",
    "RESERVED_KEYS",
    "UPLOAD_KEY",
    "Chunk",
    "EngineRequest",
    "chunk_of",
    "chunks_of_upload",
    "lone_request",
    "ticket_of",
]

ESTIMATE_KEY = "estimated_output_tokens"
"""Key of n̂, predicted output tokens of one request."""
UPLOAD_KEY = "sooner_upload"
"""Key of the chunk's place in its upload."""
RESERVED_KEYS = frozenset({ESTIMATE_KEY, UPLOAD_KEY})
"""What a client of the HTTP server may not set."""


class EngineRequest(Protocol):
    """The attributes of ``vllm.v1.request.Request`` that ordering needs."""

    request_id: str
    arrival_time: float
    priority: int
    max_tokens: int
    sampling_params: Any
    mm_features: Sequence[object]

    @property
    def num_output_tokens(self) -> int: ...


class Chunk(NamedTuple):
    """One engine request and its place in an upload; a request without an upload is its own.

    A tuple, because one is made for every request that reaches the engine.

    Attributes:
        upload_id: the same for all chunks of an upload.
        number: 0 for the first chunk.
        num_chunks: chunks of the upload.
        audio_s: seconds of the whole upload, ``None`` where unknown.
        windows: windows of ≤ 30 s that the model encodes for this chunk.
        tokens: n̂ of this chunk.
        later_windows: windows of all chunks after this one.
        later_tokens: n̂ of all chunks after this one.
        upload_windows: windows of the whole upload.
        upload_tokens: n̂ of the whole upload.
    """

    upload_id: str
    number: int
    num_chunks: int
    audio_s: float | None
    windows: int
    tokens: int
    later_windows: int
    later_tokens: int
    upload_windows: int
    upload_tokens: int

    @property
    def detects_language(self) -> bool:
        """Whether vLLM sends it before an upload that names no language: one token, and no length known."""
        return self.audio_s is None and self.tokens == 1

    def extra_args(self) -> dict[str, Any]:
        """What travels in ``SamplingParams.extra_args``: plain numbers and text only."""
        place = self._asdict()
        return {ESTIMATE_KEY: place.pop("tokens"), UPLOAD_KEY: place}


def lone_request(request: EngineRequest) -> Chunk:
    """A request that says nothing of its size, or is not believed: ``max_tokens``, one window per recording."""
    return _alone(request.request_id, windows=len(request.mm_features), tokens=max(1, request.max_tokens))


def _alone(request_id: str, *, windows: int, tokens: int) -> Chunk:
    return Chunk(
        upload_id=request_id,
        number=0,
        num_chunks=1,
        audio_s=None,
        windows=windows,
        tokens=tokens,
        later_windows=0,
        later_tokens=0,
        upload_windows=windows,
        upload_tokens=tokens,
    )


def chunks_of_upload(upload_id: str, chunks_s: Sequence[float], estimator: Estimator) -> tuple[Chunk, ...]:
    """Every chunk of an upload whose chunks last ``chunks_s`` seconds, in order. O(chunks)."""
    estimates = [estimator.estimate(audio_s) for audio_s in chunks_s]
    windows_until = [0, *accumulate(estimate.windows for estimate in estimates)]
    tokens_until = [0, *accumulate(estimate.estimated_output_tokens for estimate in estimates)]
    return tuple(
        Chunk(
            upload_id=upload_id,
            number=number,
            num_chunks=len(estimates),
            audio_s=float(sum(chunks_s)),
            windows=estimate.windows,
            tokens=estimate.estimated_output_tokens,
            later_windows=windows_until[-1] - windows_until[number + 1],
            later_tokens=tokens_until[-1] - tokens_until[number + 1],
            upload_windows=windows_until[-1],
            upload_tokens=tokens_until[-1],
        )
        for number, estimate in enumerate(estimates)
    )


def chunk_of(request: EngineRequest) -> Chunk:
    """Read what the API process wrote.

    A request that brings an estimate alone is sized by it; one that brings none (text, other endpoints) is
    sized by ``max_tokens``, as in the paper. Either has one window per recording in its prompt. What cannot
    be read counts as not there: a scheduler that raises takes the whole engine down.
    """
    extra_args: Mapping[str, Any] = getattr(request.sampling_params, "extra_args", None) or {}
    tokens: Any = extra_args.get(ESTIMATE_KEY)
    if not _is_count(tokens):
        return lone_request(request)
    place: Any = extra_args.get(UPLOAD_KEY)
    if not _is_place(place, tokens):
        return _alone(request.request_id, windows=len(request.mm_features), tokens=tokens)
    return Chunk(tokens=tokens, **place)


_FIELDS = frozenset(Chunk._fields) - {"tokens"}
_from_one = itemgetter("num_chunks", "windows", "upload_windows", "upload_tokens")
_from_zero = itemgetter("number", "later_windows", "later_tokens")


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


def _is_place(place: object, tokens: int) -> bool:
    if not isinstance(place, dict) or place.keys() != _FIELDS or type(place["upload_id"]) is not str:
        return False
    ones, zeros = _from_one(place), _from_zero(place)
    return (
        set(map(type, ones + zeros)) == {int}
        and min(ones) >= 1
        and min(zeros) >= 0
        and place["upload_tokens"] >= tokens + place["later_tokens"]
        and isinstance(place["audio_s"], float | None)
    )


def ticket_of(request: EngineRequest, chunk: Chunk, estimator: Estimator, *, sequence: int) -> Ticket:
    """The standing of the upload that ``request`` is the next chunk of.

    Its size is that of the whole upload, what remains is this chunk and all later ones. Tokens that the
    request has decoded before it was preempted are off both; its encoder pass is not, because vLLM drops it
    and encodes again. Times are seconds on the clock of ``request.arrival_time``.
    """
    decoded = min(request.num_output_tokens, chunk.tokens - 1)
    return Ticket(
        id=chunk.upload_id,
        arrival_s=request.arrival_time,
        size_s=estimator.size_s(windows=chunk.upload_windows, tokens=chunk.upload_tokens - decoded),
        remaining_s=estimator.size_s(
            windows=chunk.windows + chunk.later_windows, tokens=chunk.tokens + chunk.later_tokens - decoded
        ),
        sequence=sequence,
        window_s=estimator.size_s(windows=chunk.windows, tokens=chunk.tokens - decoded),
        own_s=estimator.own_token_s * (chunk.tokens - decoded),
    )
