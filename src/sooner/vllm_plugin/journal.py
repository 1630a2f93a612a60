"""What the queue of one engine did, one JSON object a line: enough to replay every decision."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from sooner.core.job import Ticket
from sooner.errors import ConfigurationError
from sooner.vllm_plugin.chunk import Chunk, EngineRequest

__all__ = ["Journal"]

logger = logging.getLogger("vllm.sooner")


class Journal:
    """A ``QueueObserver`` that writes to a file, which is begun anew.

    A line holds ``event`` (added, taken, removed), ``now_s`` (the wall-clock second of the scheduling step; for
    requests that come between two steps, of the one before), ``request_id``, the upload's ``upload_id``,
    ``arrival_s``, ``size_s``, ``remaining_s`` and ``sequence`` as the policy saw them, and the chunk's
    ``number``, ``num_chunks``, ``audio_s``, ``estimated_output_tokens`` and ``num_output_tokens``. One
    write a line: it is for experiments, not for production.

    It stops, and says so, when the file cannot be written any more: the engine goes on.

    Raises:
        ConfigurationError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.now_s = 0.0
        self._path = path
        self._is_writable = True
        try:
            path.write_text("")
        except OSError as error:
            raise ConfigurationError(f"additional_config: sooner.journal_path: {error}") from error

    def __call__(self, event: str, request: EngineRequest, chunk: Chunk, ticket: Ticket) -> None:
        if not self._is_writable:
            return
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
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            self._is_writable = False
            logger.error("The journal of the queue ends here: %s", error)
