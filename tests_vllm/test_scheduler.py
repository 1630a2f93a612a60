"""Our order inside vLLM's real scheduler, without an engine: who starts, who is evicted, what is left behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from sooner import Estimator
from sooner.vllm_plugin import scheduler as plugin_scheduler
from sooner.vllm_plugin.chunk import ESTIMATE_KEY, chunks_of_upload
from sooner.vllm_plugin.config import our_policies
from sooner.vllm_plugin.scheduler import SoonerScheduler, SynchronousSoonerScheduler, admission_advice
from tests_vllm.scheduling import Engine, abort, make_request, make_scheduler, scripted_token

COSTS = {"encode_s": 0.5, "token_s": 0.25}
ESTIMATOR = Estimator(kappa=3.0, **COSTS)

ours = pytest.mark.parametrize("policy", ["sjf", "hrrn"])
every = pytest.mark.parametrize("policy", our_policies())
both_loops = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock that the scheduler sees."""
    now_s = [1000.0]
    monkeypatch.setattr(plugin_scheduler.time, "time", lambda: now_s[0])

    def set_to(second: float) -> None:
        now_s[0] = second

    return set_to


def clip(name: str, *, tokens: int, arrival_s: float = 1000.0, max_tokens: int | None = None) -> Request:
    return make_request(
        name, arrival_s=arrival_s, max_tokens=max_tokens or tokens, extra_args={ESTIMATE_KEY: tokens}
    )


def upload(name: str, chunks_s: list[float], *, arrival_s: float = 1000.0) -> list[Request]:
    return [
        make_request(
            f"{name}-{chunk.number}", arrival_s=arrival_s, max_tokens=chunk.tokens, extra_args=chunk.extra_args()
        )
        for chunk in chunks_of_upload(name, chunks_s, ESTIMATOR)
    ]


def key_of(policy: str, now_s: float) -> Callable[[Request], tuple[float, ...]]:
    """The naive rank of a lone request: lowest goes first."""

    def key(request: Request) -> tuple[float, ...]:
        tokens = max(1, request.sampling_params.extra_args[ESTIMATE_KEY] - request.num_output_tokens)
        size_s = COSTS["encode_s"] + COSTS["token_s"] * tokens
        if policy == "sjf":
            return (size_s, request.arrival_time)
        return (-(now_s - request.arrival_time + size_s) / size_s, request.arrival_time)

    return key


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@both_loops
def test_vllms_own_policies_get_vllms_own_scheduler(model: Path, policy: str, is_async: bool) -> None:
    scheduler = make_scheduler(model, policy, is_async=is_async)
    assert type(scheduler) is (AsyncScheduler if is_async else Scheduler)


@every
@both_loops
def test_ours_is_over_the_one_that_vllm_would_take(model: Path, policy: str, is_async: bool) -> None:
    scheduler = make_scheduler(model, policy, is_async=is_async)
    assert type(scheduler) is (SoonerScheduler if is_async else SynchronousSoonerScheduler)
    assert isinstance(scheduler, AsyncScheduler) == is_async
    assert scheduler.scheduler_config.policy == policy


@ours
@both_loops
@pytest.mark.parametrize("num_slots", [1, 2, 8])
def test_starts_are_those_of_a_naive_scan(
    model: Path, clock: Callable[[float], None], policy: str, is_async: bool, num_slots: int
) -> None:
    rng = random.Random(5)
    options = {**COSTS, "guard": "off"}  # the scan knows the policy alone
    scheduler = make_scheduler(model, policy, num_slots=num_slots, is_async=is_async, options=options)
    engine = Engine(scheduler, is_async=is_async)
    waiting: list[Request] = []
    expected: list[str] = []
    now_s, coming = 1000.0, [clip(f"r{n}", tokens=rng.randint(1, 40)) for n in range(60)]
    while coming or scheduler.has_unfinished_requests():
        now_s += rng.choice([0.25, 1.0, 7.5])
        clock(now_s)
        for _ in range(min(len(coming), rng.choice([0, 0, 1, 3]))):
            request = coming.pop()
            request.arrival_time = now_s - rng.randint(0, 40) / 8
            scheduler.add_request(request)
            waiting.append(request)
        num_started = len(engine.started)
        engine.step()
        for name in engine.started[num_started:]:
            first = min(waiting, key=key_of(policy, now_s))
            expected.append(first.request_id)
            waiting.remove(next(request for request in waiting if request.request_id == name))
    assert engine.started == expected
    assert len(expected) == 60


@ours
def test_a_long_upload_counts_in_full_and_keeps_its_order(
    model: Path, clock: Callable[[float], None], policy: str
) -> None:
    scheduler = make_scheduler(model, policy, num_slots=1, options=dict(COSTS))
    engine = Engine(scheduler)
    for request in [*upload("file", [30.0, 30.0, 2.0]), *upload("clip", [25.0]), *upload("other", [29.0])]:
        scheduler.add_request(request)
    clock(1001.0)
    engine.run()
    assert engine.started == ["clip-0", "other-0", "file-0", "file-1", "file-2"]


@ours
def test_a_streamed_upload_comes_one_chunk_at_a_time_and_counts_in_full(
    model: Path, clock: Callable[[float], None], policy: str
) -> None:
    """When its third, tiny chunk comes, the upload ranks by what is left of it (sjf) or by all of it (hrrn)."""
    scheduler = make_scheduler(model, policy, num_slots=1, options=dict(COSTS))
    engine = Engine(scheduler)
    chunks = upload("file", [30.0, 30.0, 2.0])
    clock(1000.5)
    for request in chunks[:2]:
        scheduler.add_request(request)
        engine.run()
    scheduler.add_request(clip("blocker", tokens=1))
    engine.step()
    scheduler.add_request(chunks[2])
    scheduler.add_request(clip("clip", tokens=10))
    engine.run()
    last_two = {"sjf": ["file-2", "clip"], "hrrn": ["clip", "file-2"]}[policy]
    assert engine.started == ["file-0", "file-1", "blocker", *last_two]


def pressed(model: Path, policy: str, *, is_async: bool) -> tuple[Any, Engine, list[str], list[str]]:
    """A cache for three requests at admission, not in full: 48 blocks a window and one per 32 tokens each."""
    scheduler = make_scheduler(model, policy, num_slots=4, num_blocks=150, is_async=is_async, options=dict(COSTS))
    engine = Engine(scheduler, is_async=is_async)
    victims: list[str] = []
    expected: list[str] = []
    preempt = scheduler._preempt_request

    def watch(request: Request, timestamp: float, **kwargs: Any) -> None:
        candidates = [*scheduler.running, request]
        expected.append(max(candidates, key=key_of(policy, scheduler.waiting.now_s)).request_id)
        victims.append(request.request_id)
        preempt(request, timestamp, **kwargs)

    scheduler._preempt_request = watch
    return scheduler, engine, victims, expected


@ours
@both_loops
def test_under_memory_pressure_the_policys_victim_goes_and_nothing_is_lost(
    model: Path, clock: Callable[[float], None], policy: str, is_async: bool
) -> None:
    scheduler, engine, victims, expected = pressed(model, policy, is_async=is_async)
    lengths = {"long": 220, "middle": 190, "short": 150, "late": 170, "tiny": 130, "last": 210}
    for second, (name, tokens) in enumerate(lengths.items()):
        scheduler.add_request(clip(name, tokens=tokens, arrival_s=1000.0 + second))
    clock(1010.0)
    engine.run()
    assert victims, "the cache was not too small"
    assert victims == expected
    assert sorted(engine.started) == sorted([*lengths, *victims])
    for name, tokens in lengths.items():
        assert engine.tokens[name] == [scripted_token(name, position) for position in range(tokens)], name
    assert scheduler.get_kv_cache_usage() == 0
    assert len(scheduler.waiting) == len(scheduler.running) == len(scheduler.requests) == 0


def rush(model: Path, clock: Callable[[float], None], policy: str, *, is_async: bool) -> tuple[Any, Engine]:
    """Clips and files that come faster than they go, with too little memory for all slots, run to the end."""
    rng = random.Random(7)
    options = {} if policy == "fcfs" else dict(COSTS)
    scheduler = make_scheduler(model, policy, num_slots=4, num_blocks=150, is_async=is_async, options=options)
    engine = Engine(scheduler, is_async=is_async)
    now_s = 1000.0
    for number in range(30):
        now_s += 0.5
        clock(now_s)
        if number % 10 == 4:
            coming = upload(f"file{number}", [20.0] * 5, arrival_s=now_s)
        else:
            coming = [clip(f"clip{number}", tokens=rng.randint(5, 150), arrival_s=now_s)]
        for request in coming:
            scheduler.add_request(request)
        engine.step()
    clock(now_s + 600.0)
    engine.run()
    return scheduler, engine


@both_loops
def test_under_every_policy_all_requests_end_with_the_tokens_that_they_have_under_fcfs(
    model: Path, clock: Callable[[float], None], is_async: bool
) -> None:
    _, fcfs = rush(model, clock, "fcfs", is_async=is_async)
    assert len(fcfs.tokens) == 27 + 3 * 5
    for policy in our_policies():
        scheduler, engine = rush(model, clock, policy, is_async=is_async)
        assert engine.tokens == fcfs.tokens, policy
        assert engine.started != fcfs.started, policy
        assert scheduler.get_kv_cache_usage() == 0
        assert len(scheduler.waiting) == len(scheduler.running) == len(scheduler.requests) == 0
        scheduler.waiting.check()


def test_changes_of_order_are_logged(
    model: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(plugin_scheduler.logger, "info", lambda text, *values: told.append(text % values))
    scheduler, _ = rush(model, clock, "adaptive", is_async=True)
    start_up, *changes = told
    assert "Guard: scaled:5,120." in start_up
    assert changes[0].startswith("order ")
    assert " instead of fcfs: " in changes[0]
    assert changes[-1].startswith(f"order {scheduler.waiting.order} ")
    assert scheduler.waiting.take_switches() == []


def test_the_guard_serves_first_what_was_put_off_for_long(model: Path, clock: Callable[[float], None]) -> None:
    """A queue of clips that sjf would serve first, and a file before them whose half a minute is over."""
    started = {}
    for guard in ("off", "fixed:30"):
        scheduler = make_scheduler(model, "sjf", num_slots=1, options={**COSTS, "guard": guard})
        engine = Engine(scheduler)
        for request in [*upload("file", [30.0, 30.0]), clip("a", tokens=3, arrival_s=1001.0)]:
            scheduler.add_request(request)
        clock(1031.0)
        engine.run()
        started[guard] = engine.started
    assert started == {"off": ["a", "file-0", "file-1"], "fixed:30": ["file-0", "file-1", "a"]}


@both_loops
def test_the_two_policies_evict_differently(model: Path, clock: Callable[[float], None], is_async: bool) -> None:
    """The long request came first: sjf evicts it for its size, hrrn spares it for its wait."""
    victims = {}
    for policy in ("sjf", "hrrn"):
        scheduler, engine, victims[policy], _ = pressed(model, policy, is_async=is_async)
        scheduler.add_request(clip("old and long", tokens=200, arrival_s=0.0))
        scheduler.add_request(clip("new and short", tokens=150, arrival_s=999.0))
        scheduler.add_request(clip("new and shorter", tokens=140, arrival_s=999.5))
        clock(1000.0)
        engine.run()
    assert victims["sjf"][0] == "old and long"
    assert "old and long" not in victims["hrrn"]


@ours
def test_when_several_must_go_in_one_step_each_is_the_policys(
    model: Path, clock: Callable[[float], None], policy: str
) -> None:
    scheduler = make_scheduler(model, policy, options=dict(COSTS))
    engine = Engine(scheduler)
    for second, tokens in enumerate([90, 40, 100, 60, 50]):
        scheduler.add_request(clip(f"r{second}", tokens=tokens, arrival_s=1000.0 + second))
    clock(1010.0)
    for _ in range(5):
        engine.step()
    scheduler._is_in_step = True
    scheduler._name_victim(1010.0)
    for _ in range(4):
        expected = max(scheduler.running, key=key_of(policy, 1010.0))
        victim = max(scheduler.running, key=lambda r: (r.priority, r.arrival_time))  # as vLLM chooses
        assert victim is expected
        scheduler.running.remove(victim)
        scheduler._preempt_request(victim, 0.0)


@ours
def test_a_preempted_request_waits_with_its_own_arrival_and_what_remains(
    model: Path, clock: Callable[[float], None], policy: str
) -> None:
    scheduler = make_scheduler(model, policy, num_slots=4, options=dict(COSTS))
    engine = Engine(scheduler)
    request = clip("r", tokens=100, arrival_s=900.0)
    scheduler.add_request(request)
    clock(1000.0)
    for _ in range(31):
        engine.step()
    scheduler.running.remove(request)
    scheduler._preempt_request(request, 0.0)
    (ticket,) = scheduler.waiting._ready
    assert ticket.arrival_s == 900.0
    assert ticket.remaining_s == 0.5 + 0.25 * (100 - 31)
    scheduler.add_request(clip("long", tokens=90, arrival_s=900.0))
    engine.run()
    assert engine.started == ["r", "r", "long"]
    assert engine.tokens["r"] == [scripted_token("r", position) for position in range(100)]


@every
def test_aborts_leave_nothing_behind_whatever_their_order(model: Path, policy: str) -> None:
    """vLLM may abort a request before it was added, and again after."""
    scheduler = make_scheduler(model, policy, num_slots=1, options=dict(COSTS))
    engine = Engine(scheduler)
    file = upload("file", [30.0, 30.0, 30.0])
    abort(scheduler, *(request.request_id for request in file))
    for request in file:
        scheduler.add_request(request)
    engine.step()
    assert engine.started == ["file-0"]
    abort(scheduler, "file-1")
    scheduler.waiting.check()
    assert [request.request_id for request in scheduler.waiting] == ["file-2"]
    abort(scheduler, "file-0", "file-1", "file-2", "stranger")
    scheduler.waiting.check()
    engine.run()
    assert len(scheduler.waiting) == len(scheduler.running) == len(scheduler.requests) == 0
    scheduler.add_request(clip("next", tokens=3))
    engine.run()
    assert len(engine.tokens["next"]) == 3


@every
def test_one_window_a_step_and_the_queue_is_whole_after_each(model: Path, policy: str) -> None:
    scheduler = make_scheduler(model, policy, num_slots=8, step_tokens=2048)
    engine = Engine(scheduler)
    for n in range(6):
        scheduler.add_request(clip(f"r{n}", tokens=20))
    for num_running in range(1, 6):
        engine.step()
        assert scheduler.get_request_counts() == (num_running, 6 - num_running)
        assert scheduler.waiting
    assert scheduler.has_unfinished_requests()


@every
def test_totals_travel_with_vllms_statistics(model: Path, policy: str) -> None:
    scheduler = make_scheduler(model, policy)
    scheduler.add_request(clip("r", tokens=5))
    Engine(scheduler).run()
    totals = scheduler.make_stats().waiting_lora_adapters
    assert totals["sooner_overhead_ns"] > 0
    assert totals["sooner_preemptions"] == 0


@every
def test_what_vllm_looks_at_and_puts_back_is_no_admission(
    model: Path, clock: Callable[[float], None], policy: str
) -> None:
    """As it does with a request whose adapter has no room: the next one in the order is admitted instead."""
    scheduler = make_scheduler(model, policy)
    engine = Engine(scheduler)
    for n in range(3):
        scheduler.add_request(clip(f"r{n}", tokens=5 + n))
    is_ready = scheduler._handle_blocked_waiting_request
    clock(1000.0)
    scheduler.waiting.begin_step(1000.0)
    first, second, _ = [request.request_id for request in scheduler.waiting]
    scheduler._handle_blocked_waiting_request = lambda r: r.request_id != first and is_ready(r)
    engine.step()
    assert engine.started == [second]
    assert len(scheduler.waiting) == 2
    scheduler._handle_blocked_waiting_request = is_ready
    engine.run()
    assert sorted(engine.started) == ["r0", "r1", "r2"]


@every
def test_a_step_of_many_windows_admits_so_many(model: Path, policy: str) -> None:
    engine = Engine(make_scheduler(model, policy, step_tokens=4600))
    for n in range(8):
        engine.scheduler.add_request(clip(f"r{n}", tokens=20))
    engine.step()
    assert len(engine.started) == 3


@every
def test_a_clients_priority_names_no_victim(model: Path, policy: str) -> None:
    scheduler = make_scheduler(model, policy)
    request = clip("r", tokens=5)
    request.priority = 9
    scheduler.add_request(request)
    assert request.priority == 0


def test_admission_advice() -> None:
    assert "admits 1 window of 30 s" in admission_advice(2048, 1500)
    assert "--max-num-batched-tokens 6000 would admit 4" in admission_advice(2048, 1500)
    assert admission_advice(8192, 1500) == (
        "An engine step admits 5 windows of 30 s (8192 encoder positions, 1500 a window)."
    )
    assert admission_advice(8192, 0) == ""
