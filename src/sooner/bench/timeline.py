"""The picture of who waited and who ran."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sooner.bench.demo import DemoRun

__all__ = ["save_timeline"]

_WAITS = "#d8d8d8"
_CLIP = "#d1495b"
_LONG = "#30638e"


def save_timeline(path: Path, runs: Sequence[DemoRun]) -> None:
    """Save one panel per run, one row per request: grey while it waits, coloured while a worker has it."""
    figure, panels = plt.subplots(
        len(runs), 1, sharex=True, figsize=(10, 1 + 2.6 * len(runs)), layout="constrained", squeeze=False
    )
    for axes, run in zip(panels[:, 0], runs, strict=True):
        _draw(axes, run)
    panels[-1, 0].set_xlabel("seconds since the long files were sent")
    legend = [
        Patch(color=_WAITS, label="waits"),
        Patch(color=_LONG, label="long file runs"),
        Patch(color=_CLIP, label="clip runs"),
    ]
    figure.legend(handles=legend, loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw(axes: Axes, run: DemoRun) -> None:
    answers = run.answers
    begin_s = min(answer.sent_s for answer in answers)
    row_of = {answer.request_id: row for row, answer in enumerate(answers)}
    for row, answer in enumerate(answers):
        axes.barh(row, answer.e2e_s, left=answer.sent_s - begin_s, height=0.7, color=_WAITS)
    for window in run.windows:
        row = row_of[window.job_id]
        colour = _LONG if row < len(run.long_answers) else _CLIP
        axes.barh(
            row, window.ended_s - window.started_s, left=window.started_s - begin_s, height=0.7, color=colour
        )
    axes.set_title(run.policy, loc="left")
    axes.set_yticks([0, len(run.long_answers)], ["long files", "clips"])
    axes.invert_yaxis()
