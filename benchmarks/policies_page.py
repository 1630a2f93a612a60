"""The tables of ``bench_policies.py``: who wins and who pays first, every figure last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies_cells import ALL, BASE, BOUND, CLIPS, DEFAULT, FIGURES, FILES, TRICK, Cell, Cells, policies_of
from policies_traffic import LOW_LOADS, Scenario
from sooner.core.latency import BUCKETS_S, duration_bucket
from sooner.evidence.report.words import number

BUCKETS = [duration_bucket(bound_s) for bound_s in (*BUCKETS_S, 2 * BUCKETS_S[-1])]
LOW = [f"{kind}-{load:g}" for kind in ("clips", "mixed") for load in LOW_LOADS]
MOST_PERCENT = 500  # from there on times are easier to read
PERCENTILES = ("P50", "P90", "P95", "P99")
Column = tuple[str, str, str]  # scenario, group, figure
OPENING: dict[str, tuple[Column, ...]] = {
    "paper 20/s: P50, P90, P99": tuple(("paper-20", ALL, name) for name in ("P50", "P90", "P99")),
    "paper 25/s": tuple(("paper-25", ALL, name) for name in ("P50", "P90", "P99")),
    "mixed 0.85: P90 of clips, of files, max": (
        ("mixed-0.85", CLIPS, "P90"),
        ("mixed-0.85", FILES, "P90"),
        ("mixed-0.85", ALL, "max"),
    ),
    "sizes wrong by up to 4": (
        ("wrong-mixed-0.85", CLIPS, "P90"),
        ("wrong-mixed-0.85", FILES, "P90"),
        ("wrong-mixed-0.85", ALL, "max"),
    ),
    "flood, clients known": (
        ("flood-known", CLIPS, "P90"),
        ("flood-known", FILES, "P90"),
        ("flood-known", ALL, "max"),
    ),
}


def page(scenarios: Sequence[Scenario], cells: Cells) -> str:
    usual = [scenario for scenario in scenarios if scenario.is_usual]
    wrong = [scenario for scenario in scenarios if scenario.right is not None]
    names = {scenario.name for scenario in usual}
    of_usual = {key: cell for key, cell in cells.items() if key[0] in names}
    parts = [
        "# Who wins and who pays",
        "E2E against fcfs on the same requests, means over seeds: changes in percent, below 0 is better, or × in "
        "times. Made by `make policies`; the docstring of `benchmarks/bench_policies.py` describes the traffics.",
        opening(cells),
        at_low_load(cells),
        "## Usual traffic",
        "The policy with the lowest figure, and its change against fcfs. Those within a thousandth share a place.",
        winners(usual, cells),
        "In how many of these scenarios a figure is better and worse than under fcfs, as far as the 95 % interval "
        "tells:",
        better_and_worse(of_usual),
        "Whom each policy costs most: of the lengths of recordings that every run has, the one whose P90 grows "
        "most, in the mean over the scenarios of a kind.",
        payers(usual, of_usual),
        "## Wrong sizes",
        "Seconds with right sizes → with wrong ones.",
        *(f"{scenario.name}:\n\n{wrong_and_right(scenario, cells)}" for scenario in wrong),
        "## Clients who know the policy",
        *tricks(cells),
        "## Each scenario",
        "Seconds of E2E; of a slowdown, times.",
        *(f"### {scenario.name}\n\n{scenario.about()}\n\n{figures_of(scenario, cells)}" for scenario in scenarios),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# The opening


def opening(cells: Cells) -> str:
    columns = {title: several for title, several in OPENING.items() if (several[0][0], BASE, ALL, "P50") in cells}
    if not columns:
        return ""
    labels = [label for label in others(cells) if "no preemption" not in label and ":" not in label]
    labels = [label for label in labels if label == DEFAULT or not label.endswith(", guard")]
    rows = [
        [label, *(", ".join(change_of(cells, label, one) for one in several) for several in columns.values())]
        for label in labels
    ]
    return table(["", *columns], rows)


def change_of(cells: Cells, policy: str, column: Column) -> str:
    scenario, group, name = column
    change = cells[scenario, policy, group, name].change.value
    return f"{change:+.0f}" if change < MOST_PERCENT else f"×{1 + change / 100:.0f}"


def at_low_load(cells: Cells) -> str:
    """What the default costs where there is nothing to win."""
    changes = {
        (scenario, name): cells[scenario, DEFAULT, ALL, name].change.value
        for scenario in LOW
        for name in (*PERCENTILES, "max")
        if (scenario, DEFAULT, ALL, name) in cells
    }
    if not changes:
        return ""
    tails = {key: value for key, value in changes.items() if key[1] != "max"}
    longest = {key: value for key, value in changes.items() if key[1] == "max"}
    return (
        f"At low load ({', '.join(dict.fromkeys(scenario for scenario, _ in changes))}) the default of `sooner "
        f"serve`, {DEFAULT}, changes {', '.join(PERCENTILES)} by {worst(tails)} at worst, and the maximum, which "
        f"is a file's where there are files, by {worst(longest)}."
    )


def worst(changes: dict[tuple[str, str], float]) -> str:
    scenario, name = max(changes, key=lambda key: changes[key])
    return f"{changes[scenario, name]:+.1f} % ({name} of {scenario})"


def others(cells: Cells) -> list[str]:
    """All rows that are compared with the base."""
    return list(dict.fromkeys(policy for _, policy, _, _ in cells if policy not in (BASE, BOUND)))


# Usual traffic


def winners(scenarios: Sequence[Scenario], cells: Cells) -> str:
    names = ("P50", "P90", "P99", "max", "mean", "slowdown")
    rows = [[scenario.name, *(winner(scenario.name, name, cells) for name in names)] for scenario in scenarios]
    return table(["", *names], rows)


def winner(scenario: str, name: str, cells: Cells) -> str:
    of_policies = {policy: cells[scenario, policy, ALL, name] for policy in policies_of(cells, scenario)}
    least = min(cell.value for cell in of_policies.values())
    first = [policy for policy, cell in of_policies.items() if cell.value <= 1.001 * least]
    if len(first) == len(of_policies):
        return "all alike"
    if BASE in first:
        return "; ".join(first)
    return f"{'; '.join(first)}: {of_policies[first[0]].change.value:+.0f} %"


def better_and_worse(cells: Cells) -> str:
    names = ("P50", "P90", "P99", "max", "mean")
    rows = []
    for label in others(cells):
        changes = [[cell.change for cell in chosen(cells, label, ALL, name)] for name in names]
        told = [
            f"{sum(one.high < 0 for one in several)} better, {sum(one.low > 0 for one in several)} worse"
            for several in changes
        ]
        rows.append([label, f"{len(changes[0])}", *told])
    return table(["", "scenarios", *names], rows)


def chosen(cells: Cells, policy: str, group: str, name: str, kind: str = "") -> list[Cell]:
    """The cells of a policy, a group and a figure in all scenarios of a kind, or in all."""
    return [
        cell
        for (scenario, *rest), cell in cells.items()
        if rest == [policy, group, name] and scenario.startswith(kind)
    ]


def payers(scenarios: Sequence[Scenario], cells: Cells) -> str:
    kinds = list(dict.fromkeys(scenario.name.rpartition("-")[0] for scenario in scenarios))
    rows = [[label, *(payer(cells, label, f"{kind}-") for kind in kinds)] for label in others(cells)]
    return table(["", *kinds], rows)


def payer(cells: Cells, policy: str, kind: str) -> str:
    """Who pays most under a policy, and how much."""
    changes = {}
    for group in BUCKETS:
        of_group = [cell.change.value for cell in chosen(cells, policy, group, "P90", kind)]
        if of_group and len(of_group) == len(chosen(cells, policy, ALL, "P90", kind)):
            changes[group] = sum(of_group) / len(of_group)
    if not changes:
        return ""
    group = max(changes, key=lambda one: changes[one])
    return f"{group}: {changes[group]:+.0f} %" if changes[group] >= 0.5 else "nobody"


# Wrong sizes and tricks


def wrong_and_right(scenario: Scenario, cells: Cells) -> str:
    columns = [("P50", ALL, "P50"), ("P90", ALL, "P90"), ("P99", ALL, "P99"), ("max", ALL, "max")]
    if (scenario.name, BASE, CLIPS, "P90") in cells:
        columns += [("clips P90", CLIPS, "P90"), ("clips max", CLIPS, "max"), ("files P90", FILES, "P90")]
    rows = [
        [
            label,
            *(
                f"{value_of(cells.get((f'{scenario.right}', label, group, name)))} → "
                f"{value_of(cells[scenario.name, label, group, name])}"
                for _, group, name in columns
            ),
        ]
        for label in policies_of(cells, scenario.name)
    ]
    return table(["", *(title for title, _, _ in columns)], rows)


def tricks(cells: Cells) -> Iterator[str]:
    if ("flood-unknown", BASE, ALL, "P50") in cells:
        yield "P90 of what the others wait while one client floods the queue with short clips, seconds:"
        flooded = (("no flood", "absent"), ("flood", "unknown"), ("clients known", "known"))
        yield of_columns(
            cells,
            [
                (f"{group}, {title}", (f"flood-{variant}", group, "P90"))
                for group in (CLIPS, FILES)
                for title, variant in flooded
            ],
        )
    if ("split-unknown", BASE, ALL, "P50") in cells:
        yield (
            "What one client gains who cuts files of ten minutes into twenty clips: P90 of the seconds until the "
            "last text is there; and P90 of the others' clips. Under fcfs the gain is the engine's, for which a "
            "window that goes on from another is longer."
        )
        cut = (("whole", "whole"), ("cut", "unknown"), ("cut, clients known", "known"))
        yield of_columns(
            cells,
            [
                (f"{who}: {title}", (f"split-{variant}", group, "P90"))
                for who, group in (("its files", TRICK), ("others' clips", CLIPS))
                for title, variant in cut
            ],
        )


def of_columns(cells: Cells, columns: Sequence[tuple[str, Column]]) -> str:
    rows = [
        [
            label,
            *(value_of(cells.get((scenario, label, group, name))) for _, (scenario, group, name) in columns),
        ]
        for label in policies_of(cells, columns[1][1][0])  # without the trick there is less to guard
    ]
    return table(["", *(title for title, _ in columns)], rows)


# Every scenario


def figures_of(scenario: Scenario, cells: Cells) -> str:
    columns = [(name, ALL, name) for name in FIGURES]
    if (scenario.name, BASE, FILES, "P90") in cells:
        columns += [("clips P90", CLIPS, "P90"), ("clips max", CLIPS, "max"), ("files P90", FILES, "P90")]
    labels = [*policies_of(cells, scenario.name), *([BOUND] if scenario.is_usual else [])]
    rows = [
        [label, *(value_of(cells.get((scenario.name, label, group, name))) for _, group, name in columns)]
        for label in labels
    ]
    return table(["", *(title for title, _, _ in columns)], rows)


def value_of(cell: Cell | None) -> str:
    return "" if cell is None else number(cell.value)
