"""What the order costs: one push and one pop at n waiting jobs, for each policy and for the naive HRRN scan.

Method: fill a waiting line, as the scheduler has it, with n tickets whose sizes are those of LibriSpeech
test-clean utterances, then time blocks of "one arrives, one is served" with the clock moving on, so n stays. What
a line measures of its traffic is in the figures, and one line has a scaled guard. All take turns within a round,
and the figure is the median over rounds: a slow moment of the machine hits all alike, and ratios count.
The scan is the plain one: the highest response ratio by looking at every waiting ticket, removal in O(1).
"""

from __future__ import annotations

import json
import platform
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sooner import Estimator, Ticket, policies, policy_named
from sooner.core.guard import Guard
from sooner.core.waiting_line import WaitingLine
from sooner.workload.recordings import librispeech_test_clean

RESULTS = Path(__file__).parent / "results" / "queue.json"
NUM_WAITING = (100, 1_000, 10_000, 100_000)
NUM_ROUNDS = 9
NUM_WORKERS = 2
GUARD = Guard(scale=5.0, slack_s=120.0)
BLOCK_S = 0.02  # about how long one timed block takes


class NaiveScan:
    """Highest response ratio next by a scan of everything that waits."""

    def __init__(self) -> None:
        self._tickets: list[Ticket] = []

    def push(self, ticket: Ticket) -> None:
        self._tickets.append(ticket)

    def pop(self, now_s: float) -> Ticket:
        tickets = self._tickets
        best, best_ratio = 0, float("-inf")
        for index, ticket in enumerate(tickets):
            size_s = ticket.size_s
            ratio = (now_s - ticket.arrival_s + size_s) / size_s
            if ratio > best_ratio:
                best, best_ratio = index, ratio
        tickets[best], tickets[-1] = tickets[-1], tickets[best]
        return tickets.pop()


def tickets(seed: int) -> Iterator[Ticket]:
    """Endless arrivals, one a millisecond, with test-clean sizes in random order."""
    rng = random.Random(seed)
    estimator = Estimator()
    sizes_s = [estimator.estimate(utterance.audio_s).size_s for utterance in librispeech_test_clean()]
    sequence = 1
    while True:
        size_s = rng.choice(sizes_s)
        yield Ticket(
            id=f"job{sequence}",
            arrival_s=sequence / 1000,
            size_s=size_s,
            remaining_s=size_s,
            sequence=sequence,
        )
        sequence += 1


class Contender:
    """One queue with n tickets in it, ready to be timed."""

    def __init__(self, queue: WaitingLine | NaiveScan, num_waiting: int) -> None:
        self._queue = queue
        self._arrivals = tickets(seed=num_waiting)
        for _ in range(num_waiting):
            queue.push(next(self._arrivals))
        self._num_operations = 1
        self._num_operations = max(1, round(BLOCK_S / self.time_one()))

    def time_one(self) -> float:
        """Seconds for one push and one pop, averaged over a block."""
        block = [next(self._arrivals) for _ in range(self._num_operations)]
        queue = self._queue
        begin_s = time.perf_counter()
        for ticket in block:
            queue.push(ticket)
            queue.pop(ticket.arrival_s)
        return (time.perf_counter() - begin_s) / len(block)


def contenders(num_waiting: int) -> dict[str, Contender]:
    made = {
        policy.name: Contender(WaitingLine(policy, num_workers=NUM_WORKERS), num_waiting) for policy in policies()
    }
    guarded = WaitingLine(policy_named("sjf"), num_workers=NUM_WORKERS, guard=GUARD)
    made["sjf, guarded"] = Contender(guarded, num_waiting)
    made["hrrn by scan"] = Contender(NaiveScan(), num_waiting)
    return made


def measure(num_waiting: int) -> dict[str, dict[str, object]]:
    taking_turns = contenders(num_waiting)
    seen: dict[str, list[float]] = {name: [] for name in taking_turns}
    for _ in range(NUM_ROUNDS):
        for name, contender in taking_turns.items():
            seen[name].append(contender.time_one())
    return {
        name: {"median_us": statistics.median(times_s) * 1e6, "rounds_us": [t * 1e6 for t in times_s]}
        for name, times_s in seen.items()
    }


def main() -> None:
    results = {str(n): measure(n) for n in NUM_WAITING}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"method": __doc__, "python": platform.python_version(), "push_and_pop": results}, indent=1)
        + "\n"
    )
    table = Table(title="One push and one pop, microseconds (median)")
    for column in ("", *(f"{num_waiting:,} waiting" for num_waiting in NUM_WAITING)):
        table.add_column(column, justify="right" if column else "left")
    for name in results[str(NUM_WAITING[0])]:
        table.add_row(name, *(f"{float(str(row[name]['median_us'])):,.1f}" for row in results.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
