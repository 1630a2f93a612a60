"""What is kept of each request when it is over: a line in the log, one in the records, and counts."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping

from sooner.core.latency import LatencyRecord
from sooner.server.access import PRIORITIES
from sooner.server.outcome import Outcome, outcome_of
from sooner.server.recent import Recent
from sooner.server.records import RecordLog, failure_of, record_of
from sooner.server.requests import OpenRequest
from sooner.server.tally import Tally

__all__ = ["Journal", "logfmt"]

_log = logging.getLogger(__name__)
_PLAIN = re.compile(r"[!#-<>-~]+")  # printable ASCII without space, quote and equals sign


class Journal:
    """Takes note of each request that is over.

    Args:
        records: the server's own file of requests, ``None`` for none.
        tally: counts them.
        recent: keeps the last ones.
    """

    def __init__(self, *, records: RecordLog | None, tally: Tally, recent: Recent) -> None:
        self._records = records
        self._tally = tally
        self._recent = recent

    def note(self, request: OpenRequest, now_s: float) -> None:
        """Take note of a request that is over at ``now_s``."""
        outcome = outcome_of(request.error)
        record = None if request.transcript is None else record_of(request.transcript)
        _log.info("request %s", logfmt(_facts(request, outcome, record)))
        self._tally.note(request, outcome, record)
        if record is not None:
            self._recent.note(record)
            if self._records is not None:
                self._records.put(record)
        elif request.error is not None:
            self._note_failure(request, request.error, now_s)

    def _note_failure(self, request: OpenRequest, error: BaseException, now_s: float) -> None:
        if self._records is None or request.audio is None or request.arrival_s is None:
            return
        self._records.put(
            failure_of(
                error,
                job_id=request.id,
                audio_s=request.audio.audio_s,
                arrival_s=request.arrival_s,
                failed_s=now_s,
            )
        )


def logfmt(facts: Mapping[str, object]) -> str:
    """Facts as ``name=value``, separated by spaces; what is ``None`` is left out.

    A value with anything in it that could be taken for something else is quoted as JSON quotes it, so that no
    client can write a line of its own. Floats get milliseconds.
    """
    return " ".join(f"{name}={_value(value)}" for name, value in facts.items() if value is not None)


def _value(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _facts(request: OpenRequest, outcome: Outcome, record: LatencyRecord | None) -> dict[str, object]:
    audio, transcript = request.audio, request.transcript
    facts: dict[str, object] = {
        "id": request.id,
        "client": request.caller.client,
        "outcome": outcome.name,
        "status": outcome.status,
        "priority": PRIORITIES[request.priority],
        "upload_s": None if request.arrival_s is None else request.arrival_s - request.opened_s,
        "audio_s": None if audio is None else audio.audio_s,
        "speech_s": None if audio is None else audio.speech_s,
    }
    if transcript is not None and record is not None:
        facts |= {
            "size_s": record.size_s,
            "wait_s": record.wait_s,
            "service_s": record.service_s,
            "e2e_s": record.e2e_s,
            "ttft_s": record.ttft_s,
            "windows": record.num_windows,
            "preemptions": record.num_preemptions,
            "restarts": transcript.num_restarts,
            "tokens": record.num_tokens,
            "language": record.language,
        }
    return facts
