"""The figures: each function draws one panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from sooner.evidence.comparison import Values
from sooner.evidence.report.paired import TENTHS, Change, Comparison
from sooner.evidence.report.sections import Cell, Section
from sooner.evidence.report.style import GRID, INK, MUTED, Palette, Panel, log_axis, panel
from sooner.evidence.report.words import number
from sooner.evidence.summary import Columns, Depth, bucket_labels

__all__ = ["Sheet", "cdf", "depth", "lengths", "predicted", "trend", "wait_by_service", "who_pays"]

_LEAST = 1e-3  # below this nothing is told apart on a logarithmic axis
_QUANTILES = np.concatenate([np.linspace(0, 0.99, 200), np.linspace(0.991, 1, 10)])
_MAX_DOTS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """Where panels go and how they are coloured.

    Attributes:
        folder: receives PNG and SVG.
        prefix: begins each file's name.
        palette: colours of the policies.
    """

    folder: Path
    prefix: str
    palette: Palette


def lengths(sheet: Sheet, audio_s: Values) -> Panel:
    """Histogram of recording lengths."""
    values = np.maximum(audio_s, _LEAST)
    low, high = values.min(), max(values.max(), values.min() * 1.5)
    with panel(sheet.folder, f"{sheet.prefix}-lengths", "Lengths of the recordings") as (axes, made):
        log_axis(axes, "x", values)
        counts, edges = np.histogram(values, bins=np.geomspace(low / 1.001, high * 1.001, 41))
        axes.bar(edges[:-1], 100 * counts / len(values), np.diff(edges), align="edge", color=MUTED, alpha=0.75)
        axes.set_xlabel("seconds of audio")
        axes.set_ylabel("% of requests")
        axes.grid(visible=False, axis="x")
    return made[0]


def cdf(sheet: Sheet, name: str, title: str, label: str, curves: Sequence[tuple[str, Values]]) -> Panel:
    """Shares of requests below a value, one curve per policy.

    Args:
        sheet: where it goes.
        name: ends the file's name.
        title: above it.
        label: of the x axis.
        curves: policy and values, at least one each.
    """
    grids = [(policy, np.maximum(np.quantile(values, _QUANTILES), _LEAST)) for policy, values in curves]
    with panel(sheet.folder, f"{sheet.prefix}-{name}", title) as (axes, made):
        log_axis(axes, "x", np.concatenate([grid for _, grid in grids]))
        for policy, grid in grids:
            _line(axes, sheet, policy, grid, 100 * _QUANTILES)
        axes.set_ylim(0, 102)
        axes.set_xlabel(label)
        axes.set_ylabel("% of requests")
        axes.legend(loc="lower right", labelcolor="linecolor")
    return made[0]


def _line(axes: Axes, sheet: Sheet, policy: str, x: Values, y: Values) -> None:
    # A name that begins with an underscore would be left out of the legend.
    label = f"\N{ZERO WIDTH SPACE}{policy}" if policy.startswith("_") else policy
    axes.plot(x, y, color=sheet.palette.colour(policy), linestyle=sheet.palette.dash(policy), label=label)


def trend(sheet: Sheet, section: Section, percent: int) -> Panel:
    """One percentile of the E2E time over the load, one line per policy."""
    lines: list[tuple[str, Values, Values]] = []
    for policy in section.policies:
        cells = [
            cell for offered in section.offered if (cell := section.cell(policy, offered)) and len(cell.served)
        ]
        if cells:
            x = np.array([cell.offered.value for cell in cells])
            y = np.array([np.percentile(cell.served.e2e_s, percent) for cell in cells])
            lines.append((policy, x, np.maximum(y, _LEAST)))
    with panel(sheet.folder, f"{sheet.prefix}-p{percent}-by-load", f"P{percent} of E2E") as (axes, made):
        log_axis(axes, "y", np.concatenate([y for _, _, y in lines]))
        for policy, x, y in lines:
            _line(axes, sheet, policy, x, y)
            axes.plot(x, y, "o", color=sheet.palette.colour(policy), markersize=4)
        axes.xaxis.set_major_locator(FixedLocator([offered.value for offered in section.offered]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        left, right = section.offered[0].value, section.offered[-1].value
        axes.set_xlim(left - 0.05 * (right - left), right + 0.3 * (right - left))
        _label_ends(axes, sheet, lines)
        axes.set_xlabel("offered load ρ" if section.offered[0].kind == "load" else "requests a second")
        axes.set_ylabel("seconds")
    return made[0]


def _label_ends(axes: Axes, sheet: Sheet, lines: Sequence[tuple[str, Values, Values]]) -> None:
    """Each line's name at its right end, pushed apart where they would overlap."""
    low, high = (float(edge) for edge in np.log(axes.get_ylim()))
    gap = 0.065
    heights = np.array([(np.log(y[-1]) - low) / (high - low) for _, _, y in lines])
    order = np.argsort(heights, kind="stable")
    for place, index in enumerate(order[1:], start=1):
        heights[index] = max(heights[index], heights[order[place - 1]] + gap)
    for (policy, x, _), height in zip(lines, heights, strict=True):
        axes.annotate(
            policy[:16],
            (float(x[-1]), float(height)),
            xycoords=("data", "axes fraction"),
            xytext=(7, 0),
            textcoords="offset points",
            color=sheet.palette.colour(policy),
            va="center",
        )


_RATIOS_WIDE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 5, 10, 20, 50, 100)
_RATIOS_NARROW = (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2)


def who_pays(sheet: Sheet, comparisons: Sequence[Comparison], *, by: str) -> Panel:
    """Change of the mean E2E per group, with intervals; one colour per policy.

    Args:
        sheet: where it goes.
        comparisons: of one load, all against the same baseline.
        by: ``length`` or ``size``.
    """
    chosen = [(one.policy, one.by_length if by == "length" else one.by_size) for one in comparisons]
    first = comparisons[0]
    found = {change.whose for _, changes in chosen for change in changes}
    groups = [group for group in (bucket_labels() if by == "length" else TENTHS) if group in found]
    name = f"{sheet.prefix}-who-pays-by-{by}-{first.offered.slug}"
    with panel(sheet.folder, name, f"Mean against {first.baseline[:16]}, {first.offered.label}") as (axes, made):
        axes.axhline(1, color=INK, linewidth=1)
        ends = [1.0]
        for index, (policy, changes) in enumerate(chosen):
            offset = 0.16 * (index - (len(chosen) - 1) / 2)
            ends += _dots(axes, sheet, policy, [(groups.index(one.whose) + offset, one) for one in changes])
        _ratio_axis(axes, np.array(ends))
        labels = [group.removesuffix(" s").removeprefix("tenth ").replace("-", "–") for group in groups]
        axes.set_xticks(range(len(groups)), labels)
        axes.set_xlim(-0.6, len(groups) - 0.4)
        axes.grid(visible=False, axis="x")
        by_size = "tenth of requests, by predicted size (1: the smallest)"
        axes.set_xlabel("seconds of audio" if by == "length" else by_size)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(
                loc="lower right",
                bbox_to_anchor=(1.02, 0.97),
                ncols=4,
                labelcolor="linecolor",
                handlelength=0.8,
                columnspacing=1.0,
            )
    return made[0]


def _dots(axes: Axes, sheet: Sheet, policy: str, places: Sequence[tuple[float, Change]]) -> list[float]:
    told = [(x, one.interval) for x, one in places if one.interval is not None]
    if not told:
        return []
    x = np.array([place for place, _ in told])
    low, value, high = (
        np.array([max(1 + getattr(interval, end) / 100, _LEAST) for _, interval in told])
        for end in ("low", "value", "high")
    )
    axes.errorbar(
        x,
        value,
        # Percentile intervals may leave the estimate out; a bar has no negative length.
        yerr=[np.maximum(value - low, 0), np.maximum(high - value, 0)],
        fmt="o",
        color=sheet.palette.colour(policy),
        markersize=5,
        elinewidth=1.6,
        label=f"\N{ZERO WIDTH SPACE}{policy}",
    )
    return [*low, *value, *high]


def _ratio_axis(axes: Axes, ratios: Values) -> None:
    low, high = float(ratios.min()), float(ratios.max())
    low, high = min(low / 1.15, 0.8), max(high * 1.15, 1.25)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(_RATIOS_NARROW if high / low < 4 else _RATIOS_WIDE))
    axes.yaxis.set_minor_locator(FixedLocator([]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: _ratio_words(ratio)))
    axes.axhspan(low, 1, color=GRID, alpha=0.35, linewidth=0)
    axes.set_ylabel("← shorter | longer →")


def _ratio_words(ratio: float) -> str:
    if abs(ratio - 1) < 1e-9:
        return "same"
    if 0.5 < ratio < 2:
        return f"{100 * (ratio - 1):+.0f} %".replace("-", "−")
    return f"×{ratio:g}" if ratio > 1 else f"÷{1 / ratio:g}"


def wait_by_service(sheet: Sheet, cells: Sequence[Cell]) -> Panel:
    """Waiting over service, a dot a request (a sample of them) and the median as a line."""
    known = [
        (cell.policy, cell.served.where(~np.isnan(cell.served.wait_s + cell.served.service_s))) for cell in cells
    ]
    known = [(policy, served) for policy, served in known if len(served)]
    offered = cells[0].offered
    name = f"{sheet.prefix}-wait-by-service-{offered.slug}"
    with panel(sheet.folder, name, f"Waiting over service, {offered.label}") as (axes, made):
        everything = [(policy, *_floored(served)) for policy, served in known]
        log_axis(axes, "x", np.concatenate([x for _, x, _ in everything]))
        log_axis(axes, "y", np.concatenate([y for _, _, y in everything]))
        for policy, x, y in everything:
            some = _sample(len(x))
            axes.scatter(
                x[some],
                y[some],
                s=5,
                color=sheet.palette.colour(policy),
                alpha=0.25,
                linewidths=0,
                rasterized=True,
            )
        for policy, x, y in everything:
            _line(axes, sheet, policy, *_medians(x, y))
        axes.set_xlabel("seconds of service")
        axes.set_ylabel("seconds of waiting")
        axes.legend(loc="lower right", labelcolor="linecolor")
    return made[0]


def _floored(served: Columns) -> tuple[Values, Values]:
    """Service and wait, at least a hundredth of a second each: a wait of 0 has its place at the bottom."""
    return np.maximum(served.service_s, 0.01), np.maximum(served.wait_s, 0.01)


def _sample(num: int) -> NDArray[np.intp]:
    """Indices of a fixed sample, the same each time."""
    if num <= _MAX_DOTS:
        return np.arange(num)
    return np.sort(np.random.default_rng(0).choice(num, _MAX_DOTS, replace=False))


def _medians(x: Values, y: Values) -> tuple[Values, Values]:
    """Medians of bins of equal width on the logarithmic axis, those with ten requests at least, else of all."""
    edges = np.geomspace(x.min(), x.max() * 1.001, 11)
    bins = np.searchsorted(edges, x, side="right")
    parts = [bins == one for one in np.unique(bins) if (bins == one).sum() >= 10] or [bins > 0]
    return np.array([np.median(x[part]) for part in parts]), np.array([np.median(y[part]) for part in parts])


def depth(sheet: Sheet, name: str, title: str, policy: str, depths: Sequence[tuple[str, Depth]]) -> Panel:
    """Requests in the system over time: one policy in colour, the others thin behind it, on one scale."""
    with panel(sheet.folder, f"{sheet.prefix}-{name}", title) as (axes, made):
        for other, one in depths:
            colour = sheet.palette.colour(other)
            if other == policy:
                axes.fill_between(one.at_s, one.num_most, color=colour, alpha=0.22, linewidth=0, step="post")
                axes.plot(one.at_s, one.num_most, color=colour, linewidth=1.3, drawstyle="steps-post")
            else:
                axes.plot(one.at_s, one.num_most, color=colour, linewidth=0.6, alpha=0.35, drawstyle="steps-post")
        axes.set_xlim(0, max(one.at_s[-1] for _, one in depths))
        axes.set_ylim(0, 1.05 * max(1.0, *(float(one.num_most.max()) for _, one in depths)))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_xlabel("seconds since the first arrival")
        axes.set_ylabel("requests in the system")
    return made[0]


def predicted(sheet: Sheet, served: Columns) -> Panel:
    """Actual service over predicted size, a dot a request (a sample of them)."""
    known = served.where(served.service_s > 0)
    some = _sample(len(known))
    x, y = (np.maximum(values[some], _LEAST) for values in (known.size_s, known.service_s))
    with panel(sheet.folder, f"{sheet.prefix}-predicted", "Service over predicted time") as (axes, made):
        log_axis(axes, "x", x)
        log_axis(axes, "y", y)
        ends = np.array([min(x.min(), y.min()), max(x.max(), y.max())])
        axes.plot(ends, ends, color=INK, linewidth=1)
        axes.annotate(
            "as predicted", (ends[1], ends[1]), (-8, 0), textcoords="offset points", ha="right", va="top"
        )
        axes.scatter(x, y, s=7, color=sheet.palette.colour("hrrn"), alpha=0.3, linewidths=0, rasterized=True)
        ratio = float(np.median(known.service_s / known.size_s))
        axes.text(0.03, 0.95, f"median: {number(ratio)} × predicted", transform=axes.transAxes, va="top")
        axes.set_xlabel("predicted seconds of service")
        axes.set_ylabel("actual seconds of service")
    return made[0]
