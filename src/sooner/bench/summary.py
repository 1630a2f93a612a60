"""From the runs of a measurement to its figures: pure, so that each can be checked by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sooner.core.latency import LatencyRecord, LatencySummary, by_duration_bucket, percentile, summarise
from sooner.evidence.comparison import Interval, Pair
from sooner.evidence.pairing import FIGURES, Served, interval_of, pair_runs
from sooner.evidence.run_file import Run
from sooner.evidence.summary import Goals, Goodput, columns_of, goodput_of, joined, span_s

__all__ = ["Spread", "TargetFigures", "changes_of", "figures_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median and 90th percentile, seconds."""

    p50_s: float
    p90_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFigures:
    """All runs of one server at one rate. What was not measured is ``None``.

    Attributes:
        policy: the policy, or the server's name.
        rate_per_s: requests offered a second.
        num_runs: runs that were made.
        num_sent: requests that were sent.
        e2e: of the requests that were served.
        by_length: the same for each duration bucket.
        ttft: to the first text.
        wait: in which nothing worked on a request, as the server tells.
        requests_per_s: requests served a second, over the time from first arrival to last end of each run.
        audio_s_per_s: RTFx, seconds of audio served a second.
        goodput: served in time.
        errors: failed requests by kind.
        word_error_rate: errors of all texts over all words said.
        mean_word_error_rate: mean over requests of each one's rate.
        lag_p99_s: the worst run's 99th percentile of how late the load generator sent.
        lag_max_s: the latest that it sent.
    """

    policy: str
    rate_per_s: float | None
    num_runs: int
    num_sent: int
    e2e: LatencySummary | None
    by_length: Mapping[str, LatencySummary]
    ttft: Spread | None
    wait: Spread | None
    requests_per_s: float
    audio_s_per_s: float
    goodput: Goodput | None
    errors: Mapping[str, int]
    word_error_rate: float | None
    mean_word_error_rate: float | None
    lag_p99_s: float
    lag_max_s: float


def figures_of(runs: Sequence[Run], goals: Goals) -> TargetFigures:
    """The figures of runs of one server at one rate; at least one run."""
    records = [record for run in runs for record in run.records]
    errors = Counter(failure.error for run in runs for failure in run.failures)
    seconds = max(sum(map(span_s, runs)), 1e-9)
    rates = _known(records, lambda record: record.word_error_rate)
    return TargetFigures(
        policy=runs[0].header.policy,
        rate_per_s=runs[0].header.rate_per_s,
        num_runs=len(runs),
        num_sent=len(records) + errors.total(),
        e2e=summarise(records) if records else None,
        by_length={label: summarise(some) for label, some in by_duration_bucket(records).items()},
        ttft=_spread(_known(records, lambda record: record.ttft_s)),
        wait=_spread(_known(records, lambda record: record.wait_s)),
        requests_per_s=len(records) / seconds,
        audio_s_per_s=sum(record.audio_s for record in records) / seconds,
        goodput=goodput_of(runs, joined([columns_of(run) for run in runs]), goals),
        errors=dict(sorted(errors.items())),
        word_error_rate=_pooled_word_error_rate(runs),
        mean_word_error_rate=sum(rates) / len(rates) if rates else None,
        lag_p99_s=max(run.header.notes["lag_p99_s"] for run in runs),
        lag_max_s=max(run.header.notes["lag_max_s"] for run in runs),
    )


def _known(records: Sequence[LatencyRecord], get: Callable[[LatencyRecord], float | None]) -> list[float]:
    return [value for value in map(get, records) if value is not None]


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread(p50_s=percentile(values, 50), p90_s=percentile(values, 90)) if values else None


def _pooled_word_error_rate(runs: Sequence[Run]) -> float | None:
    num_words = sum(run.header.notes["num_words"] for run in runs)
    return sum(run.header.notes["num_word_errors"] for run in runs) / num_words if num_words else None


def changes_of(base: Sequence[Run], other: Sequence[Run]) -> dict[str, Interval]:
    """By how many percent each of ``FIGURES`` changes from ``base`` to ``other``, with its 95 % interval.

    Requests are paired and counted as in the report; a figure that they are too few to tell is not in it.
    """
    runs, _ = pair_runs(_served(base), _served(other))
    pairs = [Pair(base=run.base.e2e_s, other=run.other.e2e_s, traffic=run.seed) for run in runs]
    found = {name: interval_of(pairs, figure, num_least=num_least) for name, figure, num_least in FIGURES}
    return {name: interval for name, interval in found.items() if interval is not None}


def _served(runs: Sequence[Run]) -> list[Served]:
    return [(run.header, columns_of(run)) for run in runs]
