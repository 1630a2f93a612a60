"""``sooner simulate``: every policy on the same traffic, at several loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sooner.core.estimator import WINDOW_S
from sooner.core.latency import summarise
from sooner.evidence.machine import source_commit
from sooner.evidence.run_file import Run, write_runs
from sooner.simulator.options import EngineOptions, SimulateOptions, number_list
from sooner.simulator.profile import Profile
from sooner.simulator.simulate import capacity_per_s, simulate
from sooner.workload.make import describe, make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest, write_trace

__all__ = ["run_simulate", "traces_at"]


_MIN_WIDTH = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    """The traces of one row of the table, by seed.

    Attributes:
        label: what the row is called.
        load: ρ, ``None`` where it is not given.
        rate_per_s: requests a second, ``None`` for arrivals that have no rate of ours.
        traces: by seed.
    """

    label: str
    load: float | None
    rate_per_s: float | None
    traces: dict[int, list[TraceRequest]]


def run_simulate(engine: EngineOptions, options: SimulateOptions, workload: WorkloadOptions) -> None:
    """Simulate every policy, print a table, and save what is to be saved."""
    profile = engine.load_profile()
    console = Console()
    console.width = max(console.width, _MIN_WIDTH)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    table = _empty_table(f"E2E in seconds: {describe(workload)}; {profile.name}")
    rows = list(_rows(profile, options, workload))
    about: dict[str, Any] = {"workload": describe(workload), "commit": source_commit()}
    if not engine.queue_guard.is_off:
        about["notes"] = {"guard": engine.guard}
    if options.save_trace is not None:
        write_trace(options.save_trace, next(iter(rows[0].traces.values())))
    cells = [(row, policy) for row in rows for policy in engine.policy_names]
    for row, policy in track(cells, description="simulating", console=console, transient=True):
        runs = [_run(profile, row, policy, engine, about, seed) for seed in row.traces]
        table.add_row(row.label, policy, *_figures(runs))
        if options.out is not None:
            name = f"{policy}-{row.label}".replace(" ", "-").replace(":", "-")
            write_runs(options.out / f"{name}.jsonl", runs)
    console.print(table)
    if options.out is not None:
        console.print(f"Runs: {options.out}. See them with: sooner report {options.out}")


def _rows(profile: Profile, options: SimulateOptions, workload: WorkloadOptions) -> Iterator[_Traffic]:
    seeds = number_list("--seeds", options.seeds, int)
    if options.rates is not None or options.loads is not None:
        workload.refuse_rate("--loads and --rates")
    if options.rates is not None:
        for rate in number_list("--rates", options.rates, float):
            yield _Traffic(
                label=f"rate {rate:g}", load=None, rate_per_s=rate, traces=traces_at(workload, rate, seeds)
            )
    elif options.loads is None and (workload.trace_path is not None or workload.arrivals == "burst"):
        label = "as recorded" if workload.trace_path else "burst"
        yield _Traffic(label=label, load=None, rate_per_s=None, traces=traces_at(workload, None, seeds))
    else:
        recordings = [one for trace in traces_at(workload, 1.0, seeds).values() for one in trace]
        capacity = capacity_per_s(profile, recordings)
        for load in number_list("--loads", options.loads or "0.5,0.85", float):
            rate = load * capacity
            yield _Traffic(
                label=f"load {load:g}", load=load, rate_per_s=rate, traces=traces_at(workload, rate, seeds)
            )


def traces_at(
    workload: WorkloadOptions, rate_per_s: float | None, seeds: Sequence[int]
) -> dict[int, list[TraceRequest]]:
    """The trace of each seed that makes a traffic of its own."""
    seeds = workload.different_seeds(seeds)
    return {seed: make_trace(workload, rate_per_s=rate_per_s, seed=seed) for seed in seeds}


def _run(
    profile: Profile, row: _Traffic, policy: str, engine: EngineOptions, about: Mapping[str, Any], seed: int
) -> Run:
    run = simulate(
        profile,
        row.traces[seed],
        policy=policy,
        preempt=engine.preempt,
        max_queue=engine.max_queue,
        guard=engine.queue_guard,
        seed=seed,
    )
    header = replace(
        run.header,
        **about,
        load=row.load or run.header.load,
        rate_per_s=row.rate_per_s or run.header.rate_per_s,
    )
    return replace(run, header=header)


def _empty_table(title: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD)
    columns = (
        "",
        "policy",
        "served",
        "P50",
        "P90",
        "P95",
        "P99",
        "max",
        "mean",
        "≤ 30 s P50",
        "≤ 30 s P90",
        "slowdown",
    )
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    return table


def _figures(runs: Sequence[Run]) -> list[str]:
    records = [record for run in runs for record in run.records]
    served = f"{len(records)}/{sum(run.header.num_requests for run in runs)}"
    if not records:
        return [served]
    every = summarise(records)
    clips = [record for record in records if record.audio_s <= WINDOW_S]
    short = summarise(clips) if clips else None
    figures = [every.p50_s, every.p90_s, every.p95_s, every.p99_s, every.max_s, every.mean_s]
    return [
        served,
        *(f"{figure:.2f}" for figure in figures),
        *(("", "") if short is None else (f"{short.p50_s:.2f}", f"{short.p90_s:.2f}")),
        f"{every.mean_slowdown:.2f}",
    ]
