"""The batching model beside the vLLM plugin's own queue: same order, same victims, to the last finish.

The other side is a naive engine, one step at a time, that keeps its waiting requests in the plugin's
``PolicyRequestQueue`` and ranks running ones by the plugin's ``ticket_of``: the code that runs inside vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner import policies, policy_named
from sooner.core.estimator import WINDOW_S
from sooner.core.guard import Guard
from sooner.simulator.profile import BatchingProfile
from sooner.simulator.simulate import simulate
from sooner.vllm_plugin.chunk import chunk_of, chunks_of_upload, ticket_of
from sooner.vllm_plugin.request_queue import PolicyRequestQueue
from sooner.workload.trace import TraceRequest

POLICIES = [policy.name for policy in policies()]


@dataclass(eq=False)
class Request:
    """As much of vLLM's request as the plugin looks at, and how far it is."""

    request_id: str
    arrival_time: float
    sampling_params: Any
    num_text_tokens: int
    priority: int = 0
    max_tokens: int = 448
    mm_features: Sequence[object] = (None,)
    num_output_tokens: int = 0
    num_blocks: int = 0


@dataclass
class Engine:
    profile: BatchingProfile
    policy_name: str
    guard: Guard | None
    running: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policy = policy_named(self.policy_name)
        self.estimator = self.profile.estimator()
        self.queue = PolicyRequestQueue(self.policy, self.estimator, guard=self.guard)
        self.free = self.profile.memory_blocks or 10**9

    def requests(self, number: int, one: TraceRequest) -> list[Request]:
        num = self.profile.num_windows(one.audio_s)
        lengths_s = [min(WINDOW_S, one.audio_s - WINDOW_S * index) for index in range(num)]
        tokens = one.num_tokens or 0
        return [
            Request(
                request_id=f"{number}-{index}",
                arrival_time=one.arrival_s,
                sampling_params=SimpleNamespace(extra_args=chunk.extra_args()),
                num_text_tokens=tokens * (index + 1) // num - tokens * index // num,
            )
            for index, chunk in enumerate(chunks_of_upload(f"{number}", lengths_s, self.estimator))
        ]

    def grow(self, now_s: float) -> bool:
        evicted = False
        for request in list(self.running):
            wanted = self.profile.blocks(request.num_output_tokens + 1) - request.num_blocks
            while wanted > self.free and len(self.running) > 1 and request in self.running:
                tickets = [
                    ticket_of(one, chunk_of(one), self.estimator, sequence=index)
                    for index, one in enumerate(self.running)
                ]
                victim = self.policy.victim(tickets, now_s)
                assert victim is not None
                out = self.running.pop(victim.sequence)
                self.free += out.num_blocks
                self.queue.prepend_request(out)  # type: ignore[arg-type]
                evicted = True
            if request in self.running:
                self.free -= wanted
                request.num_blocks += wanted
        return evicted

    def admit(self) -> int:
        num_admitted = 0
        while (
            self.queue
            and num_admitted < self.profile.max_windows_per_step
            and len(self.running) < self.profile.max_running
        ):
            head: Any = self.queue.peek_request()
            num_blocks = self.profile.blocks(head.num_output_tokens + 1)
            if num_blocks > self.free and self.running:
                break
            assert self.queue.pop_request() is head
            head.num_blocks = num_blocks
            self.free -= num_blocks
            self.running.append(head)
            num_admitted += 1
        return num_admitted


def plugin_finishes(
    trace: Sequence[TraceRequest], profile: BatchingProfile, policy: str, guard: Guard | None
) -> dict[str, float]:
    engine = Engine(profile, policy, guard)
    coming = list(enumerate(trace))
    left = {f"{number}": profile.num_windows(one.audio_s) for number, one in coming}
    ended: dict[str, float] = {}
    now_s = 0.0
    while coming or engine.running or len(engine.queue):
        if not engine.running and not len(engine.queue):
            now_s = max(now_s, coming[0][1].arrival_s)
        while coming and coming[0][1].arrival_s <= now_s:
            for request in engine.requests(*coming.pop(0)):
                engine.queue.add_request(request)  # type: ignore[arg-type]
        engine.queue.begin_step(now_s)
        num_admitted = 0 if profile.memory_blocks and engine.grow(now_s) else engine.admit()
        now_s += profile.step_s + profile.running_step_s * len(engine.running)
        now_s += profile.admission_s * num_admitted
        for request in list(engine.running):
            request.num_output_tokens += 1
            if request.num_output_tokens > request.num_text_tokens:
                engine.running.remove(request)
                engine.free += request.num_blocks
                upload_id = request.request_id.partition("-")[0]
                left[upload_id] -= 1
                if not left[upload_id]:
                    ended[upload_id] = now_s
    return ended


def profile(**numbers: Any) -> BatchingProfile:
    # a step of 1 and quarters elsewhere: sums are exact, so that ties are ties on both sides
    given_numbers = {"step_s": 1.0, "running_step_s": 0.25, "admission_s": 0.5, "kappa": 0.5} | numbers
    return BatchingProfile(name="test", model="none", hardware="none", **given_numbers)


uploads = st.tuples(st.integers(0, 20), st.sampled_from([1, 2, 4, 10, 28, 31, 60, 75, 130]), st.integers(0, 30))


@settings(deadline=None)
@given(
    shapes=st.lists(uploads, min_size=1, max_size=30),
    policy=st.sampled_from(POLICIES),
    per_step=st.integers(1, 3),
    slots=st.integers(1, 5),
    num_blocks=st.one_of(st.none(), st.integers(12, 60)),
    guard=st.sampled_from([None, Guard(max_wait_s=20.0)]),
)
def test_every_finish_is_the_plugins(
    shapes: list[tuple[int, int, int]],
    policy: str,
    per_step: int,
    slots: int,
    num_blocks: int | None,
    guard: Guard | None,
) -> None:
    engine = profile(
        max_windows_per_step=per_step,
        max_running=slots,
        memory_blocks=num_blocks,
        block_tokens=2,
        window_positions=10,
        prompt_tokens=2,
    )
    trace = sorted(
        (
            TraceRequest(arrival_s=arrival / 4, audio_s=float(audio_s), num_tokens=tokens)
            for arrival, audio_s, tokens in shapes
        ),
        key=lambda one: one.arrival_s,
    )
    run = simulate(engine, trace, policy=policy, guard=guard)
    finished_s = {record.id: record.finished_s for record in run.records}
    assert finished_s == plugin_finishes(trace, engine, policy, guard)


def test_a_file_that_came_first_in_a_burst_is_served_first_by_fcfs() -> None:
    """All arrive at one second: the order of submission decides, for every window of the file."""
    file = TraceRequest(arrival_s=0.0, audio_s=300.0, num_tokens=100)
    trace = [file, *(TraceRequest(arrival_s=0.0, audio_s=4.0, num_tokens=10) for _ in range(40))]
    run = simulate(profile(max_running=4), trace, policy="fcfs")
    assert run.records[0].finished_s < min(record.finished_s for record in run.records[10:])


@pytest.mark.parametrize("audio_s", [3.0, 30.0, 31.0, 60.0, 600.0, 3600.0])
def test_alone_the_slowdown_is_1(audio_s: float) -> None:
    (record,) = simulate(profile(kappa=3.0), [TraceRequest(arrival_s=0.0, audio_s=audio_s)], policy="sjf").records
    assert record.slowdown == pytest.approx(1.0, rel=0.03)
