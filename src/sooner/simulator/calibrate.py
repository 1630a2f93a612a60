"""``sooner calibrate``: from records of real runs to an engine profile.

Run files (of ``sooner serve --records``, of ``sooner bench`` against it) make a profile of workers; journals of
the vLLM plugin make one of an engine that batches, and run files beside them then only tell κ.

Costs are fitted to what is typical, since stalls would distort them. A profile's costs are means, from which load
and capacity follow: the fitted ones times what all requests (or steps) took over what the fit predicts for them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sooner.errors import ConfigurationError
from sooner.evidence.calibration import (
    MIN_REQUESTS,
    BatchingFit,
    Kappa,
    Spoken,
    Step,
    WorkersFit,
    fit_batching,
    fit_kappa,
    fit_workers,
)
from sooner.evidence.fitting import Fitted
from sooner.evidence.run_file import Run, files_of, read_runs
from sooner.simulator.calibration_report import print_batching, print_workers
from sooner.simulator.options import CalibrateOptions
from sooner.simulator.profile import BatchingProfile, Profile, WorkersProfile, save_profile

__all__ = ["Journal", "read_journal", "run_calibrate"]

_LIMITS = ("max_windows_per_step", "max_running", "memory_blocks", "block_tokens", "window_positions")
_NOT_NAMED = "not named"
_DIGITS = 4
_MOST_NAMES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What a journal of the vLLM plugin tells of its engine.

    Attributes:
        limits: its first line, the engine's bounds.
        steps: engine steps, in order.
        spoken: uploads of known length that were finished whole.
    """

    limits: Mapping[str, Any]
    steps: tuple[Step, ...]
    spoken: tuple[Spoken, ...]


def run_calibrate(paths: Sequence[Path], options: CalibrateOptions) -> Profile:
    """Fit a profile to the files, print what was found, and write it to ``options.out``.

    Args:
        paths: run files and journals; a folder stands for the ``*.jsonl`` in it.
        options: see there.

    Raises:
        ConfigurationError: the files cannot be read, or what they hold does not make a profile.
    """
    journals, runs = _sorted(files_of(paths))
    engine = options.engine or ("batching" if journals else "workers")
    profile: Profile
    if engine == "batching":
        profile = _calibrate_batching(journals, runs, options)
    elif journals:
        raise ConfigurationError(f"{journals[0]} is a journal of vLLM: leave it out, or say --engine batching")
    else:
        profile = _calibrate_workers(runs, options)
    return profile


def _sorted(paths: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Journals and run files, told apart by their first line."""
    journals: list[Path] = []
    runs: list[Path] = []
    for path in paths:
        (journals if _is_journal(path) else runs).append(path)
    if not journals and not runs:
        raise ConfigurationError("name at least one file of records: `sooner serve --records FILE` writes one")
    return journals, runs


def _is_journal(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return False  # whoever reads it as a run file says what is wrong
    return isinstance(first, dict) and "event" in first and "kind" not in first


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _save(profile: Profile, path: Path) -> None:
    try:
        save_profile(profile, path)
    except OSError as error:
        raise ConfigurationError(f"the profile cannot be written: {error}") from error


# An engine of workers


def _calibrate_workers(paths: Sequence[Path], options: CalibrateOptions) -> WorkersProfile:
    runs = read_runs(paths)
    fit = fit_workers([record for run in runs for record in run.records], held_out=options.held_out)
    values, origins = _workers_values(fit, runs, _names(paths))
    profile = WorkersProfile(
        name=options.name or options.out.stem,
        model=options.model or _the_one(runs, "engine") or _NOT_NAMED,
        hardware=options.hardware or _the_one(runs, "hardware") or _NOT_NAMED,
        origins=origins,
        **values,
    )
    _save(profile, options.out)
    print_workers(profile, fit, source=_names(paths), out=options.out)
    return profile


def _workers_values(fit: WorkersFit, runs: Sequence[Run], source: str) -> tuple[dict[str, Any], dict[str, str]]:
    requests = f"{fit.num_requests} requests in {source}"
    costs = {"encode_s": fit.encode_s, "token_s": fit.token_s}
    if fit.context_s is not None:
        costs["context_s"] = fit.context_s
    values, origins = _mean_costs(costs, fit.total_ratio, requests)
    fitted = {
        "overhead_s": fit.overhead_s,
        "kappa": fit.kappa.kappa,
        "window_s": fit.window_s,
        "spread": fit.spread,
    }
    known = {name: one for name, one in fitted.items() if one is not None}
    values |= {name: _rounded(one.value) for name, one in known.items()}
    origins |= {name: _origin(one, requests) for name, one in known.items()}
    num_workers = _the_one(runs, "num_workers")
    if num_workers is not None:
        values["num_workers"] = num_workers
        origins["num_workers"] = f"named in {source}"
    return values, origins


def _the_one(runs: Sequence[Run], name: str) -> Any:
    """What all headers that say it agree on; ``None`` where none does."""
    found = {value for run in runs if (value := getattr(run.header, name)) is not None}
    if len(found) > 1:
        both = " and ".join(sorted(map(str, found)))
        raise ConfigurationError(f"these runs differ in {name}, {both}: calibrate one engine at a time")
    return found.pop() if found else None


# An engine that batches


def _calibrate_batching(
    journals: Sequence[Path], runs: Sequence[Path], options: CalibrateOptions
) -> BatchingProfile:
    if not journals:
        raise ConfigurationError(
            "an engine that batches is calibrated from a journal of the vLLM plugin: serve with "
            '--additional-config \'{"sooner": {"journal_path": "journal.jsonl"}}\''
        )
    read = [read_journal(path) for path in journals]
    limits = read[0].limits
    if any(one.limits.get(name) != limits.get(name) for one in read for name in ("model", *_LIMITS)):
        raise ConfigurationError("these journals are of engines with different limits: calibrate one at a time")
    fit = fit_batching([step for one in read for step in one.steps], held_out=options.held_out)
    kappa, kappa_source = _kappa(read, _names(journals), runs)
    values, origins = _batching_values(fit, _names(journals))
    bounds = {name: limits[name] for name in _LIMITS if limits.get(name)}
    values |= bounds
    origins |= dict.fromkeys(bounds, f"the engine's own, in {_names(journals)}")
    if kappa is not None:
        values["kappa"] = _rounded(kappa.kappa.value)
        origins["kappa"] = _origin(kappa.kappa, f"{kappa.num_requests} requests in {kappa_source}")
    profile = BatchingProfile(
        name=options.name or options.out.stem,
        model=options.model or limits.get("model") or _NOT_NAMED,
        hardware=options.hardware or _NOT_NAMED,
        origins=origins,
        **values,
    )
    _save(profile, options.out)
    print_batching(profile, fit, kappa, source=_names(journals), out=options.out)
    return profile


def _batching_values(fit: BatchingFit, source: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Step costs, and the sizes that policies order by.

    A token's size is its share of the steps that were seen, as all their tokens together took all their time: a
    step's own cost is shared by those who run in it. A window's size is what its admission adds.
    """
    fitted = {"step_s": fit.step_s, "running_step_s": fit.running_step_s, "admission_s": fit.admission_s}
    values, origins = _mean_costs(fitted, fit.total_ratio, f"{fit.num_steps} steps in {source}")
    values["size_encode_s"] = values["admission_s"]
    origins["size_encode_s"] = "admission_s"
    values["size_token_s"] = _rounded(values["step_s"] / fit.mean_running + values["running_step_s"])
    origins["size_token_s"] = f"step_s shared by {fit.mean_running:.1f}, the mean running, plus running_step_s"
    values["max_windows_per_step"], values["max_running"] = max(1, fit.max_admitted), fit.max_running
    origins["max_windows_per_step"] = origins["max_running"] = f"most seen in {source}"
    return values, origins


def _kappa(journals: Sequence[Journal], source: str, runs: Sequence[Path]) -> tuple[Kappa | None, str]:
    """κ of the journals' uploads; where they are too few, of the runs; else ``None``. And where it comes from."""
    spoken = [one for journal in journals for one in journal.spoken]
    if len(spoken) < MIN_REQUESTS and runs:
        source = _names(runs)
        spoken = [
            Spoken(audio_s=record.audio_s, num_tokens=record.num_tokens, language=record.language)
            for run in read_runs(runs)
            for record in run.records
            if record.num_tokens is not None
        ]
    return (fit_kappa(spoken) if len(spoken) >= MIN_REQUESTS else None), source


def read_journal(path: Path) -> Journal:
    """Read a journal of the vLLM plugin; one without limits is of an older plugin, and has no steps either.

    A step took from the end of the one before to its own. Where all that runs was just admitted, the engine may
    have been idle before: then it took from its plan, or from the end of the one before if that was later, because
    an engine may plan a step while the last one runs.

    Raises:
        ConfigurationError: it cannot be read, or a line is not one of a journal.
    """
    limits: Mapping[str, Any] = {}
    steps: list[Step] = []
    chunks: dict[str, list[Mapping[str, Any]]] = {}
    before_s = -math.inf
    for number, line in enumerate(_lines(path), start=1):
        try:
            event = json.loads(line)
            match event["event"]:
                case "engine":
                    limits = event
                case "step":
                    steps.append(_step(event, before_s))
                    before_s = event["done_s"]
                case "finished" if event["audio_s"] is not None:
                    chunks.setdefault(event["upload_id"], []).append(event)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"journal {path}, line {number}: {type(error).__name__}: {error}") from error
    return Journal(limits=limits, steps=tuple(steps), spoken=tuple(_spoken(chunks.values())))


def _step(event: Mapping[str, Any], before_s: float) -> Step:
    may_have_idled = event["num_running"] == event["num_admitted"]
    begun_s = max(event["now_s"], before_s) if may_have_idled or before_s == -math.inf else before_s
    return Step(
        duration_s=event["done_s"] - begun_s,
        num_running=event["num_running"],
        num_admitted=event["num_admitted"],
    )


def _spoken(uploads: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[Spoken]:
    for chunks in uploads:
        if len({chunk["number"] for chunk in chunks}) == len(chunks) == chunks[0]["num_chunks"]:
            num_tokens = sum(chunk["num_output_tokens"] for chunk in chunks)
            yield Spoken(audio_s=chunks[0]["audio_s"], num_tokens=num_tokens)


# Words and numbers


def _names(paths: Sequence[Path]) -> str:
    names = [path.name for path in paths]
    if len(names) > _MOST_NAMES:
        return f"{names[0]} and {len(names) - 1} more files"
    return ", ".join(names)


def _mean_costs(
    fitted: Mapping[str, Fitted], total_ratio: Fitted, source: str
) -> tuple[dict[str, Any], dict[str, str]]:
    """Typical costs times what all took over what they predict: means, so that the profile's load is right."""
    values = {name: _rounded(one.value * total_ratio.value) for name, one in fitted.items()}
    times = f"times {total_ratio.value:.4g}, what all took over what the fit predicts"
    return values, {name: f"{one.value:.4g}, {_origin(one, source)}; {times}" for name, one in fitted.items()}


def _origin(fitted: Fitted, source: str) -> str:
    error = "not known" if fitted.standard_error is None else f"{fitted.standard_error:.2g}"
    return f"fitted to {source}, standard error {error}"


def _rounded(value: float) -> float:
    """To four digits: more than any fit knows."""
    return float(f"{value:.{_DIGITS}g}")
