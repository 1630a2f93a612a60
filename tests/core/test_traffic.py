"""What is measured, against a reference that keeps everything, and against engines whose speed is known."""

from __future__ import annotations

import random
from collections.abc import Sized
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner import Ticket, policy_named
from sooner.core.traffic import Traffic
from sooner.core.waiting_line import WaitingLine
from tests.core.naive import NaiveTraffic


def ticket(number: int, *, arrival_s: float = 0.0, size_s: float = 1.0) -> Ticket:
    return Ticket(id=f"job{number}", arrival_s=arrival_s, size_s=size_s, remaining_s=size_s, sequence=number)


def assert_same(traffic: Traffic, naive: NaiveTraffic) -> None:
    assert traffic.num_waiting == len(naive.waiting)
    assert traffic.waiting_s == pytest.approx(naive.waiting_s)
    assert traffic.sizes_s == naive.sizes_s
    assert traffic.mean_size_s == pytest.approx(naive.mean_size_s)
    assert traffic.median_size_s == naive.median_size_s
    assert traffic.rate_per_s == pytest.approx(naive.rate_per_s)
    assert traffic.is_measured == naive.is_measured
    assert traffic.capacity == pytest.approx(naive.capacity)
    assert traffic.backlog_s == pytest.approx(naive.waiting_s / naive.capacity)
    for size_s in (0.0, 0.5, naive.median_size_s, 3.0, 100.0):
        assert traffic.rank(size_s) == pytest.approx(naive.rank(size_s))
    for load in (0.1, 0.5, 0.9, 5.0):
        assert traffic.share_within(load) == naive.share_within(load)
    for share in (0.0, 0.5, 0.9, 0.99):
        assert traffic.recent_e2e_s(share) == pytest.approx(naive.recent_e2e_s(share))
        some = traffic.recent_e2e_s(share, upto_size_s=naive.median_size_s)
        assert some == pytest.approx(naive.recent_e2e_s(share, upto_size_s=naive.median_size_s))


steps = st.lists(
    st.tuples(st.sampled_from(["arrive", "arrive", "take", "cancel"]), st.integers(0, 64), st.integers(1, 640)),
    max_size=80,
)


def play(steps: list[tuple[str, int, int]], num_workers: int) -> tuple[Traffic, NaiveTraffic]:
    """The same life for both: what happens, 64ths of a second since the last, 64ths of a second of size."""
    line, naive = WaitingLine(policy_named("fcfs"), num_workers=num_workers), NaiveTraffic(num_workers)
    now_s = 0.0
    for number, (what, passed, size) in enumerate(steps, start=1):
        now_s += passed / 64
        if what == "arrive":
            new = ticket(number, arrival_s=now_s, size_s=size / 64)
            line.push(new)
            naive.arrivals.append(new)
            naive.waiting.append(new)
        elif naive.waiting and what == "take":
            taken = naive.waiting.pop(0)
            assert line.pop(now_s) == taken
            naive.taken(taken, now_s)
        elif naive.waiting:
            line.remove(naive.waiting.pop().id)
            naive.removed()
    return line.traffic, naive


@settings(deadline=None)
@given(steps=steps, num_workers=st.integers(1, 4))
def test_everything_is_as_the_reference_has_it(steps: list[tuple[str, int, int]], num_workers: int) -> None:
    assert_same(*play(steps, num_workers))


def test_everything_is_as_the_reference_has_it_when_the_windows_are_full() -> None:
    rng = random.Random(8)
    steps = [
        (rng.choice(["arrive", "arrive", "take", "take", "cancel"]), rng.randrange(40), rng.randrange(1, 640))
        for _ in range(3000)
    ]
    traffic, naive = play(steps, 2)
    assert len(naive.arrivals) > 1000
    assert len(naive.full) > 100
    assert_same(traffic, naive)


def test_before_anything_came_little_is_known() -> None:
    traffic = Traffic(num_workers=3)
    assert (traffic.capacity, traffic.speed, traffic.is_measured) == (3.0, 1.0, False)
    assert (traffic.rate_per_s, traffic.load) == (None, None)
    assert (traffic.mean_size_s, traffic.median_size_s, traffic.size_variation, traffic.rank(1.0)) == (0, 0, 0, 0)
    assert traffic.share_within(0.5) == 1.0
    assert traffic.recent_e2e_s(0.5) is None


def serve(speeds: list[float], *, load: float, num_jobs: int) -> Traffic:
    """Poisson arrivals of exponential sizes, mean 1, for workers that do so many seconds of size a second."""
    rng = random.Random(1)
    line = WaitingLine(policy_named("fcfs"), num_workers=len(speeds))
    free_at_s = [0.0] * len(speeds)
    now_s = 0.0
    for number in range(1, num_jobs + 1):
        now_s += rng.expovariate(load * sum(speeds))
        while (head := line.peek(now_s)) and (begin_s := max(head.arrival_s, min(free_at_s))) <= now_s:
            worker = free_at_s.index(min(free_at_s))
            assert line.pop(begin_s) == head
            free_at_s[worker] = begin_s + head.size_s / speeds[worker]
        line.push(ticket(number, arrival_s=now_s, size_s=rng.expovariate(1.0)))
    return line.traffic


@pytest.mark.parametrize("speeds", [[1.0], [0.25], [8.0], [1.0, 1.0], [0.5, 0.5, 0.5]])
@pytest.mark.parametrize("load", [0.9, 1.5])
def test_the_capacity_is_what_the_engine_gives(speeds: list[float], load: float) -> None:
    traffic = serve(speeds, load=load, num_jobs=4000)
    assert traffic.is_measured
    assert traffic.capacity == pytest.approx(sum(speeds), rel=0.15)
    assert traffic.speed == pytest.approx(speeds[0], rel=0.15)
    assert traffic.load == pytest.approx(load, rel=0.35)  # of 128 arrivals, over a capacity that is itself seen


def test_an_idle_engine_is_not_taken_for_a_slow_one() -> None:
    """Who waited was cancelled; the hour until the next job says nothing of the engine."""
    line = WaitingLine(policy_named("fcfs"), num_workers=1)
    now_s = 0.0
    for number in range(1, 22):
        line.push(ticket(number, arrival_s=now_s))
    for _ in range(20):
        line.pop(now_s)
        now_s += 1.0
    assert line.traffic.capacity == pytest.approx(1.0)
    line.remove("job21")
    line.push(ticket(22, arrival_s=now_s + 3600.0))
    line.pop(now_s + 3600.0)
    assert line.traffic.capacity == pytest.approx(1.0)


def test_a_burst_is_no_stream_of_which_only_a_share_could_be_served() -> None:
    traffic = Traffic(num_workers=1)
    for number in range(5):
        traffic.arrived(ticket(number, arrival_s=1.0))
    assert traffic.rate_per_s == traffic.load == float("inf")
    assert traffic.share_within(0.9) == 1.0


def test_sizes_that_are_alike_do_not_vary() -> None:
    traffic = Traffic(num_workers=1)
    for number in range(10):
        traffic.arrived(ticket(number, size_s=2.0))
    assert traffic.size_variation == 0.0
    for number in range(10, 20):
        traffic.arrived(ticket(number, size_s=6.0))
    assert traffic.size_variation == pytest.approx(4.0 / 16.0)  # variance 4, mean 4


def test_memory_is_bounded() -> None:
    line = WaitingLine(policy_named("fcfs"), num_workers=1)
    for number in range(1, 5001):
        line.push(ticket(number, arrival_s=float(number), size_s=1.0 + number % 7))
        if number > 1:
            line.pop(float(number))
    held = [len(value) for value in vars(line.traffic).values() if isinstance(value, Sized)]
    assert max(held) == 512
    assert sum(held) <= 2 * 512 + 128 + 256


def test_a_job_that_comes_back_is_no_arrival() -> None:
    line = WaitingLine(policy_named("sjf"), num_workers=1)
    line.push(ticket(1, size_s=4.0))
    taken = line.pop(1.0)
    assert taken is not None
    line.push(replace(taken, remaining_s=3.0, served_s=1.0))
    line.push(ticket(2, arrival_s=2.0, size_s=6.0))
    assert line.traffic.sizes_s == [4.0, 6.0]
    assert line.traffic.rate_per_s == pytest.approx(0.5)
