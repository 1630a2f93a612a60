"""Clients and classes of priority against a reference that scans lists, and what a flood costs the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import HeapQueue, ReadyQueue, ResponseRatioQueue, Ticket
from sooner.core.groups import GroupedQueue
from sooner.core.guard import Guard, GuardedQueue
from sooner.errors import DuplicateJobError, UnknownJobError

# On a grid of 1/64 s differences are exact in binary.
grid_s = st.integers(0, 64 * 40).map(lambda n: n / 64)
size_s = st.sampled_from([0.25, 0.5, 1.0, 8.0, 30.0])
WINDOW_S = 4.0


def fcfs() -> ReadyQueue:
    return HeapQueue(lambda t: t.arrival_s)


def sjf() -> ReadyQueue:
    return HeapQueue(lambda t: t.remaining_s)


def guarded(make_inner: Callable[[], ReadyQueue], guard: Guard) -> Callable[[], ReadyQueue]:
    return lambda: GuardedQueue(make_inner(), guard, capacity=lambda: 2)


ORDERS = [fcfs, sjf, ResponseRatioQueue]
CONTESTS = [
    *[(order, order) for order in ORDERS],
    *[(guarded(order, Guard(scale=0.5, slack_s=2.0)), order) for order in ORDERS],
    *[(guarded(order, Guard(max_wait_s=10.0)), order) for order in ORDERS],
]


def ticket(
    sequence: int,
    *,
    client: str | None = None,
    priority: int = 0,
    arrival_s: float = 0.0,
    size_s: float = 1.0,
) -> Ticket:
    return Ticket(
        id=f"job{sequence}",
        arrival_s=arrival_s,
        size_s=size_s,
        remaining_s=size_s,
        sequence=sequence,
        window_s=WINDOW_S,
        client=client,
        priority=priority,
    )


def after_a_window(taken: Ticket) -> Ticket:
    served_s = taken.next_service_s
    return replace(taken, remaining_s=taken.remaining_s - served_s, served_s=taken.served_s + served_s)


class NaiveGroups:
    """The same rules over one contest per class and one list of all that is held back, scanned in full."""

    def __init__(self, make_contest: Callable[[], ReadyQueue], make_backlog: Callable[[], ReadyQueue]) -> None:
        self.make_contest = make_contest
        self.make_backlog = make_backlog
        self.contests: dict[int, ReadyQueue] = {}
        self.held_back: list[Ticket] = []
        self.contending: dict[str, Ticket] = {}  # as they arrived
        self.turns: set[str] = set()
        self.num_entered = 0
        self.latest_s = -math.inf

    def enter(self, arrived: Ticket, contender: Ticket) -> None:
        self.contending[arrived.id] = arrived
        self.contests.setdefault(arrived.priority, self.make_contest()).push(contender)

    def push(self, new: Ticket) -> None:
        self.latest_s = max(self.latest_s, new.arrival_s)
        rivals = [t for t in self.contending.values() if (t.client, t.priority) == (new.client, new.priority)]
        had_its_turn = new.served_s > 0 or new.remaining_s < new.size_s
        if new.client is None or had_its_turn:
            self.enter(new, new)
        elif not any(t.id in self.turns for t in rivals):
            self.turns.add(new.id)
            self.enter(new, new)
        elif new.allowance_s is not None:
            self.enter(new, new)
        else:
            self.held_back.append(new)

    def as_it_arrived(self, contender: Ticket) -> Ticket:
        return replace(self.contending[contender.id], allowance_s=contender.allowance_s)

    def first_contest(self) -> ReadyQueue | None:
        return next((queue for _, queue in sorted(self.contests.items()) if len(queue)), None)

    def peek(self, now_s: float) -> Ticket | None:
        self.latest_s = max(self.latest_s, now_s)
        queue = self.first_contest()
        return None if queue is None else self.as_it_arrived(queue.peek(now_s))

    def pop(self, now_s: float) -> Ticket | None:
        self.latest_s = max(self.latest_s, now_s)
        queue = self.first_contest()
        return None if queue is None else self.leave(queue.pop(now_s), now_s)

    def remove(self, victim: Ticket) -> Ticket:
        if victim in self.held_back:
            self.held_back.remove(victim)
            return victim
        return self.leave(self.contests[victim.priority].remove(victim.id), self.latest_s)

    def leave(self, contender: Ticket, now_s: float) -> Ticket:
        arrived = self.as_it_arrived(contender)
        del self.contending[arrived.id]
        behind = [t for t in self.held_back if (t.client, t.priority) == (arrived.client, arrived.priority)]
        if arrived.id in self.turns and behind:
            backlog = self.make_backlog()
            for t in behind:
                backlog.push(t)
            heir = backlog.peek(now_s)
            self.held_back.remove(heir)
            self.turns.add(heir.id)
            self.num_entered += 1
            rank = {"arrival_s": max(heir.arrival_s, now_s), "sequence": 10**9 + self.num_entered}
            self.enter(heir, replace(heir, **rank))
        self.turns.discard(arrived.id)
        return arrived

    def waiting(self) -> list[Ticket]:
        contenders = [self.as_it_arrived(t) for queue in self.contests.values() for t in queue]
        return contenders + self.held_back

    def ordered(self, now_s: float) -> list[Ticket]:
        now = {t.id: t for t in self.waiting()}
        replay = deepcopy(self)
        order = []
        while replay.peek(now_s) is not None:
            order.append(now[replay.pop(now_s).id])
        return order


class GroupsAgainstScan(RuleBasedStateMachine):
    """Every operation is done on the queue and on the reference."""

    @initialize(queues=st.sampled_from(CONTESTS))
    def begin(self, queues: tuple[Callable[[], ReadyQueue], Callable[[], ReadyQueue]]) -> None:
        self.queue = GroupedQueue(*queues)
        self.naive = NaiveGroups(*queues)
        self.queues = queues
        self.now_s = 0.0
        self.sequence = 0
        self.running: list[Ticket] = []
        self.num_outside = 0

    @rule(seconds=grid_s)
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    def push(self, new: Ticket) -> None:
        self.queue.push(new)
        self.naive.push(new)

    @rule(
        client=st.sampled_from([None, "a", "b", "c"]),
        priority=st.sampled_from([0, 0, 0, 1, -2]),
        size_s=size_s,
        count=st.sampled_from([1, 1, 5]),
    )
    def arrive(self, client: str | None, priority: int, size_s: float, count: int) -> None:
        for _ in range(count):
            self.sequence += 1
            new = ticket(self.sequence, client=client, priority=priority, arrival_s=self.now_s, size_s=size_s)
            self.push(new)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        back = after_a_window(self.running.pop(data.draw(st.integers(0, len(self.running) - 1))))
        if back.remaining_s > 0:
            self.push(back)
        else:
            self.num_outside += 1

    @rule()
    def peek(self) -> None:
        shown, expected = self.queue.peek(self.now_s), self.naive.peek(self.now_s)
        assert (shown and shown.id) == (expected and expected.id)  # the allowance is brought up to date at the pop

    @rule()
    def pop(self) -> None:
        expected = self.naive.pop(self.now_s)
        assert self.queue.pop(self.now_s) == expected
        if expected is not None:
            self.running.append(expected)

    @precondition(lambda self: self.naive.waiting())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(self.naive.waiting()))
        assert self.queue.remove(victim.id) == self.naive.remove(victim)
        self.num_outside += 1

    @rule()
    def move_to_a_new_queue(self) -> None:
        waiting = sorted(self.queue, key=lambda t: t.sequence)
        self.queue, self.naive = GroupedQueue(*self.queues), NaiveGroups(*self.queues)
        for each in waiting:
            self.push(each)
        promised = {t.id: t.allowance_s for t in waiting if t.allowance_s is not None}
        assert promised.items() <= {t.id: t.allowance_s for t in self.queue}.items()

    @rule()
    def list_in_order(self) -> None:
        assert self.queue.ordered(self.now_s) == self.naive.ordered(self.now_s)

    @invariant()
    def holds_what_it_should(self) -> None:
        self.queue.check()
        waiting = {t.id: t for t in self.naive.waiting()}
        assert {t.id: t for t in self.queue} == waiting
        assert len(self.queue) == len(waiting)
        assert all(job_id in self.queue for job_id in waiting)
        assert len(waiting) + len(self.running) + self.num_outside == self.sequence, "a job is lost"


GroupsAgainstScan.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestGroupsAgainstScan = GroupsAgainstScan.TestCase


class NobodyInParticular(RuleBasedStateMachine):
    """Without clients and classes the queue hands out the contest's very tickets, in its order."""

    @initialize(make=st.sampled_from(ORDERS))
    def begin(self, make: Callable[[], ReadyQueue]) -> None:
        self.queue = GroupedQueue(make, make)
        self.bare = make()
        self.now_s = 0.0
        self.sequence = 0

    @rule(seconds=grid_s, size_s=size_s)
    def arrive(self, seconds: float, size_s: float) -> None:
        self.now_s += seconds
        self.sequence += 1
        new = ticket(self.sequence, arrival_s=self.now_s, size_s=size_s)
        self.queue.push(new)
        self.bare.push(new)

    @rule()
    def take(self) -> None:
        assert self.queue.ordered(self.now_s) == self.bare.ordered(self.now_s)
        assert self.queue.peek(self.now_s) is self.bare.peek(self.now_s)
        assert self.queue.pop(self.now_s + 1.0) is self.bare.pop(self.now_s + 1.0)


NobodyInParticular.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestNobodyInParticular = NobodyInParticular.TestCase


def serve(queue: GroupedQueue, *, count: int, now_s: float, each_s: float) -> list[str | None]:
    """The clients of the next ``count`` tickets, one every ``each_s`` seconds."""
    clients = []
    for n in range(count):
        taken = queue.pop(now_s + n * each_s)
        clients.append(taken.client)
    return clients


@pytest.mark.parametrize("make", ORDERS)
@pytest.mark.parametrize("each_s", [0.0, 1.0])
def test_a_flood_of_one_client_does_not_hold_up_another(make: Callable[[], ReadyQueue], each_s: float) -> None:
    queue = GroupedQueue(make, make)
    for n in range(1000):
        queue.push(ticket(n, client="flood"))
    assert serve(queue, count=50, now_s=0.0, each_s=each_s) == ["flood"] * 50
    queue.push(ticket(1000, client="other", arrival_s=50 * each_s))
    assert "other" in serve(queue, count=3, now_s=50 * each_s, each_s=each_s)
    queue.check()


@pytest.mark.parametrize("each_s", [0.0, 1.0])
def test_fcfs_becomes_round_robin(each_s: float) -> None:
    queue = GroupedQueue(fcfs, fcfs)
    for n in range(12):
        queue.push(ticket(n, client="abc"[n // 4]))
    assert [t.client for t in queue.ordered(0.0)] == list("abc" * 4)
    assert serve(queue, count=12, now_s=0.0, each_s=each_s) == list("abc" * 4)


def test_a_client_s_own_jobs_keep_the_policy_s_order() -> None:
    queue = GroupedQueue(sjf, sjf)
    for n, size_s in enumerate([5.0, 3.0, 9.0, 1.0]):
        queue.push(ticket(n, client="a", size_s=size_s))
    assert [t.size_s for t in queue.ordered(0.0)] == [5.0, 1.0, 3.0, 9.0]  # the first had the turn already


def test_a_begun_job_contends_beside_its_client_s_turn_with_its_own_arrival() -> None:
    queue = GroupedQueue(fcfs, fcfs)
    for n in range(3):
        queue.push(ticket(n, client="a", size_s=10.0))
    queue.push(ticket(3, client="b", arrival_s=1.0))
    begun = queue.pop(2.0)
    back = after_a_window(begun)
    queue.push(back)
    assert queue.ordered(6.0) == [back, ticket(3, client="b", arrival_s=1.0)] + [
        ticket(n, client="a", size_s=10.0) for n in (1, 2)
    ]


def test_the_lower_priority_number_is_served_first_and_has_turns_of_its_own() -> None:
    queue = GroupedQueue(fcfs, fcfs)
    for n, priority in enumerate([5, 5, 0, 0, 1]):
        queue.push(ticket(n, client="a", priority=priority))
    assert [queue.pop(1.0).priority for _ in range(3)] == [0, 0, 1]
    queue.push(ticket(5, priority=-1, arrival_s=9.0))
    assert [queue.pop(9.0).priority for _ in range(3)] == [-1, 5, 5]
    assert queue.pop(9.0) is None
    queue.check()


def test_a_turn_that_is_cancelled_passes_on_at_the_latest_second_heard_of() -> None:
    queue = GroupedQueue(fcfs, fcfs)
    queue.push(ticket(0, client="a"))
    queue.push(ticket(1, client="a"))
    queue.push(ticket(2, client="c", arrival_s=2.5))
    assert queue.peek(3.0).id == "job0"
    queue.push(ticket(3, client="b", arrival_s=2.0))  # measured longer than the others: 3.0 stays the latest
    assert queue.remove("job0") == ticket(0, client="a")
    assert [t.id for t in queue.ordered(3.0)] == ["job3", "job2", "job1"]
    assert queue.remove("job1") == ticket(1, client="a")
    queue.check()


def test_an_allowance_is_promised_with_the_turn_and_shown_with_the_true_arrival() -> None:
    queue = GroupedQueue(guarded(fcfs, Guard(scale=1.0, slack_s=0.5)), fcfs)
    for n in range(2):
        queue.push(ticket(n, client="a"))
    queue.push(ticket(2, client="b", arrival_s=1.0, size_s=3.0))
    assert queue.pop(4.0).allowance_s == 0.5 * 2
    assert {t.id: (t.arrival_s, t.allowance_s) for t in queue} == {
        "job1": (0.0, 3.0 + 0.5 * 2),
        "job2": (1.0, 1.0 + 0.5 * 2),
    }


def test_a_promise_is_not_held_back_behind_a_turn() -> None:
    queue = GroupedQueue(guarded(sjf, Guard(scale=0.0, slack_s=1.0)), sjf)
    queue.push(ticket(0, client="a", size_s=9.0))
    promised = replace(ticket(1, client="a", size_s=20.0), allowance_s=0.0)
    queue.push(promised)
    assert queue.pop(1.0) == promised
    queue.check()


def test_misuse_is_named_and_changes_nothing() -> None:
    queue = GroupedQueue(fcfs, fcfs)
    queue.push(ticket(0, client="a"))
    with pytest.raises(DuplicateJobError, match="'job0'"):
        queue.push(ticket(0, client="b", priority=1))
    with pytest.raises(UnknownJobError, match="'job1'"):
        queue.remove("job1")
    queue.check()
    assert [t.id for t in queue] == ["job0"]
