"""Clients and classes of priority against a reference that scans lists, and what a flood costs the others."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import HeapQueue, ReadyQueue, ResponseRatioQueue, Ticket, policy_named
from sooner.core.groups import GroupedQueue
from sooner.core.guard import Guard, GuardedQueue
from sooner.core.waiting_line import WaitingLine
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


def whole(sequence: int, *, client: str | None = None, arrival_s: float = 0.0, size_s: float = 1.0) -> Ticket:
    """A ticket that is served in one piece."""
    return replace(ticket(sequence, client=client, arrival_s=arrival_s, size_s=size_s), window_s=math.inf)


def after_a_window(taken: Ticket) -> Ticket:
    served_s = taken.next_service_s
    return replace(taken, remaining_s=taken.remaining_s - served_s, served_s=taken.served_s + served_s)


class NaiveGroups:
    """The same rules over one contest per class, scans of what is held back, and tags that are never dropped."""

    def __init__(self, make_contest: Callable[[], ReadyQueue], make_backlog: Callable[[], ReadyQueue]) -> None:
        self.make_contest = make_contest
        self.make_backlog = make_backlog
        self.contests: dict[int, ReadyQueue] = {}
        self.held_back: list[Ticket] = []
        self.contending: dict[str, Ticket] = {}  # as they arrived
        self.turns: dict[str, float] = {}  # by id, with the virtual time at which each began
        self.virtual_s: dict[int, float] = defaultdict(float)  # by class
        self.finish_s: dict[tuple[str, int], float] = defaultdict(float)  # of all clients there ever were
        self.got_ahead: dict[tuple[str, int], int] = {}
        self.num_got_ahead = 0
        self.num_entered = 0
        self.latest_s = -math.inf

    def enter(self, arrived: Ticket, contender: Ticket) -> None:
        self.contending[arrived.id] = arrived
        self.contests.setdefault(arrived.priority, self.make_contest()).push(contender)

    def push(self, new: Ticket) -> None:
        self.latest_s = max(self.latest_s, new.arrival_s)
        had_its_turn = new.served_s > 0 or new.remaining_s < new.size_s
        key = self.key_of(new)
        may_begin = not self.has_turn(key) and not (self.is_ahead(key) and new.allowance_s is None)
        if new.client is not None and not had_its_turn and may_begin:
            self.turns[new.id] = max(self.virtual_s[new.priority], self.finish_s[key])
        elif new.client is not None and not had_its_turn and new.allowance_s is None:
            self.held_back.append(new)
            self.let_in(new.priority, self.latest_s)
            return
        self.enter(new, new)

    def has_turn(self, key: tuple[str | None, int]) -> bool:
        return any(self.key_of(self.contending[job_id]) == key for job_id in self.turns)

    @staticmethod
    def key_of(one: Ticket) -> tuple[str | None, int]:
        return one.client, one.priority

    def is_ahead(self, key: tuple[str | None, int]) -> bool:
        return self.finish_s[key] > self.virtual_s[key[1]]

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
        if queue is None:
            return None
        taken = queue.pop(now_s)
        priority, key = taken.priority, self.key_of(taken)
        num_clients = len({t.client for t in self.waiting() if t.priority == priority} | {taken.client})
        if taken.client is not None and taken.remaining_s == taken.size_s and not taken.served_s:
            self.charge(key, taken)
        arrived = self.leave(taken)
        self.begin_next(key, now_s, start_s=self.finish_s[key])
        self.virtual_s[priority] += taken.next_service_s / num_clients
        self.let_in(priority, now_s)
        return arrived

    def charge(self, key: tuple[str, int], taken: Ticket) -> None:
        if not self.is_ahead(key):
            self.num_got_ahead += 1
            self.got_ahead[key] = self.num_got_ahead
        turn = next((i for i in self.turns if self.key_of(self.contending[i]) == key), None)
        start_s = max(self.virtual_s[taken.priority], self.finish_s[key]) if turn is None else self.turns[turn]
        self.finish_s[key] = start_s + taken.size_s
        if turn is not None:
            self.turns[turn] = self.finish_s[key]

    def remove(self, victim: Ticket) -> Ticket:
        if victim in self.held_back:
            self.held_back.remove(victim)
            return victim
        start_s = self.turns.get(victim.id, 0.0)
        arrived = self.leave(self.contests[victim.priority].remove(victim.id))
        self.begin_next(self.key_of(victim), self.latest_s, start_s=start_s)
        self.let_in(victim.priority, self.latest_s)
        return arrived

    def leave(self, contender: Ticket) -> Ticket:
        arrived = self.as_it_arrived(contender)
        del self.contending[arrived.id]
        self.turns.pop(arrived.id, None)
        return arrived

    def let_in(self, priority: int, now_s: float) -> None:
        """All that caught up, the least finish first; where nobody contends then, virtual time jumps."""
        while True:
            behind = {self.key_of(t) for t in self.held_back if t.priority == priority}
            for key in sorted(behind, key=lambda key: (self.finish_s[key], self.got_ahead.get(key, 0))):
                self.begin_next(key, now_s, start_s=self.finish_s[key])
            contends = any(t.priority == priority for t in self.contending.values())
            if contends or not behind:
                return
            self.virtual_s[priority] = min(self.finish_s[key] for key in behind)

    def begin_next(self, key: tuple[str | None, int], now_s: float, *, start_s: float) -> None:
        """The client's next turn, if it has none, is not ahead and has something behind."""
        behind = [t for t in self.held_back if self.key_of(t) == key]
        if not behind or self.has_turn(key) or self.is_ahead(key):
            return
        backlog = self.make_backlog()
        for t in behind:
            backlog.push(t)
        heir = backlog.peek(now_s)
        self.held_back.remove(heir)
        self.turns[heir.id] = start_s
        self.num_entered += 1
        rank = {"arrival_s": max(heir.arrival_s, now_s), "sequence": 10**9 + self.num_entered}
        self.enter(heir, replace(heir, **rank))

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
        num_waiting = len(self.queue)
        expected = self.naive.pop(self.now_s)
        assert self.queue.pop(self.now_s) == expected
        assert (expected is None) == (num_waiting == 0), "a worker is idle while somebody waits"
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


def test_the_order_foretold_keeps_ranks_that_were_given_at_another_time() -> None:
    weights = [1.0]
    make = lambda: HeapQueue(lambda t: t.arrival_s + weights[-1] * t.size_s)  # noqa: E731
    queue = GroupedQueue(make, make)
    for n in range(9):
        queue.push(whole(n, client=[None, "a", "b"][n % 3], arrival_s=float(n), size_s=float(9 - n)))
        weights.append(1.5 - weights[-1])
    foretold = queue.ordered(9.0)
    assert [queue.pop(9.0) for _ in range(9)] == foretold


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
    queue.push(ticket(3, client="c", arrival_s=1.0, size_s=3.0))
    assert queue.pop(4.0).allowance_s == 0.5 * 2
    assert {t.id: t.allowance_s for t in queue}["job1"] is None  # its client is ahead by this one job
    assert queue.pop(5.0).id == "job2"
    assert {t.id: (t.arrival_s, t.allowance_s) for t in queue} == {
        "job1": (0.0, 3.0 + 0.5 * 2),
        "job3": (1.0, 1.0 + 3.0 + 0.5 * 2),
    }


def test_a_promise_is_not_held_back_behind_a_turn() -> None:
    queue = GroupedQueue(guarded(sjf, Guard(scale=0.0, slack_s=1.0)), sjf)
    queue.push(ticket(0, client="a", size_s=9.0))
    promised = replace(ticket(1, client="a", size_s=20.0), allowance_s=0.0)
    queue.push(promised)
    assert queue.pop(1.0) == promised
    queue.check()


def test_whoever_was_served_a_file_waits_until_the_others_had_as_much() -> None:
    queue = GroupedQueue(sjf, sjf)
    queue.push(whole(0, client="a", size_s=6.0))
    for n in range(1, 9):
        queue.push(whole(n, client="b", size_s=2.0))
    assert queue.pop(0.0).client == "b"
    assert queue.pop(2.0).client == "a"
    queue.push(whole(9, client="a", size_s=1.0, arrival_s=8.0))
    assert serve(queue, count=3, now_s=8.0, each_s=2.0) == ["b", "b", "a"]
    assert serve(queue, count=5, now_s=14.0, each_s=2.0) == ["b"] * 5
    assert queue.pop(24.0) is None
    queue.check()


@pytest.mark.parametrize("make", ORDERS)
def test_a_short_clip_of_a_flood_goes_before_a_file_once(make: Callable[[], ReadyQueue]) -> None:
    queue = GroupedQueue(make, make)
    for n in range(100):
        queue.push(whole(n, client="flood", size_s=5.0))
    queue.push(whole(100, client="other", size_s=600.0))
    assert "other" in serve(queue, count=2, now_s=0.0, each_s=5.0)


def test_shares_are_forgotten_with_those_who_had_them() -> None:
    queue = GroupedQueue(fcfs, fcfs)
    for n in range(200):
        queue.push(whole(n, client=f"client {n}"))
        queue.push(whole(200 + n))
    serve(queue, count=400, now_s=0.0, each_s=1.0)
    shares = queue._contests[0].shares
    assert len(shares.tags) == len(shares.ahead) <= 200
    for n in range(400):
        queue.push(whole(400 + n, arrival_s=400.0))
        queue.pop(400.0)
    assert not shares.tags
    assert not shares.ahead


@settings(max_examples=40, deadline=None)
@given(
    make=st.sampled_from(ORDERS),
    sizes_s=st.lists(st.sampled_from([1.0, 3.0, 5.0, 60.0]), min_size=2, max_size=5),
    window_s=st.sampled_from([2.0, math.inf]),
)
def test_clients_that_never_stop_sending_get_equal_service(
    make: Callable[[], ReadyQueue], sizes_s: list[float], window_s: float
) -> None:
    """At every moment each is off its share by a job of each client at most; with equal sizes by one job."""
    queue = GroupedQueue(make, make)
    served_s = [0.0] * len(sizes_s)
    jobs = count()

    def send(client: int, now_s: float) -> None:
        new = whole(next(jobs), client=str(client), size_s=sizes_s[client], arrival_s=now_s)
        queue.push(replace(new, window_s=window_s))

    for client in [*range(len(sizes_s))] * 2:
        send(client, 0.0)
    for _ in range(400):
        taken = queue.pop(sum(served_s))
        client = int(taken.client)
        served_s[client] += taken.next_service_s
        back = after_a_window(taken)
        if back.remaining_s > 0:
            queue.push(back)
        else:
            send(client, sum(served_s))
        share_s = sum(served_s) / len(sizes_s)
        slack_s = sum(sizes_s) if len(set(sizes_s)) > 1 else sizes_s[0]
        assert max(abs(one_s - share_s) for one_s in served_s) <= slack_s
    queue.check()


NUM_OTHERS = 20


def mean_wait_s(order: str, *, flood: bool, known: bool = True) -> float:
    """What clients with jobs of 1 to 40 s wait for two workers that they keep busy for 0.4 of the time.

    Args:
        flood: whether another client sends 5 s clips beside them, at 0.9 of the capacity.
        known: whether the queue is told whose the jobs are.
    """
    random = Random(7)
    others = [
        (random.uniform(0.0, 4000.0), random.choice([1.0, 4.0, 5.0, 6.0, 24.0]), str(n % NUM_OTHERS))
        for n in range(400)
    ]
    clips = [(random.uniform(0.0, 4000.0), 5.0, "flood") for _ in range(1440 if flood else 0)]
    line = WaitingLine(policy_named(order), num_workers=2)
    arriving = deque(
        whole(n + 1, client=client if known else None, arrival_s=arrival_s, size_s=size_s)
        for n, (arrival_s, size_s, client) in enumerate(sorted(others + clips))
    )
    honest = {f"job{n + 1}" for n, (_, _, client) in enumerate(sorted(others + clips)) if client != "flood"}
    free_at_s = [0.0, 0.0]
    waits_s = []
    while arriving or len(line):
        now_s = max(free_at_s[0], 0.0 if len(line) else arriving[0].arrival_s)
        while arriving and arriving[0].arrival_s <= now_s:
            line.push(arriving.popleft())
        taken = line.pop(now_s)
        heapq.heapreplace(free_at_s, now_s + taken.size_s)
        if taken.id in honest:
            waits_s.append(now_s - taken.arrival_s)
    assert len(waits_s) == len(others)
    return sum(waits_s) / len(waits_s)


@pytest.mark.parametrize("order", ["sjf", "quantile", "hrrn"])
def test_a_flood_of_short_clips_costs_the_others_little(order: str) -> None:
    alone_s = mean_wait_s(order, flood=False)
    # Workers that are never idle cost everybody the rest of what they are at, which half idle ones often do not.
    assert mean_wait_s(order, flood=True) < 10 * alone_s
    assert mean_wait_s(order, flood=True, known=False) > 100 * alone_s


def test_misuse_is_named_and_changes_nothing() -> None:
    queue = GroupedQueue(fcfs, fcfs)
    queue.push(ticket(0, client="a"))
    with pytest.raises(DuplicateJobError, match="'job0'"):
        queue.push(ticket(0, client="b", priority=1))
    with pytest.raises(UnknownJobError, match="'job1'"):
        queue.remove("job1")
    queue.check()
    assert [t.id for t in queue] == ["job0"]
