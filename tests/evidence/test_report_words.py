"""The sentences of a report, word by word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sooner.evidence.comparison import Interval
from sooner.evidence.pairing import PairedRun
from sooner.evidence.report import words
from sooner.evidence.report.paired import Change, Comparison
from sooner.evidence.report.sections import Offered
from sooner.evidence.summary import Goodput, columns_of
from tests.evidence.samples import make_run


def change(low: float, value: float, high: float, **changes: Any) -> Change:
    known: dict[str, Any] = {
        "whose": "0-5 s",
        "figure": "mean",
        "num_requests": 100,
        "base_s": 20.0,
        "other_s": 2.0,
    }
    return Change(interval=Interval(value=value, low=low, high=high), **(known | changes))


def untold(num_requests: int, **changes: Any) -> Change:
    known: dict[str, Any] = {"whose": "0-5 s", "figure": "mean", "base_s": 20.0, "other_s": 2.0}
    return Change(interval=None, num_requests=num_requests, **(known | changes))


def comparison(*by_length: Change, num_left_out: int = 0, is_paired: bool = True) -> Comparison:
    columns = columns_of(make_run("fcfs", num_requests=1))
    return Comparison(
        offered=Offered(kind="load", value=0.85),
        policy="sjf",
        baseline="fcfs",
        runs=(PairedRun(seed=1, base=columns, other=columns),) if is_paired else (),
        num_left_out=num_left_out,
        overall=(
            change(-60, -50, -40, whose="all requests", figure="median"),
            change(-3, 1, 4, whose="all requests", figure="P99"),
            change(2, 5, 8, whose="all requests", figure="mean"),
        ),
        by_length=by_length,
        by_size=(),
    )


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (change(-70, -62, -55), "62 % shorter (55 % to 70 %)"),
        (change(-5, -3.14, -0.01), "3.1 % shorter (under 0.1 % to 5.0 %)"),
        (change(20, 35, 51), "35 % longer (20 % to 51 %)"),
        (change(90, 140, 210), "2.40 times as long (1.90 to 3.10)"),
        (change(-12, -1, 9), "no difference shown (12 % shorter to 9.0 % longer)"),
        (change(-12, -6, 0), "no difference shown (12 % shorter to under 0.1 % longer)"),
        (change(0, 6, 12), "no difference shown (under 0.1 % longer to 12 % longer)"),
        (untold(1234), "too few to tell (1,234)"),
    ],
)
def test_a_change(one: Change, expected: str) -> None:
    assert words.change_words(one) == expected


def test_who_gains_and_who_pays() -> None:
    found = words.comparison_sentences(
        comparison(
            change(-90, -80, -70),
            change(-50, -40, -30, whose="5-15 s", base_s=30.0, other_s=18.0),
            change(-5, 0, 5, whose="15-30 s"),
            untold(7, whose="30-120 s"),
            change(10, 25, 40, whose="> 600 s", base_s=1000.0, other_s=1250.0),
            num_left_out=3,
        )
    )
    assert found == [
        "All requests, against fcfs: median 50 % shorter (40 % to 60 %); "
        "P99 no difference shown (3.0 % shorter to 4.0 % longer); mean 5.0 % longer (2.0 % to 8.0 %).",
        "Gains: 0-5 s from 20.0 to 2.00 s on average, 80 % shorter (70 % to 90 %); "
        "5-15 s from 30.0 to 18.0 s on average, 40 % shorter (30 % to 50 %).",
        "Pays: > 600 s from 1,000 to 1,250 s on average, 25 % longer (10 % to 40 %).",
        "No difference shown: 15-30 s.",
        "Too few requests to tell: 30-120 s from 20.0 to 2.00 s on average (7 requests).",
        "3 requests without a partner, such as failed ones or those of a seed that one side lacks, are left out "
        "of this.",
    ]


def test_no_gain_and_no_loss_is_claimed_where_none_is_shown() -> None:
    assert words.comparison_sentences(comparison(change(-5, -2, 1)))[1:] == [
        "No length of recording is shown to pay.",
        "No difference shown: 0-5 s.",
    ]


def test_who_cannot_be_told_is_not_said_to_pay_nothing() -> None:
    found = words.comparison_sentences(
        comparison(change(-90, -80, -70), untold(1, whose="> 600 s", base_s=160.0, other_s=223.0))
    )
    assert found[2:] == [
        "None of the lengths with enough requests is shown to pay; those below may.",
        "Too few requests to tell: > 600 s from 160 to 223 s on average (1 request).",
    ]


def test_what_is_not_paired_is_not_compared() -> None:
    assert words.comparison_sentences(comparison(is_paired=False)) == [
        "sjf and fcfs were not run with the same traffic (no common seed and request), "
        "so nothing is compared and no gain is claimed."
    ]


def test_the_other_sentences() -> None:
    assert words.single_policy_sentence("sjf") == "Only sjf was run, so nothing is compared."
    assert words.no_baseline_sentence("fcfs", ["sjf", "hrrn"]) == (
        "fcfs, the baseline, was not run here, so nothing is compared and no gain is claimed. "
        "--baseline takes sjf and hrrn."
    )
    assert words.failure_sentence("sjf", 1000, {"HTTP 503": 11, "TimeoutError": 1}) == (
        "sjf: 12 of 1,000 requests got no text (HTTP 503 11 and TimeoutError 1). "
        "Times are those of the others only, so they flatter a server that refuses much."
    )
    assert words.broken_off_sentence("sjf", 1000, 7) == (
        "sjf: 1,000 requests were announced, 7 are in the files: a run was broken off."
    )
    assert words.saturation_sentence("ρ = 1.2") == (
        "At ρ = 1.2 more is asked for than can be served: the queue grows for as long as requests come, "
        "and the times tell how long the run was."
    )
    assert words.simulated_sentence("tiny") == "Simulated: as true as the profile tiny is."
    assert words.goodput_sentence("sjf", Goodput(share=0.9876, per_s=2.5)) == (
        "sjf: 98.8 % in time, 2.50 requests/s."
    )


def test_numbers_and_lists() -> None:
    assert [words.number(one) for one in (0, 0.00001, 0.0123, 0.1, 9.994, 9.996, 99.94, 99.96, 12345.6)] == [
        "0",
        "1.0e-05",
        "0.012",
        "0.10",
        "9.99",
        "10.0",
        "99.9",
        "100",
        "12,346",
    ]
    assert [words.list_words(items) for items in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]
    assert words.percent_words(np.float64(-9.96)) == "10 %"
