"""What the queue of one engine did, one JSON object a line: enough to replay every decision."""

from __future__ import annotations

import json
from pathlib import Path

from sooner.core.job import Ticket
from sooner.vllm_plugin.chunk import Chunk, EngineRequest

__all__ = ["Journal"]


class Journal:
    """A ``QueueObserver`` that writes to a file, which is begun anew.

    A line holds ``event`` (added, taken, removed), ``now_s`` (the wall-clock second of the scheduling step; for
    requests that come between two steps, of the one before), ``request_id``, the upload's ``upload_id``,
    ``arrival_s``, ``size_s``, ``remaining_s`` and ``sequence`` as the policy saw them, and the chunk's
    ``number``, ``num_chunks``, ``audio_s``, ``estimated_output_tokens`` and ``num_output_tokens``. One
    write a line: it is for experiments, not for production.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.now_s = 0.0
        self._file = path.open("w", encoding="utf-8", buffering=1)

    def __call__(self, event: str, request: EngineRequest, chunk: Chunk, ticket: Ticket) -> None:
        line = {
            "event": event,
            "now_s": self.now_s,
            "request_id": request.request_id,
            "upload_id": ticket.id,
            "arrival_s": ticket.arrival_s,
            "size_s": ticket.size_s,
            "remaining_s": ticket.remaining_s,
            "sequence": ticket.sequence,
            "number": chunk.number,
            "num_chunks": chunk.num_chunks,
            "audio_s": chunk.audio_s,
            "estimated_output_tokens": chunk.tokens,
            "num_output_tokens": request.num_output_tokens,
        }
        self._file.write(json.dumps(line) + "\n")
