"""Runs with plausible numbers: one worker, jobs to their end, in the order of a policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sooner.core.latency import LatencyRecord
from sooner.evidence.run_file import Failure, Run, RunHeader

Order = Callable[[LatencyRecord], float]

ORDERS: dict[str, Order] = {
    "fcfs": lambda request: request.arrival_s,
    "sjf": lambda request: request.size_s,
}


def header(**changes: Any) -> RunHeader:
    """A header in which everything is known."""
    known = RunHeader(
        source="bench",
        policy="fcfs",
        preempt=False,
        workload="mixed lengths, Poisson arrivals",
        num_requests=0,
        rate_per_s=0.2,
        load=0.8,
        seed=1,
        num_workers=1,
        engine="tiny.en",
        hardware="two cores",
        version="0.2.0",
        commit="0123456789abcdef",
        started_at="2026-01-01T00:00:00+00:00",
    )
    return replace(known, **changes)


def request(number: int, **changes: Any) -> LatencyRecord:
    """A served request in which only what is needed is known."""
    known = LatencyRecord(
        id=f"r{number}", audio_s=4.0, size_s=1.0, arrival_s=float(number), finished_s=number + 2.0
    )
    return replace(known, **changes)


def failure(number: int, **changes: Any) -> Failure:
    """A request that was refused at once."""
    known = Failure(
        id=f"f{number}",
        audio_s=4.0,
        arrival_s=float(number),
        failed_s=float(number),
        error="HTTP 503",
        message="the queue is full",
    )
    return replace(known, **changes)


def make_run(policy: str, *, load: float = 0.8, seed: int = 1, num_requests: int = 200, **changes: Any) -> Run:
    """A run of short and long recordings; equal seeds, equal traffic. Policies beyond two serve as fcfs."""
    rng = random.Random(seed)
    lengths_s = [rng.uniform(100, 900) if rng.random() < 0.1 else rng.uniform(2, 30) for _ in range(num_requests)]
    sizes_s = [0.4 + 0.05 * audio_s for audio_s in lengths_s]
    mean_s = sum(sizes_s) / num_requests
    arrival_s, waiting = 0.0, []
    for number, (audio_s, size_s) in enumerate(zip(lengths_s, sizes_s, strict=True)):
        arrival_s += rng.expovariate(1) * mean_s / load
        waiting.append(
            request(
                number,
                audio_s=audio_s,
                size_s=size_s,
                arrival_s=arrival_s,
                service_s=size_s * rng.uniform(0.9, 1.2),
            )
        )
    records = _serve(waiting, ORDERS.get(policy, ORDERS["fcfs"]))
    made = header(policy=policy, load=load, rate_per_s=load / mean_s, seed=seed, num_requests=num_requests)
    return Run(header=replace(made, **changes), records=tuple(sorted(records, key=lambda one: one.arrival_s)))


def _serve(requests: Sequence[LatencyRecord], order: Order) -> list[LatencyRecord]:
    now_s, upcoming, waiting, served = 0.0, list(requests), [], []
    while upcoming or waiting:
        now_s = now_s if waiting else max(now_s, upcoming[0].arrival_s)
        while upcoming and upcoming[0].arrival_s <= now_s:
            waiting.append(upcoming.pop(0))
        chosen = min(waiting, key=order)
        waiting.remove(chosen)
        assert chosen.service_s is not None
        end_s = now_s + chosen.service_s
        times = {"wait_s": now_s - chosen.arrival_s, "first_text_s": now_s + 0.3, "finished_s": end_s}
        served.append(replace(chosen, **times))
        now_s = end_s
    return served
