"""What the order costs: one push and one pop at n waiting jobs, for each policy and for the naive HRRN scan.

Method: fill a queue with n tickets whose sizes are those of LibriSpeech test-clean utterances, then time
blocks of "one arrives, one is served" with the clock moving on, so n stays. All queues take turns within a
round, and the figure is the median over rounds: a slow moment of the machine hits all alike, and ratios count.
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

from sooner import Estimator, ReadyQueue, Ticket, policy_named
from sooner.workload.recordings import librispeech_test_clean

RESULTS = Path(__file__).parent / "results" / "queue.json"
NUM_WAITING = (100, 1_000, 10_000, 100_000)
NUM_ROUNDS = 9
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
    sequence = 0
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

    def __init__(self, queue: ReadyQueue | NaiveScan, num_waiting: int) -> None:
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


def measure(num_waiting: int) -> dict[str, dict[str, object]]:
    contenders = {
        name: Contender(policy_named(name).make_queue(), num_waiting) for name in ("fcfs", "sjf", "hrrn")
    }
    contenders["hrrn by scan"] = Contender(NaiveScan(), num_waiting)
    seen: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(NUM_ROUNDS):
        for name, contender in contenders.items():
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
    for column in ("waiting", "fcfs", "sjf", "hrrn", "hrrn by scan", "scan / hrrn", "hrrn / sjf"):
        table.add_column(column, justify="right")
    for num_waiting, row in results.items():
        median_us = {name: float(str(cell["median_us"])) for name, cell in row.items()}
        table.add_row(
            f"{int(num_waiting):,}",
            *(f"{value:,.1f}" for value in median_us.values()),
            f"{median_us['hrrn by scan'] / median_us['hrrn']:,.0f}",
            f"{median_us['hrrn'] / median_us['sjf']:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
