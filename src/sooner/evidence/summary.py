"""From runs to the numbers of a report: columns, percentiles, queue depth, goodput, predictions.

All of it is pure. Requests are held as numpy columns, so that a million of them take seconds; what is not known is
NaN there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sooner.core.estimator import WINDOW_S
from sooner.core.latency import BUCKETS_S, LatencySummary, duration_bucket
from sooner.evidence.comparison import Values
from sooner.evidence.run_file import Run

__all__ = [
    "Columns",
    "Depth",
    "Goals",
    "Goodput",
    "Prediction",
    "bucket_labels",
    "bucket_numbers",
    "columns_of",
    "depth_of",
    "goodput_of",
    "joined",
    "prediction_of",
    "span_s",
    "summary_of",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Columns:
    """Served requests as columns of equal length, seconds; NaN where not known.

    Attributes:
        ids: the requests' ids.
        audio_s: length of the recording.
        size_s: predicted service time.
        arrival_s: second of arrival.
        e2e_s: arrival to last byte.
        ttft_s: arrival to first text.
        wait_s: time in which nothing worked on it.
        service_s: time in which something did.
    """

    ids: NDArray[np.object_]
    audio_s: Values
    size_s: Values
    arrival_s: Values
    e2e_s: Values
    ttft_s: Values
    wait_s: Values
    service_s: Values

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def slowdown(self) -> Values:
        """How many times longer than alone."""
        return self.e2e_s / self.size_s

    def where(self, mask: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
        """The requests that a mask or a list of indices picks."""
        return Columns(**{name: getattr(self, name)[mask] for name in _COLUMNS})


_COLUMNS = tuple(Columns.__slots__)


def columns_of(run: Run) -> Columns:
    """The served requests of a run as columns. O(n)."""
    records = run.records

    def column(values: Iterable[float | None]) -> Values:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    return Columns(
        ids=np.array([record.id for record in records], dtype=object),
        audio_s=column(record.audio_s for record in records),
        size_s=column(record.size_s for record in records),
        arrival_s=column(record.arrival_s for record in records),
        e2e_s=column(record.e2e_s for record in records),
        ttft_s=column(record.ttft_s for record in records),
        wait_s=column(record.wait_s for record in records),
        service_s=column(record.service_s for record in records),
    )


def joined(parts: Sequence[Columns]) -> Columns:
    """Several columns below each other; at least one part."""
    return Columns(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS})


def summary_of(served: Columns) -> LatencySummary:
    """The figures of ``sooner.core.latency.summarise``, from columns; at least one request. O(n)."""
    p50_s, p90_s, p95_s, p99_s = (float(value) for value in np.percentile(served.e2e_s, [50, 90, 95, 99]))
    return LatencySummary(
        num_requests=len(served),
        mean_s=float(served.e2e_s.mean()),
        p50_s=p50_s,
        p90_s=p90_s,
        p95_s=p95_s,
        p99_s=p99_s,
        max_s=float(served.e2e_s.max()),
        mean_slowdown=float(served.slowdown.mean()),
        max_slowdown=float(served.slowdown.max()),
    )


def bucket_numbers(audio_s: Values) -> NDArray[np.intp]:
    """For each length the number of its duration bucket, as in ``sooner.core.latency``."""
    return np.searchsorted(np.array(BUCKETS_S), audio_s, side="left")


def bucket_labels() -> list[str]:
    """The labels of the duration buckets, in rising order."""
    return [duration_bucket(upper_s) for upper_s in (*BUCKETS_S, 2 * BUCKETS_S[-1])]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Depth:
    """How many requests are in the system, over time.

    Attributes:
        at_s: beginnings of equal stretches of time, seconds since the first arrival.
        num_most: the most at once in each stretch.
        mean: average over time.
        mean_waiting: of these, how many nothing works on (Little's law), ``None`` where waits are not known.
    """

    at_s: Values
    num_most: Values
    mean: float
    mean_waiting: float | None


def depth_of(run: Run, *, num_stretches: int = 300) -> Depth | None:
    """Queue depth of one run, failures included; ``None`` where nothing was sent. O(n log n)."""
    requests = [(record.arrival_s, record.finished_s) for record in run.records]
    requests += [(failure.arrival_s, failure.failed_s) for failure in run.failures]
    if not requests:
        return None
    begins = np.array([begin_s for begin_s, _ in requests])
    ends = np.array([end_s for _, end_s in requests])
    begin_s, span_s = begins.min(), max(float(ends.max() - begins.min()), 1e-9)
    # At equal times what ends goes first, so that no one is counted beside a successor.
    order = np.lexsort((np.repeat([1, 0], len(begins)), np.concatenate([begins, ends])))
    times = np.concatenate([begins, ends])[order] - begin_s
    after = np.cumsum(np.repeat([1.0, -1.0], len(begins))[order])
    edges = np.linspace(0, span_s, num_stretches, endpoint=False)
    firsts = np.searchsorted(times, edges)
    carried = np.where(firsts > 0, after[firsts - 1], 0.0)
    most = np.maximum.reduceat(np.append(after, 0.0), firsts)
    empty = firsts == np.append(firsts[1:], len(after))
    waits = [record.wait_s for record in run.records]
    known = [wait_s for wait_s in waits if wait_s is not None]
    return Depth(
        at_s=edges,
        num_most=np.where(empty, carried, np.maximum(most, carried)),
        mean=float((ends - begins).sum() / span_s),
        mean_waiting=sum(known) / span_s if waits and len(known) == len(waits) else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """Which E2E times are in time.

    Attributes:
        short_s: limit for recordings of at most 30 s, seconds; ``None``: ``other_s`` is theirs too.
        other_s: limit for all others, ``None`` for none.
    """

    short_s: float | None = None
    other_s: float | None = None

    def limits_s(self, audio_s: Values) -> Values:
        """The limit of each length, seconds; NaN where it has none."""
        short_s = self.other_s if self.short_s is None else self.short_s
        short, other = (np.nan if limit_s is None else limit_s for limit_s in (short_s, self.other_s))
        return np.where(audio_s <= WINDOW_S, short, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """What was served in time.

    Attributes:
        share: of the requests that have a limit, failures included.
        per_s: such requests a second, from the first arrival to the last end of each run.
    """

    share: float
    per_s: float


def goodput_of(runs: Sequence[Run], served: Columns, goals: Goals) -> Goodput | None:
    """Share and rate of requests whose E2E keeps its limit; ``None`` where no request has one.

    Args:
        runs: the runs, for their failures and how long they took.
        served: their served requests.
        goals: the limits.
    """
    limits_s = goals.limits_s(served.audio_s)
    failed_s = np.array([failure.audio_s for run in runs for failure in run.failures], dtype=np.float64)
    num_limited = int((~np.isnan(limits_s)).sum()) + int((~np.isnan(goals.limits_s(failed_s))).sum())
    if not num_limited:
        return None
    num_met = int((served.e2e_s <= limits_s).sum())
    return Goodput(share=num_met / num_limited, per_s=num_met / max(sum(map(span_s, runs)), 1e-9))


def span_s(run: Run) -> float:
    """Seconds from the first arrival to the last end of a run; 0 where nothing was sent."""
    ends = [one.finished_s for one in run.records] + [one.failed_s for one in run.failures]
    begins = [one.arrival_s for one in run.records] + [one.arrival_s for one in run.failures]
    return max(ends) - min(begins) if ends else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How well the predicted size foretells the service.

    Attributes:
        num_requests: those whose service is known.
        p10: 10th percentile of actual service over predicted size.
        p50: its median; 1 is exact.
        p90: its 90th percentile.
        rank_correlation: Spearman's ρ: whether the order, which is all that policies use, is right.
    """

    num_requests: int
    p10: float
    p50: float
    p90: float
    rank_correlation: float | None


def prediction_of(served: Columns) -> Prediction | None:
    """How well service was foretold where it is known; ``None`` where none is. O(n log n)."""
    known = served.where(served.service_s > 0)
    if not len(known):
        return None
    p10, p50, p90 = np.percentile(known.service_s / known.size_s, [10, 50, 90])
    return Prediction(
        num_requests=len(known),
        p10=float(p10),
        p50=float(p50),
        p90=float(p90),
        rank_correlation=_rank_correlation(known.size_s, known.service_s),
    )


def _rank_correlation(left: Values, right: Values) -> float | None:
    deviations = [ranks - ranks.mean() for ranks in (_ranks(left), _ranks(right))]
    spread = float(np.sqrt((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float((deviations[0] * deviations[1]).sum()) / spread if spread > 0 else None


def _ranks(values: Values) -> Values:
    """Ranks, equal values sharing their mean one."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: Values = np.cumsum(counts) - (counts - 1) / 2
    return means[inverse]
