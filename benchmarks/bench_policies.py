"""Every registered policy on many kinds of traffic: who wins, who pays, and what no order could beat.

- ``paper``: the engine and the traffic of ``bench_paper.py``, LibriSpeech test-clean and the uniform split, 500
  requests and 24 seeds.
- ``tokens``: an engine that batches and whose steps are long for what runs, not for what joins: many slots and
  admissions, so that there is little to order until all slots are taken.
- ``mixed``: two workers (``embedded-tiny``), clips and 3 % files of up to 30 minutes, 1,500 requests and 12 seeds,
  at 0.3 to 1.4 times what the workers can serve; ``bursty``: gamma arrivals (cv 4); ``drift``: a rate that triples
  over the run.
- ``clips``: the same workers without files.

The same recordings and arrivals under every policy. A figure is the mean over the seeds of what one run gives; a
change is the mean over the seeds of the change against fcfs on the same traffic, with its 95 % interval over seeds
(Student's t). The last row of each table is what no order could beat, even one that knows what will come
(``sooner.simulator.bounds``), for each figure by itself.

Written to ``policies/``: ``runs.jsonl`` (the figures of every run, by length of the recordings too), ``cells.csv``
(means and changes), ``tables.md`` and figures. The same bytes at each run.

    python benchmarks/bench_policies.py
    python benchmarks/bench_policies.py --seeds 2 --scenarios paper-25 --out /tmp/policies
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from bench_paper import mean_interval
from sooner import LatencyRecord, policies, summarise
from sooner.core.latency import BUCKETS_S, by_duration_bucket, duration_bucket
from sooner.evidence.comparison import Interval, Values
from sooner.evidence.report.style import INK, Palette, log_axis, panel
from sooner.evidence.report.words import number
from sooner.simulator.bounds import lower_bounds
from sooner.simulator.profile import BatchingProfile, Profile, WorkersProfile, load_profile
from sooner.simulator.simulate import capacity_per_s, simulate
from sooner.workload.lengths import MIN_FILE_S
from sooner.workload.make import describe, make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest

OUT = Path(__file__).parent / "policies"
BASE = "fcfs"
BOUND = "no order is below"
WITHOUT_PREEMPTION = ("sjf", "hrrn")
PAPER_SEEDS, SEEDS = 24, 12
PAPER_RATES_PER_S = (17, 20, 23, 25)
MIXED_LOADS = (0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.4)
DRAWN = ("paper-17", "paper-20", "paper-25", "mixed-0.5", "mixed-0.85", "mixed-1.2")
MARKERS = "osD^vPX"
TOKEN_BOUND = BatchingProfile(
    name="token-bound",
    model="none",
    hardware="none: numbers under which decoding is the limit, not admission",
    step_s=0.005,
    running_step_s=0.0015,
    admission_s=0.001,
    own_token_s=0.035,  # a step below saturation, in which some twenty windows run
    max_windows_per_step=8,
    max_running=64,
)

ALL, CLIPS, FILES = "all", "clips", "files"
BUCKETS = [duration_bucket(bound_s) for bound_s in (*BUCKETS_S, 2 * BUCKETS_S[-1])]
FIGURES = {
    "P50": "p50_s",
    "P90": "p90_s",
    "P95": "p95_s",
    "P99": "p99_s",
    "max": "max_s",
    "mean": "mean_s",
    "slowdown": "mean_slowdown",
}
Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An engine and a traffic; seeds from 1 on."""

    name: str
    profile: Profile
    options: WorkloadOptions
    rate_per_s: float
    num_seeds: int

    def trace(self, seed: int) -> list[TraceRequest]:
        return make_trace(self.options, rate_per_s=self.rate_per_s, seed=seed)


def all_scenarios() -> Iterator[Scenario]:
    for name, workload in (("paper", "clips"), ("uniform", "uniform")):
        for rate_per_s in PAPER_RATES_PER_S:
            yield Scenario(
                name=f"{name}-{rate_per_s}",
                profile=load_profile("a100-large-v3"),
                options=WorkloadOptions(workload=workload, requests=500),
                rate_per_s=rate_per_s,
                num_seeds=PAPER_SEEDS,
            )
    clips = WorkloadOptions(workload="clips", requests=1500)
    mixed = WorkloadOptions(workload="mixed", requests=1500, max_file_s=1800)
    workers = load_profile("embedded-tiny")
    yield from at_loads("tokens", TOKEN_BOUND, clips, (0.85, 1.2))
    yield from at_loads("mixed", workers, mixed, MIXED_LOADS)
    yield from at_loads("bursty", workers, replace(mixed, arrivals="gamma"), (0.85,))
    yield from at_loads("drift", workers, replace(mixed, drift_rate=3.0), (0.85,))
    yield from at_loads("clips", workers, clips, (0.5, 0.85, 1.2))


def at_loads(name: str, profile: Profile, options: WorkloadOptions, loads: Sequence[float]) -> Iterator[Scenario]:
    """A traffic at shares of what saturates the engine, by the recordings of all seeds."""
    seeds = range(1, SEEDS + 1)
    recordings = [one for seed in seeds for one in make_trace(options, rate_per_s=1.0, seed=seed)]
    capacity = capacity_per_s(profile, recordings)
    for load in loads:
        yield Scenario(
            name=f"{name}-{load:g}",
            profile=profile,
            options=options,
            rate_per_s=load * capacity,
            num_seeds=SEEDS,
        )


# The runs


@dataclass(frozen=True)
class Row:
    """A policy, as it is by default or run to completion."""

    policy: str
    preempt: bool | None = None

    @property
    def label(self) -> str:
        return self.policy if self.preempt is None else f"{self.policy}, no preemption"


def rows_of(profile: Profile) -> list[Row]:
    rows = [Row(policy.name) for policy in policies()]
    if isinstance(profile, WorkersProfile):
        rows.extend(Row(policy, preempt=False) for policy in WITHOUT_PREEMPTION)
    return rows


def is_file(one: TraceRequest | LatencyRecord) -> bool:
    return one.audio_s >= MIN_FILE_S


def is_clip(one: TraceRequest | LatencyRecord) -> bool:
    return not is_file(one)


def measure(task: tuple[Scenario, int]) -> list[Line]:
    """All policies and the bound on the traffic of one seed."""
    scenario, seed = task
    trace = scenario.trace(seed)
    lines = []
    for row in rows_of(scenario.profile):
        run = simulate(scenario.profile, trace, policy=row.policy, preempt=row.preempt, seed=seed)
        assert len(run.records) == len(trace)
        groups = {group: asdict(summarise(records)) for group, records in groups_of(run.records).items()}
        lines.append(line_of(scenario, row.label, seed, groups))
    lines.append(line_of(scenario, BOUND, seed, bounds_of(scenario, trace, seed)))
    return lines


def groups_of(records: Sequence[LatencyRecord]) -> dict[str, list[LatencyRecord]]:
    groups = {ALL: list(records)}
    if any(map(is_file, records)):
        groups |= {CLIPS: list(filter(is_clip, records)), FILES: list(filter(is_file, records))}
    return groups | by_duration_bucket(records)


def bounds_of(scenario: Scenario, trace: Sequence[TraceRequest], seed: int) -> dict[str, dict[str, float]]:
    among: dict[str, Callable[[TraceRequest], bool] | None] = {ALL: None}
    if any(map(is_file, trace)):
        among |= {CLIPS: is_clip, FILES: is_file}
    figures = {}
    for group, belongs in among.items():
        bounds = lower_bounds(scenario.profile, trace, percents=(50, 90, 95, 99), seed=seed, among=belongs)
        percentiles_s = {f"p{percent:g}_s": value_s for percent, value_s in bounds.percentiles_s.items()}
        figures[group] = percentiles_s | {"max_s": bounds.max_s, "mean_s": bounds.mean_s}
    return figures


def line_of(scenario: Scenario, label: str, seed: int, groups: dict[str, dict[str, float]]) -> Line:
    rounded = {
        group: {name: round(value, 4) for name, value in figures.items()} for group, figures in groups.items()
    }
    return {"scenario": scenario.name, "policy": label, "seed": seed, "figures": rounded}


# From the runs to cells


@dataclass(frozen=True)
class Cell:
    """A figure of a policy: means over seeds, in seconds but for slowdowns; the change in percent."""

    value: float
    base: float
    change: Interval


Cells = dict[tuple[str, str, str, str], Cell]
"""By scenario, policy, group of recordings and figure."""


def cells_of(lines: Sequence[Line]) -> Cells:
    """Of the groups that every seed has; some are rare."""
    values: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    num_seeds: dict[tuple[str, str], int] = defaultdict(int)
    for line in lines:
        num_seeds[line["scenario"], line["policy"]] += 1
        for group, figures in line["figures"].items():
            for name, key in FIGURES.items():
                if key in figures:
                    values[line["scenario"], line["policy"], group, name].append(figures[key])
    return {
        (scenario, policy, group, name): cell_of(several, values[scenario, BASE, group, name])
        for (scenario, policy, group, name), several in values.items()
        if len(several) == num_seeds[scenario, policy]
    }


def cell_of(several: Sequence[float], base: Sequence[float]) -> Cell:
    other, before = np.array(several), np.array(base)
    changes: Values = 100 * (other / before - 1)
    return Cell(value=float(other.mean()), base=float(before.mean()), change=mean_interval(changes))


def write_cells(cells: Cells, path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ("scenario", "policy", "recordings", "figure", BASE, "value", "change_percent", "low", "high")
        )
        for key, cell in cells.items():
            change = cell.change
            writer.writerow(
                [*key, f"{cell.base:.4f}", f"{cell.value:.4f}"]
                + [f"{value:.2f}" for value in (change.value, change.low, change.high)]
            )


def policies_of(cells: Cells, scenario: str) -> list[str]:
    """The rows of a scenario, without the bound."""
    labels = dict.fromkeys(policy for name, policy, _, _ in cells if name == scenario)
    return [label for label in labels if label != BOUND]


# The page


def page(scenarios: Sequence[Scenario], cells: Cells) -> str:
    parts = [
        "# Who wins and who pays",
        "Made by `make policies`; the method is the docstring of `benchmarks/bench_policies.py`. Seconds of E2E; "
        "means over seeds.",
        "The policy with the lowest figure, and its change against fcfs. Those within a thousandth share a place.",
        winners(scenarios, cells),
        "In how many scenarios a figure is better and worse than under fcfs, as far as the 95 % interval tells:",
        better_and_worse(cells),
        "Whom each policy costs most: of the lengths of recordings that every run has, the one whose P90 grows "
        "most, in the mean over the scenarios of a kind.",
        payers(scenarios, cells),
        "## Each scenario",
        *(f"### {scenario.name}\n\n{about(scenario)}\n\n{figures_of(scenario, cells)}" for scenario in scenarios),
    ]
    return "\n\n".join(parts) + "\n"


def about(scenario: Scenario) -> str:
    return (
        f"{scenario.profile.name}; {describe(scenario.options)}, {scenario.rate_per_s:.3g} requests a second, "
        f"{scenario.options.requests} a run."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def winners(scenarios: Sequence[Scenario], cells: Cells) -> str:
    names = ("P50", "P90", "P99", "max", "mean", "slowdown")
    rows = [[scenario.name, *(winner(scenario.name, name, cells) for name in names)] for scenario in scenarios]
    return table(["", *names], rows)


def winner(scenario: str, name: str, cells: Cells) -> str:
    of_policies = {policy: cells[scenario, policy, ALL, name] for policy in policies_of(cells, scenario)}
    least = min(cell.value for cell in of_policies.values())
    first = [policy for policy, cell in of_policies.items() if cell.value <= 1.001 * least]
    if len(first) == len(of_policies):
        return "all alike"
    if BASE in first:
        return ", ".join(first)
    return f"{', '.join(first)}: {of_policies[first[0]].change.value:+.0f} %"


def better_and_worse(cells: Cells) -> str:
    names = ("P50", "P90", "P99", "max", "mean")
    rows = []
    for label in others(cells):
        changes = [[cell.change for cell in chosen(cells, label, ALL, name)] for name in names]
        told = [
            f"{sum(one.high < 0 for one in several)} better, {sum(one.low > 0 for one in several)} worse"
            for several in changes
        ]
        rows.append([label, f"{len(changes[0])}", *told])
    return table(["", "scenarios", *names], rows)


def others(cells: Cells) -> list[str]:
    """All rows that are compared with the base."""
    return list(dict.fromkeys(policy for _, policy, _, _ in cells if policy not in (BASE, BOUND)))


def chosen(cells: Cells, policy: str, group: str, name: str, kind: str = "") -> list[Cell]:
    """The cells of a policy, a group and a figure in all scenarios of a kind, or in all."""
    return [
        cell
        for (scenario, *rest), cell in cells.items()
        if rest == [policy, group, name] and scenario.startswith(kind)
    ]


def payers(scenarios: Sequence[Scenario], cells: Cells) -> str:
    kinds = list(dict.fromkeys(scenario.name.rpartition("-")[0] for scenario in scenarios))
    rows = [[label, *(payer(cells, label, f"{kind}-") for kind in kinds)] for label in others(cells)]
    return table(["", *kinds], rows)


def payer(cells: Cells, policy: str, kind: str) -> str:
    """Who pays most under a policy, and how much."""
    changes = {}
    for group in BUCKETS:
        of_group = [cell.change.value for cell in chosen(cells, policy, group, "P90", kind)]
        if of_group and len(of_group) == len(chosen(cells, policy, ALL, "P90", kind)):
            changes[group] = sum(of_group) / len(of_group)
    if not changes:
        return ""
    group = max(changes, key=lambda one: changes[one])
    return f"{group}: {changes[group]:+.0f} %" if changes[group] >= 0.5 else "nobody"


def figures_of(scenario: Scenario, cells: Cells) -> str:
    columns = [(name, ALL, name) for name in FIGURES]
    if (scenario.name, BASE, FILES, "P90") in cells:
        columns += [("clips P90", CLIPS, "P90"), ("files P90", FILES, "P90")]
    rows = [
        [label, *(value_of(cells.get((scenario.name, label, group, name))) for _, group, name in columns)]
        for label in (*policies_of(cells, scenario.name), BOUND)
    ]
    return table(["", *(title for title, _, _ in columns)], rows)


def value_of(cell: Cell | None) -> str:
    return "" if cell is None else number(cell.value)


# Figures


def draw(scenario: Scenario, cells: Cells, folder: Path) -> None:
    """P50 against P90, both relative to fcfs: to the left for the median, down for the tail."""
    labels = policies_of(cells, scenario.name)
    palette = Palette(labels)
    looks = {label: (palette.colour(label), marker) for label, marker in zip(labels, cycle(MARKERS))}
    looks[BOUND] = (INK, "+")
    relative = {
        label: [relative_to_base(cells, scenario.name, label, name) for name in ("P50", "P90")] for label in looks
    }
    with panel(folder, scenario.name, f"{scenario.name}: E2E, {BASE} = 1") as (axes, _):
        axes.set_position((0.135, 0.165, 0.5, 0.735))  # the names go beside it
        for label, (colour, marker) in looks.items():
            axes.plot(*relative[label], marker, color=colour, label=label, alpha=0.8)
        for which, values in zip("xy", zip(*relative.values(), strict=True), strict=True):
            log_axis(axes, which, np.array(values))
        axes.set_xlabel("P50")
        axes.set_ylabel("P90")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)


def relative_to_base(cells: Cells, scenario: str, policy: str, name: str) -> float:
    return 1 + cells[scenario, policy, ALL, name].change.value / 100


def chosen_options() -> argparse.Namespace:
    known = [scenario.name for scenario in all_scenarios()]
    parser = argparse.ArgumentParser(description="All policies on many kinds of traffic; all of it by default.")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="only the first N seeds of each scenario, at least 2"
    )
    parser.add_argument("--scenarios", nargs="+", choices=known, default=known, metavar="NAME", help="only these")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    options = parser.parse_args()
    if options.seeds is not None and options.seeds < 2:
        parser.error("--seeds must be 2 or more: one run tells nothing of how far it is off")
    if options.out == OUT and (options.seeds is not None or options.scenarios != known):
        parser.error("a part of the runs is no result: name another folder with --out")
    return options


def main() -> None:
    options = chosen_options()
    scenarios = [scenario for scenario in all_scenarios() if scenario.name in options.scenarios]
    tasks = [
        (scenario, seed)
        for scenario in scenarios
        for seed in range(1, min(options.seeds or scenario.num_seeds, scenario.num_seeds) + 1)
    ]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        several = list(track(pool.map(measure, tasks), description="simulating", total=len(tasks)))
    lines = [line for one in several for line in one]
    cells = cells_of(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "runs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    write_cells(cells, options.out / "cells.csv")
    text = page(scenarios, cells)
    (options.out / "tables.md").write_text(text)
    for scenario in scenarios:
        if scenario.name in DRAWN:
            draw(scenario, cells, options.out)
    Console(width=180).print(text, markup=False, highlight=False)


if __name__ == "__main__":
    main()
