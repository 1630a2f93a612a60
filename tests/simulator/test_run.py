"""``sooner simulate``: its options, its table and the runs it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner import policies
from sooner.errors import ConfigurationError, ProfileError, UnknownPolicyError
from sooner.evidence.run_file import Run, RunHeader, read_runs
from sooner.simulator import run
from sooner.simulator.options import EngineOptions, SimulateOptions, number_list
from sooner.simulator.profile import WorkersProfile
from sooner.simulator.run import run_simulate
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest, read_trace, write_trace

HEADER = RunHeader(
    source="simulator", policy="sjf", workload="none", num_requests=3, engine="none", hardware="none", version="0"
)
CLIPS = WorkloadOptions(workload="clips", requests=60)


@pytest.mark.parametrize(("text", "numbers"), [("1", [1]), ("3, 1,2", [3, 1, 2]), ("1,", [1])])
def test_number_lists(text: str, numbers: list[int]) -> None:
    assert number_list("--seeds", text, int) == numbers


@pytest.mark.parametrize("text", ["", ",", "one", "1.5", "0", "-1", "2,2", "1;2"])
def test_what_is_no_number_list(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--seeds must be different whole numbers above 0"):
        number_list("--seeds", text, int)


@pytest.mark.parametrize("text", ["inf", "nan", "1,-0.5"])
def test_numbers_are_finite(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--loads"):
        SimulateOptions(loads=text)


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--loads and --rates"):
        SimulateOptions(loads="1", rates="2")
    (tmp_path / "old.jsonl").touch()
    with pytest.raises(ConfigurationError, match="holds runs already"):
        SimulateOptions(out=tmp_path)
    with pytest.raises(ConfigurationError, match="--workers must be at least 1"):
        EngineOptions(workers=0)
    with pytest.raises(ConfigurationError, match="an engine that batches"):
        EngineOptions(profile="a100-large-v3", workers=2).load_profile()
    with pytest.raises(UnknownPolicyError):
        EngineOptions(policies="lifo")
    with pytest.raises(ProfileError, match="none ships"):
        run_simulate(EngineOptions(profile="nowhere.json"), SimulateOptions(), CLIPS)


def test_workers_replace_the_profiles() -> None:
    profile = EngineOptions(workers=7).load_profile()
    assert isinstance(profile, WorkersProfile)
    assert profile.num_workers == 7


def test_every_load_policy_and_seed_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = SimulateOptions(loads="0.5,0.9", seeds="4,5", out=tmp_path / "runs")
    run_simulate(EngineOptions(policies="fcfs,sjf"), options, CLIPS)
    headers = [run.header for run in read_runs([tmp_path / "runs"])]
    assert {(one.policy, one.load, one.seed) for one in headers} == {
        (policy, load, seed) for policy in ("fcfs", "sjf") for load in (0.5, 0.9) for seed in (4, 5)
    }
    assert {one.workload for one in headers} == {"clips: test-clean utterances, Poisson arrivals"}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines if line.strip().startswith("load")] == [
        ["load", load, policy, "120/120"] for load in ("0.5", "0.9") for policy in ("fcfs", "sjf")
    ]


def test_the_load_is_what_the_engine_gets(tmp_path: Path) -> None:
    """Over the seeds together, the realised load is the one asked for."""
    options = SimulateOptions(loads="0.6", seeds="1,2,3,4", out=tmp_path / "runs")
    workload = WorkloadOptions(workload="clips", requests=2000)
    run_simulate(EngineOptions(policies="fcfs"), options, workload)
    runs = read_runs([tmp_path / "runs"])
    busy_s = sum(record.service_s or 0 for run in runs for record in run.records)
    span_s = sum(run.records[-1].arrival_s for run in runs)
    assert busy_s / span_s / 2 == pytest.approx(0.6, rel=0.03)


def test_equal_seeds_equal_requests_under_every_policy_and_load(tmp_path: Path) -> None:
    options = SimulateOptions(rates="1,3", seeds="2", out=tmp_path / "runs")
    run_simulate(EngineOptions(), options, CLIPS)
    runs = read_runs([tmp_path / "runs"])
    assert len(runs) == 2 * len(list(policies()))
    assert len({tuple((one.id, one.audio_s, one.num_tokens) for one in run.records) for run in runs}) == 1


def test_the_first_trace_can_be_kept_and_played_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    first = SimulateOptions(rates="2", seeds="3", save_trace=path, out=tmp_path / "first")
    run_simulate(EngineOptions(policies="hrrn"), first, CLIPS)
    assert len(read_trace(path)) == 60
    again = SimulateOptions(seeds="3", out=tmp_path / "again")
    run_simulate(EngineOptions(policies="hrrn"), again, WorkloadOptions(workload=str(path)))
    one, two = (read_runs([tmp_path / name])[0] for name in ("first", "again"))
    assert [record.e2e_s for record in one.records] == pytest.approx([record.e2e_s for record in two.records])


@pytest.mark.parametrize(
    ("name", "message"),
    [("mine.csv", "is there already"), ("new.txt", "must end in one of"), ("no/such/trace.csv", "not there")],
)
def test_a_trace_is_never_written_over(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "mine.csv").write_text("arrival_s,audio_s,status\n0,5,200\n")
    with pytest.raises(ConfigurationError, match=message):
        SimulateOptions(save_trace=tmp_path / name)


def test_a_queue_with_a_bound_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "burst.csv"
    write_trace(path, [TraceRequest(arrival_s=0.0, audio_s=5.0)] * 10)
    run_simulate(
        EngineOptions(policies="fcfs", max_queue=3),
        SimulateOptions(seeds="1"),
        WorkloadOptions(workload=str(path)),
    )
    assert "5/10" in capsys.readouterr().out


def test_a_burst_has_no_rate(tmp_path: Path) -> None:
    burst = WorkloadOptions(workload="clips", arrivals="burst", requests=20)
    with pytest.raises(ConfigurationError, match="a burst has no rate"):
        run_simulate(EngineOptions(), SimulateOptions(rates="5"), burst)
    run_simulate(EngineOptions(policies="sjf"), SimulateOptions(seeds="1", out=tmp_path / "runs"), burst)
    (only,) = read_runs([tmp_path / "runs"])
    assert (only.header.rate_per_s, only.header.load) == (None, None)


def test_a_trace_is_played_once_however_many_seeds(tmp_path: Path) -> None:
    """The same requests three times would look like three times the evidence."""
    path = tmp_path / "trace.csv"
    write_trace(path, [TraceRequest(arrival_s=float(n), audio_s=5.0) for n in range(600)])
    options = SimulateOptions(seeds="1,2,3", out=tmp_path / "runs")
    run_simulate(EngineOptions(policies="fcfs"), options, WorkloadOptions(workload=str(path)))
    (only,) = read_runs([tmp_path / "runs"])
    assert only.header.num_requests == 600


def test_an_engine_that_batches_has_no_choice_of_preemption() -> None:
    engine = EngineOptions(profile="a100-large-v3", preempt=False)
    with pytest.raises(ConfigurationError, match="a100-large-v3 batches"):
        run_simulate(engine, SimulateOptions(), CLIPS)


@pytest.mark.parametrize("policies", ["", ",", "sjf,sjf"])
def test_a_list_of_policies_has_different_ones(policies: str) -> None:
    with pytest.raises(ConfigurationError, match="--policies must be different policies"):
        EngineOptions(policies=policies)


def test_files_alone_have_no_figures_of_clips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "files.csv"
    write_trace(path, [TraceRequest(arrival_s=0.0, audio_s=100.0)] * 2)
    run_simulate(EngineOptions(policies="sjf"), SimulateOptions(seeds="1"), WorkloadOptions(workload=str(path)))
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if "sjf" in line)
    assert row[:4] == ["as", "recorded", "sjf", "2/2"]
    assert len(row) == 4 + 6 + 1  # six figures of all, the slowdown, and none between


def test_where_nothing_is_served_there_is_no_figure() -> None:
    assert run._figures([Run(header=HEADER, records=())]) == ["0/3"]
