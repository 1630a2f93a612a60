"""Lower bounds: by hand, against all orders of tiny instances, and against every policy on real lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner import LatencyRecord, Policy, Scheduler, StaticPolicy, policies
from sooner.core.latency import percentile
from sooner.simulator.batching import serve_by_batching
from sooner.simulator.bounds import LowerBounds, lower_bounds, most_matched, most_on_time
from sooner.simulator.profile import BatchingProfile, Profile, WorkersProfile, load_profile
from sooner.simulator.simulate import capacity_per_s, simulate
from sooner.simulator.workers import serve_by_workers, works_of
from sooner.workload.lengths import MIN_FILE_S
from sooner.workload.make import make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest

PERCENTS = (0.0, 25.0, 50.0, 90.0, 99.0, 100.0)
PRECISION = 1e-4
TOKEN_BOUND = BatchingProfile(
    name="token-bound",
    model="none",
    hardware="none",
    step_s=0.005,
    running_step_s=0.0015,
    admission_s=0.001,
    max_windows_per_step=8,
    max_running=64,
)


def workers(**numbers: float) -> WorkersProfile:
    given_numbers = {"encode_s": 1.0, "token_s": 0.1, "kappa": 1.0} | numbers
    return WorkersProfile(name="test", model="none", hardware="none", **given_numbers)  # type: ignore[arg-type]


def batching(**numbers: float) -> BatchingProfile:
    given_numbers = {"step_s": 1.0, "running_step_s": 0.1, "admission_s": 2.0, "kappa": 1.0} | numbers
    return BatchingProfile(name="test", model="none", hardware="none", **given_numbers)  # type: ignore[arg-type]


def request(arrival_s: float, audio_s: float, num_tokens: int | None = None) -> TraceRequest:
    return TraceRequest(arrival_s=arrival_s, audio_s=audio_s, num_tokens=num_tokens)


# The two problems that are solved exactly, each against a scan over all sets of jobs


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=8))
def test_the_most_on_time_against_all_sets(jobs: list[tuple[int, int, int]]) -> None:
    """Releases and slack in any order, made to agree as they must."""
    release_s = sorted(float(release) for release, _, _ in jobs)
    work_s = [float(work) for _, work, _ in jobs]
    due_s: list[float] = []
    for begin_s, (_, work, slack) in zip(release_s, jobs, strict=True):
        due_s.append(max([begin_s + work + slack, *due_s[-1:]]))
    assert most_on_time(release_s, work_s, due_s) == max(
        len(chosen) for chosen in subsets(len(jobs)) if are_on_time(chosen, release_s, work_s, due_s)
    )


def subsets(num: int) -> Iterator[tuple[int, ...]]:
    for size in range(num + 1):
        yield from combinations(range(num), size)


def are_on_time(
    chosen: Sequence[int], release_s: Sequence[float], work_s: Sequence[float], due_s: Sequence[float]
) -> bool:
    now_s = 0.0
    for index in chosen:
        now_s = max(now_s, release_s[index]) + work_s[index]
        if now_s > due_s[index]:
            return False
    return True


def test_a_job_that_cannot_be_on_time_delays_nobody() -> None:
    assert most_on_time([0.0, 0.0, 9.0], [5.0, 1.0, 1.0], [3.0, 3.0, 10.0]) == 2


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(-1, 3)), min_size=1, max_size=7))
def test_the_most_matched_against_all_sets(jobs: list[tuple[int, int]]) -> None:
    first = [begin for begin, _ in jobs]
    last = [begin + length for begin, length in jobs]
    assert most_matched(first, last) == max(
        len(chosen) for chosen in subsets(len(jobs)) if can_be_matched(chosen, first, last)
    )


def can_be_matched(chosen: Sequence[int], first: Sequence[int], last: Sequence[int]) -> bool:
    """Hall's condition: no stretch of slots holds more of them than it has slots."""
    return all(
        sum(first[index] >= begin and last[index] <= end for index in chosen) <= max(0, end - begin + 1)
        for begin in {first[index] for index in chosen}
        for end in {last[index] for index in chosen}
    )


# By hand: where the easier problem is the engine's own, a bound is what the best order gives


def test_one_worker_and_all_at_once() -> None:
    """1.1, 1.5 and 2 s of work: the shortest first gives every rank its least, 1.1, 2.6 and 4.6 s."""
    trace = [request(0.0, 10.0), request(0.0, 1.0), request(0.0, 5.0)]
    bounds = lower_bounds(workers(), trace, percents=(0, 49, 50, 100))
    assert bounds.percentiles_s == pytest.approx({0: 1.1, 49: 1.1, 50: 2.6, 100: 4.6}, rel=PRECISION)
    assert bounds.mean_s == pytest.approx((1.1 + 2.6 + 4.6) / 3)
    assert bounds.max_s == pytest.approx(4.6)


def test_alone_nothing_is_faster_than_one_worker_and_the_way_in() -> None:
    """Four workers are no help to one file of three windows of 4 s, .5 s more where they go on."""
    engine = workers(num_workers=4, context_s=0.5, overhead_s=0.3)
    bounds = lower_bounds(engine, [request(7.0, 90.0)], percents=(50,))
    assert (bounds.percentiles_s[50], bounds.mean_s, bounds.max_s) == pytest.approx((13.3, 13.3, 13.3))


def test_many_workers_are_one_that_is_faster() -> None:
    """Eight clips of 1.5 s on four workers: as one they are done at 3 s, in the mean at 1.6875."""
    bounds = lower_bounds(workers(num_workers=4), [request(0.0, 5.0)] * 8, percents=(50, 100))
    assert bounds.percentiles_s == pytest.approx({50: 1.5, 100: 3.0}, rel=PRECISION)
    assert bounds.mean_s == pytest.approx(0.375 * 4.5)
    assert bounds.max_s == pytest.approx(3.0)


def test_admissions_of_a_batch_by_hand() -> None:
    """No token, and one admission of 3.1 s after the other: the k-th is through at 3.1 k."""
    bounds = lower_bounds(batching(), [request(0.0, 5.0, 0)] * 4, percents=(0, 50, 100))
    assert bounds.percentiles_s == pytest.approx({0: 3.1, 50: 6.2, 100: 12.4}, rel=PRECISION)
    assert bounds.mean_s == pytest.approx(3.1 * 2.5)
    assert bounds.max_s == pytest.approx(12.4)


def test_what_is_admitted_decodes_for_steps_of_its_own() -> None:
    """Two admissions of 3.1 s; 20 tokens, of 1.1 s at least, for one of them, which goes first."""
    trace = [request(0.0, 5.0, 0), request(0.0, 5.0, 20)]
    bounds = lower_bounds(batching(), trace, percents=(0, 100))
    assert bounds.percentiles_s == pytest.approx({0: 3.1, 100: 3.1 + 20 * 1.1}, rel=PRECISION)
    assert bounds.mean_s == pytest.approx((3.1 + 6.2 + 22.0) / 2)


def test_a_full_batch_shares_its_steps() -> None:
    """Slots for two, and decoding is all: 5 steps a request, of 1 s, half of it each."""
    engine = batching(running_step_s=0.0, admission_s=0.0, max_windows_per_step=2, max_running=2)
    trace = [request(0.0, 5.0, 4)] * 6
    bounds = lower_bounds(engine, trace, percents=(0, 100))
    assert bounds.percentiles_s == pytest.approx({0: 5.0, 100: 15.0}, rel=PRECISION)
    assert bounds.max_s == max(record.e2e_s for record in simulate(engine, trace, policy="fcfs").records)


@pytest.mark.parametrize("max_admitted", [1, 2, 3])
def test_a_recording_in_a_batch_alone(max_admitted: int) -> None:
    """Three windows of 3 tokens, one or more of which join in a step: when the engine ends them."""
    engine, trace = batching(max_windows_per_step=max_admitted), [request(0.0, 90.0, 9)]
    (record,) = simulate(engine, trace, policy="fcfs").records
    assert lower_bounds(engine, trace, percents=(50,)).percentiles_s[50] == pytest.approx(record.e2e_s)


def test_figures_of_some_are_those_of_a_trace_without_the_others() -> None:
    trace = [request(0.0, 90.0), request(0.0, 5.0), request(1.0, 3.0), request(2.0, 120.0)]
    for engine in (workers(), batching()):
        some = lower_bounds(engine, trace, percents=PERCENTS, among=lambda one: one.audio_s < 60)
        assert some == lower_bounds(engine, trace[1:3], percents=PERCENTS)


def test_what_there_is_no_figure_of_is_an_error() -> None:
    with pytest.raises(ValueError, match="no request"):
        lower_bounds(workers(), [request(0.0, 5.0)], percents=(50,), among=lambda one: False)
    with pytest.raises(ValueError, match=r"\[0, 100\], not 50, 101"):
        lower_bounds(workers(), [request(0.0, 5.0)], percents=(50, 101))


# Tiny instances under all orders, with and without preemption


recordings = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([1.0, 5.0, 20.0, 50.0, 100.0]), st.integers(0, 30)),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=40)
@given(recordings, st.integers(1, 3), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_no_order_of_workers_is_below(
    drawn: list[tuple[int, float, int]], num_workers: int, preempt: bool, spread: float
) -> None:
    engine = workers(num_workers=num_workers, context_s=0.2, overhead_s=0.1, spread=spread)
    trace = sorted((request(float(at), s, n) for at, s, n in drawn), key=lambda one: one.arrival_s)

    def serve(policy: Policy) -> Iterator[object]:
        scheduler = Scheduler(policy, num_workers=num_workers, preempt=preempt)
        return serve_by_workers(works_of(trace, engine, seed=3), scheduler, num_workers=num_workers)

    bounds = lower_bounds(engine, trace, percents=PERCENTS, seed=3)
    assert_below_all(bounds, [e2e_of(serve(policy)) for policy in all_orders(len(trace))])


@settings(deadline=None, max_examples=40)
@given(recordings, st.integers(1, 3), st.integers(1, 3), st.sampled_from([None, 200, 300]))
def test_no_order_of_a_batch_is_below(
    drawn: list[tuple[int, float, int]], max_admitted: int, max_running: int, memory_blocks: int | None
) -> None:
    numbers = {} if memory_blocks is None else {"memory_blocks": memory_blocks}
    engine = batching(max_windows_per_step=max_admitted, max_running=max_running, **numbers)
    trace = sorted((request(float(at), s, n) for at, s, n in drawn), key=lambda one: one.arrival_s)
    bounds = lower_bounds(engine, trace, percents=PERCENTS)
    orders = all_orders(len(trace))
    assert_below_all(bounds, [e2e_of(serve_by_batching(trace, policy, engine)) for policy in orders])


def all_orders(num: int) -> Iterator[Policy]:
    for places in permutations(range(num)):
        yield StaticPolicy(name="an order", summary="", rank=rank_by(places), preemptive=True)


def rank_by(places: Sequence[int]) -> Callable[..., float]:
    return lambda ticket: places[int(ticket.id.partition("-")[0])]


def e2e_of(served: Iterator[object]) -> list[float]:
    return [one.e2e_s for one in served if isinstance(one, LatencyRecord)]


def assert_below_all(bounds: LowerBounds, runs: Sequence[Sequence[float]]) -> None:
    for percent, bound_s in bounds.percentiles_s.items():
        assert bound_s <= min(percentile(e2e_s, percent) for e2e_s in runs) + 1e-6, percent
    assert bounds.mean_s <= min(sum(e2e_s) / len(e2e_s) for e2e_s in runs) + 1e-6
    assert bounds.max_s <= min(max(e2e_s) for e2e_s in runs) + 1e-6


# Real lengths under every policy


@pytest.mark.parametrize("load", [0.6, 1.2])
@pytest.mark.parametrize("workload", ["clips", "mixed"])
@pytest.mark.parametrize(
    "engine", [load_profile("embedded-tiny"), load_profile("a100-large-v3"), TOKEN_BOUND], ids=lambda one: one.name
)
def test_no_policy_is_below(engine: Profile, workload: str, load: float) -> None:
    options = WorkloadOptions(workload=workload, requests=250, max_file_s=600)
    rate_per_s = load * capacity_per_s(engine, make_trace(options, rate_per_s=1.0, seed=2))
    trace = make_trace(options, rate_per_s=rate_per_s, seed=2)
    bounds = lower_bounds(engine, trace, percents=PERCENTS, seed=2)
    of_clips = lower_bounds(engine, trace, percents=PERCENTS, seed=2, among=lambda one: one.audio_s < MIN_FILE_S)
    for policy in policies():
        records = simulate(engine, trace, policy=policy.name, seed=2).records
        assert len(records) == len(trace)
        assert_below_all(bounds, [[record.e2e_s for record in records]])
        assert_below_all(of_clips, [[record.e2e_s for record in records if record.audio_s < MIN_FILE_S]])
