"""What is kept of each request when it is over: a line in the log, and one in the records."""

from __future__ import annotations

import logging

from sooner.server.records import RecordLog, failure_of, record_of
from sooner.server.requests import OpenRequest

__all__ = ["Journal"]

_log = logging.getLogger(__name__)


class Journal:
    """Takes note of each request that is over.

    Args:
        records: the server's own file of requests, ``None`` for none.
    """

    def __init__(self, *, records: RecordLog | None) -> None:
        self._records = records

    def note(self, request: OpenRequest, now_s: float) -> None:
        """Take note of a request that is over at ``now_s``."""
        transcript = request.transcript
        if transcript is not None:
            _log.info(
                "%s: %.1f s of audio, waited %.2f s, served %.2f s (predicted %.2f s)",
                request.id,
                transcript.job.audio_s,
                transcript.wait_s,
                transcript.service_s,
                transcript.job.size_s,
            )
        if self._records is None or request.audio is None or request.arrival_s is None:
            return
        if transcript is not None:
            self._records.put(record_of(transcript))
        elif request.error is not None:
            self._records.put(
                failure_of(
                    request.error,
                    job_id=request.id,
                    audio_s=request.audio.audio_s,
                    arrival_s=request.arrival_s,
                    failed_s=now_s,
                )
            )
