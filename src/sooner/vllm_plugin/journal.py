"""What one engine did, one JSON object a line: enough to replay every decision, and to fit what a step takes."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, Protocol

from sooner.core.job import Ticket
from sooner.errors import ConfigurationError
from sooner.vllm_plugin.chunk import Chunk, EngineRequest

__all__ = ["Journal", "StepOutput"]

logger = logging.getLogger("vllm.sooner")


class _CachedRequests(Protocol):
    resumed_req_ids: Sized


class StepOutput(Protocol):
    """The attributes of vLLM's ``SchedulerOutput``, the plan of one step, that are kept."""

    num_scheduled_tokens: Mapping[str, int]
    scheduled_new_reqs: Sized
    scheduled_cached_reqs: _CachedRequests


class Journal:
    """A ``QueueObserver`` that writes to a file, which is begun anew; the scheduler adds the steps.

    Every line holds ``event`` and ``now_s``, a wall-clock second. What the events are, and what else they hold:

    - ``engine``, once, first: the engine's limits, see the scheduler's ``_limits``.
    - ``added``, ``taken``, ``removed``: a request came to the queue, was started, or left without. ``now_s`` is
      the scheduling step; for requests that come between two steps, the one before. With it ``request_id``, the
      upload's ``upload_id``, ``arrival_s``, ``size_s``, ``remaining_s`` and ``sequence`` as the policy saw them,
      and the chunk's ``number``, ``num_chunks``, ``audio_s`` (of the whole upload), ``estimated_output_tokens``
      and ``num_output_tokens``.
    - ``step``: a step with work in it is done. ``now_s`` is when it was planned, ``done_s`` when its tokens
      were there; ``num_running`` windows ran in it, ``num_admitted`` of them began in it, or began again after
      an eviction. How long it took is not written, because it depends on the step before: an engine may plan
      a step while the last one runs.
    - ``finished``: a request has all its tokens; the chunk's fields again.

    One write a line: it is for experiments, not for production. It stops, and says so, when the file cannot
    be written any more: the engine goes on.

    Raises:
        ConfigurationError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.now_s = 0.0
        self._path = path
        self._is_writable = True
        self._planned_s: dict[int, float] = {}  # by identity: plans have no name and cannot be hashed
        try:
            path.write_text("")
        except OSError as error:
            raise ConfigurationError(f"additional_config: sooner.journal_path: {error}") from error

    def __call__(self, event: str, request: EngineRequest, chunk: Chunk, ticket: Ticket) -> None:
        line = {
            "request_id": request.request_id,
            "upload_id": ticket.id,
            "arrival_s": ticket.arrival_s,
            "size_s": ticket.size_s,
            "remaining_s": ticket.remaining_s,
            "sequence": ticket.sequence,
        }
        self._write(event, self.now_s, line | _of_chunk(request, chunk))

    def engine(self, limits: Mapping[str, Any], *, now_s: float) -> None:
        """Write what bounds the engine."""
        self._write("engine", now_s, limits)

    def planned(self, output: StepOutput) -> None:
        """Remember that a step was planned at ``self.now_s``; one without work is no step."""
        if output.num_scheduled_tokens:
            self._planned_s[id(output)] = self.now_s

    def done(self, output: StepOutput, *, done_s: float) -> None:
        """Write a step whose tokens are there."""
        planned_s = self._planned_s.pop(id(output), None)
        if planned_s is None:
            return
        line = {
            "done_s": done_s,
            "num_running": len(output.num_scheduled_tokens),
            "num_admitted": len(output.scheduled_new_reqs) + len(output.scheduled_cached_reqs.resumed_req_ids),
        }
        self._write("step", planned_s, line)

    def finished(self, request: EngineRequest, chunk: Chunk, *, now_s: float) -> None:
        """Write a request that has all its tokens."""
        line = {"request_id": request.request_id, "upload_id": chunk.upload_id}
        self._write("finished", now_s, line | _of_chunk(request, chunk))

    def _write(self, event: str, now_s: float, line: Mapping[str, Any]) -> None:
        if not self._is_writable:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"event": event, "now_s": now_s, **line}) + "\n")
        except OSError as error:
            self._is_writable = False
            logger.error("The journal of the queue ends here: %s", error)


def _of_chunk(request: EngineRequest, chunk: Chunk) -> dict[str, Any]:
    return {
        "number": chunk.number,
        "num_chunks": chunk.num_chunks,
        "audio_s": chunk.audio_s,
        "estimated_output_tokens": chunk.tokens,
        "num_output_tokens": request.num_output_tokens,
    }
