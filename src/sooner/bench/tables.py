"""The figures of a measurement as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sooner.bench.summary import TargetFigures
from sooner.core.latency import LatencySummary
from sooner.evidence.comparison import Interval
from sooner.evidence.pairing import FIGURES

__all__ = ["MAX_GOOD_LAG_S", "tables_of"]

MAX_GOOD_LAG_S = 0.1
"""A load generator that sends later than this, P99, did not offer the load that it says."""

_LATENCY = ("P50", "P90", "P95", "P99", "max", "mean")
_NOTHING = "-"

_Titled = tuple[str, Table]
"""A table under its title: rich would break a title at the width of its table."""


def tables_of(figures: Sequence[TargetFigures], changes: Mapping[str, Mapping[str, Interval]]) -> RenderableType:
    """The tables of all servers at one rate.

    Args:
        figures: of each server, the first being what others are compared with.
        changes: by server, those changes against the first that requests are enough to tell.
    """
    tables = [_end_to_end(figures), _by_length(figures), _moments(figures), _throughput(figures)]
    if any(changes.values()):
        tables.append(_changes(figures[0].policy, changes))
    parts: list[RenderableType] = [part for table in tables if table is not None for part in table]
    parts += [Text(line) for policy, some in changes.items() for line in _untold(policy, figures[0].policy, some)]
    parts += [Text(line) for one in figures for line in _remarks(one)]
    return Group(*parts)


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _end_to_end(figures: Sequence[TargetFigures]) -> _Titled:
    rate_per_s = figures[0].rate_per_s
    offered = "" if rate_per_s is None else f", {rate_per_s:.3g} requests/s offered"
    table = _table("served", *_LATENCY, "slowdown", "worst")
    for one in figures:
        served = f"{one.e2e.num_requests if one.e2e else 0}/{one.num_sent}"
        if one.e2e is None:
            table.add_row(one.policy, served)
            continue
        slowdowns = (_number(one.e2e.mean_slowdown), _number(one.e2e.max_slowdown))
        table.add_row(one.policy, served, *_latencies(one.e2e), *slowdowns)
    return f"End to end, seconds{offered}", table


def _latencies(summary: LatencySummary) -> list[str]:
    names = ("p50_s", "p90_s", "p95_s", "p99_s", "max_s", "mean_s")
    return [_number(getattr(summary, name)) for name in names]


def _by_length(figures: Sequence[TargetFigures]) -> _Titled:
    table = _table("length", "served", *_LATENCY)
    # In rising order: that of the server which served the most lengths, and then what only others served.
    orders = sorted((list(one.by_length) for one in figures), key=len, reverse=True)
    for label in dict.fromkeys(label for order in orders for label in order):
        for one in figures:
            if label in one.by_length:
                some = one.by_length[label]
                table.add_row(one.policy, label, str(some.num_requests), *_latencies(some))
    return "End to end by length of recording, seconds", table


def _throughput(figures: Sequence[TargetFigures]) -> _Titled | None:
    columns = {
        "requests/s": [_number(one.requests_per_s) for one in figures],
        "RTFx": [_number(one.audio_s_per_s) for one in figures],
        "in time, %": [_percent(one.goodput.share if one.goodput else None) for one in figures],
        "in time/s": [_number(one.goodput.per_s if one.goodput else None) for one in figures],
        "WER, %": [_percent(one.word_error_rate) for one in figures],
        "mean WER, %": [_percent(one.mean_word_error_rate) for one in figures],
    }
    return _known("Throughput and text", figures, columns)


def _moments(figures: Sequence[TargetFigures]) -> _Titled | None:
    columns = {
        "first text P50": [_number(one.ttft.p50_s if one.ttft else None) for one in figures],
        "first text P90": [_number(one.ttft.p90_s if one.ttft else None) for one in figures],
        "wait P50": [_number(one.wait.p50_s if one.wait else None) for one in figures],
        "wait P90": [_number(one.wait.p90_s if one.wait else None) for one in figures],
    }
    return _known("To the first text, and waiting by the server's own account, seconds", figures, columns)


def _known(title: str, figures: Sequence[TargetFigures], columns: Mapping[str, list[str]]) -> _Titled | None:
    """A table without the columns in which nobody has a figure; ``None`` where none is left."""
    shown = {name: cells for name, cells in columns.items() if set(cells) != {_NOTHING}}
    if not shown:
        return None
    table = _table(*shown)
    for one, *cells in zip(figures, *shown.values(), strict=True):
        table.add_row(one.policy, *cells)
    return title, table


def _number(value: float | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _percent(share: float | None) -> str:
    return _NOTHING if share is None else f"{100 * share:.1f}"


def _changes(base: str, changes: Mapping[str, Mapping[str, Interval]]) -> _Titled:
    table = _table("of", "change", "from", "to")
    for policy, intervals in changes.items():
        for name, one in intervals.items():
            table.add_row(policy, name, *(f"{value:+.1f}" for value in (one.value, one.low, one.high)))
    return f"End to end, change against {base} in %, and its 95 % interval", table


def _untold(policy: str, base: str, told: Mapping[str, Interval]) -> list[str]:
    missing = [name for name, _, _ in FIGURES if name not in told]
    if not missing:
        return []
    return [f"{policy}: too few requests to tell the change against {base} of {', '.join(missing)}"]


def _remarks(one: TargetFigures) -> list[str]:
    """What a reader must not miss: errors, and a load generator that could not keep up."""
    remarks = [f"{one.policy}: {number} x {error}" for error, number in one.errors.items()]
    if one.lag_p99_s > MAX_GOOD_LAG_S:
        remarks.append(
            f"{one.policy}: the load generator itself sent up to {one.lag_max_s:.2f} s late (P99 "
            f"{one.lag_p99_s:.2f} s): this machine cannot offer such a load, so do not trust these figures"
        )
    return remarks
