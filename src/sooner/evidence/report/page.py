"""One page from runs: ``report.html`` holds everything in itself.

``figures/`` and ``tables/`` beside it are for use elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from sooner import __version__
from sooner.errors import ConfigurationError
from sooner.evidence.options import ReportOptions
from sooner.evidence.report import words
from sooner.evidence.report.chapters import Chapter, Work, chapters_of
from sooner.evidence.report.figures import Sheet
from sooner.evidence.report.paired import Comparison, compare
from sooner.evidence.report.sections import Offered, Section, sections_of, shown
from sooner.evidence.report.style import COLOURS, Palette
from sooner.evidence.report.tables import save_table, value_words
from sooner.evidence.run_file import Run
from sooner.evidence.summary import Goals

__all__ = ["write_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What can be said in short about one load.

    Attributes:
        title: the load, in words.
        notes: what holds for all policies.
        policies: for each policy what it changes.
    """

    title: str
    notes: tuple[str, ...]
    policies: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A section as the template takes it."""

    id: str
    name: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    chapters: tuple[Chapter, ...]


def write_report(runs: Sequence[Run], options: ReportOptions) -> Path:
    """Write the page, its figures and its tables; return the page.

    What is in the folder is overwritten. The same runs and options give the same bytes.

    Raises:
        ConfigurationError: no run at all, or the folder cannot be written.
    """
    if not runs:
        raise ConfigurationError("a report needs a run at least")
    sections = sections_of(runs, baseline=options.baseline)
    policies = sorted({policy for section in sections for policy in section.policies})
    palette = Palette(policies)
    page = options.out / "report.html"
    try:
        for folder in ("figures", "tables"):
            (options.out / folder).mkdir(parents=True, exist_ok=True)
        parts = [_part(number, one, options, palette) for number, one in enumerate(sections, start=1)]
        text = _template().render(
            title=options.title or "Sooner: who waits, and who pays",
            parts=parts,
            num_runs=len(runs),
            colours=COLOURS,
            colour_of=palette.colour,
            value_words=value_words,
            version=__version__,
        )
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the report cannot be written: {error}") from error
    return page


def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("template.html")


def _part(number: int, section: Section, options: ReportOptions, palette: Palette) -> Part:
    prefix = f"s{number}"
    comparisons = _comparisons(section, shown(options.baseline))
    work = Work(
        sheet=Sheet(folder=options.out / "figures", prefix=prefix, palette=palette),
        section=section,
        comparisons=tuple(comparisons),
        goals=Goals(short_s=options.slo_short_s, other_s=options.slo_s),
    )
    chapters = tuple(chapters_of(work))
    for chapter in chapters:
        for table in chapter.tables:
            save_table(table, options.out / "tables")
    return Part(
        id=prefix,
        name=f"{section.workload}, {section.engine}",
        facts=tuple(_facts(section)),
        notes=tuple(_notes(section, shown(options.baseline))),
        verdicts=tuple(_verdict(section, offered, comparisons) for offered in section.offered),
        chapters=chapters,
    )


def _comparisons(section: Section, baseline: str) -> list[Comparison]:
    return [
        compare(base, other)
        for offered in section.offered
        if (base := section.cell(baseline, offered)) is not None
        for other in section.at(offered)
        if other is not base
    ]


def _facts(section: Section) -> Iterator[tuple[str, str]]:
    headers = [run.header for run in section.runs]
    yield "workload", section.workload
    yield "engine", section.engine
    yield "hardware", section.hardware
    yield "loads", ", ".join(offered.label for offered in section.offered)
    yield "policies", ", ".join(section.policies)
    num_failures = sum(cell.num_failures for cell in section.cells)
    num_served = sum(len(cell.served) for cell in section.cells)
    yield "requests", f"{num_served + num_failures:,}, of which {num_served:,} got a text"
    yield "runs", f"{len(headers):,}"
    yield "seeds", _distinct(None if one.seed is None else str(one.seed) for one in headers)
    yield "workers", _distinct(None if one.num_workers is None else str(one.num_workers) for one in headers)
    yield "source", section.source
    yield "version", _distinct(shown(one.version) for one in headers)
    yield "commit", _distinct(None if one.commit is None else shown(one.commit)[:10] for one in headers)


def _distinct(values: Iterable[str | None]) -> str:
    found = list(dict.fromkeys("not known" if value is None else value for value in values))
    return ", ".join(found) if len(found) <= 12 else f"{', '.join(found[:11])} and {len(found) - 11} more"


def _notes(section: Section, baseline: str) -> Iterator[str]:
    if section.source == "simulator":
        yield words.simulated_sentence(section.engine)
    if section.policies == (baseline,) or len(section.policies) == 1:
        yield words.single_policy_sentence(section.policies[0])
    elif baseline not in section.policies:
        yield words.no_baseline_sentence(baseline, section.policies)


def _verdict(section: Section, offered: Offered, comparisons: Sequence[Comparison]) -> Verdict:
    notes = []
    if offered.kind == "load" and offered.value >= 1:
        notes.append(words.saturation_sentence(offered.label))
    for cell in section.at(offered):
        num_found = len(cell.served) + cell.num_failures
        num_sent = sum(run.header.num_requests for run in cell.runs)
        if num_found < num_sent:
            notes.append(words.broken_off_sentence(cell.policy, num_sent, num_found))
        if cell.num_failures:
            kinds = Counter(shown(failure.error) for run in cell.runs for failure in run.failures)
            notes.append(words.failure_sentence(cell.policy, num_found, _most(kinds)))
    return Verdict(
        title=offered.label,
        notes=tuple(notes),
        policies=tuple(
            (one.policy, tuple(words.comparison_sentences(one))) for one in comparisons if one.offered == offered
        ),
    )


def _most(kinds: Counter[str]) -> Mapping[str, int]:
    """The five most frequent kinds, and the rest as one."""
    most = dict(kinds.most_common(5))
    rest = kinds.total() - sum(most.values())
    return most | ({"others": rest} if rest else {})
