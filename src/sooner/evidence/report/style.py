"""How figures look and how they are saved: the same bytes each time, readable in light and dark.

A figure is a small panel, so that on a phone its text keeps its size; the page sets panels side by side. Text
stays text, colours become the page's variables in the inline copy, and a plain SVG and a PNG go to disk.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sooner.evidence.comparison import Values
from sooner.evidence.report.words import number

__all__ = ["COLOURS", "GRID", "INK", "MUTED", "Palette", "Panel", "file_name", "log_axis", "panel"]

INK, MUTED, GRID, PAPER = "#1c2530", "#5d6875", "#e3e7ec", "#fefefe"
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"}

# Okabe and Ito's colours, which the colour-blind tell apart, a little darker for text.
_KNOWN_COLOURS = {"fcfs": "#6f7b8a", "sjf": "#c96f00", "hrrn": "#0a6fb0"}
_COLOURS = ("#00876a", "#b5579a", "#a6432a", "#3d9cd2", "#8a7a00", "#5b53b8")
COLOURS = (*_KNOWN_COLOURS.values(), *_COLOURS)
_DASHES = ("-", (0, (5, 1.6)), (0, (2, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
Dash = str | tuple[int, tuple[float, ...]]

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.facecolor": PAPER,
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": PAPER,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "sooner",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GRID,
    "xtick.labelcolor": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.color": GRID,
    "ytick.labelcolor": MUTED,
    "ytick.labelsize": 8.5,
}
_SIZE_IN = (4.9, 3.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A figure as the page shows it.

    Attributes:
        name: its files' name, without suffix.
        svg: the figure, inline.
    """

    name: str
    svg: Markup


class Palette:
    """One colour and one dash per policy, the same in all figures.

    Args:
        policies: all policies of the report.
    """

    def __init__(self, policies: Sequence[str]) -> None:
        others = [policy for policy in policies if policy not in _KNOWN_COLOURS]
        self._colours = _KNOWN_COLOURS | {
            policy: _COLOURS[index % len(_COLOURS)] for index, policy in enumerate(others)
        }
        self._numbers = {policy: index for index, policy in enumerate(policies)}

    def colour(self, policy: str) -> str:
        """Its colour, ``#rrggbb``."""
        return self._colours[policy]

    def dash(self, policy: str) -> Dash:
        """Its dash, for those who see no colour and for more policies than colours."""
        return _DASHES[self._numbers[policy] % len(_DASHES)]


def file_name(text: str) -> str:
    """Text as a safe part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")[:40] or "unnamed"


@contextmanager
def panel(folder: Path, name: str, title: str) -> Iterator[tuple[Axes, list[Panel]]]:
    """An empty panel to draw in; saved as PNG and SVG at the end, and put into the list."""
    made: list[Panel] = []
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # A policy may be called anything; the page shows it in whatever font the reader has.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        figure = Figure(figsize=_SIZE_IN)
        axes = figure.add_axes((0.135, 0.165, 0.835, 0.735))
        axes.set_title(title)
        axes.tick_params(length=0, which="both")
        yield axes, made
        figure.savefig(folder / f"{name}.png", dpi=160, metadata={"Software": None})
        text = StringIO()
        figure.savefig(text, format="svg", dpi=160, metadata={"Date": None, "Creator": None})
    (folder / f"{name}.svg").write_text(text.getvalue(), encoding="utf-8")
    made.append(Panel(name=name, svg=_inline(text.getvalue(), title)))


def _inline(svg: str, title: str) -> Markup:
    """The SVG as part of a page: no prolog, no size of its own, no ids but those that are referred to."""
    begin = svg.index("<svg")
    head_end = svg.index(">", begin)
    box = re.search(r'viewBox="[^"]*"', svg[begin:head_end])
    assert box is not None, "matplotlib always writes one"
    body = re.sub(r"<metadata>.*?</metadata>", "", svg[head_end + 1 :], flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    variables = _VARIABLES | {colour: f"c{colour[1:]}" for colour in COLOURS}
    for colour, variable in variables.items():
        body = re.sub(rf"(fill|stroke): {colour}", rf"\1: var(--{variable})", body)
    body = body.replace("font: 9px 'DejaVu Sans'", "font: 9px var(--sans)").replace("'DejaVu Sans'", "var(--sans)")
    label = escape(title)
    # matplotlib has escaped all text in it; the title is the only thing that is added.
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} '
        f'role="img" aria-label="{label}">{body}'
    )


def log_axis(axes: Axes, which: str, values: Values) -> None:
    """Make an axis logarithmic, with plain numbers on it, around ``values``, which are above 0."""
    low, high = float(values.min()), float(values.max())
    getattr(axes, f"set_{which}scale")("log")
    getattr(axes, f"set_{which}lim")(low / 1.15, max(high, low * 1.5) * 1.15)
    axis = axes.xaxis if which == "x" else axes.yaxis
    decades = np.log10(max(high / low, 1.5))
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2.2 else (1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axis.set_minor_formatter(NullFormatter())


def _tick(value: float) -> str:
    return number(value) if value < 0.1 else f"{value:,.10g}"
