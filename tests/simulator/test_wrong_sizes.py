"""Sizes that are wrong, clients who know the policy, and the guard in the simulator's options."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from sooner.core.guard import Guard
from sooner.core.latency import LatencyRecord, percentile
from sooner.core.policy import policies
from sooner.errors import ConfigurationError
from sooner.evidence.run_file import read_runs
from sooner.simulator.goal import Goal
from sooner.simulator.options import EngineOptions, SimulateOptions
from sooner.simulator.plan import advise
from sooner.simulator.profile import BatchingProfile, Profile, WorkersProfile
from sooner.simulator.run import run_simulate
from sooner.simulator.simulate import log_uniform_factors, simulate
from sooner.simulator.workers import works_of
from sooner.workload.make import make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest, read_trace, write_trace

WORKERS = WorkersProfile(name="test", model="none", hardware="none", encode_s=1.0, token_s=0.1, kappa=1.0)
BATCHING = BatchingProfile(
    name="test", model="none", hardware="none", step_s=0.01, running_step_s=0.001, admission_s=0.01, kappa=3.0
)
ALL_POLICIES = [policy.name for policy in policies()]


def request(arrival_s: float, audio_s: float, client: str | None = None) -> TraceRequest:
    return TraceRequest(arrival_s=arrival_s, audio_s=audio_s, client=client)


def order(records: tuple[LatencyRecord, ...]) -> list[str]:
    return [record.id for record in sorted(records, key=lambda record: record.finished_s)]


def test_factors_are_log_uniform() -> None:
    logs = [math.log(factor, 4) for factor in log_uniform_factors(4000, most=4.0, seed=1)]
    assert -1 <= min(logs) < -0.99
    assert 0.99 < max(logs) <= 1
    assert [percentile(logs, percent) for percent in (25, 50, 75)] == pytest.approx([-0.5, 0, 0.5], abs=0.05)


def test_factors_are_drawn_from_the_seed() -> None:
    one, again, other = (log_uniform_factors(5, most=4.0, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_every_prediction_of_a_job_is_off_and_no_duration_is() -> None:
    trace = [request(0.0, 90.0)]
    (right,), (wrong,) = (
        list(works_of(trace, WORKERS, seed=1, size_factors=factors)) for factors in (None, [0.25])
    )
    assert right.job.size_s == pytest.approx(12.0)
    assert wrong.job.size_s == pytest.approx(3.0)
    assert wrong.job.estimate.estimated_output_tokens == round(0.25 * 90)
    assert [one.size_s for one in wrong.remaining] == pytest.approx([2.0, 1.0])
    assert wrong.windows_s == right.windows_s
    assert wrong.progress.size_s == right.progress.size_s == 12.0


@pytest.mark.parametrize("profile", [WORKERS, replace(BATCHING, max_running=1)])
@pytest.mark.parametrize(("factors", "second"), [(None, "1"), ([1.0, 8.0, 1.0], "2")])
def test_the_order_is_that_of_the_wrong_sizes(profile: Profile, factors: list[float] | None, second: str) -> None:
    """Behind a job that is served already, 10 s and 20 s: the shorter is taken for eight times its size."""
    trace = [request(0.0, 25.0), request(0.1, 10.0), request(0.1, 20.0)]
    run = simulate(profile, trace, policy="sjf", size_factors=factors)
    assert order(run.records)[:2] == ["0", second]


@pytest.mark.parametrize("profile", [WORKERS, BATCHING])
def test_sizes_that_are_right_by_a_factor_of_1_change_nothing(profile: Profile) -> None:
    trace = make_trace(WorkloadOptions(requests=100, max_file_s=300), rate_per_s=0.5, seed=1)
    right, same = (
        simulate(profile, trace, policy="quantile", size_factors=factors) for factors in (None, [1.0] * len(trace))
    )
    assert same.records == right.records


def test_a_factor_for_each_request() -> None:
    with pytest.raises(ValueError, match="1 size factors for 2 requests"):
        simulate(WORKERS, [request(0.0, 5.0)] * 2, policy="sjf", size_factors=[1.0])


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("profile", [WORKERS, BATCHING])
def test_wrong_sizes_lose_no_work(profile: Profile, policy: str) -> None:
    """Whatever is predicted, the same requests get the same service, and no worker idles for it."""
    trace = make_trace(WorkloadOptions(requests=200, max_file_s=300), rate_per_s=0.3, seed=1)
    factors = log_uniform_factors(len(trace), most=4.0, seed=1)
    right, wrong = (simulate(profile, trace, policy=policy, size_factors=some).records for some in (None, factors))
    assert len(wrong) == len(trace)
    if isinstance(profile, WorkersProfile):
        assert [one.service_s for one in wrong] == pytest.approx([one.service_s for one in right])
        assert max(one.finished_s for one in wrong) == pytest.approx(max(one.finished_s for one in right))


FLOOD = [request(0.5 * number, 5.0) for number in range(200)]
FILE = request(0.2, 120.0)


@pytest.mark.parametrize(
    ("policy", "guard", "is_put_off"),
    [
        ("fcfs", None, False),
        ("hrrn", None, True),
        ("sjf", None, True),
        ("sjf", Guard(scale=1.0, slack_s=10.0), False),
        ("adaptive", Guard(scale=1.0, slack_s=10.0), False),
    ],
)
def test_a_flood_of_clips_and_a_file(policy: str, guard: Guard | None, is_put_off: bool) -> None:
    """200 clips of 1.5 s that come in 100 s, and a file of 16 s: last where nothing holds the order back."""
    trace = sorted([*FLOOD, FILE], key=lambda one: one.arrival_s)
    run = simulate(WORKERS, trace, policy=policy, guard=guard)
    (file,) = [record for record in run.records if record.audio_s == FILE.audio_s]
    is_last = order(run.records)[-1] == file.id
    assert is_last == is_put_off


def test_a_flood_of_one_client_does_not_put_off_the_file_of_another() -> None:
    flood = [request(one.arrival_s, one.audio_s, "flood") for one in FLOOD]
    trace = sorted([*flood, request(FILE.arrival_s, FILE.audio_s, "other")], key=lambda one: one.arrival_s)
    records = simulate(WORKERS, trace, policy="sjf").records
    (file,) = [record for record in records if record.audio_s == FILE.audio_s]
    assert file.e2e_s < 3 * file.size_s  # its share is a half, and the windows are long
    assert order(records).index(file.id) < len(records) // 2


def test_a_client_contends_with_one_request_at_a_time() -> None:
    """Ten clips of one client and then one of another, all waiting behind a job of nobody's."""
    trace = [request(0.0, 20.0), *[request(0.1, 5.0, "many")] * 10, request(0.2, 5.0, "one")]
    told = simulate(WORKERS, trace, policy="fcfs").records
    untold = simulate(WORKERS, [request(one.arrival_s, one.audio_s) for one in trace], policy="fcfs").records
    assert order(untold).index("11") == 11
    assert order(told).index("11") == 2


def test_clients_are_kept_in_a_trace_file(tmp_path: Path) -> None:
    trace = [request(0.0, 5.0, "one"), request(1.0, 6.0)]
    for name in ("trace.jsonl", "trace.csv"):
        write_trace(tmp_path / name, trace)
        assert read_trace(tmp_path / name) == trace


def test_the_guard_bounds_waits_and_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "flood.jsonl"
    write_trace(path, sorted([*FLOOD, FILE], key=lambda one: one.arrival_s))
    waits_s = {}
    for guard in ("off", "fixed:30"):
        engine = EngineOptions(policies="sjf", workers=1, guard=guard)
        out = tmp_path / guard.replace(":", "-")
        run_simulate(engine, SimulateOptions(seeds="1", out=out), WorkloadOptions(workload=str(path)))
        (run,) = read_runs([out])
        assert run.header.notes == ({} if guard == "off" else {"guard": guard})
        waits_s[guard] = max(one.wait_s or 0.0 for one in run.records if one.audio_s == FILE.audio_s)
    assert waits_s["fixed:30"] < 60 < waits_s["off"]


def test_a_plan_is_made_with_the_guard() -> None:
    trace = sorted([*FLOOD, FILE], key=lambda one: one.arrival_s)
    goal = Goal(percent=100, among="files", limit_s=1e9)
    engine = EngineOptions(guard="fixed:30")
    advice = advise(WORKERS, {1: trace}, [goal], policy="sjf", engine=engine, max_replicas=1)
    run = simulate(WORKERS, trace, policy="sjf", guard=engine.queue_guard, seed=1)
    assert advice.values_s == {str(goal): max(one.e2e_s for one in run.records if one.audio_s == FILE.audio_s)}
    assert simulate(WORKERS, trace, policy="sjf", seed=1).records != run.records


@pytest.mark.parametrize("text", ["on", "fixed", "scaled:1", "fixed:-1"])
def test_a_guard_that_is_none_is_refused_at_once(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no guard"):
        EngineOptions(guard=text)


def test_a_dial_has_a_file_of_its_own(tmp_path: Path) -> None:
    engine = EngineOptions(policies="fair,fair:3")
    clips = WorkloadOptions(workload="clips", requests=20)
    run_simulate(engine, SimulateOptions(loads="0.5", seeds="1", out=tmp_path), clips)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fair-3-load-0.5.jsonl", "fair-load-0.5.jsonl"]
    assert sorted(run.header.policy for run in read_runs([tmp_path])) == ["fair", "fair:3"]
