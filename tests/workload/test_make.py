"""From options to traces: determinism, pairing, rates, drift, and options that make no sense."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.errors import ConfigurationError, TraceError
from sooner.workload.make import describe, make_trace
from sooner.workload.options import ARRIVALS, WORKLOADS, WorkloadOptions
from sooner.workload.trace import TraceRequest, read_trace, write_trace

OWN = (
    TraceRequest(arrival_s=0.0, audio_s=4.0, path=Path("/recordings/a.flac"), transcript="one"),
    TraceRequest(arrival_s=1.0, audio_s=600.0, num_tokens=7, language="fr"),
    TraceRequest(arrival_s=4.0, audio_s=2.0),
)


@pytest.fixture
def own_trace(tmp_path: Path) -> str:
    path = tmp_path / "own.jsonl"
    write_trace(path, OWN)
    return str(path)


def recordings_of(trace: list[TraceRequest]) -> list[tuple[float, int | None, str | None]]:
    return [(request.audio_s, request.num_tokens, request.transcript) for request in trace]


def arrivals_of(trace: list[TraceRequest]) -> list[float]:
    return [request.arrival_s for request in trace]


@pytest.mark.parametrize("arrivals", ARRIVALS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_with_all_arrivals(workload: str, arrivals: str) -> None:
    options = WorkloadOptions(workload=workload, arrivals=arrivals, requests=200)
    trace = make_trace(options, rate_per_s=2.0, seed=7)
    assert len(trace) == 200
    assert trace[0].arrival_s == 0.0
    assert arrivals_of(trace) == sorted(arrivals_of(trace))
    assert trace == make_trace(options, rate_per_s=2.0, seed=7)
    assert recordings_of(trace) != recordings_of(make_trace(options, rate_per_s=2.0, seed=8))
    assert all(request.num_tokens is not None for request in trace)


def test_equal_seeds_give_equal_recordings_whatever_the_arrivals_and_the_rate() -> None:
    expected = recordings_of(make_trace(WorkloadOptions(), rate_per_s=1.0, seed=3))
    for arrivals in ARRIVALS:
        options = WorkloadOptions(arrivals=arrivals)
        assert recordings_of(make_trace(options, rate_per_s=9.0, seed=3)) == expected


def test_a_faster_rate_squeezes_the_same_arrivals() -> None:
    options = WorkloadOptions(workload="clips", arrivals="gamma", requests=300)
    slow_s = arrivals_of(make_trace(options, rate_per_s=1.0, seed=3))
    fast_s = arrivals_of(make_trace(options, rate_per_s=4.0, seed=3))
    assert [4 * time_s for time_s in fast_s] == pytest.approx(slow_s)


@settings(deadline=None, max_examples=50)  # reads files: its time says nothing
@given(
    st.sampled_from([name for name in ARRIVALS if name != "burst"]),
    st.floats(0.01, 100),
    st.floats(0.05, 20),
    st.integers(1, 60),
)
def test_arrivals_rise_from_zero(arrivals: str, rate_per_s: float, drift_rate: float, num_requests: int) -> None:
    options = WorkloadOptions(
        workload="clips", arrivals=arrivals, requests=num_requests + 20, drift_rate=drift_rate
    )
    times_s = arrivals_of(make_trace(options, rate_per_s=rate_per_s, seed=num_requests))
    assert times_s[0] == 0.0
    assert times_s == sorted(times_s)


@pytest.mark.parametrize("arrivals", ["azure-code", "azure-conv"])
def test_a_recorded_section_has_exactly_the_rate(arrivals: str) -> None:
    options = WorkloadOptions(workload="clips", arrivals=arrivals, requests=101)
    first, other = (make_trace(options, rate_per_s=2.0, seed=seed) for seed in (1, 2))
    assert first[-1].arrival_s == pytest.approx(50.0)
    assert other[-1].arrival_s == pytest.approx(50.0)
    assert arrivals_of(first) != arrivals_of(other)


def test_a_recording_shorter_than_the_run_repeats(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text("arrival_s\n5\n6\n9\n", encoding="utf-8")
    options = WorkloadOptions(workload="clips", arrivals=str(path), requests=5)
    trace = make_trace(options, rate_per_s=1.0, seed=1)
    assert arrivals_of(trace) == pytest.approx([0.0, 0.5, 2.0, 3.0, 3.5])
    assert describe(options).endswith("arrivals of arrivals.csv")


def test_the_share_of_files_drifts() -> None:
    options = WorkloadOptions(requests=4000, file_share=0.0, drift_file_share=0.4)
    is_file = [request.transcript is None for request in make_trace(options, rate_per_s=1.0, seed=1)]
    quarters = [mean(is_file[begin : begin + 1000]) for begin in range(0, 4000, 1000)]
    assert quarters == pytest.approx([0.05, 0.15, 0.25, 0.35], abs=0.03)


def test_the_share_drifts_from_the_first_request_to_the_last() -> None:
    options = WorkloadOptions(requests=3, file_share=0.0, drift_file_share=1.0)
    traces = [make_trace(options, rate_per_s=1.0, seed=seed) for seed in range(20)]
    assert all(trace[0].transcript is not None for trace in traces)
    assert all(trace[2].transcript is None for trace in traces)


def test_the_rate_drifts_and_its_mean_stays() -> None:
    options = WorkloadOptions(workload="clips", requests=20_000, drift_rate=3.0)
    times_s = arrivals_of(make_trace(options, rate_per_s=5.0, seed=1))
    assert times_s[-1] == pytest.approx(4000.0, rel=0.03)
    first_half = sum(time_s < times_s[-1] / 2 for time_s in times_s) / len(times_s)
    assert first_half == pytest.approx(0.375, abs=0.01)  # the rate there is 1 to 2 of what is 1 to 3 in all


def test_a_trace_is_played_as_it_is(own_trace: str) -> None:
    assert make_trace(WorkloadOptions(workload=own_trace), rate_per_s=None, seed=1) == list(OWN)


def test_a_trace_is_cut_and_scaled(own_trace: str) -> None:
    scaled = make_trace(WorkloadOptions(workload=own_trace), rate_per_s=1.0, seed=1)
    assert arrivals_of(scaled) == pytest.approx([0.0, 0.5, 2.0])
    assert (scaled[0].path, scaled[0].transcript, scaled[1].language) == (OWN[0].path, "one", "fr")
    cut = make_trace(WorkloadOptions(workload=own_trace, requests=2), rate_per_s=0.25, seed=1)
    assert arrivals_of(cut) == pytest.approx([0.0, 4.0])


def test_a_trace_may_drift(own_trace: str) -> None:
    drifted = make_trace(WorkloadOptions(workload=own_trace, drift_rate=2.0), rate_per_s=None, seed=1)
    assert 1.0 < drifted[1].arrival_s < 4.0
    assert drifted[2].arrival_s == pytest.approx(4.0)


def test_one_request_of_a_trace_has_no_rate(own_trace: str) -> None:
    options = WorkloadOptions(workload=own_trace, requests=1)
    assert make_trace(options, rate_per_s=None, seed=1) == [OWN[0]]
    with pytest.raises(ConfigurationError, match=r"trace own\.jsonl: .* two arrivals or more"):
        make_trace(options, rate_per_s=1.0, seed=1)


def test_one_request_comes_at_zero() -> None:
    for arrivals in ARRIVALS:
        options = WorkloadOptions(arrivals=arrivals, requests=1, workload="clips")
        for seed in range(20):
            assert arrivals_of(make_trace(options, rate_per_s=0.5, seed=seed)) == [0.0]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv"])
def test_a_saved_trace_is_the_same_again(tmp_path: Path, suffix: str) -> None:
    options = WorkloadOptions(arrivals="gamma", file_share=0.2, requests=100)
    trace = make_trace(options, rate_per_s=3.0, seed=1)
    path = tmp_path / f"saved.{suffix}"
    write_trace(path, trace)
    assert read_trace(path) == trace
    assert make_trace(WorkloadOptions(workload=str(path)), rate_per_s=None, seed=9) == trace


def test_a_burst_needs_no_rate() -> None:
    options = WorkloadOptions(workload="clips", arrivals="burst", requests=5)
    assert arrivals_of(make_trace(options, rate_per_s=None, seed=1)) == [0.0] * 5


@pytest.mark.parametrize("rate_per_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_senseless_rate_is_refused(rate_per_s: float) -> None:
    with pytest.raises(ConfigurationError, match="a second above 0"):
        make_trace(WorkloadOptions(), rate_per_s=rate_per_s, seed=1)


def test_a_missing_rate_is_asked_for() -> None:
    with pytest.raises(ConfigurationError, match="gamma arrivals need a rate; give one, or take --arrivals burst"):
        make_trace(WorkloadOptions(arrivals="gamma"), rate_per_s=None, seed=1)


def test_missing_files_are_named(tmp_path: Path) -> None:
    for options in (
        WorkloadOptions(workload=str(tmp_path / "gone.csv")),
        WorkloadOptions(arrivals=str(tmp_path / "gone.csv")),
    ):
        with pytest.raises(TraceError, match=r"gone\.csv: No such file"):
            make_trace(options, rate_per_s=1.0, seed=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workload": "talks"}, r"--workload must be one of clips, uniform, mixed, or a file that .* not 'talks'"),
        ({"workload": ""}, "--workload must be one of"),
        ({"workload": "speech.wav"}, r"ends in one of \.jsonl, \.csv, \.tsv"),
        (
            {"arrivals": "possion"},
            "--arrivals must be one of poisson, gamma, on-off, burst, azure-code, ",
        ),
        ({"requests": 0}, "--requests must be from 1 to 10000000, not 0"),
        ({"file_share": 3.0}, "--file-share must be from 0 to 1, not 3"),
        ({"max_file_s": 30.0}, "--max-file-s must be from 60 to 604800, not 30"),
        ({"cv": 0.0}, "--cv must be from 0.01 to 100, not 0"),
        ({"on_s": 0.0}, "--on-s must be from 0.01"),
        ({"off_s": float("nan")}, "--off-s must be from 0.01 to 1000000, not nan"),
        ({"drift_rate": 0.0}, "--drift-rate must be from 0.01 to 100"),
        ({"drift_file_share": -0.1}, "--drift-file-share must be from 0 to 1"),
        ({"workload": "clips", "drift_file_share": 0.5}, "--drift-file-share needs --workload mixed"),
        ({"arrivals": "burst", "drift_rate": 2.0}, "--drift-rate needs other arrivals than burst"),
        ({"workload": "day.csv", "arrivals": "gamma"}, "a trace brings its own arrivals: leave --arrivals out"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        WorkloadOptions(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "mixed: test-clean clips and 3 % files of up to 60 min, Poisson arrivals"),
        (
            {"arrivals": "gamma", "drift_file_share": 0.1, "max_file_s": 900.0},
            "mixed: test-clean clips and 3 % drifting to 10 % files of up to 15 min, gamma arrivals (cv 4)",
        ),
        (
            {"workload": "clips", "arrivals": "on-off", "on_s": 5.0, "drift_rate": 2.0},
            "clips: test-clean utterances, on-off arrivals (5 s on, 30 s off), rate drifting to 2 times its start",
        ),
        ({"workload": "uniform", "arrivals": "burst"}, "uniform: 5, 10, 15, 20, 25 and 30 s, all at once"),
        ({"workload": "clips", "arrivals": "azure-code"}, "clips: test-clean utterances, arrivals of azure-code"),
        ({"workload": "/logs/monday.csv"}, "trace monday.csv"),
    ],
)
def test_a_workload_in_words(options: dict[str, Any], words: str) -> None:
    assert describe(WorkloadOptions(**options)) == words
