"""One trace, one policy, one engine profile: what would happen?"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Sequence

from sooner import __version__
from sooner.core.guard import Guard
from sooner.core.latency import LatencyRecord
from sooner.core.policy import policy_named
from sooner.core.scheduler import Limits, Scheduler
from sooner.errors import ConfigurationError
from sooner.evidence.run_file import Failure, Run, RunHeader
from sooner.simulator.batching import serve_by_batching
from sooner.simulator.profile import Profile, WorkersProfile
from sooner.simulator.workers import serve_by_workers, works_of
from sooner.workload.trace import TraceRequest, mean_rate_per_s

__all__ = ["capacity_per_s", "log_uniform_factors", "simulate"]


def simulate(  # noqa: PLR0913  one keyword for each thing that may differ between two simulations
    profile: Profile,
    trace: Sequence[TraceRequest],
    *,
    policy: str,
    preempt: bool | None = None,
    max_queue: int | None = None,
    guard: Guard | None = None,
    size_factors: Sequence[float] | None = None,
    seed: int = 0,
) -> Run:
    """Play ``trace`` against the scheduler in virtual time. Equal arguments, equal results.

    Args:
        profile: the engine.
        trace: what arrives, in order of arrival.
        policy: name of the policy.
        preempt: whether jobs give way between windows; ``None``: as the policy has it.
        max_queue: uploads that may wait, as ``sooner serve --max-queue``; more are refused. ``None``: any number.
        guard: bounds how long a request waits, whatever the policy; ``None`` for none.
        size_factors: for each request, what its predicted size is multiplied by; what it takes stays. The records'
            own sizes, which slowdowns are relative to, stay too. ``None``: the sizes are as predicted.
        seed: of the deviations of a window's time from what is predicted.

    Raises:
        ValueError: there are more or fewer size factors than requests.
        UnknownPolicyError: there is no such policy.
        ConfigurationError: ``preempt`` is given for an engine that batches, which has no such choice.
    """
    order = policy_named(policy)
    if size_factors is not None and len(size_factors) != len(trace):
        raise ValueError(f"{len(size_factors)} size factors for {len(trace)} requests")
    limits = Limits(max_waiting=max_queue or sys.maxsize, max_audio_s=math.inf)
    served: Iterator[LatencyRecord | Failure]
    if isinstance(profile, WorkersProfile):
        scheduler = Scheduler(order, num_workers=profile.num_workers, preempt=preempt, limits=limits, guard=guard)
        works = works_of(trace, profile, seed=seed, size_factors=size_factors)
        served = serve_by_workers(works, scheduler, num_workers=profile.num_workers)
        preempt = scheduler.preempts
    elif preempt is None:
        served = serve_by_batching(trace, order, profile, limits=limits, guard=guard, size_factors=size_factors)
    else:
        raise ConfigurationError(f"{profile.name} batches: what it has started is not put off; leave preempt out")
    ended = list(served)
    ended.sort(key=lambda request: int(request.id))  # the order of the trace, whatever the policy's
    return Run(
        header=_header(profile, trace, policy, preempt, seed),
        records=tuple(one for one in ended if isinstance(one, LatencyRecord)),
        failures=tuple(one for one in ended if isinstance(one, Failure)),
    )


def _header(
    profile: Profile, trace: Sequence[TraceRequest], policy: str, preempt: bool | None, seed: int
) -> RunHeader:
    return RunHeader(
        source="simulator",
        policy=policy,
        preempt=preempt,
        workload="a trace",
        num_requests=len(trace),
        rate_per_s=mean_rate_per_s(trace),
        load=_load(profile, trace),
        seed=seed,
        num_workers=profile.num_workers if isinstance(profile, WorkersProfile) else None,
        engine=f"{profile.name} ({profile.model})",
        hardware=f"simulated: {profile.hardware}",
        version=__version__,
    )


def log_uniform_factors(count: int, *, most: float, seed: int) -> list[float]:
    """Size factors from 1 / ``most`` to ``most``, half of them too small. Equal arguments, equal factors."""
    rng = random.Random(f"size factors {seed}")
    return [most ** rng.uniform(-1.0, 1.0) for _ in range(count)]


def capacity_per_s(profile: Profile, trace: Sequence[TraceRequest]) -> float:
    """Requests a second at which the engine is saturated by the mix of ``trace``.

    Workers skip silence, and have nothing to do where nobody speaks: infinite where that is all there is.
    """
    estimator = profile.estimator()
    skips = isinstance(profile, WorkersProfile)
    served = [
        (request.spoken_s if skips else request.audio_s, request.num_tokens)
        for request in trace
        if not (skips and request.speech_s == 0)
    ]
    if not served:
        return math.inf
    windows = sum(profile.num_windows(length_s) for length_s, _ in served)
    tokens = sum(
        estimator.estimate(length_s).estimated_output_tokens if num_tokens is None else num_tokens
        for length_s, num_tokens in served
    )
    of_served = profile.capacity_per_s(num_windows=windows / len(served), num_tokens=tokens / len(served))
    return of_served * (len(trace) / len(served))


def _load(profile: Profile, trace: Sequence[TraceRequest]) -> float | None:
    """ρ: the rate of arrival over the rate at which the engine is saturated."""
    rate_per_s = mean_rate_per_s(trace)
    return None if rate_per_s is None else rate_per_s / capacity_per_s(profile, trace)
