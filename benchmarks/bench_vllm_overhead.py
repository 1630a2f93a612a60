"""What ordering costs inside vLLM: the real scheduler, without an engine, at n waiting requests.

Method: vLLM's own scheduler is built in this process as its engine builds it, for Whisper base with 8 slots and
one 30 s window a step, once per policy: ``fcfs`` and ``priority`` are vLLM's, ``sjf`` and ``hrrn`` the plugin's.
n requests wait in each, with sizes of LibriSpeech test-clean (n̂ = max(1, int(3 · audio_s)), which is what the
plugin orders by) in random order and arrivals spread over ten minutes.

A block then runs the steady state until a number of requests has been admitted: one step plans
(``schedule()``), a made-up model answers one token for each running request (``update_from_output()``), and for
each request that finishes, another arrives (``add_request()``), so n stays. Every request really answers 22
tokens, the mean of test-clean, whatever its estimate: thus all policies make the same number of steps for an
admission, and only the order differs.

Only these three calls are timed, not building requests or answers, and by the CPU time of the thread: a
scheduler waits for nothing, and other processes do not count. All policies take turns within a round, each time
in another order, so that a slow moment of the machine hits all alike. A policy's added time is the difference
to fcfs of the same round, all three calls together, per admitted request; the figure is the median over rounds.
Garbage is collected between blocks, not in them. Beside it stands what the plugin's queue took by its own
clock, adding, looking and taking, per admitted request: the order itself, without the calls around it.

Needs the vLLM environment: ``.venv-vllm/bin/python benchmarks/bench_vllm_overhead.py``. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import platform
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when vLLM is imported, next
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import vllm
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from vllm.plugins import load_general_plugins
from vllm.v1.outputs import ModelRunnerOutput

from sooner.bench.vllm_scheduler import SchedulerSetup, make_request
from sooner.core.latency import percentile
from sooner.vllm_plugin.chunk import ESTIMATE_KEY
from sooner.workload.recordings import librispeech_test_clean

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results" / "vllm_overhead.json"
MODEL = ROOT / ".venv-vllm" / "whisper-base" / "hf"

POLICIES = ("fcfs", "priority", "sjf", "hrrn")
NUM_WAITING = (100, 1_000, 10_000)
NUM_ROUNDS = 15
NUM_ADMITTED = 100  # per block
NUM_SLOTS = 8
KAPPA = 3.0
ANSWER_TOKENS = 22
WAITED_S = 600.0
SOME_WORD = 7


# The measurement


@dataclass(slots=True, kw_only=True)
class Block:
    """CPU seconds of each timed call in one block, and what of it the plugin's queue took."""

    add_s: list[float] = field(default_factory=list)
    schedule_s: list[float] = field(default_factory=list)
    update_s: list[float] = field(default_factory=list)
    num_admitted: int = 0
    in_queue_s: float = 0.0

    @property
    def per_admitted_s(self) -> float:
        """All timed calls together, seconds per admitted request."""
        return (sum(self.add_s) + sum(self.schedule_s) + sum(self.update_s)) / self.num_admitted


class Contender:
    """One policy's scheduler with n waiting requests, warmed up."""

    def __init__(self, policy: str, num_waiting: int, model: Path) -> None:
        self.num_waiting = num_waiting
        self.scheduler = SchedulerSetup(model=model, policy=policy, num_slots=NUM_SLOTS).make()
        self.estimates = endless_estimates(seed=num_waiting)
        self.num_made = 0
        now_s = time.time()
        for index in range(num_waiting + NUM_SLOTS):
            self.scheduler.add_request(self.next_request(now_s - WAITED_S * (1 - index / num_waiting)))
        self.run_block(2 * NUM_SLOTS)

    def next_request(self, arrival_s: float) -> Any:
        self.num_made += 1
        return make_request(
            f"request-{self.num_made}",
            arrival_s=arrival_s,
            max_tokens=ANSWER_TOKENS,
            extra_args={ESTIMATE_KEY: next(self.estimates)},
        )

    def spent_in_queue_s(self) -> float:
        """Wall seconds that the plugin's queue says it has spent so far; 0 for vLLM's own queues."""
        return getattr(self.scheduler.waiting, "spent_ns", 0) / 1e9

    def run_block(self, num_admitted: int) -> Block:
        """Run the steady state until so many requests have been admitted."""
        scheduler, block = self.scheduler, Block()
        gc.collect()
        gc.disable()
        spent_before_s = self.spent_in_queue_s()
        while block.num_admitted < num_admitted:
            begin_s = time.thread_time()
            plan = scheduler.schedule()
            block.schedule_s.append(time.thread_time() - begin_s)
            block.num_admitted += len(plan.scheduled_new_reqs)
            answer = answer_to(plan)
            begin_s = time.thread_time()
            scheduler.update_from_output(plan, answer)
            block.update_s.append(time.thread_time() - begin_s)
            while len(scheduler.requests) < self.num_waiting + NUM_SLOTS:
                request = self.next_request(time.time())
                begin_s = time.thread_time()
                scheduler.add_request(request)
                block.add_s.append(time.thread_time() - begin_s)
        gc.enable()
        block.in_queue_s = self.spent_in_queue_s() - spent_before_s
        return block


def endless_estimates(seed: int) -> Iterator[int]:
    """n̂ of test-clean's utterances in random order."""
    rng = random.Random(seed)
    estimates = [max(1, int(KAPPA * utterance.audio_s)) for utterance in librispeech_test_clean()]
    while True:
        yield rng.choice(estimates)


def answer_to(plan: Any) -> ModelRunnerOutput:
    """One word for every scheduled request."""
    names = list(plan.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: index for index, name in enumerate(names)},
        sampled_token_ids=[[SOME_WORD]] * len(names),
    )


def measure(num_waiting: int, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All policies at one n: figures by policy, microseconds."""
    contenders = {policy: Contender(policy, num_waiting, options.model) for policy in options.policies}
    blocks: dict[str, list[Block]] = {policy: [] for policy in contenders}
    rng = random.Random(num_waiting)
    for _ in range(options.rounds):
        for policy in rng.sample(options.policies, k=len(options.policies)):
            blocks[policy].append(contenders[policy].run_block(options.admitted))
    base = blocks[options.policies[0]]
    return {policy: figures(blocks[policy], base, contenders[policy]) for policy in options.policies}


def figures(blocks: Sequence[Block], base: Sequence[Block], contender: Contender) -> dict[str, Any]:
    """Microseconds over all rounds of one policy, against those of the first."""
    added_us = [1e6 * (one.per_admitted_s - other.per_admitted_s) for one, other in zip(blocks, base, strict=True)]
    calls_us = [1e6 * call_s for block in blocks for call_s in block.schedule_s]
    return {
        "scheduler": type(contender.scheduler).__name__,
        "num_waiting_at_the_end": len(contender.scheduler.waiting),
        "steps_per_admitted": len(calls_us) / sum(block.num_admitted for block in blocks),
        "add_us": median_us([statistics.mean(block.add_s) for block in blocks]),
        "schedule_us": median_us([statistics.mean(block.schedule_s) for block in blocks]),
        "schedule_p50_us": percentile(calls_us, 50),
        "schedule_p90_us": percentile(calls_us, 90),
        "schedule_max_us": max(calls_us),
        "update_us": median_us([statistics.mean(block.update_s) for block in blocks]),
        "per_admitted_us": median_us([block.per_admitted_s for block in blocks]),
        "added_per_admitted_us": statistics.median(added_us),
        "in_queue_per_admitted_us": median_us([block.in_queue_s / block.num_admitted for block in blocks]),
        "rounds": {
            "per_admitted_us": [1e6 * block.per_admitted_s for block in blocks],
            "added_per_admitted_us": added_us,
        },
    }


def median_us(values_s: Sequence[float]) -> float:
    return 1e6 * statistics.median(values_s)


def show(results: dict[str, dict[str, dict[str, Any]]], base: str) -> None:
    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        title="vLLM's scheduler, microseconds of CPU time",
        caption=f"Medians over rounds. add, schedule: one call. request: all calls, per admitted request.\n"
        f"added: that, against {base} in the same round. queue: time in the plugin's queue, by its own clock.",
    )
    columns = ("waiting", "policy", "add", "schedule", "P50", "P90", "max", "request", "added", "queue")
    for column in columns:
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    keys = ("add_us", "schedule_us", "schedule_p50_us", "schedule_p90_us", "schedule_max_us", "per_admitted_us")
    for num_waiting, row in results.items():
        for policy, cell in row.items():
            added = f"{cell['added_per_admitted_us']:+,.1f}"
            in_queue = f"{cell['in_queue_per_admitted_us']:.1f}"
            table.add_row(f"{int(num_waiting):,}", policy, *(f"{cell[key]:,.1f}" for key in keys), added, in_queue)
        table.add_section()
    Console(width=max(100, Console().width)).print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, epilog="Defaults: as described."
    )
    parser.add_argument(
        "--policies", nargs="+", default=list(POLICIES), help="the first is what others are held to"
    )
    parser.add_argument("--waiting", nargs="+", type=int, default=list(NUM_WAITING), help="waiting requests")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS)
    parser.add_argument("--admitted", type=int, default=NUM_ADMITTED, help="requests admitted in a block")
    parser.add_argument(
        "--model", type=Path, default=MODEL, help="folder in Hugging Face's layout; only its config"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the raw numbers go")
    return parser.parse_args()


def main() -> None:
    options = parse()
    load_general_plugins()
    logging.getLogger("vllm").setLevel(logging.ERROR)
    results = {}
    for num_waiting in options.waiting:
        print(f"{num_waiting:,} waiting…", flush=True)
        results[str(num_waiting)] = measure(num_waiting, options)
    document = {
        "method": __doc__,
        "unit": "microseconds of CPU time",
        "vllm": vllm.__version__,
        "python": platform.python_version(),
        "rounds": options.rounds,
        "admitted_per_block": options.admitted,
        "waiting": results,
    }
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    show(results, options.policies[0])


if __name__ == "__main__":
    main()
