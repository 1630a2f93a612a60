"""What a hard maximum wait costs: ``mixed`` of ``bench_policies.py``, ordered and guarded as ``sooner serve`` is.

Two workers, clips with 3 % files of up to half an hour, 1,000 requests and 12 seeds, at 0.85 and 1.2 times what
the workers can serve. Means over the seeds of what one run gives, from arrival to text; the longest wait is of
any request, time without service. The same figures at each run, in half a minute.

    python benchmarks/bench_max_wait.py
"""

from __future__ import annotations

import math
import sys
from statistics import fmean

from policies_traffic import Scenario, at_loads, is_clip, is_file
from sooner import LatencyRecord, Limits, Scheduler, policy_named
from sooner.core.guard import Guard
from sooner.core.latency import percentile
from sooner.simulator.profile import WorkersProfile, load_profile
from sooner.simulator.workers import serve_by_workers, works_of
from sooner.workload.options import WorkloadOptions

LOADS = (0.85, 1.2)
MAX_WAITS_S = (None, 600.0, 120.0, 30.0)
GUARD = "scaled:5,120"


def measure(scenario: Scenario, profile: WorkersProfile, seed: int, max_wait_s: float | None) -> list[float]:
    """P50 and P90 of clips, P90 and maximum of files, and the longest wait of any request, seconds."""
    trace = scenario.trace(seed)
    scheduler = Scheduler(
        policy_named("adaptive"),
        num_workers=profile.num_workers,
        limits=Limits(max_waiting=sys.maxsize, max_audio_s=math.inf),
        guard=Guard.parse(GUARD),
        max_wait_s=max_wait_s,
    )
    served = serve_by_workers(works_of(trace, profile, seed=seed), scheduler, num_workers=profile.num_workers)
    records = sorted((one for one in served if isinstance(one, LatencyRecord)), key=lambda one: int(one.id))
    assert len(records) == len(trace)
    e2e_s = {
        belongs: [one.e2e_s for one, asked in zip(records, trace, strict=True) if belongs(asked)]
        for belongs in (is_clip, is_file)
    }
    clips_s, files_s = e2e_s[is_clip], e2e_s[is_file]
    longest_s = max(one.wait_s or 0.0 for one in records)
    return [percentile(clips_s, 50), percentile(clips_s, 90), percentile(files_s, 90), max(files_s), longest_s]


def main() -> None:
    profile = load_profile("embedded-tiny")
    assert isinstance(profile, WorkersProfile)
    options = WorkloadOptions(workload="mixed", requests=1000, max_file_s=1800)
    print("| load | maximum wait, s | clips P50, s | clips P90 | files P90 | files max | longest wait of any |")
    print("|---|---|---|---|---|---|---|")
    for scenario, load in zip(at_loads("mixed", profile, options, LOADS), LOADS, strict=True):
        for max_wait_s in MAX_WAITS_S:
            runs = [measure(scenario, profile, seed, max_wait_s) for seed in range(1, scenario.num_seeds + 1)]
            figures = " | ".join(f"{fmean(one):.3g}" for one in zip(*runs, strict=True))
            print(f"| {load:g} | {'off' if max_wait_s is None else f'{max_wait_s:g}'} | {figures} |")


if __name__ == "__main__":
    main()
