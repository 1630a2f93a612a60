"""How fast is the simulator? A million requests with about a thousand waiting all the time.

Test-clean clips arrive at 1.2 times what the engine can serve, and the queue takes a thousand: it is full within
minutes and stays so, and what it refuses is counted too. Each policy on each kind of engine, one core; CPU
seconds, with making jobs and records, without making the trace.
"""

from __future__ import annotations

import json
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sooner import policies
from sooner.simulator.profile import load_profile
from sooner.simulator.simulate import capacity_per_s, simulate
from sooner.workload.make import make_trace
from sooner.workload.options import WorkloadOptions

RESULTS = Path(__file__).parent / "results" / "simulator.json"
NUM_REQUESTS = 1_000_000
MAX_QUEUE = 1000
OVERLOAD = 1.2
PROFILES = ("a100-large-v3", "embedded-tiny")


def measure(profile_name: str, policy: str) -> dict[str, object]:
    profile = load_profile(profile_name)
    sample = make_trace(WorkloadOptions(workload="clips", requests=2620), rate_per_s=1.0, seed=1)
    options = WorkloadOptions(workload="clips", requests=NUM_REQUESTS)
    rate_per_s = OVERLOAD * capacity_per_s(profile, sample)
    trace = make_trace(options, rate_per_s=rate_per_s, seed=1)
    begin_s = time.process_time()
    run = simulate(profile, trace, policy=policy, max_queue=MAX_QUEUE)
    cpu_s = time.process_time() - begin_s
    return {
        "profile": profile_name,
        "policy": policy,
        "num_requests": len(run.records) + len(run.failures),
        "num_refused": len(run.failures),
        "cpu_s": cpu_s,
        "us_per_served": 1e6 * cpu_s / len(run.records),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    # A process for each row: a process tells only the most memory it ever had.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        cells = [(profile, policy.name) for profile in PROFILES for policy in policies()]
        rows = [pool.submit(measure, *cell).result() for cell in cells]
    RESULTS.write_text(json.dumps({"method": __doc__, "rows": rows}, indent=1) + "\n")
    table = Table(title=f"{NUM_REQUESTS:,} requests, about {MAX_QUEUE:,} waiting")
    for column in ("profile", "policy", "refused", "CPU seconds", "µs a request served", "peak MiB"):
        table.add_column(column, justify="left" if column in ("profile", "policy") else "right")
    for row in rows:
        table.add_row(
            f"{row['profile']}",
            f"{row['policy']}",
            f"{row['num_refused']:,}",
            f"{row['cpu_s']:.1f}",
            f"{row['us_per_served']:.1f}",
            f"{int(str(row['peak_bytes'])) / 2**20:,.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
