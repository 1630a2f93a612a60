"""The controller: calm while little waits, another order for another traffic, and no going to and fro."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner import Ticket, policy_named
from sooner.core.adaptive import AdaptivePolicy, Goals, Switch
from sooner.core.waiting_line import WaitingLine

ORDERS = {"fcfs", "boost", "quantile", "srpt", "hrrn"}
Size = Callable[[random.Random], float]


def alike(rng: random.Random) -> float:
    return rng.uniform(0.8, 1.2)


def clips_and_files(rng: random.Random) -> float:
    return 20.0 if rng.random() < 0.05 else rng.uniform(0.4, 0.6)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A switch, and how long the controller must stay with the order before it, by what was measured then."""

    switch: Switch
    dwell_s: float


def serve(policy: AdaptivePolicy, size: Size, loads: Sequence[float], *, num_jobs: int = 600) -> list[Seen]:
    """One worker whose sizes are right, so many jobs at each load after the other, windows of a second."""
    rng = random.Random(7)
    line = WaitingLine(policy, num_workers=1)
    mean_s = sum(size(rng) for _ in range(4000)) / 4000
    now_s = free_at_s = 0.0
    running: Ticket | None = None
    seen: list[Seen] = []

    def note() -> None:
        traffic = line.traffic
        seen.extend(
            Seen(switch=s, dwell_s=100 * traffic.median_size_s / traffic.speed) for s in line.take_switches()
        )

    for number in range(1, len(loads) * num_jobs + 1):
        now_s += rng.expovariate(loads[(number - 1) // num_jobs] / mean_s)
        while free_at_s <= now_s and (running is not None or len(line)):
            if running is not None and running.remaining_s > 1.0:
                line.push(replace(running, remaining_s=running.remaining_s - 1.0, served_s=running.served_s + 1.0))
                note()
            running = line.pop(free_at_s)
            note()
            free_at_s += 0.0 if running is None else running.next_service_s
        size_s = size(rng)
        new = Ticket(
            id=f"{number}", arrival_s=now_s, size_s=size_s, remaining_s=size_s, sequence=number, window_s=1.0
        )
        free_at_s = max(free_at_s, now_s) if running is None and not len(line) else free_at_s
        line.push(new)
        note()
    assert line.num_switches == len(seen)
    return seen


def orders(seen: list[Seen]) -> set[str]:
    return {one.switch.after for one in seen}


def test_it_begins_calm_and_stays_so_at_low_load() -> None:
    assert WaitingLine(policy_named("adaptive"), num_workers=1).order == "fcfs"
    assert serve(AdaptivePolicy(), alike, [0.3]) == []


@pytest.mark.parametrize(
    ("size", "load", "order", "reason"),
    [
        (clips_and_files, 0.9, "quantile", "sizes differ widely"),
        (alike, 0.9, "boost", "sizes are alike"),
        (alike, 1.5, "quantile", "more arrives than can be served"),
    ],
    ids=["sizes differ", "sizes are alike", "overload"],
)
def test_the_order_is_the_one_for_the_traffic(size: Size, load: float, order: str, reason: str) -> None:
    switches = [one.switch for one in serve(AdaptivePolicy(), size, [load, load])]
    assert any(switch.after == order and reason in switch.reason for switch in switches)


@pytest.mark.parametrize(
    ("goals", "order", "goal"),
    [
        (Goals(short_p90_s=0.9), "srpt", "the shorter half misses its P90 goal of 0.9 s"),
        (Goals(all_p99_s=15.0), "hrrn", "all miss their P99 goal of 15 s"),
    ],
)
def test_a_goal_that_is_missed_changes_the_order(goals: Goals, order: str, goal: str) -> None:
    seen = serve(AdaptivePolicy(goals=goals), clips_and_files, [1.1, 1.1])
    (reason, *_) = [one.switch.reason for one in seen if one.switch.after == order]
    assert reason.endswith(goal)
    assert order not in orders(serve(AdaptivePolicy(), clips_and_files, [1.1, 1.1]))


def test_goals_that_are_met_change_nothing() -> None:
    far = Goals(short_p90_s=1e6, all_p99_s=1e6)
    without = serve(AdaptivePolicy(), clips_and_files, [0.9])
    assert without
    assert serve(AdaptivePolicy(goals=far), clips_and_files, [0.9]) == without


@settings(deadline=None, max_examples=30)
@given(
    loads=st.lists(st.sampled_from([0.3, 0.7, 0.95, 1.3]), min_size=1, max_size=5),
    size=st.sampled_from([alike, clips_and_files]),
    goals=st.builds(
        Goals, short_p90_s=st.sampled_from([None, 0.9, 5.0]), all_p99_s=st.sampled_from([None, 15.0, 60.0])
    ),
)
def test_every_switch_has_its_reason_and_leaves_the_order_before_its_time(
    loads: list[float], size: Size, goals: Goals
) -> None:
    """Out of calm at once; out of anything else not before a hundred median jobs could be served."""
    order, since_s = "fcfs", float("-inf")
    for seen in serve(AdaptivePolicy(goals=goals), size, loads, num_jobs=250):
        switch = seen.switch
        assert switch.before == order != switch.after
        assert switch.after in ORDERS
        assert re.search(r"\d", switch.reason)
        assert order == "fcfs" or switch.at_s - since_s >= seen.dwell_s
        order, since_s = switch.after, switch.at_s


def test_calm_returns_when_the_rush_is_over() -> None:
    seen = serve(AdaptivePolicy(), clips_and_files, [1.2, 0.1])
    assert seen[0].switch.before == "fcfs"
    assert seen[-1].switch.after == "fcfs"
    assert seen[-1].switch.reason.startswith("hardly anything waits")


def test_a_lone_file_that_comes_back_is_no_queue() -> None:
    line = WaitingLine(policy_named("adaptive"), num_workers=1)
    file = Ticket(id="file", arrival_s=0.0, size_s=100.0, remaining_s=100.0, sequence=1, window_s=1.0)
    for number in range(2, 30):
        clip = Ticket(id=f"clip{number}", arrival_s=0.0, size_s=0.5, remaining_s=0.5, sequence=number)
        line.push(clip)
        line.pop(0.0)
    line.push(replace(file, sequence=30))
    for second in range(1, 50):
        taken = line.pop(float(second))
        assert taken is not None
        line.push(replace(taken, remaining_s=100.0 - second, served_s=float(second)))
    assert line.take_switches() == []


def test_only_the_last_switches_are_kept_until_somebody_asks() -> None:
    line = WaitingLine(policy_named("adaptive"), num_workers=1)
    sequence, now_s = 0, 0.0
    while line.num_switches < 150:
        for _ in range(6):
            sequence += 1
            line.push(Ticket(id=f"{sequence}", arrival_s=now_s, size_s=1.0, remaining_s=1.0, sequence=sequence))
        now_s += 1000.0
        while line.pop(now_s) is not None:
            now_s += 1000.0
    switches = line.take_switches()
    assert len(switches) == 100
    assert [one.at_s for one in switches] == sorted(one.at_s for one in switches)
    assert line.take_switches() == []
