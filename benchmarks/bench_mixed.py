"""Short and long together on the real server, and what the simulator says of the same traffic.

1. *Pilot.* A hundred requests under fcfs, from which a profile is calibrated: it tells which rate is a load of
   0.85.
2. *Measurement.* ``sooner bench``: real speech through the real engine, two workers; test-clean lengths (spoken by
   the clips that ship) and 3 % files of 1 to 10 minutes (clips joined), Poisson arrivals. fcfs (each job to its
   end) and four policies that give way between windows, a fresh server with its defaults for each run (so sizes
   learn, and a guard is on), the same requests at the same times.
3. *Prediction.* A profile of workers is calibrated from all these runs, and the worker model plays the same
   lengths at the same arrivals. It knows no token count, window or wait of the run that it predicts, but for what
   the profile's numbers keep.

The runs are kept in ``results/mixed_policies/`` as ``sooner report`` reads them, profile and comparison with them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sooner import LatencyRecord
from sooner.bench.options import BenchOptions
from sooner.bench.run import run_bench
from sooner.core.estimator import WINDOW_S
from sooner.core.guard import Guard
from sooner.core.latency import percentile
from sooner.evidence.run_file import Run, read_runs
from sooner.server.options import ServeOptions
from sooner.simulator.calibrate import run_calibrate
from sooner.simulator.options import CalibrateOptions
from sooner.simulator.profile import Profile, WorkersProfile
from sooner.simulator.simulate import capacity_per_s, simulate
from sooner.workload.make import make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest

FOLDER = Path(__file__).parent / "results" / "mixed_policies"
POLICIES = ("fcfs", "sjf", "hrrn", "quantile", "adaptive")
SEEDS = (1,)
LOAD = 0.85
WORKLOAD = WorkloadOptions(workload="mixed", requests=120, file_share=0.03, max_file_s=600.0)
GUARD = Guard.parse(ServeOptions().guard)
NUM_SIMULATED = 20  # with other deviations of the windows' times


def pilot() -> Profile:
    """A first profile, from a light load."""
    with tempfile.TemporaryDirectory(prefix="sooner-pilot-") as folder:
        out = Path(folder) / "runs"
        light = replace(WORKLOAD, requests=100, file_share=0.08)  # files enough to tell what their windows take
        run_bench(BenchOptions(policies="fcfs", rate="0.8", seeds="99", out=out), light)
        return run_calibrate([out], CalibrateOptions(out=Path(folder) / "pilot.json"))


def rate_at(profile: Profile, load: float) -> float:
    """The rate; tokens by the profile's κ, because the model emits more of them than a reference text has."""
    recordings = [
        replace(one, num_tokens=None) for seed in SEEDS for one in make_trace(WORKLOAD, rate_per_s=1.0, seed=seed)
    ]
    return round(load * capacity_per_s(profile, recordings), 3)


def measure() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    rate_per_s = rate_at(pilot(), LOAD)
    seeds = ",".join(map(str, SEEDS))
    run_bench(BenchOptions(policies=",".join(POLICIES), rate=f"{rate_per_s}", seeds=seeds, out=FOLDER), WORKLOAD)


def trace_of(run: Run) -> list[TraceRequest]:
    return [TraceRequest(arrival_s=record.arrival_s, audio_s=record.audio_s) for record in run.records]


def clips_s(records: Sequence[LatencyRecord]) -> list[float]:
    return [record.e2e_s for record in records if record.audio_s <= WINDOW_S]


def compare(profile: Profile, runs: Sequence[Run]) -> list[dict[str, object]]:
    """Measured and predicted P50 and P90 of clips, by policy; each over all of its runs."""
    rows: list[dict[str, object]] = []
    for policy in POLICIES:
        own = [run for run in runs if run.header.policy == policy]
        measured_s = [seconds for run in own for seconds in clips_s(run.records)]
        predicted_s = [
            seconds
            for run in own
            for seed in range(NUM_SIMULATED)
            for seconds in clips_s(simulate(profile, trace_of(run), policy=policy, guard=GUARD, seed=seed).records)
        ]
        for percent in (50, 90):
            truth_s, guess_s = percentile(measured_s, percent), percentile(predicted_s, percent)
            rows.append(
                {
                    "policy": policy,
                    "figure": f"P{percent}",
                    "num_clips": len(measured_s),
                    "measured_s": truth_s,
                    "predicted_s": guess_s,
                    "off_percent": 100 * (guess_s / truth_s - 1),
                }
            )
    return rows


def conclude() -> dict[str, object]:
    files = sorted(FOLDER.glob("*.jsonl"))
    runs = read_runs(files)
    profile = run_calibrate(files, CalibrateOptions(out=FOLDER / "profile.json", name="mixed"))
    assert isinstance(profile, WorkersProfile)
    loads = {
        run.header.policy + f" seed {run.header.seed}": (run.header.rate_per_s or 0)
        / capacity_per_s(profile, trace_of(run))
        for run in runs
    }
    return {
        "method": __doc__,
        "load_by_the_profile": loads,
        "num_failures": sum(len(run.failures) for run in runs),
        "by_the_profile_of_all_runs": compare(profile, runs),
    }


def show(title: str, rows: Sequence[dict[str, object]]) -> None:
    table = Table(title=title)
    for column in ("policy", "clips' E2E", "measured, s", "predicted, s", "off"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for row in rows:
        figures = [float(str(row[key])) for key in ("measured_s", "predicted_s", "off_percent")]
        table.add_row(
            f"{row['policy']}",
            f"{row['figure']}",
            f"{figures[0]:.2f}",
            f"{figures[1]:.2f}",
            f"{figures[2]:+.0f} %",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep-runs", action="store_true", help="predict the runs that are there")
    if not parser.parse_args().keep_runs:
        measure()
    results = conclude()
    (FOLDER / "prediction.json").write_text(json.dumps(results, indent=1) + "\n")
    rows = results["by_the_profile_of_all_runs"]
    assert isinstance(rows, list)
    show("by the profile of all runs", rows)


if __name__ == "__main__":
    main()
