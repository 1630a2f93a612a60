"""The worker model against queueing theory and against an independent simulator.

Gaps and sizes are stratified samples in random order: the quantiles of their distribution at evenly spaced
levels. Load and moments are then exact, where most of the spread of a mean wait comes from, and 150,000 jobs
stand within 2 % of the formula.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np
import pytest
import simpy

from sooner import Estimate, Job, LatencyRecord, Scheduler, policy_named
from sooner.core.scheduler import Limits
from sooner.simulator.work import Progress
from sooner.simulator.workers import Work, serve_by_workers
from sooner.workload.trace import TraceRequest

UNLIMITED = Limits(max_waiting=10**9)
WITHIN = 0.02
NUM = 150_000


def estimate(size_s: float) -> Estimate:
    return Estimate(estimated_output_tokens=1, windows=1, size_s=size_s)


def work(number: int, arrival_s: float, size_s: float, num_windows: int = 1) -> Work:
    """A job whose size is known exactly, in windows of equal length."""
    window_s = size_s / num_windows
    request = TraceRequest(arrival_s=arrival_s, audio_s=1.0)
    return Work(
        job=Job(id=f"{number}", arrival_s=arrival_s, audio_s=1.0, estimate=estimate(size_s)),
        progress=Progress(f"{number}", request, size_s, num_windows, 1),
        windows_s=[window_s] * num_windows,
        remaining=[estimate(size_s - done * window_s) for done in range(1, num_windows)],
    )


Quantile = Callable[[float], float]


def exponential(mean: float) -> Quantile:
    return lambda level: -mean * math.log1p(-level)


def shuffled(num: int, quantile: Quantile, seed: int) -> list[float]:
    values = [quantile((index + 0.5) / num) for index in range(num)]
    random.Random(seed).shuffle(values)
    return values


def poisson_works(
    num_jobs: int, *, rate_per_s: float, size_s: Quantile, num_windows: int = 1, seed: int = 1
) -> Iterator[Work]:
    sizes_s = shuffled(num_jobs, size_s, seed)
    arrivals_s = accumulate(shuffled(num_jobs, exponential(1 / rate_per_s), 1000 + seed))
    for number, (arrival_s, job_s) in enumerate(zip(arrivals_s, sizes_s, strict=True)):
        yield work(number, arrival_s, job_s, num_windows)


def serve(works: Iterator[Work], policy: str, *, num_workers: int = 1) -> list[LatencyRecord]:
    scheduler = Scheduler(policy_named(policy), num_workers=num_workers, limits=UNLIMITED)
    served = list(serve_by_workers(works, scheduler, num_workers=num_workers))
    assert all(isinstance(one, LatencyRecord) for one in served)
    return [one for one in served if isinstance(one, LatencyRecord)]


def mean_wait_s(records: Sequence[LatencyRecord]) -> float:
    return math.fsum(record.wait_s or 0.0 for record in records) / len(records)


def test_m_m_1_fcfs() -> None:
    """Mean wait ρ / (μ − λ)."""
    rate_per_s = 0.5
    works = poisson_works(NUM, rate_per_s=rate_per_s, size_s=exponential(1.0))
    assert mean_wait_s(serve(works, "fcfs")) == pytest.approx(rate_per_s / (1 - rate_per_s), rel=WITHIN)


def test_m_g_1_fcfs() -> None:
    """Pollaczek–Khinchine: λ E[S²] / (2 (1 − ρ)), here with clips and files: sizes 1 and 10, 9 to 1."""
    rate_per_s, mean_s, mean_square = 0.25, 1.9, 0.9 + 10.0
    expected_s = rate_per_s * mean_square / (2 * (1 - rate_per_s * mean_s))
    works = poisson_works(NUM, rate_per_s=rate_per_s, size_s=lambda level: 10.0 if level > 0.9 else 1.0)
    assert mean_wait_s(serve(works, "fcfs")) == pytest.approx(expected_s, rel=WITHIN)


def test_m_g_1_sjf_by_size() -> None:
    """Non-preemptive priorities (Cobham 1954): W_k = λ E[S²] / 2 / ((1 − σ_{k−1}) (1 − σ_k)), shortest first."""
    sizes_s = (0.5, 1.0, 1.5, 2.0)
    rate_per_s = 0.5
    residual_s = rate_per_s * sum(s * s for s in sizes_s) / len(sizes_s) / 2
    works = poisson_works(NUM, rate_per_s=rate_per_s, size_s=lambda level: sizes_s[int(level * len(sizes_s))])
    by_size = defaultdict(list)
    for record in serve(works, "sjf"):
        by_size[record.size_s].append(record)
    below = 0.0
    for size_s in sizes_s:
        upto = below + rate_per_s * size_s / len(sizes_s)
        expected_s = residual_s / ((1 - below) * (1 - upto))
        assert mean_wait_s(by_size[size_s]) == pytest.approx(expected_s, rel=WITHIN), size_s
        below = upto


def test_srpt_mean() -> None:
    """Schrage and Miller 1966, sizes uniform on (0, 2); preemption between windows of 1/30 of a job."""
    rate_per_s = 0.5
    x = np.linspace(0, 2, 20_001)
    density = 0.5
    load = rate_per_s * density * x**2 / 2  # of jobs up to size x
    waiting = rate_per_s * (density * x**3 / 3 + x**2 * (1 - density * x)) / (2 * (1 - load) ** 2)
    step = x[1] - x[0]
    residence = np.concatenate([[0.0], np.cumsum((1 / (1 - load[1:]) + 1 / (1 - load[:-1])) / 2 * step)])
    expected_s = float(np.trapezoid((waiting + residence) * density, x))
    works = poisson_works(40_000, rate_per_s=rate_per_s, size_s=lambda level: 2 * level, num_windows=30)
    records = serve(works, "sjf")
    mean_s = math.fsum(record.e2e_s for record in records) / len(records)
    assert mean_s == pytest.approx(expected_s, rel=WITHIN)


def test_m_m_c() -> None:
    """Erlang C: mean wait C(c, a) / (cμ − λ)."""
    c, rate_per_s = 3, 1.8
    idle = sum(rate_per_s**k / math.factorial(k) for k in range(c))
    busy = rate_per_s**c / math.factorial(c) / (1 - rate_per_s / c)
    expected_s = busy / (idle + busy) / (c - rate_per_s)
    works = poisson_works(NUM, rate_per_s=rate_per_s, size_s=exponential(1.0))
    assert mean_wait_s(serve(works, "fcfs", num_workers=c)) == pytest.approx(expected_s, rel=WITHIN)


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("policy", ["fcfs", "sjf"])
def test_simpy_agrees_on_every_job(policy: str, num_workers: int) -> None:
    """The same jobs through simpy's priority resource: every job ends at the same second."""
    works = list(poisson_works(5_000, rate_per_s=0.95 * num_workers, size_s=exponential(1.0)))
    environment = simpy.Environment()
    workers = simpy.PriorityResource(environment, capacity=num_workers)
    ended_s: dict[str, float] = {}

    def job(one: Work) -> Iterator[simpy.Event]:
        yield environment.timeout(one.job.arrival_s)
        priority = one.job.size_s if policy == "sjf" else one.job.arrival_s
        with workers.request(priority=priority) as turn:
            yield turn
            yield environment.timeout(one.windows_s[0])
        ended_s[one.job.id] = environment.now

    for one in works:
        environment.process(job(one))
    environment.run()
    ours = {record.id: record.finished_s for record in serve(iter(works), policy, num_workers=num_workers)}
    assert ours == pytest.approx(ended_s)
    assert len(ours) == 5_000
