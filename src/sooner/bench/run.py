"""``sooner bench``: the same traffic to several servers or policies, and what came of it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from sooner import __version__
from sooner.bench.audio_pool import AudioPool
from sooner.bench.client import PLAIN_TEXT, Caller
from sooner.bench.embedded import EmbeddedServer
from sooner.bench.load import Load, Watcher, measure, plan_load, warm_up
from sooner.bench.options import BenchOptions
from sooner.bench.summary import TargetFigures, changes_of, figures_of
from sooner.bench.tables import tables_of
from sooner.bench.visits import Target, Visit, visits_of
from sooner.core.latency import LatencyRecord
from sooner.core.policy import policy_named
from sooner.errors import ConfigurationError
from sooner.evidence.comparison import Interval
from sooner.evidence.machine import source_commit, this_machine
from sooner.evidence.run_file import Failure, Run, RunHeader
from sooner.evidence.summary import Goals
from sooner.workload.make import describe, make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest, mean_rate_per_s

__all__ = ["run_bench"]

_INTERRUPTED = 130  # what a shell reports for a Ctrl-C
_LOG = "server.log"
_SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What all runs have in common.

    Attributes:
        options: of the measurement.
        traces: what is sent, by rate and seed.
        pool: the recordings that they need.
        about: fields of every run's header.
    """

    options: BenchOptions
    traces: Mapping[tuple[float | None, int], Sequence[TraceRequest]]
    pool: AudioPool
    about: Mapping[str, Any]

    def trace(self, visit: Visit) -> Sequence[TraceRequest]:
        return self.traces[visit.rate_per_s, visit.seed]

    def load(self, visit: Visit) -> Load:
        form = {"response_format": "json", "model": PLAIN_TEXT["model"]}
        if visit.target.url is not None and self.options.model is not None:
            form["model"] = self.options.model  # sooner serve knows its model by OpenAI's name too
        if self.options.stream:
            form["stream"] = "true"
        return plan_load(self.trace(visit), self.pool, form=form, language=self.options.language)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serving:
    """A server that is ready, and what a run's header tells of it; ``None`` where it is not ours."""

    url: str
    engine: str
    num_workers: int | None = None
    preempt: bool | None = None


def run_bench(options: BenchOptions, workload: WorkloadOptions) -> None:
    """Measure, print the tables, and leave the runs and ``summary.json`` in ``options.out``.

    Raises:
        ConfigurationError: something about the options, the traffic or a server; what was measured stays.
        SystemExit: a Ctrl-C, once servers are stopped; what was measured stays.
    """
    if options.rate is not None:
        workload.refuse_rate("--rate")
    console = Console()
    visits = list(
        visits_of(
            options.targets,
            rates_per_s=options.rates_per_s,
            seeds=workload.different_seeds(options.seed_numbers),
            num_rounds=options.rounds,
        )
    )
    keys = {(visit.rate_per_s, visit.seed) for visit in visits}
    traces = {key: make_trace(workload, rate_per_s=key[0], seed=key[1]) for key in keys}
    _make_folder(options.out)
    try:
        with tempfile.TemporaryDirectory(prefix="sooner-bench-") as folder:
            plan = _Plan(
                options=options, traces=traces, pool=AudioPool(Path(folder)), about=_about(options, workload)
            )
            runs = _measure_all(plan, visits, console)
    except KeyboardInterrupt:
        console.print(f"Stopped. What was measured so far: {options.out}")
        raise SystemExit(_INTERRUPTED) from None
    _tell(options, runs, console)


def _make_folder(out: Path) -> None:
    """The folder for the runs. That it can be written shows here, before minutes are spent on a server."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ConfigurationError(f"--out {out} is not a folder to write to: {error}") from error


def _about(options: BenchOptions, workload: WorkloadOptions) -> dict[str, Any]:
    return {
        "source": "bench",
        "workload": describe(workload),
        "hardware": options.hardware or this_machine(),
        "version": __version__,
        "commit": source_commit(),
    }


def _measure_all(plan: _Plan, visits: Sequence[Visit], console: Console) -> dict[Visit, Run]:
    runs = {}
    with _progress(console) as progress:
        making = progress.add_task("making recordings", total=None, sent=0, failed=0)
        plan.pool.prepare(
            (request for trace in plan.traces.values() for request in trace),
            on_done=lambda done, total: progress.update(making, completed=done, total=total),
        )
        progress.remove_task(making)
        for visit in visits:
            bar = progress.add_task(visit.name, total=len(plan.trace(visit)), sent=0, failed=0)
            runs[visit] = _measure_one(plan, visit, _Bar(progress, bar))
    return runs


def _measure_one(plan: _Plan, visit: Visit, bar: _Bar) -> Run:
    """One run, on a server that is fresh where we start it: no run inherits memory or a queue from another."""
    options, load = plan.options, plan.load(visit)
    caller = Caller(timeout_s=options.timeout_s, api_key=options.api_key if visit.target.url else None)
    with _serving(options, visit.target) as serving:
        warm_up(serving.url, load, number=options.warm_up, caller=caller)
        return measure(
            serving.url,
            load,
            header=_header(plan, visit, serving),
            path=options.out / f"{visit.name}.jsonl",
            caller=caller,
            watcher=Watcher(on_sent=bar.sent, on_line=bar.over),
        )


@contextmanager
def _serving(options: BenchOptions, target: Target) -> Iterator[_Serving]:
    if target.url is not None:
        yield _Serving(url=target.url, engine=options.model or PLAIN_TEXT["model"])
        return
    arguments = ["--model", options.model] if options.model else []
    arguments += ["--workers", str(options.workers)] if options.workers else []
    with EmbeddedServer(target.name, log=options.out / _LOG, arguments=arguments) as server:
        yield _Serving(
            url=server.url,
            engine=server.model_id,
            num_workers=server.num_workers,
            preempt=policy_named(target.name).preemptive,
        )


def _header(plan: _Plan, visit: Visit, serving: _Serving) -> RunHeader:
    options, trace = plan.options, plan.trace(visit)
    own_rate_per_s = mean_rate_per_s(trace)
    return RunHeader(
        policy=visit.target.name,
        preempt=serving.preempt,
        num_requests=len(trace),
        rate_per_s=None if own_rate_per_s is None else visit.rate_per_s or own_rate_per_s,
        seed=visit.seed,
        num_workers=serving.num_workers,
        engine=serving.engine,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        notes={
            "round": visit.round,
            "warm_up": options.warm_up,
            "stream": options.stream,
            "timeout_s": options.timeout_s,
            "url": visit.target.url or "started for this run",
        },
        **plan.about,
    )


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("answered, {task.fields[sent]} sent, {task.fields[failed]} failed"),
        TimeElapsedColumn(),
        console=console,
    )


class _Bar:
    """The progress of one run."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._num_sent = 0
        self._num_failed = 0

    def sent(self) -> None:
        self._num_sent += 1
        self._progress.update(self._task, sent=self._num_sent)

    def over(self, line: LatencyRecord | Failure) -> None:
        self._num_failed += isinstance(line, Failure)
        self._progress.update(self._task, advance=1, failed=self._num_failed)


def _tell(options: BenchOptions, runs: Mapping[Visit, Run], console: Console) -> None:
    """Print the tables and write the summary."""
    goals = Goals(short_s=options.slo_short_s, other_s=options.slo_s)
    results = []
    for rate_per_s in options.rates_per_s:
        by_name = {
            target.name: [
                run for visit, run in runs.items() if (visit.target, visit.rate_per_s) == (target, rate_per_s)
            ]
            for target in options.targets
        }
        base, *others = by_name
        figures = [figures_of(some, goals) for some in by_name.values()]
        changes = {name: changes_of(by_name[base], by_name[name]) for name in others}
        console.print(tables_of(figures, changes))
        results.append(_as_json(base, figures, changes))
    summary = options.out / _SUMMARY
    summary.write_text(json.dumps({"goals": asdict(goals), "rates": results}, indent=1) + "\n", encoding="utf-8")
    console.print(f"Runs and {_SUMMARY}: {options.out}")


def _as_json(
    base: str, figures: Sequence[TargetFigures], changes: Mapping[str, Mapping[str, Interval]]
) -> dict[str, Any]:
    percents = {
        name: {figure: asdict(interval) for figure, interval in some.items()} for name, some in changes.items()
    }
    return {"figures": [asdict(one) for one in figures], "change_percent": {"against": base, **percents}}
