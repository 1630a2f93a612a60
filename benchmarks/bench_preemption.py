"""Which response ratio, when jobs are preempted?

HRRN was made for jobs that run to their end. With preemption two questions arise: does the time a job was served
count as waiting, and is its size the whole or what remains? Four answers are compared with fcfs and sjf on
the mix that preemption is for: LibriSpeech test-clean utterances, 3 % files of 2 to 30 minutes (log-uniform),
Poisson arrivals, two workers. A window takes exactly its estimate. Everything but the ratios that lost is the
package's own simulator, scheduler and policies; the losers are ranked by a scan here.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from sooner import Estimator, Job, LatencyRecord, Policy, Scheduler, Ticket, Traffic, policy_named, summarise
from sooner.core.estimator import WINDOW_S
from sooner.simulator.work import Progress
from sooner.simulator.workers import Work, serve_by_workers
from sooner.workload.arrivals import poisson_arrivals
from sooner.workload.recordings import librispeech_test_clean
from sooner.workload.trace import TraceRequest

RESULTS = Path(__file__).parent / "results" / "preemption.json"
NUM_WORKERS = 2
NUM_JOBS = 2500
SEEDS = range(6)
LOADS = (0.85, 0.95)
LONG_SHARE = 0.03
ESTIMATOR = Estimator()

Ratio = Callable[[Ticket, float], float]


class ScanQueue:
    """Ranks everything that waits at every pop; slow, and only for orders that are not in the package."""

    def __init__(self, ratio: Ratio) -> None:
        self._ratio = ratio
        self._tickets: dict[str, Ticket] = {}

    def push(self, ticket: Ticket) -> None:
        self._tickets[ticket.id] = ticket

    def peek(self, now_s: float) -> Ticket | None:
        return min(self._tickets.values(), key=lambda t: self._rank(t, now_s), default=None)

    def _rank(self, ticket: Ticket, now_s: float) -> tuple[float, float, int]:
        return -self._ratio(ticket, now_s), ticket.arrival_s, ticket.sequence

    def pop(self, now_s: float) -> Ticket | None:
        ticket = self.peek(now_s)
        return None if ticket is None else self.remove(ticket.id)

    def remove(self, job_id: str) -> Ticket:
        return self._tickets.pop(job_id)

    def ordered(self, now_s: float) -> list[Ticket]:
        return sorted(self._tickets.values(), key=lambda t: self._rank(t, now_s))

    def check(self) -> None:
        assert all(ticket.id == job_id for job_id, ticket in self._tickets.items())

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets.values())

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._tickets


@dataclass(frozen=True)
class RatioPolicy:
    """HRRN by another ratio."""

    name: str
    ratio: Ratio
    summary: str = "for comparison"
    preemptive: bool = True

    def make_queue(self, traffic: Traffic) -> ScanQueue:
        return ScanQueue(self.ratio)

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return min(running, key=lambda t: self.ratio(t, now_s), default=None)


CONTENDERS: dict[str, tuple[Policy, bool]] = {
    "fcfs": (policy_named("fcfs"), False),
    "hrrn, no preemption": (policy_named("hrrn"), False),
    "sjf": (policy_named("sjf"), True),
    "hrrn: waiting / whole size (ours)": (policy_named("hrrn"), True),
    "hrrn: waiting / remaining": (
        RatioPolicy("waiting-remaining", lambda t, now_s: (now_s - t.waiting_since_s) / t.remaining_s),
        True,
    ),
    "hrrn: since arrival / whole size": (
        RatioPolicy("arrival-size", lambda t, now_s: (now_s - t.arrival_s) / t.size_s),
        True,
    ),
    "hrrn: since arrival / remaining": (
        RatioPolicy("arrival-remaining", lambda t, now_s: (now_s - t.arrival_s) / t.remaining_s),
        True,
    ),
}


def make_works(seed: int, load: float) -> list[Work]:
    rng = random.Random(seed)
    utterances_s = [utterance.audio_s for utterance in librispeech_test_clean()]
    audio_s = [
        math.exp(rng.uniform(math.log(120), math.log(1800)))
        if rng.random() < LONG_SHARE
        else rng.choice(utterances_s)
        for _ in range(NUM_JOBS)
    ]
    mean_size_s = sum(ESTIMATOR.estimate(seconds).size_s for seconds in audio_s) / NUM_JOBS
    arrivals = poisson_arrivals(rng, rate_per_s=load * NUM_WORKERS / mean_size_s)
    return [
        work(f"{seed}-{n}", TraceRequest(arrival_s=arrival_s, audio_s=seconds))
        for n, (arrival_s, seconds) in enumerate(zip(islice(arrivals, NUM_JOBS), audio_s, strict=True))
    ]


def work(job_id: str, request: TraceRequest) -> Work:
    """A job whose every window takes exactly its estimate."""
    estimate = ESTIMATOR.estimate(request.audio_s)
    left_s = [request.audio_s - WINDOW_S * done for done in range(estimate.windows)]
    return Work(
        job=Job(id=job_id, arrival_s=request.arrival_s, audio_s=request.audio_s, estimate=estimate),
        progress=Progress(job_id, request, estimate.size_s, estimate.windows, estimate.estimated_output_tokens),
        windows_s=[ESTIMATOR.estimate(min(WINDOW_S, seconds)).size_s for seconds in left_s],
        remaining=[ESTIMATOR.estimate(seconds) for seconds in left_s[1:]],
    )


def serve(seed: int, load: float, policy: Policy, preempt: bool) -> list[LatencyRecord]:
    scheduler = Scheduler(policy, num_workers=NUM_WORKERS, preempt=preempt)
    served = list(serve_by_workers(make_works(seed, load), scheduler, num_workers=NUM_WORKERS))
    records = [one for one in served if isinstance(one, LatencyRecord)]
    assert len(records) == NUM_JOBS
    return records


def measure(load: float, name: str) -> dict[str, object]:
    policy, preempt = CONTENDERS[name]
    records = [record for seed in SEEDS for record in serve(seed, load, policy, preempt)]
    return {
        "clips": asdict(summarise(r for r in records if r.audio_s < 40)),
        "long": asdict(summarise(r for r in records if r.audio_s >= 40)),
        "all": asdict(summarise(records)),
    }


def main() -> None:
    cells = [(load, name) for load in LOADS for name in CONTENDERS]
    results = {f"{load}": {} for load in LOADS}  # type: dict[str, dict[str, dict[str, object]]]
    for load, name in track(cells, description="simulating"):
        results[f"{load}"][name] = measure(load, name)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"method": __doc__, "results": results}, indent=1) + "\n")
    for load, rows in results.items():
        table = Table(title=f"offered load {load}: E2E seconds (clips, long files, all), slowdown of all")
        for column in ("", "clips P50", "P99", "max", "long P50", "P90", "max", "all P99", "mean", "slowdown max"):
            table.add_column(column, justify="right" if column else "left")
        for name, row in rows.items():
            clips, long, everything = (dict(row[key]) for key in ("clips", "long", "all"))  # type: ignore[call-overload]
            figures = (
                *(clips[key] for key in ("p50_s", "p99_s", "max_s")),
                *(long[key] for key in ("p50_s", "p90_s", "max_s")),
                *(everything[key] for key in ("p99_s", "mean_s", "max_slowdown")),
            )
            table.add_row(name, *(f"{figure:.2f}" if figure < 10 else f"{figure:.1f}" for figure in figures))
        Console(width=150).print(table)


if __name__ == "__main__":
    main()
