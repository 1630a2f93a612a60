"""The batching model: by hand, against a naive simulator that shares no code with it, and against theory."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner import LatencyRecord
from sooner.evidence.run_file import Failure
from sooner.simulator.profile import BatchingProfile
from sooner.simulator.simulate import capacity_per_s, simulate
from sooner.workload.trace import TraceRequest

POLICIES = ("fcfs", "sjf", "hrrn")


def profile(**numbers: float) -> BatchingProfile:
    given_numbers = {"step_s": 1.0, "running_step_s": 0.1, "admission_s": 2.0, "kappa": 1.0} | numbers
    return BatchingProfile(name="test", model="none", hardware="none", **given_numbers)  # type: ignore[arg-type]


def request(arrival_s: float, audio_s: float, num_tokens: int | None = None) -> TraceRequest:
    return TraceRequest(arrival_s=arrival_s, audio_s=audio_s, num_tokens=num_tokens)


def finishes(trace: Sequence[TraceRequest], engine: BatchingProfile, policy: str) -> dict[str, float]:
    run = simulate(engine, trace, policy=policy)
    assert not run.failures
    return {record.id: record.finished_s for record in run.records}


def test_one_request_by_hand() -> None:
    """Two tokens: a step with its admission (1 + .1 + 2), a second token, and the step that ends the text."""
    (record,) = simulate(profile(), [request(5.0, 2.0)], policy="fcfs").records
    assert record.arrival_s == 5.0
    assert record.first_text_s == pytest.approx(8.1)
    assert record.finished_s == pytest.approx(10.3)
    assert record.wait_s == pytest.approx(0.0)
    assert record.service_s == pytest.approx(5.3)
    assert (record.num_windows, record.num_tokens, record.num_preemptions) == (1, 2, 0)


def test_one_admission_a_step_by_hand() -> None:
    """Three at once, shortest first: each step admits one and is longer by what runs already."""
    trace = [request(0.0, 9.0, 9), request(0.0, 1.0, 1), request(0.0, 5.0, 5)]
    # steps: 3.1 (1 admitted), 3.2 (the 5 joins; the 1 ends), 3.2 (the 9 joins), 1.2 three times more, then alone
    ended = finishes(trace, profile(), "sjf")
    assert ended["1"] == pytest.approx(6.3)
    assert ended["2"] == pytest.approx(3.1 + 3.2 + 3.2 + 4 * 1.2)
    assert ended["0"] == pytest.approx(3.1 + 3.2 + 3.2 + 4 * 1.2 + 5 * 1.1)


def test_a_long_recording_is_one_place_in_the_queue() -> None:
    """Its windows run at the same time where nobody shorter waits, and behind everybody shorter under sjf."""
    long = request(0.0, 90.0, 9)
    alone = finishes([long], profile(), "sjf")["0"]
    assert alone == pytest.approx(3.1 + 3.2 + 3.3 + 1.3 + 1.2 + 1.1)
    (record,) = simulate(profile(), [long], policy="sjf").records
    assert record.num_windows == 3
    assert record.service_s == pytest.approx(alone)
    behind = finishes([long, *(request(0.0, 2.0, 2) for _ in range(5))], profile(), "sjf")
    assert max(behind, key=lambda name: behind[name]) == "0"


@dataclass
class Naive:
    number: int
    arrival_s: float
    tokens: int
    size: int
    left: int = 0


def naive_rank(job: Naive, now_s: float, policy: str) -> tuple[float, float, int]:
    ratio = (now_s - job.arrival_s + job.size) / job.size
    return {"fcfs": 0.0, "sjf": job.size, "hrrn": -ratio}[policy], job.arrival_s, job.number


def naive_finishes(trace: Sequence[TraceRequest], engine: BatchingProfile, policy: str) -> dict[str, float]:
    """One step at a time, a scan over all that waits at each admission. Single windows, no memory bound."""
    jobs = [
        Naive(n, one.arrival_s, one.num_tokens or 0, max(1, int(one.audio_s * engine.kappa)))
        for n, one in enumerate(trace)
    ]
    waiting: list[Naive] = []
    running: list[Naive] = []
    ended: dict[str, float] = {}
    now_s = 0.0
    while jobs or waiting or running:
        if not waiting and not running:
            now_s = max(now_s, jobs[0].arrival_s)
        while jobs and jobs[0].arrival_s <= now_s:
            waiting.append(jobs.pop(0))
        num_admitted = 0
        while waiting and num_admitted < engine.max_windows_per_step and len(running) < engine.max_running:
            chosen = min(waiting, key=lambda job, now_s=now_s: naive_rank(job, now_s, policy))  # type: ignore[misc]
            waiting.remove(chosen)
            chosen.left = chosen.tokens + 1
            running.append(chosen)
            num_admitted += 1
        now_s += engine.step_s + engine.running_step_s * len(running) + engine.admission_s * num_admitted
        for job in running:
            job.left -= 1
            if job.left == 0:
                ended[f"{job.number}"] = now_s
        running = [job for job in running if job.left]
    return ended


clips = st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(0, 12))


@settings(deadline=None)
@given(
    shapes=st.lists(clips, min_size=1, max_size=25),
    policy=st.sampled_from(POLICIES),
    per_step=st.integers(1, 3),
    slots=st.integers(1, 5),
)
def test_every_finish_equals_the_naive_simulators(
    shapes: list[tuple[int, int, int]], policy: str, per_step: int, slots: int
) -> None:
    # a step of 1 and quarters elsewhere: sums are exact, so that ties are ties on both sides
    engine = profile(running_step_s=0.25, admission_s=0.5, max_windows_per_step=per_step, max_running=slots)
    trace = sorted(
        (request(arrival / 4, float(audio), tokens) for arrival, audio, tokens in shapes),
        key=lambda one: one.arrival_s,
    )
    assert finishes(trace, engine, policy) == naive_finishes(trace, engine, policy)


def test_m_d_1() -> None:
    """Where a step only admits, the engine is one server with constant service: Pollaczek–Khinchine."""
    engine = profile(step_s=1e-9, running_step_s=0.0, admission_s=1.0)
    rate_per_s, num = 0.5, 100_000
    gaps_s = [-math.log1p(-(n + 0.5) / num) / rate_per_s for n in range(num)]
    random.Random(3).shuffle(gaps_s)
    trace, now_s = [], 0.0
    for gap_s in gaps_s:
        now_s += gap_s
        trace.append(request(now_s, 1.0, 0))
    run = simulate(engine, trace, policy="fcfs")
    mean_s = math.fsum(record.wait_s or 0.0 for record in run.records) / num
    assert mean_s == pytest.approx(rate_per_s / (2 * (1 - rate_per_s)), rel=0.02)


def test_capacity_is_what_a_burst_gets() -> None:
    engine = profile(step_s=0.014, running_step_s=0.0003, admission_s=0.033, max_running=64)
    trace = [request(0.0, 5.0 + n % 3, 15 + n % 7) for n in range(4000)]
    run = simulate(engine, trace, policy="fcfs")
    through_per_s = len(trace) / max(record.finished_s for record in run.records)
    assert through_per_s == pytest.approx(capacity_per_s(engine, trace), rel=0.02)


MEMORY = {"memory_blocks": 40, "block_tokens": 2, "window_positions": 10, "prompt_tokens": 2}


@settings(deadline=None)
@given(
    shapes=st.lists(clips, min_size=1, max_size=25),
    policy=st.sampled_from(POLICIES),
    num_blocks=st.integers(12, 60),
)
def test_scarce_memory_loses_nothing(shapes: list[tuple[int, int, int]], policy: str, num_blocks: int) -> None:
    engine = profile(**(MEMORY | {"memory_blocks": num_blocks}))
    trace = sorted((request(a / 4, float(s), t) for a, s, t in shapes), key=lambda one: one.arrival_s)
    run = simulate(engine, trace, policy=policy)
    assert sorted(int(record.id) for record in run.records) == list(range(len(trace)))
    for record, one in zip(run.records, trace, strict=True):
        steps = (one.num_tokens or 0) + 1
        assert (record.service_s or 0) >= steps * (engine.step_s + engine.running_step_s) - 1e-9
    # One counts steps together, the other each: with eighths, what comes as a step ends does so for both.
    plenty = simulate(profile(running_step_s=0.125, **(MEMORY | {"memory_blocks": 10_000})), trace, policy=policy)
    assert all(record.num_preemptions == 0 for record in plenty.records)
    unbounded = finishes(trace, profile(running_step_s=0.125), policy)
    assert {r.id: r.finished_s for r in plenty.records} == unbounded


def test_who_is_evicted_is_the_policys_choice() -> None:
    """A short one runs when a long one and then a middling one join, and memory ends: sjf puts off the longest."""
    trace = [request(0.0, 4.0, 30), request(0.0, 20.0, 30), request(0.0, 10.0, 30)]
    engine = profile(**MEMORY, max_windows_per_step=3)
    evictions = {
        policy: [record.num_preemptions or 0 for record in simulate(engine, trace, policy=policy).records]
        for policy in ("fcfs", "sjf")
    }
    assert evictions["sjf"][1] > 0
    assert evictions["sjf"][0] == 0
    assert evictions["fcfs"][2] > 0
    assert evictions["fcfs"][0] == 0


def test_a_full_queue_refuses() -> None:
    trace = [request(0.0, 5.0, 5) for _ in range(10)]
    run = simulate(profile(), trace, policy="fcfs", max_queue=4)
    assert len(run.records) == 4
    assert {failure.error for failure in run.failures} == {"QueueFullError"}
    assert len(run.failures) == 6


def test_the_rest_of_a_recording_is_never_refused() -> None:
    trace = [request(0.0, 200.0, 20), *(request(0.0, 5.0, 5) for _ in range(3))]
    run = simulate(profile(), trace, policy="fcfs", max_queue=2)
    served = {record.id: record for record in run.records if isinstance(record, LatencyRecord)}
    assert served["0"].num_windows == 7
    assert all(isinstance(failure, Failure) for failure in run.failures)
    assert len(served) + len(run.failures) == 4
