"""Figures of runs that can be worked out by hand."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sooner.bench.summary import Spread, changes_of, figures_of
from sooner.bench.tables import tables_of
from sooner.core.latency import LatencyRecord
from sooner.evidence.comparison import Interval
from sooner.evidence.run_file import Failure, Run, RunHeader
from sooner.evidence.summary import Goals, Goodput


def served(
    number: int, e2e_s: float, *, audio_s: float = 10.0, at_s: float = 0.0, **known: float
) -> LatencyRecord:
    return LatencyRecord(
        id=str(number), audio_s=audio_s, size_s=0.5, arrival_s=at_s, finished_s=at_s + e2e_s, **known
    )


def failed(number: int, *, audio_s: float = 10.0, failed_s: float = 1.0, error: str = "HTTP 503") -> Failure:
    return Failure(id=str(number), audio_s=audio_s, arrival_s=0.0, failed_s=failed_s, error=error)


def run_of(
    *lines: LatencyRecord | Failure, policy: str = "fcfs", seed: int = 1, number: int = 1, **notes: float
) -> Run:
    header = RunHeader(
        source="bench",
        policy=policy,
        workload="by hand",
        num_requests=len(lines),
        engine="none",
        hardware="none",
        version="0",
        seed=seed,
        rate_per_s=2.0,
        notes={
            "round": number,
            "lag_p99_s": 0.0,
            "lag_max_s": 0.0,
            "num_words": 0,
            "num_word_errors": 0,
            **notes,
        },
    )
    return Run(
        header=header,
        records=tuple(one for one in lines if isinstance(one, LatencyRecord)),
        failures=tuple(one for one in lines if isinstance(one, Failure)),
    )


def test_latencies_and_throughput() -> None:
    figures = figures_of(
        [run_of(served(0, 1.0), served(1, 2.0)), run_of(served(0, 3.0), served(1, 4.0, audio_s=60.0))], Goals()
    )
    assert figures.e2e is not None
    assert (figures.num_runs, figures.num_sent, figures.e2e.num_requests) == (2, 4, 4)
    assert (figures.e2e.p50_s, figures.e2e.mean_s, figures.e2e.max_s) == (2.5, 2.5, 4.0)
    assert (figures.e2e.mean_slowdown, figures.e2e.max_slowdown) == (5.0, 8.0)
    assert list(figures.by_length) == ["5-15 s", "30-120 s"]
    assert figures.by_length["5-15 s"].mean_s == 2.0
    assert (figures.requests_per_s, figures.audio_s_per_s) == (4 / 6, 90 / 6)  # runs of 2 and 4 s
    assert (figures.ttft, figures.wait, figures.goodput, figures.word_error_rate) == (None, None, None, None)


def test_first_text_and_wait_where_they_are_known() -> None:
    figures = figures_of(
        [
            run_of(
                served(0, 9.0, at_s=1.0, first_text_s=2.0, wait_s=0.0),
                served(1, 9.0, at_s=1.0, first_text_s=4.0, wait_s=10.0),
                served(2, 9.0),
            )
        ],
        Goals(),
    )
    assert figures.ttft == Spread(p50_s=2.0, p90_s=pytest.approx(2.8))
    assert figures.wait == Spread(p50_s=5.0, p90_s=9.0)


@pytest.mark.parametrize(
    ("goals", "expected"),
    [
        (Goals(), None),
        (Goals(short_s=2.0), Goodput(share=1 / 3, per_s=1 / 8)),  # served in 1 s; not in 3 s; failed
        (Goals(other_s=8.0), Goodput(share=3 / 4, per_s=3 / 8)),
        (Goals(short_s=3.0, other_s=7.9), Goodput(share=2 / 4, per_s=2 / 8)),
    ],
)
def test_goodput(goals: Goals, expected: Goodput | None) -> None:
    run = run_of(served(0, 1.0), served(1, 3.0, audio_s=30.0), served(2, 8.0, audio_s=31.0), failed(3))
    assert figures_of([run], goals).goodput == expected


def test_errors_count_as_sent_and_take_time() -> None:
    figures = figures_of(
        [run_of(served(0, 1.0), failed(1, failed_s=5.0), failed(2, error="timeout"), failed(3))], Goals()
    )
    assert figures.errors == {"HTTP 503": 2, "timeout": 1}
    assert figures.num_sent == 4
    assert figures.requests_per_s == 1 / 5


def test_a_server_that_serves_nothing_has_no_latency() -> None:
    figures = figures_of([run_of(failed(0))], Goals(short_s=1.0))
    assert (figures.e2e, figures.by_length, figures.requests_per_s) == (None, {}, 0.0)
    assert figures.goodput == Goodput(share=0.0, per_s=0.0)


def test_word_error_rates() -> None:
    one = run_of(served(0, 1.0, word_error_rate=0.5), num_words=4, num_word_errors=2)
    two = run_of(served(0, 1.0, word_error_rate=0.0), served(1, 1.0), num_words=16, num_word_errors=0)
    figures = figures_of([one, two], Goals())
    assert (figures.word_error_rate, figures.mean_word_error_rate) == (0.1, 0.25)


def test_the_worst_lag_of_all_runs_is_told() -> None:
    runs = [run_of(served(0, 1.0), lag_p99_s=lag_s, lag_max_s=2 * lag_s) for lag_s in (0.01, 0.3)]
    figures = figures_of(runs, Goals())
    assert (figures.lag_p99_s, figures.lag_max_s) == (0.3, 0.6)


def test_changes_are_paired_by_seed_round_and_request() -> None:
    two = [served(n, 2.0) for n in range(20)]
    base = [run_of(*two, served(20, 99.0)), run_of(*(served(n, 6.0) for n in range(20)), number=2)]
    other = [
        run_of(*(served(n, 3.0) for n in range(20)), number=2),  # of the second round, although it comes first
        run_of(*(served(n, 1.0) for n in range(20)), failed(20), served(21, 99.0)),
        run_of(served(0, 99.0), seed=2),  # nothing to compare it with
    ]
    half = pytest.approx(-50.0)
    expected = dict.fromkeys(("mean", "median"), Interval(value=half, low=half, high=half))  # type: ignore[arg-type]
    assert changes_of(base, other) == expected


def test_two_rounds_of_ten_requests_are_ten_requests() -> None:
    def twice(seconds: float) -> list[Run]:
        return [run_of(*(served(n, seconds) for n in range(10)), number=number) for number in (1, 2)]

    assert changes_of(twice(2.0), twice(1.0)) == {}


@pytest.mark.parametrize(
    ("num_requests", "names"), [(19, []), (20, ["mean", "median"]), (1000, ["mean", "median", "P90", "P99"])]
)
def test_what_requests_are_too_few_to_tell_is_not_told(num_requests: int, names: list[str]) -> None:
    run = run_of(*(served(n, 1.0 + n) for n in range(num_requests)))
    assert list(changes_of([run], [run])) == names


def printed(*runs: Run, goals: Goals | None = None) -> str:
    figures = [figures_of([run], goals or Goals()) for run in runs]
    changes = {run.header.policy: changes_of([runs[0]], [run]) for run in runs[1:]}
    console = Console(file=io.StringIO(), width=80)
    console.print(tables_of(figures, changes))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_tables_fit_80_columns() -> None:
    fcfs = run_of(*(served(n, 1234.5 + n, first_text_s=2.0, wait_s=1.0, word_error_rate=0.1) for n in range(100)))
    mine = run_of(*(served(n, 617.25 + n / 2) for n in range(100)), policy="my-server", num_words=100)
    text = printed(fcfs, mine, goals=Goals(other_s=1.0))
    assert "…" not in text
    assert "2 requests/s offered" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["my-server", "mean", "-50.0", "-50.0", "-50.0"] in rows
    assert "my-server: too few requests to tell the change against fcfs of P99" in text
    assert ["fcfs", "100/100", "1284", "1324", "1329", "1333", "1334", "1284", "2568", "2667"] in rows


def test_what_went_wrong_is_said() -> None:
    text = printed(run_of(failed(0), lag_p99_s=0.2, lag_max_s=0.25))
    assert "fcfs: 1 x HTTP 503" in text
    assert "sent up to 0.25 s late" in text
    assert "late" not in printed(run_of(served(0, 1.0), lag_p99_s=0.05, lag_max_s=0.2))
