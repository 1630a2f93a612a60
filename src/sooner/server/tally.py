"""What is counted as each request ends: how it ended, how long it took, and how wrong the prediction was.

Labels are few and closed (duration buckets, classes, error codes), whatever clients send.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

from sooner.core.latency import LatencyRecord, duration_bucket
from sooner.server.access import PRIORITIES
from sooner.server.outcome import CANCELLED, CLIENT_LEFT, Outcome
from sooner.server.requests import OpenRequest
from sooner.service.dispatcher import Transcript

__all__ = ["Tally"]

disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge more for each series, of use to OpenMetrics alone

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_SLOWDOWNS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
_RATIOS = (0.25, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0)
_LABELS = ("bucket", "priority")


class Tally:
    """Counters and histograms of requests that are over, in ``registry``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests by how they ended", ["outcome"])
        self._refusals = self._counter("refusals", "Requests refused for want of room or key", ["reason"])
        self._jobs = self._counter("jobs", "Uploads by what became of them", ["event"])
        for event in ("finished", "cancelled", "failed", "refused"):
            self._jobs.labels(event)
        self._restarts = self._counter("restarts", "Times a finished upload was begun anew, its engine lost")
        self._audio_s = self._counter("audio_seconds", "Audio of finished uploads")
        self._wait_s = self._histogram("wait_seconds", "Arrival to text, less service", _SECONDS)
        self._size_s = self._histogram("size_seconds", "Predicted service", _SECONDS)
        self._e2e_s = self._histogram("e2e_seconds", "Arrival to the whole text", _SECONDS)
        self._ttft_s = self._histogram("ttft_seconds", "Arrival to the first text", _SECONDS)
        self._slowdown = self._histogram("slowdown", "Arrival to text over predicted service", _SLOWDOWNS)
        self._over_predicted = Histogram(
            "sooner_service_over_predicted",
            "Service over predicted service",
            buckets=_RATIOS,
            registry=self.registry,
        )

    def _counter(self, name: str, documentation: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"sooner_{name}", documentation, labels or [], registry=self.registry)

    def _histogram(self, name: str, documentation: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"sooner_{name}", documentation, _LABELS, buckets=buckets, registry=self.registry)

    def refused(self, reason: str) -> None:
        """Count a request that was refused at the door, before it was opened."""
        self._requests.labels(reason).inc()
        self._refusals.labels(reason).inc()

    def note(self, request: OpenRequest, outcome: Outcome, record: LatencyRecord | None) -> None:
        """Count a request that is over; ``record`` is of its text, where it has one. O(buckets)."""
        self._requests.labels(outcome.name).inc()
        if outcome.is_refusal:
            self._refusals.labels(outcome.name).inc()
            self._jobs.labels("refused").inc()
        elif (
            request.transcript is not None and record is not None
        ):  # also where its client left with the text on its way
            self._jobs.labels("finished").inc()
            self._restarts.inc(request.transcript.num_restarts)
            self._note_text(record, request.transcript, PRIORITIES[request.priority])
        elif request.arrival_s is not None:  # it was in the queue
            self._jobs.labels("cancelled" if outcome.name in (CLIENT_LEFT, CANCELLED) else "failed").inc()

    def _note_text(self, record: LatencyRecord, transcript: Transcript, priority: str) -> None:
        labels = (duration_bucket(record.audio_s), priority)
        self._audio_s.inc(record.audio_s)
        self._wait_s.labels(*labels).observe(transcript.wait_s)
        self._size_s.labels(*labels).observe(record.size_s)
        self._e2e_s.labels(*labels).observe(record.e2e_s)
        if record.ttft_s is not None:
            self._ttft_s.labels(*labels).observe(record.ttft_s)
        if transcript.service_s > 0:  # silence takes none
            self._slowdown.labels(*labels).observe(record.slowdown)
            self._over_predicted.observe(transcript.service_s / record.size_s)
