"""The tables: each function makes one, for the page and for a CSV file."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sooner.core.latency import LatencySummary
from sooner.evidence.report.paired import Comparison
from sooner.evidence.report.sections import Cell, Section, shown
from sooner.evidence.report.words import change_words, number
from sooner.evidence.summary import (
    Depth,
    Goals,
    bucket_labels,
    bucket_numbers,
    goodput_of,
    prediction_of,
    summary_of,
)

__all__ = [
    "Table",
    "changes_table",
    "depth_table",
    "failure_table",
    "goodput_table",
    "latency_table",
    "length_table",
    "residual_table",
    "run_table",
    "save_table",
    "value_words",
    "worst_table",
]

_NUM_WORST = 10
_FIGURES = ("n", "P50 s", "P90 s", "P95 s", "P99 s", "max s", "mean s", "mean slowdown", "max slowdown")
Value = str | float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table.

    Attributes:
        name: its file's name, without suffix.
        columns: headings.
        rows: values; ``None`` where there is none.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def save_table(table: Table, folder: Path) -> None:
    """Write it as CSV, numbers in full."""
    with (folder / f"{table.name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.columns)
        writer.writerows([_cell(value) for value in row] for row in table.rows)


def _cell(value: Value) -> Value:
    # A spreadsheet runs what begins like a formula, and names come from files.
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@") else value


def _figures(summary: LatencySummary) -> tuple[Value, ...]:
    return (
        summary.num_requests,
        summary.p50_s,
        summary.p90_s,
        summary.p95_s,
        summary.p99_s,
        summary.max_s,
        summary.mean_s,
        summary.mean_slowdown,
        summary.max_slowdown,
    )


def run_table(prefix: str, section: Section) -> Table:
    """The runs as their headers tell them."""
    rows = []
    for cell in section.cells:
        for run in cell.runs:
            header = run.header
            version = header.version if header.commit is None else f"{header.version} ({header.commit[:10]})"
            rows.append(
                (
                    cell.policy,
                    cell.offered.label,
                    header.rate_per_s,
                    None if header.seed is None else str(header.seed),
                    len(run.records),
                    len(run.failures),
                    None if header.preempt is None else ("yes" if header.preempt else "no"),
                    None if header.num_workers is None else str(header.num_workers),
                    shown(version),
                    None if header.started_at is None else shown(header.started_at),
                )
            )
    columns = (
        "policy",
        "load",
        "requests/s",
        "seed",
        "served",
        "failed",
        "preempts",
        "workers",
        "version",
        "started",
    )
    return Table(name=f"{prefix}-runs", columns=columns, rows=tuple(rows))


def latency_table(prefix: str, section: Section) -> Table:
    """E2E of all requests by load and policy."""
    rows = [
        (offered.label, cell.policy, *_figures(summary_of(cell.served)))
        for offered in section.offered
        for cell in section.at(offered)
        if len(cell.served)
    ]
    return Table(name=f"{prefix}-latency", columns=("load", "policy", *_FIGURES), rows=tuple(rows))


def length_table(prefix: str, section: Section) -> Table:
    """E2E by load, duration bucket and policy."""
    rows = []
    for offered in section.offered:
        cells = section.at(offered)
        buckets = [bucket_numbers(cell.served.audio_s) for cell in cells]
        for number_, label in enumerate(bucket_labels()):
            for cell, bucket in zip(cells, buckets, strict=True):
                served = cell.served.where(bucket == number_)
                if len(served):
                    rows.append((offered.label, label, cell.policy, *_figures(summary_of(served))))
    return Table(name=f"{prefix}-by-length", columns=("load", "length", "policy", *_FIGURES), rows=tuple(rows))


def changes_table(prefix: str, comparisons: Sequence[Comparison]) -> Table:
    """Every change against the baseline, with its interval."""
    rows = [
        (
            comparison.offered.label,
            comparison.policy,
            change.whose,
            change.figure,
            change.num_requests,
            change.base_s,
            change.other_s,
            change_words(change),
            *((None, None) if change.interval is None else (change.interval.low, change.interval.high)),
        )
        for comparison in comparisons
        for change in (*comparison.overall, *comparison.by_length, *comparison.by_size)
    ]
    columns = ("load", "policy", "whose", "figure", "n", "baseline s", "policy s", "change", "low %", "high %")
    return Table(name=f"{prefix}-changes", columns=columns, rows=tuple(rows))


def worst_table(prefix: str, section: Section, comparisons: Sequence[Comparison]) -> Table:
    """Who loses most seconds against the baseline; where nothing is paired, the greatest slowdowns."""
    paired = [one for one in comparisons if one.runs]
    rows = _worst_paired(paired) if paired else _worst_slowdowns(section.cells)
    columns = ("load", "policy", "request", "audio s", "E2E s", "slowdown", "E2E under the baseline s", "lost s")
    return Table(name=f"{prefix}-worst", columns=columns, rows=tuple(rows))


def _worst_paired(comparisons: Sequence[Comparison]) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for comparison in comparisons:
        for run in comparison.runs:
            lost_s = run.other.e2e_s - run.base.e2e_s
            for index in np.argsort(-lost_s, kind="stable")[:_NUM_WORST]:
                other = (run.other.audio_s, run.other.e2e_s, run.other.slowdown, run.base.e2e_s, lost_s)
                name = shown(str(run.other.ids[index]))
                rows.append(
                    (comparison.offered.label, comparison.policy, name, *(float(one[index]) for one in other))
                )
    rows.sort(key=lambda row: -float(row[-1] or 0))
    return rows[:_NUM_WORST]


def _worst_slowdowns(cells: Sequence[Cell]) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for cell in cells:
        served = cell.served
        for index in np.argsort(-served.slowdown, kind="stable")[:_NUM_WORST]:
            figures = (float(one[index]) for one in (served.audio_s, served.e2e_s, served.slowdown))
            rows.append((cell.offered.label, cell.policy, shown(str(served.ids[index])), *figures, None, None))
    rows.sort(key=lambda row: -float(row[5] or 0))
    return rows[:_NUM_WORST]


def depth_table(prefix: str, depths: Sequence[tuple[str, Depth]]) -> Table:
    """Queue depth in numbers."""
    rows = tuple((policy, one.mean, one.mean_waiting, int(one.num_most.max())) for policy, one in depths)
    return Table(name=f"{prefix}-depth", columns=("policy", "mean", "of these waiting", "most"), rows=rows)


def residual_table(prefix: str, section: Section) -> Table:
    """Actual service over predicted time."""
    rows = []
    for offered in section.offered:
        for cell in section.at(offered):
            if prediction := prediction_of(cell.served):
                figures = (prediction.num_requests, prediction.p10, prediction.p50, prediction.p90)
                rows.append((offered.label, cell.policy, *figures, prediction.rank_correlation))
    columns = ("load", "policy", "n", "P10", "P50", "P90", "rank correlation")
    return Table(name=f"{prefix}-residuals", columns=columns, rows=tuple(rows))


def failure_table(prefix: str, section: Section) -> Table:
    """Failures by load, policy and kind, the first message of each kind beside it."""
    rows = []
    for offered in section.offered:
        for cell in section.at(offered):
            failures = [failure for run in cell.runs for failure in run.failures]
            messages = {failure.error: failure.message for failure in reversed(failures)}
            for kind, num in Counter(failure.error for failure in failures).most_common():
                rows.append((offered.label, cell.policy, shown(kind), num, shown(messages[kind], at_most=200)))
    columns = ("load", "policy", "kind", "n", "the first message")
    return Table(name=f"{prefix}-failures", columns=columns, rows=tuple(rows))


def goodput_table(prefix: str, section: Section, goals: Goals) -> Table:
    """What was served in time."""
    rows = []
    for offered in section.offered:
        for cell in section.at(offered):
            goodput = goodput_of(cell.runs, cell.served, goals)
            if goodput is not None:
                rows.append((offered.label, cell.policy, 100 * goodput.share, goodput.per_s))
    columns = ("load", "policy", "% in time", "in time, requests/s")
    return Table(name=f"{prefix}-goodput", columns=columns, rows=tuple(rows))


def value_words(value: Value) -> str:
    """A value as the page shows it."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number(value)
