"""What each policy serves first and whom it puts off; and that policies yet to come fit the interface."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

import pytest

from sooner import (
    Estimate,
    HeapQueue,
    Job,
    Policy,
    Scheduler,
    StaticPolicy,
    Ticket,
    policies,
    policy_named,
    register,
)
from sooner.core.policy import FairPolicy
from sooner.core.traffic import Traffic
from sooner.errors import UnknownJobError, UnknownPolicyError


def ticket(job_id: str, arrival_s: float, size_s: float, remaining_s: float | None = None) -> Ticket:
    return Ticket(
        id=job_id,
        arrival_s=arrival_s,
        size_s=size_s,
        remaining_s=size_s if remaining_s is None else remaining_s,
        sequence=int(arrival_s * 1000),
    )


def job(job_id: str, arrival_s: float, size_s: float) -> Job:
    estimate = Estimate(estimated_output_tokens=1, windows=1, size_s=size_s)
    return Job(id=job_id, arrival_s=arrival_s, audio_s=size_s, estimate=estimate)


TICKETS = [ticket("old-long", 0, 20, 12), ticket("mid", 5, 6), ticket("new-short", 9, 1.5)]


@pytest.mark.parametrize(
    ("name", "order", "victim"),
    [
        ("fcfs", ["old-long", "mid", "new-short"], "new-short"),
        ("sjf", ["new-short", "mid", "old-long"], "old-long"),
        # response ratios at 10 s: 1.5, 1.83, 1.67
        ("hrrn", ["mid", "new-short", "old-long"], "old-long"),
        ("srpt", ["new-short", "mid", "old-long"], "old-long"),
        ("fair", ["new-short", "mid", "old-long"], "old-long"),  # 24, 65, 200
        # without a backlog, and with the γ of no traffic, 1 a second: by arrival
        ("quantile", ["old-long", "mid", "new-short"], "old-long"),
        ("boost", ["old-long", "mid", "new-short"], "new-short"),
        ("adaptive", ["old-long", "mid", "new-short"], "old-long"),
    ],
)
def test_order_and_victim(name: str, order: list[str], victim: str) -> None:
    policy = policy_named(name)
    queue = policy.make_queue(Traffic(num_workers=1))
    for t in TICKETS:
        queue.push(t)
    assert [t.id for t in queue.ordered(10.0)] == order
    chosen = policy.victim(TICKETS, 10.0)
    assert chosen is not None
    assert chosen.id == victim


def test_the_policies_that_there_are() -> None:
    assert [policy.name for policy in policies()] == [
        "fcfs",
        "sjf",
        "hrrn",
        "srpt",
        "fair",
        "quantile",
        "boost",
        "adaptive",
    ]


@pytest.mark.parametrize("name", ["fcfs", "sjf", "hrrn", "srpt", "fair"])
def test_the_victim_is_who_would_be_served_last(name: str) -> None:
    policy = policy_named(name)
    rng = random.Random(3)
    running = [ticket(f"job{n}", rng.uniform(0, 50), rng.uniform(0.5, 30)) for n in range(40)]
    queue = policy.make_queue(Traffic(num_workers=1))
    for t in running:
        queue.push(t)
    assert policy.victim(running, 60.0) == queue.ordered(60.0)[-1]


@pytest.mark.parametrize("name", ["quantile", "adaptive"])
def test_where_orders_change_the_victim_is_the_largest(name: str) -> None:
    rng = random.Random(3)
    running = [ticket(f"job{n}", rng.uniform(0, 50), rng.uniform(0.5, 30)) for n in range(40)]
    assert policy_named(name).victim(running, 60.0) is max(running, key=lambda t: t.size_s)


def test_under_boost_the_victim_is_who_came_last() -> None:
    assert policy_named("boost").victim([TICKETS[2], *TICKETS[:2]], 10.0) is TICKETS[2]


@pytest.mark.parametrize("policy", policies(), ids=lambda p: p.name)
def test_where_nothing_runs_nobody_is_the_victim(policy: Policy) -> None:
    assert policy.victim([], 60.0) is None


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("fair:0", ["old-long", "mid", "new-short"]),
        ("fair:0.5", ["mid", "new-short", "old-long"]),  # 8, 9.75, 10
        ("fair:30", ["new-short", "mid", "old-long"]),
    ],
)
def test_the_dial_of_fair(name: str, order: list[str]) -> None:
    policy = policy_named(name)
    queue = policy.make_queue(Traffic(num_workers=1))
    for t in TICKETS:
        queue.push(t)
    assert policy.name == name
    assert [t.id for t in queue.ordered(10.0)] == order


def test_the_dial_is_part_of_the_name() -> None:
    assert policy_named("fair:2.50") == FairPolicy(name="fair:2.5", dial=2.5)
    assert policy_named("fair") == FairPolicy()


@pytest.mark.parametrize("name", ["fair:", "fair:-1", "fair:inf", "fair:nan", "fair:much", "sjf:2", "lifo:2"])
def test_a_dial_that_none_can_be(name: str) -> None:
    with pytest.raises(UnknownPolicyError, match=f"{name!r}; known: fcfs, sjf"):
        policy_named(name)


def test_sjf_victim_is_the_largest_remaining_not_the_largest_job() -> None:
    nearly_done = ticket("nearly-done", 0, 100, remaining_s=1)
    fresh = ticket("fresh", 1, 10)
    assert policy_named("sjf").victim([nearly_done, fresh], 5.0) is fresh


def test_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(UnknownPolicyError, match="'lifo'; known: fcfs, sjf, hrrn, srpt, fair"):
        policy_named("lifo")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="already registered"):
        register(policy_named("sjf"))


# Policies of the roadmap, written against today's interface.


def test_a_static_key_policy_is_one_rank() -> None:
    """arrival + c · size: a job of 2 s overtakes one of 10 s that came up to 4 s earlier."""
    policy = StaticPolicy(
        name="linear",
        summary="arrival + c · size",
        rank=lambda t: t.arrival_s + 0.5 * t.size_s,
        preemptive=True,
    )
    scheduler = Scheduler(policy, num_workers=1)
    for new in (job("long", 0.0, 10.0), job("short", 3.0, 2.0), job("late", 4.5, 2.0)):
        scheduler.submit(new)
    served = [scheduler.next(5.0) for _ in range(3)]
    assert [s.id for s in served if s] == ["short", "long", "late"]


class DemotingQueue:
    """Two classes: while a backlog lasts, jobs longer than ``limit_s`` wait behind all others."""

    def __init__(self, limit_s: float, backlog: int) -> None:
        self._limit_s = limit_s
        self._backlog = backlog
        self._first = HeapQueue(lambda t: t.arrival_s)
        self._demoted = HeapQueue(lambda t: t.arrival_s)

    def push(self, ticket: Ticket) -> None:
        demote = len(self) >= self._backlog and ticket.size_s > self._limit_s
        (self._demoted if demote else self._first).push(ticket)

    def peek(self, now_s: float) -> Ticket | None:
        return self._first.peek(now_s) or self._demoted.peek(now_s)

    def pop(self, now_s: float) -> Ticket | None:
        return self._first.pop(now_s) or self._demoted.pop(now_s)

    def remove(self, job_id: str) -> Ticket:
        try:
            return self._first.remove(job_id)
        except UnknownJobError:
            return self._demoted.remove(job_id)

    def ordered(self, now_s: float) -> list[Ticket]:
        return self._first.ordered(now_s) + self._demoted.ordered(now_s)

    def check(self) -> None:
        self._first.check()
        self._demoted.check()

    def __len__(self) -> int:
        return len(self._first) + len(self._demoted)

    def __iter__(self) -> Iterator[Ticket]:
        yield from self._first
        yield from self._demoted

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._first or job_id in self._demoted


class TwoClassPolicy:
    name = "two-class"
    summary = "demote the longest arrivals while a backlog lasts"
    preemptive = False

    def make_queue(self, traffic: Traffic) -> DemotingQueue:
        return DemotingQueue(limit_s=5.0, backlog=2)

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return max(running, key=lambda t: t.size_s, default=None)


def test_a_two_class_policy_brings_its_own_queue() -> None:
    scheduler = Scheduler(TwoClassPolicy(), num_workers=1)
    for new in (job("long0", 0, 9), job("a", 1, 1), job("long1", 2, 9), job("b", 3, 1)):
        scheduler.submit(new)
        scheduler.check()
    served = []
    while (one := scheduler.next(4.0)) is not None:
        served.append(one.id)
    assert served == ["long0", "a", "b", "long1"]


def test_a_controller_switches_policy_and_nobody_is_lost() -> None:
    scheduler = Scheduler(policy_named("fcfs"), num_workers=1)
    for new in (job("first", 0, 30), job("long", 1, 20), job("mid", 2, 10), job("short", 3, 1)):
        scheduler.submit(new)
    assert scheduler.next(4.0).id == "first"
    scheduler.switch_policy(policy_named("sjf"))
    scheduler.check()
    assert [row.job.id for row in scheduler.forecast(4.0)] == ["first", "short", "mid", "long"]
    assert scheduler.next(4.0).id == "short"
    scheduler.switch_policy(policy_named("fcfs"))
    scheduler.check()
    # arrivals are as they were: going back to fcfs restores the old order
    assert [row.job.id for row in scheduler.forecast(5.0) if not row.running] == ["long", "mid"]
    assert scheduler.statistics().num_waiting == 2
