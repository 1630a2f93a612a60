"""Which runs belong together: a section for each workload and engine, a cell for each policy and load in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sooner.evidence.run_file import Run
from sooner.evidence.summary import Columns, columns_of, joined

__all__ = ["Cell", "Offered", "Section", "sections_of", "shown"]

_MAX_NAME = 40
_MAX_WORDS = 300
_WORDS = {"burst": "a burst", "live": "live traffic"}
_KNOWN_ORDER = ("fcfs", "sjf", "hrrn")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Offered:
    """How much was offered.

    Attributes:
        kind: ``load``, ``rate``, ``burst``, or ``live`` for a server's own log.
        value: ρ, requests a second, or 0 for what has no number.
    """

    kind: str
    value: float

    @property
    def label(self) -> str:
        """In words, such as ``ρ = 0.85``."""
        if self.kind == "load":
            return f"ρ = {self.value:g}"
        return f"{self.value:g} requests/s" if self.kind == "rate" else _WORDS[self.kind]

    @property
    def slug(self) -> str:
        """As part of a file's name."""
        return self.kind if self.kind in _WORDS else f"{self.kind}-{self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """All runs of one policy at one load.

    Attributes:
        policy: its name, fit to be shown.
        offered: the load.
        runs: as they were read.
        per_run: the served requests of each run.
        served: those of all runs.
    """

    policy: str
    offered: Offered
    runs: tuple[Run, ...]
    per_run: tuple[Columns, ...]
    served: Columns

    @property
    def num_failures(self) -> int:
        """Requests that got no text."""
        return sum(len(run.failures) for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Section:
    """Runs that can be compared: the same workload on the same engine.

    Attributes:
        workload: what was sent, in words.
        engine: profile or model.
        hardware: what it ran on.
        source: what made the runs.
        policies: the policies, the baseline first.
        offered: the loads, in rising order.
        cells: one for each policy and load that was run.
    """

    workload: str
    engine: str
    hardware: str
    source: str
    policies: tuple[str, ...]
    offered: tuple[Offered, ...]
    cells: tuple[Cell, ...]

    def cell(self, policy: str, offered: Offered) -> Cell | None:
        """The runs of this policy at this load."""
        return next((one for one in self.cells if (one.policy, one.offered) == (policy, offered)), None)

    def at(self, offered: Offered) -> list[Cell]:
        """All policies at one load, in their order."""
        return [one for policy in self.policies if (one := self.cell(policy, offered)) is not None]

    @property
    def runs(self) -> list[Run]:
        """All runs of all cells."""
        return [run for cell in self.cells for run in cell.runs]


def shown(text: str, *, at_most: int = _MAX_NAME) -> str:
    """Text from a file, fit to be shown: nothing but printable characters, and ``at_most`` of them."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return clean if len(clean) <= at_most else clean[: at_most - 1] + "…"


def sections_of(runs: Sequence[Run], *, baseline: str) -> list[Section]:
    """Group runs that can be compared, in the order in which they came. O(runs²), requests once."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        header = run.header
        key = (header.workload, header.engine, header.hardware, header.source, header.num_workers)
        groups.setdefault(key, []).append(run)
    return [_section(group, shown(baseline)) for group in groups.values()]


def _section(runs: Sequence[Run], baseline: str) -> Section:
    names = _policy_names(runs)
    groups: dict[tuple[str, Offered], list[Run]] = {}
    by_rate = _are_rates_what_was_asked(runs)
    for run, name in zip(runs, names, strict=True):
        groups.setdefault((name, _offered(run, by_rate)), []).append(run)
    header = runs[0].header
    return Section(
        workload=shown(header.workload, at_most=_MAX_WORDS),
        engine=shown(header.engine, at_most=_MAX_WORDS),
        hardware=shown(header.hardware, at_most=_MAX_WORDS),
        source=shown(header.source),
        policies=tuple(sorted(set(names), key=lambda name: _policy_rank(name, baseline))),
        offered=tuple(sorted({offered for _, offered in groups})),
        cells=tuple(_cell(policy, offered, group) for (policy, offered), group in groups.items()),
    )


def _policy_rank(name: str, baseline: str) -> tuple[bool, int, str]:
    rank = _KNOWN_ORDER.index(name) if name in _KNOWN_ORDER else len(_KNOWN_ORDER)
    return name != baseline, rank, name


def _policy_names(runs: Sequence[Run]) -> list[str]:
    """Names that tell a policy that preempts from the same one that does not, where both were run."""
    ways: dict[str, set[bool | None]] = {}
    for run in runs:
        ways.setdefault(run.header.policy, set()).add(run.header.preempt)
    return [
        shown(run.header.policy)
        + (" (no preemption)" if run.header.preempt is False and len(ways[run.header.policy]) > 1 else "")
        for run in runs
    ]


def _are_rates_what_was_asked(runs: Sequence[Run]) -> bool:
    """Whether equal rates have different loads: those then only follow from what each seed drew."""
    rates = {run.header.rate_per_s for run in runs}
    return None not in rates and len(rates) < len({run.header.load for run in runs})


def _offered(run: Run, by_rate: bool) -> Offered:
    """Loads that differ in the fourth digit are the same load: the generator rounds, the traffic is drawn."""
    if run.header.load is not None and not by_rate:
        return Offered(kind="load", value=float(f"{run.header.load:.3g}"))
    if run.header.rate_per_s is not None:
        return Offered(kind="rate", value=float(f"{run.header.rate_per_s:.3g}"))
    return Offered(kind="live" if run.header.source == "server" else "burst", value=0.0)


def _cell(policy: str, offered: Offered, runs: Sequence[Run]) -> Cell:
    per_run = tuple(columns_of(run) for run in runs)
    return Cell(policy=policy, offered=offered, runs=tuple(runs), per_run=per_run, served=joined(per_run))
