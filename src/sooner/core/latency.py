"""From records of served requests to the figures that are reported.

Percentiles alone can be gamed (an order that is kind to many and cruel to few improves P50 and P90), so a
summary always holds P50, P90, P95, P99, the maximum and the slowdown, and is made per duration bucket.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "BUCKETS_S",
    "LatencyRecord",
    "LatencySummary",
    "by_duration_bucket",
    "duration_bucket",
    "percentile",
    "summarise",
]

BUCKETS_S = (5.0, 15.0, 30.0, 120.0, 600.0)
"""Upper bounds of the duration buckets, seconds of audio; one more bucket takes everything longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRecord:
    """One served request. What was not measured is ``None``.

    Attributes:
        id: the request's id.
        audio_s: its audio, seconds.
        speech_s: seconds of it in which somebody speaks; ``None`` where nobody listened for voices.
        size_s: predicted service time, seconds; what the slowdown is relative to.
        arrival_s: second of arrival; all times of a run are on one clock.
        finished_s: second at which the whole text was ready.
        first_text_s: second at which the first text was ready.
        wait_s: seconds between arrival and end in which nothing worked on it.
        service_s: seconds in which something did.
        num_windows: windows that were encoded for it.
        num_tokens: tokens that were decoded for it.
        num_preemptions: times it was put off after it had started.
        language: code of the language that was spoken.
        word_error_rate: wrong, missing and added words per word said.
    """

    id: str
    audio_s: float
    size_s: float
    arrival_s: float
    finished_s: float
    speech_s: float | None = None
    first_text_s: float | None = None
    wait_s: float | None = None
    service_s: float | None = None
    num_windows: int | None = None
    num_tokens: int | None = None
    num_preemptions: int | None = None
    language: str | None = None
    word_error_rate: float | None = None

    @property
    def spoken_s(self) -> float:
        """Seconds to transcribe: those of speech where they were measured, else all."""
        return self.audio_s if self.speech_s is None else self.speech_s

    @property
    def e2e_s(self) -> float:
        """Arrival to last byte, seconds."""
        return self.finished_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Arrival to first text, seconds."""
        return None if self.first_text_s is None else self.first_text_s - self.arrival_s

    @property
    def slowdown(self) -> float:
        """How many times longer than alone: E2E / size."""
        return self.e2e_s / self.size_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Figures over one set of requests; seconds but for counts and slowdowns."""

    num_requests: int
    mean_s: float
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float
    mean_slowdown: float
    max_slowdown: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The ``percent``-th percentile by linear interpolation between order statistics. O(n log n).

    Raises:
        ValueError: no values, or ``percent`` outside [0, 100].
    """
    if not values:
        raise ValueError("no values, so no percentile")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must lie in [0, 100], not {percent}")
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    below, above = math.floor(rank), math.ceil(rank)
    return ordered[below] + (ordered[above] - ordered[below]) * (rank - below)


def summarise(records: Iterable[LatencyRecord]) -> LatencySummary:
    """Summarise the E2E times of ``records``. Raises ``ValueError`` where there are none."""
    records = list(records)
    e2e_s = [record.e2e_s for record in records]
    slowdowns = [record.slowdown for record in records]
    p50_s, p90_s, p95_s, p99_s, max_s = (percentile(e2e_s, p) for p in (50, 90, 95, 99, 100))
    return LatencySummary(
        num_requests=len(records),
        mean_s=sum(e2e_s) / len(records),
        p50_s=p50_s,
        p90_s=p90_s,
        p95_s=p95_s,
        p99_s=p99_s,
        max_s=max_s,
        mean_slowdown=sum(slowdowns) / len(records),
        max_slowdown=max(slowdowns),
    )


def duration_bucket(audio_s: float) -> str:
    """The label of the duration bucket that ``audio_s`` falls into, such as ``"5-15 s"``. O(1)."""
    index = bisect_left(BUCKETS_S, audio_s)
    low_s = BUCKETS_S[index - 1] if index else 0.0
    return f"> {low_s:g} s" if index == len(BUCKETS_S) else f"{low_s:g}-{BUCKETS_S[index]:g} s"


def by_duration_bucket(records: Sequence[LatencyRecord]) -> dict[str, list[LatencyRecord]]:
    """Split ``records`` by audio length; keys such as ``"5-15 s"``, in rising order, without empty buckets."""
    buckets: dict[str, list[LatencyRecord]] = {}
    for record in sorted(records, key=lambda record: bisect_left(BUCKETS_S, record.audio_s)):
        buckets.setdefault(duration_bucket(record.audio_s), []).append(record)
    return buckets
