"""``sooner plan``: which policy, and how many replicas, for these goals?

Each candidate is simulated on the whole traffic. Replicas are servers of their own, each with its own queue, and a
load balancer gives them the requests in turn (round robin). A number of replicas is enough when every goal holds
under every seed; the least such number is found by doubling and bisection, taking a goal that more replicas would
break to be none. The margin is how much the traffic may grow, arrivals closer together, until a goal breaks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sooner.core.latency import LatencyRecord
from sooner.errors import ConfigurationError
from sooner.simulator.goal import Goal
from sooner.simulator.options import EngineOptions, PlanOptions, number_list
from sooner.simulator.profile import Profile, WorkersProfile
from sooner.simulator.run import traces_at
from sooner.simulator.simulate import simulate
from sooner.workload.make import describe
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest

__all__ = ["Advice", "advise", "conclusion", "run_plan"]

_MAX_GROWTH = 8.0
_GROWTH_STEP = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What one policy needs.

    Attributes:
        policy: its name.
        num_replicas: the least that meet every goal; ``None`` where the most that were tried do not.
        values_s: each goal's figure with these replicas (the most tried, where none are enough), the worst seed's;
            ``None`` where a request was refused.
        growth: how many times as much traffic they still carry, at most 8; ``None`` where they are not enough, and
            for a burst, which cannot come any faster.
    """

    policy: str
    num_replicas: int | None
    values_s: Mapping[str, float | None]
    growth: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A policy on a given traffic, to be tried with any number of replicas."""

    profile: Profile
    policy: str
    engine: EngineOptions
    traces: Mapping[int, Sequence[TraceRequest]]
    goals: Sequence[Goal]

    def values_s(self, num_replicas: int, growth: float = 1.0) -> dict[str, float]:
        """Each goal's figure, the worst seed's; infinite where a request was refused."""
        worst = {str(goal): 0.0 for goal in self.goals}
        for seed, trace in self.traces.items():
            e2e_s = self._serve(trace, seed, num_replicas, growth)
            for goal in self.goals:
                value_s = math.inf if len(e2e_s) < len(trace) else goal.value_s(e2e_s)
                worst[str(goal)] = max(worst[str(goal)], value_s)
        return worst

    def _serve(
        self, trace: Sequence[TraceRequest], seed: int, num_replicas: int, growth: float
    ) -> list[tuple[float, float]]:
        """(audio_s, E2E) of every request that was served."""
        faster = [replace(one, arrival_s=one.arrival_s / growth) for one in trace]
        records: list[LatencyRecord] = []
        for index in range(min(num_replicas, len(faster))):
            run = simulate(
                self.profile,
                faster[index::num_replicas],
                policy=self.policy,
                preempt=self.engine.preempt,
                max_queue=self.engine.max_queue,
                guard=self.engine.queue_guard,
                seed=seed * num_replicas + index,
            )
            records.extend(run.records)
        return [(record.audio_s, record.e2e_s) for record in records]

    def is_enough(self, num_replicas: int, growth: float = 1.0) -> bool:
        values_s = self.values_s(num_replicas, growth)
        return all(values_s[str(goal)] <= goal.limit_s for goal in self.goals)


def advise(
    profile: Profile,
    traces: Mapping[int, Sequence[TraceRequest]],
    goals: Sequence[Goal],
    *,
    policy: str,
    engine: EngineOptions,
    max_replicas: int,
) -> Advice:
    """What ``policy`` needs for the goals on these traces. O(log replicas) simulations of each trace."""
    candidate = _Candidate(profile=profile, policy=policy, engine=engine, traces=traces, goals=goals)
    num_replicas = _least(candidate.is_enough, max_replicas)
    values_s = candidate.values_s(num_replicas or max_replicas)
    return Advice(
        policy=policy,
        num_replicas=num_replicas,
        values_s={name: None if value_s == math.inf else value_s for name, value_s in values_s.items()},
        growth=None if num_replicas is None else _growth(candidate, num_replicas),
    )


def _least(is_enough: Callable[[int], bool], most: int) -> int | None:
    """The least number from 1 to ``most`` that is enough, if more never are worse; ``None`` where none is."""
    too_few, enough = 0, 1
    while not is_enough(enough):
        if enough == most:
            return None
        too_few, enough = enough, min(2 * enough, most)
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        if is_enough(middle):
            enough = middle
        else:
            too_few = middle
    return enough


def _growth(candidate: _Candidate, num_replicas: int) -> float | None:
    """The largest growth of traffic that is still met, in steps of 1 %; ``None`` for a burst."""
    if all(trace[-1].arrival_s == trace[0].arrival_s for trace in candidate.traces.values()):
        return None
    carried, broken = 1.0, _MAX_GROWTH
    if candidate.is_enough(num_replicas, _MAX_GROWTH):
        return _MAX_GROWTH
    while broken - carried > _GROWTH_STEP:
        middle = (carried + broken) / 2
        if candidate.is_enough(num_replicas, middle):
            carried = middle
        else:
            broken = middle
    return carried


def run_plan(engine: EngineOptions, options: PlanOptions, workload: WorkloadOptions) -> None:
    """Advise for every policy, print it, and save it where asked to."""
    profile = engine.load_profile()
    console = Console()
    if options.rate is not None:
        workload.refuse_rate("--rate")
    seeds = number_list("--seeds", options.seeds, int)
    traces = traces_at(workload, options.rate, seeds)
    if isinstance(profile, WorkersProfile) and profile.spread:
        # Of a trace file there is one alone; a seed is then another draw of how long its windows take.
        traces = {seed: traces.get(seed, traces[seeds[0]]) for seed in seeds}
    for goal in options.goals:
        if not any(goal.concerns(one.audio_s) for trace in traces.values() for one in trace):
            raise ConfigurationError(f"goal {goal}: this traffic has no {goal.among}")
    advice = [
        advise(profile, traces, options.goals, policy=policy, engine=engine, max_replicas=options.max_replicas)
        for policy in track(engine.policy_names, description="planning", console=console, transient=True)
    ]
    console.print(_table(advice, options, f"{describe(workload)}; {profile.name}"))
    console.print(conclusion(advice, options.max_replicas))
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(one) for one in advice], indent=1) + "\n")


def conclusion(advice: Sequence[Advice], max_replicas: int) -> str:
    """The advice in a sentence or two: the fewest replicas, then the most room."""
    able = [one for one in advice if one.num_replicas is not None]
    if not able:
        return f"No policy meets the goals with {max_replicas} replicas: relax a goal, or take a faster engine."
    best = min(able, key=lambda one: (one.num_replicas, -(one.growth or 0)))
    others = [
        f"{one.policy} needs {one.num_replicas}" if one.num_replicas else f"{one.policy} more than {max_replicas}"
        for one in advice
        if one is not best
    ]
    replicas = "1 replica" if best.num_replicas == 1 else f"{best.num_replicas} replicas"
    sentence = f"{best.policy} with {replicas} meets the goals{_room(best.growth)}"
    return f"{'; '.join([sentence, ', '.join(others)]) if others else sentence}."


def _room(growth: float | None) -> str:
    if growth is None:
        return ""
    times = f"at least {growth:g}" if growth == _MAX_GROWTH else f"{growth:.2f}"
    return f" and carries {times} times the traffic"


def _table(advice: Sequence[Advice], options: PlanOptions, title: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD)
    table.add_column("policy")
    table.add_column("replicas", justify="right")
    for goal in options.goals:
        table.add_column(str(goal), justify="right")
    table.add_column("carries", justify="right")
    for one in advice:
        table.add_row(
            one.policy,
            f"> {options.max_replicas}" if one.num_replicas is None else f"{one.num_replicas}",
            *(_value(goal, one.values_s[str(goal)]) for goal in options.goals),
            "" if one.growth is None else f"{'≥ ' if one.growth == _MAX_GROWTH else ''}{one.growth:.2f}x",
        )
    return table


def _value(goal: Goal, value_s: float | None) -> str:
    if value_s is None:
        return "refused"
    return f"{value_s:.2f}{'' if value_s <= goal.limit_s else ' ✗'}"
