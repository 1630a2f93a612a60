"""One request on its way through a simulated engine."""

from __future__ import annotations

from dataclasses import dataclass

from sooner.core.latency import LatencyRecord
from sooner.errors import AdmissionError
from sooner.evidence.run_file import Failure
from sooner.workload.trace import TraceRequest

__all__ = ["Progress"]


@dataclass(slots=True)
class Progress:
    """What has happened to a request so far.

    Attributes:
        id: its id.
        request: the request.
        size_s: its predicted seconds on an idle engine.
        num_windows: windows it takes.
        num_tokens: tokens that its text has.
        first_text_s: second at which its first text was ready, ``None`` before that.
        service_s: seconds in which at least one of its windows ran.
        num_preemptions: times it was put off after it had started.
    """

    id: str
    request: TraceRequest
    size_s: float
    num_windows: int
    num_tokens: int
    first_text_s: float | None = None
    service_s: float = 0.0
    num_preemptions: int = 0

    def record(self, finished_s: float) -> LatencyRecord:
        """The record of the request, which ends at ``finished_s``."""
        return LatencyRecord(
            id=self.id,
            audio_s=self.request.audio_s,
            speech_s=self.request.speech_s,
            size_s=self.size_s,
            arrival_s=self.request.arrival_s,
            finished_s=finished_s,
            first_text_s=self.first_text_s,
            wait_s=max(0.0, finished_s - self.request.arrival_s - self.service_s),
            service_s=self.service_s,
            num_windows=self.num_windows,
            num_tokens=self.num_tokens,
            num_preemptions=self.num_preemptions,
            language=self.request.language,
        )

    def refused(self, error: AdmissionError, now_s: float) -> Failure:
        """The record of a request that the scheduler would not take."""
        return Failure(
            id=self.id,
            audio_s=self.request.audio_s,
            arrival_s=self.request.arrival_s,
            failed_s=now_s,
            error=type(error).__name__,
            message=str(error),
        )
