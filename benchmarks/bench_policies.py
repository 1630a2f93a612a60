"""Every registered policy on many kinds of traffic: who wins, who pays, and what no order could beat.

- ``paper``, ``uniform``: the engine and the traffic of ``bench_paper.py``, LibriSpeech test-clean and the uniform
  split, 500 requests and 24 seeds; ``seconds``: the same engine where sizes are seconds of its time, not tokens.
- ``tokens``: an engine that batches and whose steps are long for what runs, not for what joins: many slots and
  admissions, so that there is little to order until all slots are taken.
- ``mixed``: two workers (``embedded-tiny``), clips and 3 % files of up to 30 minutes, 1,000 requests and 12 seeds,
  at 0.3 to 1.4 times what the workers can serve; ``bursty``: gamma arrivals (cv 4); ``drift``: a rate that triples
  over the run.
- ``clips``: the same workers without files.
- ``wrong``: the traffic of ``mixed`` at 0.85 and of ``paper`` at 25, with sizes wrong by a factor of 1/4 to 4
  (log-uniform, each job its own); and with files taken for a quarter of their size.
- ``flood``: 20 clients send ``mixed`` at 0.4; one more knows that short clips go first and sends 5 s clips at 0.9.
- ``split``: 20 clients send ``mixed`` at 0.8; one more sends a file of ten minutes every five, whole or cut into
  twenty clips. ``known``: the scheduler is told whose requests they are, ``unknown``: it is not.

``srpt`` is left out: under its default it is ``sjf``'s order. ``guard`` stands for ``scaled:5,120``, so that
"adaptive, guard" is what ``sooner serve`` does by default.

The same recordings and arrivals under every policy. A figure is the mean over the seeds of what one run gives; a
change is the mean over the seeds of the change against fcfs on the same traffic, with its 95 % interval over seeds
(Student's t). The last row of each table is what no order could beat, even one that knows what will come
(``sooner.simulator.bounds``), for each figure by itself.

Written to ``policies/``: ``runs.jsonl`` (the figures of every run), ``cells.csv`` (means and changes),
``tables.md`` and figures. The same bytes at each run. Traffic, tables and figures are in the ``policies_*.py``
beside this file.

    python benchmarks/bench_policies.py
    python benchmarks/bench_policies.py --seeds 2 --scenarios paper-25 --out /tmp/policies
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import track

from policies_cells import ALL, BOUND, CLIPS, FILES, TRICK, Line, cells_of, write_cells, write_lines
from policies_figures import draw_mixed, draw_paper
from policies_page import page
from policies_traffic import SPLIT_CLIP_S, TRICKSTER, Scenario, all_scenarios, is_clip, is_file
from sooner import LatencyRecord, policies, summarise
from sooner.core.guard import Guard
from sooner.core.latency import by_duration_bucket
from sooner.simulator.bounds import lower_bounds
from sooner.simulator.profile import WorkersProfile
from sooner.simulator.simulate import simulate
from sooner.workload.trace import TraceRequest

OUT = Path(__file__).parent / "policies"
GUARD = "scaled:5,120"
OTHER_GUARDS = ("scaled:1,5", "fixed:120")
GUARDED = "mixed-0.85"  # the scenario in which guards are compared
SAME_AS_SJF = "srpt"
DIALS = ("fair:3", "fair:30")
WITHOUT_PREEMPTION = ("sjf", "hrrn")


# The runs


@dataclass(frozen=True)
class Row:
    """A policy, as it is by default, run to completion, or guarded."""

    policy: str
    preempt: bool | None = None
    guard: str | None = None

    @property
    def label(self) -> str:
        if self.guard is not None:
            return f"{self.policy}, {'guard' if self.guard == GUARD else self.guard}"
        return self.policy if self.preempt is None else f"{self.policy}, no preemption"


def rows_of(scenario: Scenario) -> Iterator[Row]:
    names = [policy.name for policy in policies() if policy.name != SAME_AS_SJF]
    dialled = names.index("fair") + 1
    names[dialled:dialled] = DIALS
    yield from map(Row, names)
    guarded = names if scenario.trick == "flood" else ["adaptive"]
    yield from (Row(name, guard=GUARD) for name in guarded)
    if scenario.name == GUARDED:
        yield from (Row(name, guard=guard) for name in WITHOUT_PREEMPTION for guard in (GUARD, *OTHER_GUARDS))
    if scenario.is_usual and isinstance(scenario.profile, WorkersProfile):
        yield from (Row(name, preempt=False) for name in WITHOUT_PREEMPTION)


def measure(task: tuple[Scenario, int]) -> list[Line]:
    """All policies and, on usual traffic, the bound, for one seed."""
    scenario, seed = task
    trace = scenario.trace(seed)
    lines = []
    for row in rows_of(scenario):
        run = simulate(
            scenario.profile,
            scenario.told(trace),
            policy=row.policy,
            preempt=row.preempt,
            guard=None if row.guard is None else Guard.parse(row.guard),
            size_factors=scenario.size_factors(trace, seed),
            seed=seed,
        )
        assert len(run.records) == len(trace)
        groups = groups_of(trace, run.records)
        figures = {group: asdict(summarise(records)) for group, records in groups.items()}
        lines.append(line_of(scenario, row.label, seed, figures))
    if scenario.is_usual:
        lines.append(line_of(scenario, BOUND, seed, bounds_of(scenario, trace, seed)))
    return lines


def groups_of(
    trace: Sequence[TraceRequest], records: Sequence[LatencyRecord]
) -> dict[str, Sequence[LatencyRecord]]:
    """The records by kind and length; those of a trickster by themselves, whose files end with their last clip."""
    tricked = [record for one, record in zip(trace, records, strict=True) if one.client == TRICKSTER]
    honest = [record for one, record in zip(trace, records, strict=True) if one.client != TRICKSTER]
    groups: dict[str, Sequence[LatencyRecord]] = {ALL: honest}
    if any(map(is_file, honest)):
        groups |= {CLIPS: list(filter(is_clip, honest)), FILES: list(filter(is_file, honest))}
    if tricked:
        last = {one.arrival_s: one for one in sorted(tricked, key=lambda one: one.finished_s)}
        groups[TRICK] = list(last.values()) if tricked[0].audio_s == SPLIT_CLIP_S else tricked
    return groups | by_duration_bucket(honest)


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


def line_of(scenario: Scenario, label: str, seed: int, figures: dict[str, dict[str, float]]) -> Line:
    return {"scenario": scenario.name, "policy": label, "seed": seed, "figures": figures}


def chosen_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="All policies on many kinds of traffic; all of it by default.")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="only the first N seeds of each scenario, at least 2"
    )
    parser.add_argument("--scenarios", nargs="+", metavar="NAME", help="only these, such as paper-25")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the results")
    options = parser.parse_args()
    if options.seeds is not None and options.seeds < 2:
        parser.error("--seeds must be 2 or more: one run tells nothing of how far it is off")
    if options.out == OUT and (options.seeds is not None or options.scenarios is not None):
        parser.error("a part of the runs is no result: name another folder with --out")
    return options


def chosen_scenarios(names: Sequence[str] | None) -> list[Scenario]:
    scenarios = {scenario.name: scenario for scenario in all_scenarios()}
    if unknown := set(names or ()) - scenarios.keys():
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(scenarios)}")
    return [scenario for name, scenario in scenarios.items() if names is None or name in names]


def main() -> None:
    options = chosen_options()
    scenarios = chosen_scenarios(options.scenarios)
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
    write_lines(lines, options.out / "runs.jsonl")
    write_cells(cells, options.out / "cells.csv")
    text = page(scenarios, cells)
    (options.out / "tables.md").write_text(text, encoding="utf-8")
    draw_paper(cells, options.out)
    draw_mixed(cells, options.out)
    Console(width=180).print(text, markup=False, highlight=False)


if __name__ == "__main__":
    main()
