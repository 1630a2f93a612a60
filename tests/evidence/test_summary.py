"""From runs to the numbers of a report."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.core.latency import duration_bucket, summarise
from sooner.evidence.report.sections import Offered, sections_of, shown
from sooner.evidence.run_file import Run
from sooner.evidence.summary import (
    Goals,
    bucket_labels,
    bucket_numbers,
    columns_of,
    depth_of,
    goodput_of,
    prediction_of,
    summary_of,
)
from tests.evidence.samples import failure, header, make_run, request


def test_the_summary_of_columns_is_that_of_records() -> None:
    run = make_run("sjf")
    assert asdict(summary_of(columns_of(run))) == pytest.approx(asdict(summarise(run.records)))


@given(st.floats(0.001, 1e5))
def test_buckets_are_those_of_the_core(audio_s: float) -> None:
    assert bucket_labels()[bucket_numbers(np.array([audio_s]))[0]] == duration_bucket(audio_s)


def test_what_is_not_known_is_nan() -> None:
    columns = columns_of(Run(header=header(), records=(request(0), request(1, wait_s=0.0, first_text_s=1.5))))
    assert np.isnan(columns.wait_s).tolist() == [True, False]
    assert columns.ttft_s[1] == 0.5


def test_depth_counts_who_has_come_and_is_not_done() -> None:
    """One from 0 to 4, one from 1 to 3, a failure from 2 to 3: 1, 2, 3, 1."""
    records = (request(0, arrival_s=0.0, finished_s=4.0), request(1, arrival_s=1.0, finished_s=3.0))
    run = Run(header=header(), records=records, failures=(failure(2, arrival_s=2.0, failed_s=3.0),))
    depth = depth_of(run, num_stretches=4)
    assert depth is not None
    assert depth.at_s.tolist() == [0, 1, 2, 3]
    # The third second begins with three there; two of them go at its beginning.
    assert depth.num_most.tolist() == [1, 2, 3, 3]
    assert (depth.mean, depth.mean_waiting) == ((4 + 2 + 1) / 4, None)


def test_depth_is_carried_through_stretches_in_which_nothing_happens() -> None:
    depth = depth_of(Run(header=header(), records=(request(0, finished_s=10.0, wait_s=2.5),)), num_stretches=5)
    assert depth is not None
    assert depth.num_most.tolist() == [1, 1, 1, 1, 1]
    assert depth.mean_waiting == 0.25


def test_one_who_follows_another_is_not_counted_beside_him() -> None:
    records = tuple(request(n, arrival_s=float(n), finished_s=n + 1.0) for n in range(4))
    depth = depth_of(Run(header=header(), records=records), num_stretches=8)
    assert depth is not None
    assert depth.num_most.max() == 1


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=40), st.integers(1, 30))
def test_the_greatest_depth_is_that_of_a_count(jobs: list[tuple[int, int]], num_stretches: int) -> None:
    records = tuple(request(0, arrival_s=float(a), finished_s=float(a + s)) for a, s in jobs)
    depth = depth_of(Run(header=header(), records=records), num_stretches=num_stretches)
    assert depth is not None
    counted = max(sum(a <= at < a + s for a, s in jobs) for at in range(71))
    assert depth.num_most.max() == counted


def test_nothing_sent_has_no_depth() -> None:
    assert depth_of(Run(header=header(), records=())) is None


def test_goodput_takes_each_by_its_limit_and_failures_as_missed() -> None:
    records = (
        request(0, audio_s=3.0, finished_s=1.0),
        request(0, audio_s=30.0, finished_s=1.5),
        request(0, audio_s=100.0, finished_s=10.0),
        request(0, audio_s=100.0, finished_s=20.0),
    )
    run = Run(header=header(), records=records, failures=(failure(0),))
    columns = columns_of(run)
    both = goodput_of([run], columns, Goals(short_s=1.0, other_s=15.0))
    assert both is not None
    assert (both.share, both.per_s) == (2 / 5, 2 / 20)
    one_for_all = goodput_of([run], columns, Goals(other_s=15.0))
    assert one_for_all is not None
    assert one_for_all.share == 3 / 5
    short_only = goodput_of([run], columns, Goals(short_s=2.0))
    assert short_only is not None
    assert short_only.share == 2 / 3
    assert goodput_of([run], columns, Goals()) is None


def test_how_well_service_was_foretold() -> None:
    records = tuple(request(n, size_s=float(n), service_s=2.0 * n) for n in range(1, 12))
    foretold = prediction_of(columns_of(Run(header=header(), records=(*records, request(0)))))
    assert foretold is not None
    assert (foretold.num_requests, foretold.p10, foretold.p50, foretold.p90) == (11, 2, 2, 2)
    assert foretold.rank_correlation == pytest.approx(1)
    backwards = tuple(request(n, size_s=float(n), service_s=1.0 / n) for n in range(1, 12))
    found = prediction_of(columns_of(Run(header=header(), records=backwards)))
    assert found is not None
    assert found.rank_correlation == pytest.approx(-1)
    alike = prediction_of(columns_of(Run(header=header(), records=(request(0, service_s=1.0),))))
    assert alike is not None
    assert alike.rank_correlation is None
    assert prediction_of(columns_of(Run(header=header(), records=(request(0),)))) is None


def test_sections_are_what_can_be_compared() -> None:
    runs = [
        Run(header=header(policy="sjf", load=0.85004, rate_per_s=2.0), records=()),
        Run(header=header(policy="fcfs", load=0.85, rate_per_s=2.1), records=()),
        Run(header=header(policy="fcfs", load=0.5, rate_per_s=1.2, seed=2), records=()),
        Run(header=header(engine="base.en"), records=()),
        Run(header=header(source="simulator"), records=()),
    ]
    first, *others = sections_of(runs, baseline="sjf")
    assert [section.engine for section in others] == ["base.en", "tiny.en"]
    assert first.policies == ("sjf", "fcfs")
    assert [one.label for one in first.offered] == ["ρ = 0.5", "ρ = 0.85"]
    assert [cell.policy for cell in first.at(Offered(kind="load", value=0.85))] == ["sjf", "fcfs"]


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({"load": None, "rate_per_s": 2.5}, "2.5 requests/s"),
        ({"load": None, "rate_per_s": None}, "a burst"),
        ({"load": None, "rate_per_s": None, "source": "server"}, "live traffic"),
    ],
)
def test_how_much_was_offered(changes: dict[str, object], label: str) -> None:
    (section,) = sections_of([Run(header=header(**changes), records=())], baseline="fcfs")
    assert section.offered[0].label == label


def test_where_rates_were_asked_for_seeds_share_the_rate() -> None:
    """The load of each seed is then what its recordings came to."""
    runs = [
        Run(header=header(policy=policy, rate_per_s=0.2, load=load, seed=seed), records=())
        for policy in ("fcfs", "sjf")
        for seed, load in ((1, 0.71), (2, 0.75))
    ]
    (section,) = sections_of(runs, baseline="fcfs")
    assert [one.label for one in section.offered] == ["0.2 requests/s"]


def test_a_policy_with_and_without_preemption_is_two() -> None:
    runs = [Run(header=header(policy="hrrn", preempt=preempt), records=()) for preempt in (True, False)]
    (section,) = sections_of(runs, baseline="hrrn")
    assert section.policies == ("hrrn", "hrrn (no preemption)")


def test_text_from_files_is_made_fit_to_be_shown() -> None:
    assert shown("sjf\n\u202e\ud800") == "sjf\N{REPLACEMENT CHARACTER}" + "\N{REPLACEMENT CHARACTER}" * 2
    assert shown("x" * 41) == "x" * 39 + "…"
    assert shown("x" * 40) == "x" * 40
