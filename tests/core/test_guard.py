"""The guard against a naive reference, and its promise in a small simulation with exact sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import HeapQueue, ReadyQueue, ResponseRatioQueue, Ticket
from sooner.core.guard import Guard, GuardedQueue
from sooner.core.overtaking import AllowanceTree, _Node
from sooner.errors import ConfigurationError, DuplicateJobError, UnknownJobError

# Everything on a grid of 1/64 s, and scales that are powers of two: sums and products are exact in binary.
grid_s = st.integers(0, 64 * 40).map(lambda n: n / 64)
size_s = st.one_of(st.integers(1, 64), st.integers(64 * 20, 64 * 60)).map(lambda n: n / 64)
scales = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
guards = st.one_of(
    grid_s.map(lambda s: Guard(max_wait_s=s)),
    st.builds(lambda scale, slack_s: Guard(scale=scale, slack_s=slack_s), scales, grid_s),
)
WINDOW_S = 4.0


def by_remaining() -> ReadyQueue:
    return HeapQueue(lambda t: t.remaining_s)


def by_size() -> ReadyQueue:
    return HeapQueue(lambda t: t.size_s)


def last_come_first() -> ReadyQueue:
    return HeapQueue(lambda t: -t.arrival_s)


INNER = [by_remaining, by_size, last_come_first, ResponseRatioQueue]


def ticket(sequence: int, *, arrival_s: float = 0.0, size_s: float = 1.0, **more: float) -> Ticket:
    return Ticket(
        id=f"job{sequence}",
        arrival_s=arrival_s,
        size_s=size_s,
        remaining_s=size_s,
        sequence=sequence,
        window_s=WINDOW_S,
        **more,
    )


def arrived(waiting: Ticket) -> tuple[float, int]:
    return waiting.arrival_s, waiting.sequence


def after_a_window(taken: Ticket) -> Ticket:
    served_s = taken.next_service_s
    return replace(taken, remaining_s=taken.remaining_s - served_s, served_s=taken.served_s + served_s)


class NaiveGuard:
    """The same rules by scanning a list; ``inner`` orders it from scratch each time."""

    def __init__(self, make_inner: Callable[[], ReadyQueue], guard: Guard, num_workers: int) -> None:
        self.make_inner = make_inner
        self.guard = guard
        self.num_workers = num_workers
        self.waiting: list[Ticket] = []

    def push(self, new: Ticket) -> None:
        if new.allowance_s is None and self.guard.scale is not None and self.guard.slack_s is not None:
            ahead_s = sum(t.remaining_s for t in self.waiting)
            new = replace(new, allowance_s=self.guard.scale * ahead_s + self.guard.slack_s * self.num_workers)
        self.waiting.append(new)

    def next(self, now_s: float) -> Ticket | None:
        in_order = sorted(self.waiting, key=arrived)
        if self.guard.max_wait_s is None:
            due = [t for t in in_order if t.allowance_s is not None and t.allowance_s <= 0]
        else:
            due = [t for t in in_order if now_s - t.arrival_s >= self.guard.max_wait_s]
        if due:
            return due[0]
        inner = self.make_inner()
        for waiting in self.waiting:
            inner.push(waiting)
        return inner.peek(now_s)

    def take(self, taken: Ticket) -> None:
        self.waiting.remove(taken)
        if self.guard.scale is not None:
            self.waiting = [
                replace(t, allowance_s=t.allowance_s - taken.next_service_s) if arrived(t) < arrived(taken) else t
                for t in self.waiting
            ]

    def ordered(self, now_s: float) -> list[Ticket]:
        replay = NaiveGuard(self.make_inner, self.guard, self.num_workers)
        replay.waiting = list(self.waiting)
        now = {t.id: t for t in self.waiting}
        order = []
        while (first := replay.next(now_s)) is not None:
            replay.take(first)
            order.append(now[first.id])
        return order


class GuardAgainstScan(RuleBasedStateMachine):
    """Every operation is done on the queue and on the naive reference."""

    @initialize(make_inner=st.sampled_from(INNER), guard=guards, num_workers=st.integers(1, 3))
    def begin(self, make_inner: Callable[[], ReadyQueue], guard: Guard, num_workers: int) -> None:
        self.make_inner, self.guard, self.num_workers = make_inner, guard, num_workers
        self.queue = GuardedQueue(make_inner(), guard, capacity=lambda: num_workers)
        self.naive = NaiveGuard(make_inner, guard, num_workers)
        self.now_s = 0.0
        self.shown: Ticket | None = None
        self.sequence = 0
        self.running: list[Ticket] = []

    @rule(seconds=grid_s)
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    def push(self, new: Ticket) -> None:
        self.queue.push(new)
        self.naive.push(new)
        self.shown = None

    @rule(size_s=size_s, ago_s=st.one_of(st.just(0.0), grid_s))
    def arrive(self, size_s: float, ago_s: float) -> None:
        self.sequence += 1
        self.push(ticket(self.sequence, arrival_s=self.now_s - ago_s, size_s=size_s))

    @rule(count=st.integers(2, 12))
    def many_shorts_arrive(self, count: int) -> None:
        for _ in range(count):
            self.arrive(0.25, 0.0)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        back = after_a_window(self.running.pop(data.draw(st.integers(0, len(self.running) - 1))))
        if back.remaining_s > 0:
            self.push(back)

    @rule()
    def peek(self) -> None:
        self.shown = self.naive.next(self.now_s)
        seen = self.queue.peek(self.now_s)  # the allowance is brought up to date at the pop
        assert (seen and seen.id) == (self.shown and self.shown.id)

    @rule()
    def pop(self) -> None:
        expected = self.shown or self.naive.next(self.now_s)
        assert self.queue.pop(self.now_s) == expected
        if expected is not None:
            self.naive.take(expected)
            self.running.append(expected)
        self.shown = None

    @precondition(lambda self: self.naive.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(self.naive.waiting))
        assert self.queue.remove(victim.id) == victim
        self.naive.waiting.remove(victim)
        self.shown = None

    @rule()
    def move_to_a_new_queue(self) -> None:
        moved = GuardedQueue(self.make_inner(), self.guard, capacity=lambda: self.num_workers)
        for waiting in self.queue:
            moved.push(waiting)
        self.queue = moved
        self.shown = None

    @rule()
    def list_in_order(self) -> None:
        assert self.queue.ordered(self.now_s) == self.naive.ordered(self.now_s)

    @invariant()
    def holds_what_it_should(self) -> None:
        self.queue.check()
        assert len(self.queue) == len(self.naive.waiting)
        assert sorted(self.queue, key=arrived) == sorted(self.naive.waiting, key=arrived)
        assert all(t.id in self.queue for t in self.naive.waiting)


GuardAgainstScan.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestGuardAgainstScan = GuardAgainstScan.TestCase


@dataclass(slots=True, kw_only=True)
class Fate:
    """What became of a job in ``simulate``: seconds, but for ``num_returns``."""

    work_ahead_s: float
    waited_first_s: float = math.nan
    waited_s: float = 0.0
    num_returns: int = 0


def simulate(queue: ReadyQueue, arrivals: list[tuple[float, float]], *, num_workers: int) -> dict[str, Fate]:
    """Serve (arrival_s, size_s) by windows on workers that never idle while a job waits; sizes are exact."""
    coming = [ticket(n, arrival_s=at_s, size_s=size_s) for n, (at_s, size_s) in enumerate(sorted(arrivals))]
    running: list[tuple[float, Ticket]] = []
    since_s: dict[str, float] = {}
    fates: dict[str, Fate] = {}
    while coming or running:
        now_s = min([end_s for end_s, _ in running] + [t.arrival_s for t in coming[:1]])
        while coming and coming[0].arrival_s == now_s:
            new = coming.pop(0)
            in_service_s = sum(t.remaining_s - t.next_service_s + end_s - now_s for end_s, t in running)
            fates[new.id] = Fate(work_ahead_s=sum(t.remaining_s for t in queue) + in_service_s)
            since_s[new.id] = now_s
            queue.push(new)
        for end_s, done in [r for r in running if r[0] == now_s]:
            running.remove((end_s, done))
            back = after_a_window(done)
            if back.remaining_s > 0:
                since_s[back.id] = now_s
                queue.push(back)
        while len(running) < num_workers and (taken := queue.pop(now_s)) is not None:
            fate = fates[taken.id]
            waited_s = now_s - since_s[taken.id]
            fate.waited_s += waited_s
            if taken.served_s == 0:
                fate.waited_first_s = waited_s
            else:
                fate.num_returns += 1
            running.append((now_s + taken.next_service_s, taken))
    return fates


arrivals_and_sizes = st.one_of(
    st.lists(st.tuples(grid_s, size_s), min_size=1, max_size=25),
    st.integers(5, 60).map(lambda n: [(0.0, 1.0), (0.5, 30.0)] + [(k * 0.5, 0.5) for k in range(2, n)]),
    st.integers(5, 60).map(lambda n: [(0.0, 0.5)] * n + [(0.5, 30.0)] + [(0.5, 0.25)] * n),
)


@pytest.mark.parametrize("make_inner", [by_remaining, last_come_first])
@settings(max_examples=150, deadline=None)
@given(arrivals=arrivals_and_sizes, scale=scales, slack_s=grid_s, num_workers=st.integers(1, 3))
def test_no_job_waits_longer_than_promised(
    make_inner: Callable[[], ReadyQueue],
    arrivals: list[tuple[float, float]],
    scale: float,
    slack_s: float,
    num_workers: int,
) -> None:
    queue = GuardedQueue(make_inner(), Guard(scale=scale, slack_s=slack_s), capacity=lambda: num_workers)
    fates = simulate(queue, arrivals, num_workers=num_workers)
    assert len(fates) == len(arrivals)
    for fate in fates.values():
        assert fate.waited_first_s >= 0
        bound_s = (1 + scale) * fate.work_ahead_s / num_workers + slack_s + WINDOW_S / num_workers
        assert fate.waited_first_s <= bound_s + 1e-9
        under_way_s = fate.num_returns * (num_workers - 1) * WINDOW_S / num_workers
        assert fate.waited_s <= bound_s + under_way_s + 1e-9


def test_without_a_guard_the_same_arrivals_break_the_promise() -> None:
    arrivals = [(0.0, 1.0), (0.5, 30.0)] + [(k * 0.5, 0.5) for k in range(2, 200)]
    waited_s = {}
    for name, queue in {
        "bare": by_remaining(),
        "guarded": GuardedQueue(by_remaining(), Guard(scale=1.0, slack_s=5.0), capacity=lambda: 1),
    }.items():
        waited_s[name] = simulate(queue, arrivals, num_workers=1)["job1"].waited_s
    assert waited_s["bare"] > 90
    assert waited_s["guarded"] <= 2 * 0.5 + 5.0 + WINDOW_S


@pytest.mark.parametrize("make_inner", INNER)
@settings(max_examples=60, deadline=None)
@given(arrivals=st.lists(st.tuples(grid_s, size_s), min_size=1, max_size=25))
def test_a_wide_allowance_leaves_the_inner_order(
    make_inner: Callable[[], ReadyQueue], arrivals: list[tuple[float, float]]
) -> None:
    bare = make_inner()
    guarded = [
        GuardedQueue(make_inner(), guard, capacity=lambda: 1)
        for guard in (Guard(scale=0.0, slack_s=1e6), Guard(max_wait_s=1e6))
    ]
    for n, (at_s, size_s) in enumerate(arrivals):
        for queue in (bare, *guarded):
            queue.push(ticket(n, arrival_s=at_s, size_s=size_s))
    now_s = 50.0
    while (expected := bare.pop(now_s)) is not None:
        assert {queue.pop(now_s).id for queue in guarded} == {expected.id}
        now_s += 1.5
    assert not any(len(queue) for queue in guarded)


@pytest.mark.parametrize("make_inner", INNER)
@pytest.mark.parametrize("guard", [Guard(scale=0.0, slack_s=0.0), Guard(max_wait_s=0.0)])
@settings(max_examples=60, deadline=None)
@given(arrivals=st.lists(st.tuples(grid_s, size_s), min_size=1, max_size=12))
def test_no_allowance_is_first_come_first_served_at_every_window(
    make_inner: Callable[[], ReadyQueue], guard: Guard, arrivals: list[tuple[float, float]]
) -> None:
    queue = GuardedQueue(make_inner(), guard, capacity=lambda: 1)
    for n, (at_s, size_s) in enumerate(arrivals):
        queue.push(ticket(n, arrival_s=at_s, size_s=size_s))
    finished = []
    while (taken := queue.pop(40.0)) is not None:
        back = after_a_window(taken)
        if back.remaining_s > 0:
            queue.push(back)
        else:
            finished.append(arrived(back))
    assert len(finished) == len(arrivals)
    assert finished == sorted(finished)


def test_each_overtaking_is_counted_and_the_due_ticket_is_served() -> None:
    queue = GuardedQueue(by_size(), Guard(scale=0.5, slack_s=1.0), capacity=lambda: 2)
    queue.push(ticket(0, size_s=2.0))
    queue.push(ticket(1, size_s=60.0))  # 0.5 · 2 + 1 · 2 = 3 s
    for n in range(2, 8):
        queue.push(ticket(n, arrival_s=float(n)))
    taken = [queue.pop(10.0) for _ in range(4)]
    assert [(t.id, t.allowance_s) for t in taken] == [
        ("job2", 0.5 * 62 + 2),
        ("job3", 0.5 * 63 + 2),
        ("job0", 0.0),  # two overtakings of 1 s used its slack of 2 s up
        ("job4", 0.5 * 64 + 2),
    ]
    assert queue.pop(10.0).id == "job1"  # not charged for job0, which came before it


def test_a_due_ticket_is_due_again_when_it_comes_back() -> None:
    queue = GuardedQueue(by_size(), Guard(scale=0.0, slack_s=0.0), capacity=lambda: 1)
    queue.push(ticket(0, size_s=10.0))
    taken = queue.pop(0.0)
    queue.push(ticket(1, arrival_s=1.0, size_s=0.5, allowance_s=100.0))
    queue.push(after_a_window(taken))
    assert queue.pop(4.0).id == "job0"


def test_fixed_pop_hands_out_what_peek_showed_though_another_fell_due() -> None:
    queue = GuardedQueue(by_size(), Guard(max_wait_s=10.0), capacity=lambda: 1)
    queue.push(ticket(0, size_s=5.0))
    queue.push(ticket(1, arrival_s=1.0, size_s=1.0))
    queue.push(ticket(2, arrival_s=2.0, size_s=1.0))
    assert queue.peek(9.0).id == "job1"
    assert queue.pop(10.0).id == "job1"
    assert queue.pop(10.0).id == "job0"


def test_misuse_is_named_and_changes_nothing() -> None:
    queue = GuardedQueue(by_size(), Guard(scale=0.0, slack_s=1.0), capacity=lambda: 1)
    queue.push(ticket(0))
    with pytest.raises(DuplicateJobError, match="'job0'"):
        queue.push(ticket(0))
    with pytest.raises(UnknownJobError, match="'job1'"):
        queue.remove("job1")
    queue.check()
    assert queue.pop(0.0).id == "job0"
    assert queue.peek(0.0) is None
    assert queue.pop(0.0) is None
    with pytest.raises(ValueError, match="off"):
        GuardedQueue(by_size(), Guard(), capacity=lambda: 1)


def test_options_name_guards() -> None:
    assert Guard.parse("off") == Guard()
    assert Guard.parse("fixed:30") == Guard(max_wait_s=30.0)
    assert Guard.parse("scaled:0.5,10") == Guard(scale=0.5, slack_s=10.0)


@pytest.mark.parametrize(
    "text", ["", "on", "off:1", "fixed", "fixed:", "fixed:x", "fixed:-1", "fixed:inf", "fixed:1,2", "scaled:1"]
)
def test_another_option_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ConfigurationError, match="off, fixed:SECONDS or scaled:E,D"):
        Guard.parse(text)


@pytest.mark.parametrize(
    "numbers",
    [{"scale": 1.0}, {"slack_s": 1.0}, {"max_wait_s": math.nan}, {"max_wait_s": 1, "scale": 1, "slack_s": 1}],
)
def test_half_a_guard_is_none(numbers: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Guard(**numbers)


def test_a_guard_that_is_off_wraps_nothing() -> None:
    inner = by_size()
    assert Guard().around(inner, capacity=lambda: 1) is inner
    assert isinstance(Guard(max_wait_s=1.0).around(inner, capacity=lambda: 1), GuardedQueue)


def depth(node: _Node | None) -> int:
    return 0 if node is None else 1 + max(depth(node.left), depth(node.right))


def test_the_tree_stays_shallow_whatever_the_order() -> None:
    """Rising arrivals, half of which leave and come back: 4,096 jobs, 12 levels at the very least."""
    tree = AllowanceTree()
    arrivals = [(float(n), n, str(n)) for n in range(4096)]
    for arrival in arrivals:
        tree.insert(arrival, 1)
    for arrival in arrivals[::2]:
        tree.remove(arrival)
        tree.insert(arrival, 1)
    tree.check()
    assert depth(tree._root) <= 50
    with pytest.raises(KeyError):
        tree.remove((0.5, 0, "0"))
