"""The advice: goals, the least number of replicas, the margin and the sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner import policies
from sooner.core.estimator import WINDOW_S
from sooner.errors import ConfigurationError
from sooner.simulator import plan
from sooner.simulator.goal import Goal
from sooner.simulator.options import EngineOptions, PlanOptions
from sooner.simulator.plan import Advice, advise, conclusion, run_plan
from sooner.simulator.profile import WorkersProfile, save_profile
from sooner.simulator.simulate import simulate
from sooner.workload.make import make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest, write_trace

PROFILE = WorkersProfile(name="test", model="none", hardware="none", encode_s=1.0, token_s=0.0)
ENGINE = EngineOptions()
NUMBERS = ("encode_s", "token_s", "num_workers", "spread")  # what is saved


def requests(*arrivals_s: float, audio_s: float = 5.0) -> list[TraceRequest]:
    return [TraceRequest(arrival_s=arrival_s, audio_s=audio_s) for arrival_s in arrivals_s]


@pytest.mark.parametrize(
    ("text", "goal", "words"),
    [
        ("p90 clips <= 2", Goal(percent=90, among="clips", limit_s=2), "P90 clips ≤ 2 s"),
        ("P99.9 all<=60s", Goal(percent=99.9, among="all", limit_s=60), "P99.9 all ≤ 60 s"),
        ("max files <= 600", Goal(percent=100, among="files", limit_s=600), "max files ≤ 600 s"),
    ],
)
def test_goals(text: str, goal: Goal, words: str) -> None:
    assert Goal.parse(text) == goal
    assert str(goal) == words


@pytest.mark.parametrize("text", ["", "p90 <= 2", "p90 clips < 2", "p101 clips <= 2", "p90 clips <= 0", "fast"])
def test_what_is_no_goal(text: str) -> None:
    with pytest.raises(ConfigurationError, match="must read like"):
        PlanOptions(goal=(text,))


def test_a_goal_looks_at_its_kind_only() -> None:
    e2e_s = [(5.0, 1.0), (WINDOW_S, 3.0), (31.0, 100.0)]
    assert Goal.parse("max clips <= 1").value_s(e2e_s) == 3.0
    assert Goal.parse("max files <= 1").value_s(e2e_s) == 100.0
    assert Goal.parse("p50 all <= 1").value_s(e2e_s) == 3.0
    assert Goal.parse("max files <= 1").value_s(e2e_s[:2]) == 0.0


@given(least=st.integers(1, 100), most=st.integers(1, 100))
def test_the_least_number_that_is_enough(least: int, most: int) -> None:
    tried: list[int] = []

    def is_enough(number: int) -> bool:
        tried.append(number)
        return number >= least

    assert plan._least(is_enough, most) == (least if least <= most else None)
    assert len(tried) == len(set(tried)) <= 15
    assert max(tried) <= most


def test_replicas_by_hand() -> None:
    """Six clips of 1 s at once: with r replicas the last ends after 6 / r seconds, rounded up."""
    burst = {1: requests(*[0.0] * 6)}

    def needed(limit_s: float) -> int | None:
        goals = [Goal(percent=100, among="all", limit_s=limit_s)]
        return advise(PROFILE, burst, goals, policy="fcfs", engine=ENGINE, max_replicas=6).num_replicas

    assert [needed(limit_s) for limit_s in (6, 5, 3, 2, 1, 0.5)] == [1, 2, 2, 3, 6, None]


def test_the_margin_by_hand() -> None:
    """A clip of 1 s every 2 s waits for nobody until they come every second; then each waits for the last."""
    steady = {1: requests(*(2.0 * n for n in range(50)))}
    goals = [Goal(percent=100, among="all", limit_s=1.001)]
    advice = advise(PROFILE, steady, goals, policy="fcfs", engine=ENGINE, max_replicas=4)
    assert advice.num_replicas == 1
    assert advice.growth == pytest.approx(2.0, abs=0.02)
    assert advice.values_s == {"max all ≤ 1.001 s": pytest.approx(1.0)}


def test_what_is_refused_meets_no_goal() -> None:
    burst = {1: requests(*[0.0] * 6)}
    goals = [Goal(percent=50, among="all", limit_s=100)]
    engine = EngineOptions(max_queue=2)
    advice = advise(PROFILE, burst, goals, policy="fcfs", engine=engine, max_replicas=8)
    assert advice.num_replicas == 2
    too_few = advise(PROFILE, burst, goals, policy="fcfs", engine=engine, max_replicas=1)
    assert too_few.num_replicas is None
    assert too_few.values_s == {"P50 all ≤ 100 s": None}


def test_a_burst_cannot_grow() -> None:
    burst = {1: requests(*[0.0] * 6)}
    goals = [Goal(percent=100, among="all", limit_s=100)]
    advice = advise(PROFILE, burst, goals, policy="fcfs", engine=ENGINE, max_replicas=1)
    assert (advice.num_replicas, advice.growth) == (1, None)


def test_every_seed_must_meet_the_goal() -> None:
    goals = [Goal(percent=100, among="all", limit_s=1.5)]
    both = {1: requests(0.0, 2.0), 2: requests(0.0, 0.0)}
    assert advise(PROFILE, both, goals, policy="fcfs", engine=ENGINE, max_replicas=4).num_replicas == 2


def test_one_replica_is_what_simulate_gives() -> None:
    trace = make_trace(WorkloadOptions(requests=300), rate_per_s=0.4, seed=1)
    profile = replace(PROFILE, num_workers=2)
    goal = Goal(percent=90, among="all", limit_s=1e9)
    advice = advise(profile, {1: trace}, [goal], policy="sjf", engine=ENGINE, max_replicas=1)
    run = simulate(profile, trace, policy="sjf", seed=1)
    expected = goal.value_s([(record.audio_s, record.e2e_s) for record in run.records])
    assert advice.values_s[str(goal)] == pytest.approx(expected)


def advice(policy: str, num_replicas: int | None, growth: float | None = 1.5) -> Advice:
    return Advice(policy=policy, num_replicas=num_replicas, values_s={}, growth=growth)


@pytest.mark.parametrize(
    ("several", "sentence"),
    [
        (
            [advice("fcfs", 5), advice("sjf", 2, 1.2), advice("hrrn", 2, 1.3)],
            "hrrn with 2 replicas meets the goals and carries 1.30 times the traffic; fcfs needs 5, sjf needs 2.",
        ),
        (
            [advice("fcfs", None, None), advice("hrrn", 1, 8.0)],
            "hrrn with 1 replica meets the goals and carries at least 8 times the traffic; fcfs more than 64.",
        ),
        ([advice("sjf", 3)], "sjf with 3 replicas meets the goals and carries 1.50 times the traffic."),
        ([advice("sjf", 3, None)], "sjf with 3 replicas meets the goals."),
        (
            [advice("sjf", None, None)],
            "No policy meets the goals with 64 replicas: relax a goal, or take a faster engine.",
        ),
    ],
)
def test_the_conclusion(several: list[Advice], sentence: str) -> None:
    assert conclusion(several, 64) == sentence


def test_of_a_trace_file_a_seed_is_another_draw_of_its_windows(tmp_path: Path) -> None:
    """On an engine whose times vary, the worst of several draws decides."""
    path, profile = tmp_path / "monday.csv", tmp_path / "mine.json"
    write_trace(path, requests(*(1.2 * n for n in range(300))))
    save_profile(replace(PROFILE, spread=0.5, origins=dict.fromkeys(NUMBERS, "made up")), profile)
    worst: dict[str, float] = {}
    for seeds in ("1", "1,2,3,4,5"):
        out = tmp_path / f"plan-{len(seeds)}.json"
        options = PlanOptions(goal=("max all <= 1000",), seeds=seeds, out=out)
        run_plan(
            EngineOptions(profile=str(profile), policies="fcfs"), options, WorkloadOptions(workload=str(path))
        )
        worst[seeds] = json.loads(out.read_text())[0]["values_s"]["max all ≤ 1000 s"]
    assert worst["1,2,3,4,5"] > worst["1"]


def test_a_goal_that_concerns_nobody_is_refused() -> None:
    clips = WorkloadOptions(workload="clips", requests=20)
    with pytest.raises(ConfigurationError, match="goal P90 files ≤ 2 s: this traffic has no files"):
        run_plan(EngineOptions(), PlanOptions(goal=("p90 files <= 2",), rate=1.0), clips)


def test_a_burst_with_a_rate_is_refused() -> None:
    burst = WorkloadOptions(workload="clips", arrivals="burst", requests=10)
    with pytest.raises(ConfigurationError, match="a burst has no rate: leave --rate out"):
        run_plan(EngineOptions(), PlanOptions(rate=5.0), burst)


@pytest.mark.parametrize("out", ["", "no/such/folder.json"])
def test_where_nothing_can_be_written_is_said_before_the_work(tmp_path: Path, out: str) -> None:
    with pytest.raises(ConfigurationError, match="--out"):
        PlanOptions(out=tmp_path / out)


def test_a_trace_file_is_planned_for_as_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out, profile = (tmp_path / name for name in ("monday.csv", "plan.json", "mine.json"))
    write_trace(path, requests(*(0.4 * n for n in range(200))))
    save_profile(replace(PROFILE, num_workers=2, origins=dict.fromkeys(NUMBERS, "made up")), profile)
    options = PlanOptions(goal=("p90 clips <= 2",), out=out, seeds="1")
    run_plan(EngineOptions(profile=str(profile)), options, WorkloadOptions(workload=str(path)))
    body = json.loads(out.read_text())
    assert [one["policy"] for one in body] == [policy.name for policy in policies()]
    # 2.5 a second; two workers, a second each, carry 2
    assert all(one["num_replicas"] == 2 for one in body)
    assert "P90 clips ≤ 2 s" in capsys.readouterr().out
