"""What a calibration found, for the reader of a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from sooner.evidence.calibration import BatchingFit, Kappa, WorkersFit
from sooner.evidence.fitting import Accuracy, Fitted, Residuals
from sooner.simulator.profile import BatchingProfile, WorkersProfile

__all__ = ["print_batching", "print_workers"]


_WILD_SPREAD = 0.3
_WILD_ERROR = 0.5


def print_workers(profile: WorkersProfile, fit: WorkersFit, *, source: str, out: Path) -> None:
    """Print the fit of an engine of workers, and where its profile went."""
    console = Console(highlight=False)
    console.print(
        f"{fit.num_requests} requests of {fit.num_recordings} lengths in {source}: an engine of workers."
    )
    fitted = {
        "encode_s": fit.encode_s,
        "token_s": fit.token_s,
        "context_s": fit.context_s,
        "kappa": fit.kappa.kappa,
        "spread": fit.spread,
        "window_s": fit.window_s,
        "overhead_s": fit.overhead_s,
    }
    console.print(_numbers(fitted))
    _tell_total(console, "service", fit.total_ratio)
    console.print(_kappas({"all": fit.kappa, **fit.kappa_by_language}))
    rows = [
        ("from windows and tokens", fit.accuracy),
        ("  held out", fit.accuracy_held_out),
        ("from the length alone", fit.accuracy_by_length),
        ("  held out", fit.accuracy_by_length_held_out),
    ]
    console.print(_accuracies("predicted service time", rows))
    console.print(_residuals("audio", fit.residuals))
    if fit.spread.value > _WILD_SPREAD or fit.accuracy_held_out.p90_error > _WILD_ERROR:
        console.print("The times vary so much that tails will not come out right: see when to distrust it.")
    if fit.context_s is None:
        console.print(f"These recordings do not tell context_s: it stays {profile.context_s:g}.")
    if fit.window_s is None:
        console.print(f"No recording is over 60 s: window_s stays {profile.window_s:g}.")
    if fit.overhead_s is None:
        console.print(f"No request tells its wait: overhead_s stays {profile.overhead_s:g}.")
    if "num_workers" not in profile.origins:
        console.print(f"No run names its workers: num_workers stays {profile.num_workers}.")
    _tell_end(console, {"kappa": profile.kappa, "encode_s": profile.encode_s, "token_s": profile.token_s}, out)


def print_batching(
    profile: BatchingProfile, fit: BatchingFit, kappa: Kappa | None, *, source: str, out: Path
) -> None:
    """Print the fit of an engine that batches, and where its profile went."""
    console = Console(highlight=False)
    console.print(
        f"{fit.num_steps} steps in {source}, {fit.mean_running:.1f} windows in each: an engine that batches."
    )
    fitted = {"step_s": fit.step_s, "running_step_s": fit.running_step_s, "admission_s": fit.admission_s}
    console.print(_numbers(fitted if kappa is None else {**fitted, "kappa": kappa.kappa}))
    _tell_total(console, "steps", fit.total_ratio)
    if kappa is None:
        console.print(f"Too few whole uploads tell their tokens: kappa stays {profile.kappa:g}.")
    else:
        console.print(_kappas({"all": kappa}))
    rows = [("from running and admitted", fit.accuracy), ("  held out", fit.accuracy_held_out)]
    console.print(_accuracies("predicted step time", rows))
    console.print(_residuals("steps", fit.residuals))
    sizes = {"kappa": profile.kappa, "encode_s": profile.size_encode_s, "token_s": profile.size_token_s}
    _tell_end(console, sizes, out)


def _tell_total(console: Console, what: str, ratio: Fitted) -> None:
    console.print(
        f"All {what} together took {ratio.value:.3f} times (standard error {_error(ratio)}) what these costs "
        "predict. The profile has the costs times that, so that its load is right.",
        soft_wrap=True,
    )


def _tell_end(console: Console, sizes: Mapping[str, float], out: Path) -> None:
    console.print(f"The scheduler's sizes: {json.dumps(sizes)}", soft_wrap=True)
    console.print(f"Wrote {out}", soft_wrap=True)


def _table(*columns: str) -> Table:
    """The first column holds words, the others numbers."""
    table = Table(box=SIMPLE_HEAD)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", no_wrap=True)
    return table


def _numbers(fitted: Mapping[str, Fitted | None]) -> Table:
    table = _table("", "value", "standard error")
    for name, one in fitted.items():
        if one is not None:
            table.add_row(name, f"{one.value:.4g}", _error(one))
    return table


def _kappas(kappas: Mapping[str, Kappa]) -> Table:
    table = _table("language", "n", "tokens/s", "standard error", "Pearson r", "R²")
    for name, one in kappas.items():
        numbers = (f"{one.kappa.value:.3f}", _error(one.kappa), _optional(one.pearson_r), _optional(one.r_squared))
        table.add_row(name, str(one.num_requests), *numbers)
    return table


def _accuracies(what: str, rows: Iterable[tuple[str, Accuracy]]) -> Table:
    table = _table(what, "n", "median error", "P90", "R²")
    for name, one in rows:
        table.add_row(
            name, str(one.num), f"{one.median_error:.1%}", f"{one.p90_error:.1%}", f"{one.r_squared:.3f}"
        )
    return table


def _residuals(what: str, rows: Iterable[Residuals]) -> Table:
    table = _table(what, "n", "longer than predicted", "P90 error")
    for one in rows:
        table.add_row(one.label, str(one.num), f"{one.bias:+.1%}", f"{one.p90_error:.1%}")
    return table


def _error(fitted: Fitted) -> str:
    return "-" if fitted.standard_error is None else f"{fitted.standard_error:.2g}"


def _optional(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
