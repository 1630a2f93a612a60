"""The pictures of ``bench_policies.py``: three loads side by side, a mark for each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from policies_cells import ALL, BASE, BOUND, CLIPS, FILES, Cells, policies_of
from sooner.evidence.report.style import GRID, INK, MUTED, Palette, log_axis

PAPER_DRAWN = ("paper-17", "paper-20", "paper-25")
MIXED_DRAWN = ("mixed-0.5", "mixed-0.85", "mixed-1.2")
SIZE_IN = (11.0, 4.2)
MARKERS = {"fair:3": "<", "fair:30": ">", "adaptive": "D", "sjf": "s", "quantile": "o", "hrrn": "^", "boost": "P"}
RINGS = ("adaptive", "adaptive, guard")  # around what they choose, which lies at the same place
STYLE: Any = {"font.family": "DejaVu Sans", "font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "sooner"}
Point = tuple[float, float]


def draw_paper(cells: Cells, folder: Path) -> None:
    """P50 against P90, both relative to fcfs: to the left for the median, down for the tail."""
    panels = {
        scenario: {
            label: (relative(cells, scenario, label, "P50"), relative(cells, scenario, label, "P90"))
            for label in (*policies_of(cells, scenario), BOUND)
        }
        for scenario in PAPER_DRAWN
        if (scenario, BASE, ALL, "P50") in cells
    }
    three_panels(panels, ("P50, fcfs = 1", "P90, fcfs = 1"), folder / "paper")


def draw_mixed(cells: Cells, folder: Path) -> None:
    """The clips' P90 against the files'."""
    panels = {
        scenario: {
            label: (cells[scenario, label, CLIPS, "P90"].value, cells[scenario, label, FILES, "P90"].value)
            for label in (*policies_of(cells, scenario), BOUND)
        }
        for scenario in MIXED_DRAWN
        if (scenario, BASE, CLIPS, "P90") in cells
    }
    three_panels(panels, ("P90 of clips, seconds", "P90 of files, seconds"), folder / "mixed")


def relative(cells: Cells, scenario: str, policy: str, name: str) -> float:
    return 1 + cells[scenario, policy, ALL, name].change.value / 100


def three_panels(panels: Mapping[str, Mapping[str, Point]], names: tuple[str, str], path: Path) -> None:
    if not panels:
        return
    labels = list(next(iter(panels.values())))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE_IN, layout="constrained")
        for axes, (title, points) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            draw_points(axes, points)
            axes.set_title(title, loc="left", fontsize=10, color=INK)
            axes.set_xlabel(names[0], color=MUTED)
            axes.set_ylabel(names[1], color=MUTED)
        handles, _ = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
        figure.savefig(path.with_suffix(".png"), dpi=130, metadata={"Software": None})
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})


def draw_points(axes: Axes, points: Mapping[str, Point]) -> None:
    looks = looks_of(list(points))
    for label, (x, y) in points.items():
        axes.plot([x], [y], linestyle="none", label=label, **looks[label])
    for which, values in zip("xy", zip(*points.values(), strict=True), strict=True):
        log_axis(axes, which, np.array(values))
        if max(values) < 4 * min(values):  # too narrow for the ticks of a logarithm
            axis = axes.xaxis if which == "x" else axes.yaxis
            axis.set_major_locator(MaxNLocator(5))
    axes.grid(visible=True, color=GRID)
    axes.tick_params(length=0, which="both", labelcolor=MUTED)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def looks_of(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour for each policy, a mark for each row; those without preemption are hollow."""
    family = {label: label.split(",")[0].split(":")[0] for label in labels}
    palette = Palette(list(dict.fromkeys(family[label] for label in labels if label != BOUND)))
    looks: dict[str, dict[str, Any]] = {BOUND: {"marker": "+", "color": INK, "markersize": 10}}
    for label in labels:
        if label == BOUND:
            continue
        is_hollow = label in RINGS or "no preemption" in label
        looks[label] = {
            "marker": MARKERS.get(label, MARKERS.get(family[label], "o")),
            "color": palette.colour(family[label]),
            "markerfacecolor": "none" if is_hollow else palette.colour(family[label]),
            "markersize": {RINGS[0]: 11, RINGS[1]: 15, BASE: 9}.get(label, 6),
            "alpha": 0.85,
        }
    return looks
