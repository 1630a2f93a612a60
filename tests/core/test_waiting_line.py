"""Every policy's waiting line against a reference that scans lists, and what a change of order must not touch."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import Ticket, policies, policy_named
from sooner.core.guard import Guard
from sooner.core.waiting_line import WaitingLine
from sooner.errors import DuplicateJobError, UnknownJobError
from tests.core.naive import NaiveLine

NAMES = [*(policy.name for policy in policies()), "fair:0", "fair:2.5"]
WINDOW_S = 1.0

# On a grid of 1/64 s sums are exact in binary.
moment_s = st.integers(0, 64 * 4).map(lambda n: n / 64)
size_s = st.one_of(st.integers(8, 64), st.integers(64 * 3, 64 * 40)).map(lambda n: n / 64)
own_s = st.sampled_from([0.0, 0.0, 0.25, 2.0])


def ticket(sequence: int, **facts: float | str | None) -> Ticket:
    given_facts = {"arrival_s": 0.0, "size_s": 1.0, "window_s": WINDOW_S} | facts
    return Ticket(id=f"job{sequence}", sequence=sequence, remaining_s=given_facts["size_s"], **given_facts)  # type: ignore[arg-type]


def after_a_window(taken: Ticket) -> Ticket | None:
    """What comes back; ``None`` where the job is done."""
    done_s = taken.next_service_s
    if done_s == taken.remaining_s:
        return None
    return replace(taken, remaining_s=taken.remaining_s - done_s, served_s=taken.served_s + done_s)


class Pair:
    """A waiting line and its reference, through the same life."""

    def __init__(self, policy: str, num_workers: int, client: str | None = None) -> None:
        self.client = client
        self.line = WaitingLine(policy_named(policy), num_workers=num_workers)
        self.naive = NaiveLine(self.line.order, num_workers=num_workers)
        self.now_s = 0.0
        self.num_arrived = 0
        self.running: list[Ticket] = []

    @property
    def waiting(self) -> list[Ticket]:
        return self.naive.traffic.waiting

    def follow_switches(self) -> None:
        """Change the reference's order where the controller reports that it changed."""
        for switch in self.line.take_switches():
            assert switch.before == self.naive.order != switch.after
            self.naive.switch(switch.after)

    def arrive(self, size_s: float, own_s: float = 0.0) -> None:
        self.num_arrived += 1
        new = ticket(self.num_arrived, arrival_s=self.now_s, size_s=size_s, own_s=own_s, client=self.client)
        self.push(new)

    def push(self, new: Ticket) -> None:
        self.line.push(new)
        self.naive.push(new)
        self.follow_switches()

    def take(self) -> None:
        expected = self.naive.pop(self.now_s)
        assert self.line.peek(self.now_s) == expected
        assert self.line.pop(self.now_s) == expected
        self.follow_switches()
        if expected is not None:
            self.running.append(expected)

    def end_window(self, index: int) -> None:
        rest = after_a_window(self.running.pop(index))
        if rest is not None:
            self.push(rest)

    def cancel(self, index: int) -> None:
        victim = self.waiting[index]
        assert self.line.remove(victim.id) == victim
        self.naive.remove(victim)

    def switch(self, policy: str) -> None:
        self.line.switch_policy(policy_named(policy))
        self.naive.switch(self.line.order)

    def check(self) -> None:
        assert self.line.order == self.naive.order
        assert self.line.ordered(self.now_s) == self.naive.ordered(self.now_s)
        assert len(self.line) == len(self.waiting)
        assert all(one.id in self.line for one in self.waiting)
        self.line.check()


class LineAgainstScan(RuleBasedStateMachine):
    """Random arrivals, windows, cancellations and changes of order, without clients and with one."""

    @initialize(policy=st.sampled_from(NAMES), num_workers=st.integers(1, 3), client=st.sampled_from([None, "a"]))
    def begin(self, policy: str, num_workers: int, client: str | None) -> None:
        self.pair = Pair(policy, num_workers, client)

    @rule(seconds=moment_s)
    def let_time_pass(self, seconds: float) -> None:
        self.pair.now_s += seconds

    @rule(sizes_s=st.lists(size_s, min_size=1, max_size=6), own_s=own_s)
    def arrive(self, sizes_s: list[float], own_s: float) -> None:
        for one in sizes_s:
            self.pair.arrive(one, own_s)

    @rule(times=st.integers(1, 4), seconds=moment_s)
    def take(self, times: int, seconds: float) -> None:
        for _ in range(times):
            self.pair.take()
            self.pair.now_s += seconds

    @precondition(lambda self: self.pair.running)
    @rule(data=st.data())
    def end_window(self, data: st.DataObject) -> None:
        self.pair.end_window(data.draw(st.integers(0, len(self.pair.running) - 1)))

    @precondition(lambda self: self.pair.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.pair.cancel(data.draw(st.integers(0, len(self.pair.waiting) - 1)))

    @rule(policy=st.sampled_from(NAMES))
    def switch(self, policy: str) -> None:
        self.pair.switch(policy)

    @invariant()
    def agree(self) -> None:
        self.pair.check()


LineAgainstScan.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestLineAgainstScan = LineAgainstScan.TestCase


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize(
    "sizes_s", [(0.25, 0.5, 0.75, 1.0, 1.5, 12.0), (2.0, 2.5, 3.0)], ids=["unlike", "half is too much"]
)
def test_a_long_rush_is_ordered_as_the_reference_has_it(policy: str, sizes_s: tuple[float, ...]) -> None:
    """Long enough for every window of what is measured to be full and to move on."""
    rng = random.Random(11)
    pair = Pair(policy, num_workers=2)
    for step in range(1400):
        pair.arrive(rng.choice(sizes_s) + rng.randrange(64) / 64)
        for _ in range(rng.choice([0, 1, 1, 2])):
            pair.now_s += rng.randrange(64) / 32
            pair.take()
        while len(pair.running) > 2:
            pair.end_window(0)
        if pair.waiting and rng.random() < 0.35:  # or it grows past what a test has the time to sort
            pair.cancel(rng.randrange(len(pair.waiting)))
        if step % 20 == 0:
            pair.check()
    assert pair.naive.traffic.is_measured
    assert pair.num_arrived == 1400


GUARDS = [None, Guard(scale=1.0, slack_s=2.0), Guard(max_wait_s=20.0)]
turns = st.lists(st.tuples(size_s, st.sampled_from([None, "a", "b"]), st.booleans()), min_size=1, max_size=40)


@settings(deadline=None)
@given(
    turns=turns,
    guard=st.sampled_from(GUARDS),
    names=st.lists(st.sampled_from(NAMES), min_size=1),
    max_wait_s=st.sampled_from([None, 0.25]),
)
def test_a_change_of_order_loses_nothing(
    turns: list[tuple[float, str | None, bool]], guard: Guard | None, names: list[str], max_wait_s: float | None
) -> None:
    """Each comes out once, as it went in, with what was left of its promise before the change."""
    line = WaitingLine(policy_named("adaptive"), num_workers=1, guard=guard, max_wait_s=max_wait_s)
    came: dict[str, Ticket] = {}
    gone: list[Ticket | None] = []
    for number, (one_s, client, takes) in enumerate(turns, start=1):
        new = ticket(number, arrival_s=number / 64, size_s=one_s, client=client)
        came[new.id] = new
        line.push(new)
        if takes:
            gone.append(line.pop(number / 64))
        promised = {one.id: (one.allowance_s, one.turn_allowance_s) for one in line if one.allowance_s is not None}
        line.switch_policy(policy_named(names[number % len(names)]))
        kept = {one.id: (one.allowance_s, one.turn_allowance_s) for one in line}
        for job_id, (own_s, turn_s) in promised.items():
            assert kept[job_id] == (
                own_s,
                kept[job_id][1] if turn_s is None else turn_s,
            )  # or its first turn began
        line.check()
    gone.extend(line.pop(100.0) for _ in range(len(line)))
    assert line.pop(100.0) is None
    assert sorted(one.id for one in gone if one) == sorted(came)
    assert all(replace(one, allowance_s=None, turn_allowance_s=None) == came[one.id] for one in gone if one)


def test_what_the_queue_refuses_leaves_no_trace() -> None:
    line = WaitingLine(policy_named("quantile"), num_workers=1)
    line.push(ticket(1))
    with pytest.raises(DuplicateJobError):
        line.push(ticket(1))
    with pytest.raises(UnknownJobError):
        line.remove("job2")
    line.check()
    assert (line.traffic.num_waiting, line.traffic.mean_size_s, len(line.traffic.sizes_s)) == (1, 1.0, 1)


def test_others_are_merged_where_the_order_would_put_them() -> None:
    line = WaitingLine(policy_named("sjf"), num_workers=1)
    for number, one_s in enumerate([4.0, 2.0, 8.0], start=1):
        line.push(ticket(number, size_s=one_s))
    others = [ticket(10, size_s=3.0), ticket(11, size_s=9.0)]
    merged = line.merged(line.ordered(0.0), others, 0.0)
    assert [one.size_s for one in merged] == [2.0, 3.0, 4.0, 8.0, 9.0]
    assert len(line) == 3
