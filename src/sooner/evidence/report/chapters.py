"""What a section of the report shows, chapter by chapter; a chapter for which nothing is known is left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sooner.evidence.comparison import Values
from sooner.evidence.report import figures, tables, words
from sooner.evidence.report.figures import Sheet
from sooner.evidence.report.paired import Comparison
from sooner.evidence.report.sections import Cell, Offered, Section
from sooner.evidence.report.style import Panel, file_name
from sooner.evidence.report.tables import Table
from sooner.evidence.run_file import Run
from sooner.evidence.summary import Columns, Goals, depth_of, goodput_of, joined

__all__ = ["Chapter", "Work", "chapters_of"]

_MAX_LOADS = 4
_PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A part of the page.

    Attributes:
        id: of its heading, unique within the section.
        title: its heading.
        how: how it is read, in a sentence or two.
        words: what is to be said in sentences.
        panels: figures.
        tables: tables.
    """

    id: str
    title: str
    how: str
    words: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What the chapters of one section are made from.

    Attributes:
        sheet: where figures go.
        section: the runs.
        comparisons: of all policies with the baseline, by load.
        options: limits for goodput.
    """

    sheet: Sheet
    section: Section
    comparisons: tuple[Comparison, ...]
    goals: Goals

    @property
    def loads(self) -> list[Offered]:
        """The loads that figures show: four at most, spread evenly; tables have all."""
        offered = [one for one in self.section.offered if self.served(one)]
        if len(offered) <= _MAX_LOADS:
            return offered
        return [offered[index] for index in np.linspace(0, len(offered) - 1, _MAX_LOADS).round().astype(int)]

    def served(self, offered: Offered) -> list[Cell]:
        """The policies at this load under which anything was served."""
        return [cell for cell in self.section.at(offered) if len(cell.served)]

    def compared(self, offered: Offered) -> list[Comparison]:
        """The comparisons at this load that have pairs."""
        return [one for one in self.comparisons if one.offered == offered and one.runs]


def chapters_of(work: Work) -> Iterator[Chapter]:
    """The chapters of a section, in order; their figures are drawn as they come."""
    made = (
        _who_pays(work),
        _latency(work),
        _over_load(work),
        _by_length(work),
        _slowdown(work),
        _waiting(work),
        _queue(work),
        _prediction(work),
        _goodput(work),
        _failures(work),
        _worst(work),
        _what_was_run(work),
    )
    return (chapter for chapter in made if chapter is not None)


def _what_was_run(work: Work) -> Chapter:
    cells = [cell.served for cell in work.section.cells if len(cell.served)]
    return Chapter(
        id="runs",
        title="What was run",
        how="Lengths of the recordings that were served; below, the runs as their files describe them.",
        panels=(figures.lengths(work.sheet, joined(cells).audio_s),) if cells else (),
        tables=(tables.run_table(work.sheet.prefix, work.section),),
    )


def _who_pays(work: Work) -> Chapter | None:
    if not any(one.runs for one in work.comparisons):
        return None
    panels = [
        figures.who_pays(work.sheet, compared, by=by)
        for by in ("length", "size")
        for offered in work.loads
        if (compared := work.compared(offered))
    ]
    return Chapter(
        id="who-pays",
        title="Who gains, and who pays",
        how=(
            "Each dot is what becomes of the mean E2E time of a group, the same requests under both policies; "
            "below “same” it gains, above it pays. The bar is the 95 % interval: where it touches “same”, nothing "
            "is shown. A group of fewer than 20 requests has no dot. One interval in twenty misses by chance."
        ),
        panels=tuple(panels),
        tables=(tables.changes_table(work.sheet.prefix, work.comparisons),),
    )


def _latency(work: Work) -> Chapter | None:
    panels = [
        figures.cdf(work.sheet, name, f"{title}, {offered.label}", "seconds", curves)
        for title, attribute in (("E2E", "e2e_s"), ("First text", "ttft_s"))
        for offered in work.loads
        if (curves := _curves(work.served(offered), attribute))
        and (name := f"cdf-{file_name(title)}-{offered.slug}")
    ]
    if not panels:
        return None
    return Chapter(
        id="latency",
        title="How long it takes",
        how=(
            "The height of a curve is the share of requests that are done within so many seconds: further left is "
            "faster. E2E is arrival to last byte, first text is arrival to the first words."
        ),
        panels=tuple(panels),
        tables=(tables.latency_table(work.sheet.prefix, work.section),),
    )


def _curves(cells: Sequence[Cell], attribute: str) -> list[tuple[str, Values]]:
    columns = [(cell.policy, getattr(cell.served, attribute)) for cell in cells]
    known = [(policy, values[~np.isnan(values)]) for policy, values in columns]
    return [(policy, values) for policy, values in known if len(values)]


def _over_load(work: Work) -> Chapter | None:
    offered = [one for one in work.section.offered if work.served(one)]
    if len(offered) < 2 or len({one.kind for one in offered}) > 1:
        return None
    return Chapter(
        id="over-load",
        title="As the load grows",
        how=(
            "Each percentile of the E2E time over the load. A policy that buys its median with the longest "
            "recordings shows it at P99."
        ),
        panels=tuple(figures.trend(work.sheet, work.section, percent) for percent in _PERCENTILES),
    )


def _by_length(work: Work) -> Chapter | None:
    table = tables.length_table(work.sheet.prefix, work.section)
    if not table.rows:
        return None
    return Chapter(
        id="by-length",
        title="By length of recording",
        how="E2E times of recordings of like length; slowdown is how many times longer than alone.",
        tables=(table,),
    )


def _slowdown(work: Work) -> Chapter | None:
    panels = [
        figures.cdf(
            work.sheet,
            f"cdf-slowdown-{offered.slug}",
            f"Slowdown, {offered.label}",
            "times longer than alone",
            curves,
        )
        for offered in work.loads
        if (curves := _curves(work.served(offered), "slowdown"))
    ]
    if not panels:
        return None
    return Chapter(
        id="slowdown",
        title="How unfair it feels",
        how=(
            "Slowdown is the E2E time over the predicted time alone: two seconds are nothing for a meeting and "
            "much for a command. Further left is better."
        ),
        panels=tuple(panels),
    )


def _waiting(work: Work) -> Chapter | None:
    panels = [
        figures.wait_by_service(work.sheet, work.served(offered))
        for offered in work.loads
        if any(_has_waits(cell.served) for cell in work.served(offered))
    ]
    if not panels:
        return None
    return Chapter(
        id="waiting",
        title="Who waits",
        how=(
            "Time in which nothing worked on a request over the time in which something did, a dot each; the line "
            "is the median of requests of like service. Waits below 0.01 s lie at the bottom."
        ),
        panels=tuple(panels),
    )


def _has_waits(served: Columns) -> bool:
    return bool((~np.isnan(served.wait_s + served.service_s)).any())


def _queue(work: Work) -> Chapter | None:
    if not work.loads:
        return None
    offered = work.loads[-1]
    cells = work.served(offered)
    runs = zip(cells, _runs_alike(cells), strict=True)
    depths = [(cell.policy, depth) for cell, run in runs if (depth := depth_of(run)) is not None]
    panels = [
        figures.depth(
            work.sheet, f"depth-{number}-{file_name(policy)}", f"{policy}, {offered.label}", policy, depths
        )
        for number, (policy, _) in enumerate(depths, start=1)
    ]
    return Chapter(
        id="queue",
        title="How many are there",
        how=(
            "Requests that have arrived and are not done, over one run of each policy at the highest load, of the "
            "same seed where all have one; the thin lines are the other policies."
        ),
        panels=tuple(panels),
        tables=(tables.depth_table(work.sheet.prefix, depths),),
    )


def _runs_alike(cells: Sequence[Cell]) -> list[Run]:
    """A run of each policy: of a seed that all have, or else the first."""
    by_seed = [{run.header.seed: run for run in reversed(cell.runs)} for cell in cells]
    common = [seed for seed in by_seed[0] if seed is not None and all(seed in runs for runs in by_seed)]
    return [runs[min(common)] for runs in by_seed] if common else [cell.runs[0] for cell in cells]


def _prediction(work: Work) -> Chapter | None:
    table = tables.residual_table(work.sheet.prefix, work.section)
    if not table.rows:
        return None
    return Chapter(
        id="prediction",
        title="How good the prediction is",
        how=(
            "The service that a request took, over the predicted time in its record; a server's own log has the "
            "one that its policy went by. Only the order matters to a policy, so a rank correlation of 1 is as "
            "good as being right. The table has actual over predicted: 1 is exact."
        ),
        panels=(figures.predicted(work.sheet, joined([cell.served for cell in work.section.cells])),),
        tables=(table,),
    )


def _goodput(work: Work) -> Chapter | None:
    short, longer = work.goals.short_s, work.goals.other_s
    table = tables.goodput_table(work.sheet.prefix, work.section, work.goals)
    if not table.rows:
        return None
    limits = [
        f"{words.number(limit)} s for {whose}"
        for limit, whose in ((short, "recordings up to 30 s"), (longer, "all others" if short else "all"))
        if limit is not None
    ]
    sentences = [
        words.goodput_sentence(cell.policy, goodput)
        for cell in work.section.at(work.section.offered[-1])
        if (goodput := goodput_of(cell.runs, cell.served, work.goals))
    ]
    return Chapter(
        id="goodput",
        title="What is in time",
        how=f"In time is an E2E time of at most {words.list_words(limits)}; a request without a text is not.",
        words=(f"At {work.section.offered[-1].label}: {' '.join(sentences)}",) if sentences else (),
        tables=(table,),
    )


def _failures(work: Work) -> Chapter | None:
    table = tables.failure_table(work.sheet.prefix, work.section)
    if not table.rows:
        return None
    return Chapter(
        id="failures",
        title="What failed",
        how="Requests that got no text, by kind. No figure above but the queue's counts them.",
        tables=(table,),
    )


def _worst(work: Work) -> Chapter | None:
    table = tables.worst_table(work.sheet.prefix, work.section, work.comparisons)
    if not table.rows:
        return None
    if any(one.runs for one in work.comparisons):
        how = "The ten requests that lose most seconds against the same request under the baseline."
    else:
        how = "The ten requests with the greatest slowdown."
    return Chapter(id="worst", title="Who is hit worst", how=how, tables=(table,))
