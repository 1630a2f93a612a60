"""From the runs of ``bench_policies.py`` to cells: a policy's figures on a traffic, and their change."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench_paper import mean_interval
from sooner.evidence.comparison import Interval, Values

BASE = "fcfs"
DEFAULT = "adaptive, guard"
BOUND = "no order is below"

ALL, CLIPS, FILES, TRICK = "all", "clips", "files", "the trickster"
FIGURES = {
    "P50": "p50_s",
    "P90": "p90_s",
    "P95": "p95_s",
    "P99": "p99_s",
    "max": "max_s",
    "mean": "mean_s",
    "slowdown": "mean_slowdown",
}
PARTS = ("P50", "P90", "P99", "max")  # the figures of anything but all requests that go to disk
Line = dict[str, Any]


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


def policies_of(cells: Cells, scenario: str) -> list[str]:
    """The rows of a scenario, without the bound."""
    labels = dict.fromkeys(policy for name, policy, _, _ in cells if name == scenario)
    return [label for label in labels if label != BOUND]


# On disk, where the lengths' buckets are left out: they are many, and of use for one table alone


def is_kept(group: str, name: str) -> bool:
    return group == ALL or (group in (CLIPS, FILES, TRICK) and name in PARTS)


def write_lines(lines: Sequence[Line], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            kept = {
                group: {
                    name: four_digits(figures[key])
                    for name, key in FIGURES.items()
                    if key in figures and is_kept(group, name)
                }
                for group, figures in line["figures"].items()
            }
            figures = {group: values for group, values in kept.items() if values}
            file.write(json.dumps(line | {"figures": figures}, separators=(",", ":")) + "\n")


def four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def write_cells(cells: Cells, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ("scenario", "policy", "recordings", "figure", BASE, "value", "change_percent", "low", "high")
        )
        for key, cell in cells.items():
            change = cell.change
            if is_kept(key[2], key[3]):
                writer.writerow(
                    [*key, f"{cell.base:.4g}", f"{cell.value:.4g}"]
                    + [f"{value:.1f}" for value in (change.value, change.low, change.high)]
                )
