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
from sooner.core.guard import Guard, GuardedQueue, taken_from
from sooner.core.waiting_line import WaitingLine
from sooner.errors import DuplicateJobError, UnknownJobError

# On a grid of 1/64 s differences are exact in binary.
grid_s = st.integers(0, 64 * 40).map(lambda n: n / 64)
size_s = st.sampled_from([0.25, 0.5, 1.0, 8.0, 30.0])
WINDOW_S = 4.0
Key = tuple[str | None, int]
"""A client in a class of priority."""


def fcfs() -> ReadyQueue:
    return HeapQueue(lambda t: t.arrival_s)


def sjf() -> ReadyQueue:
    return HeapQueue(lambda t: t.remaining_s)


def guarded(make_inner: Callable[[], ReadyQueue], guard: Guard) -> Callable[[], ReadyQueue]:
    return lambda: GuardedQueue(make_inner(), guard, capacity=lambda: 2)


ORDERS = [fcfs, sjf, ResponseRatioQueue]
GUARDS = [Guard(scale=0.5, slack_s=2.0), Guard(max_wait_s=10.0)]
QUEUES = [*ORDERS, *[guarded(order, guard) for order in ORDERS for guard in GUARDS]]


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
    """The same rules by scans: of lines for who waits, of all clients there ever were for who has caught up."""

    def __init__(self, make_queue: Callable[[], ReadyQueue]) -> None:
        self.make_queue = make_queue
        self.lines: dict[Key, ReadyQueue] = defaultdict(make_queue)
        self.contests: dict[int, ReadyQueue] = defaultdict(make_queue)  # by class
        self.bids: dict[Key, str] = {}
        self.left_s: dict[str, float | None] = {}  # of the contest's promise, by id
        self.virtual_s: dict[int, float] = defaultdict(float)  # by class
        self.finish_s: dict[Key, float] = defaultdict(float)
        self.got_ahead: dict[Key, int] = {}
        self.num_turns = 0
        self.latest_s = -math.inf
        self.looked_at_s: float | None = None

    def clients(self, priority: int) -> list[Key]:
        return [key for key, line in self.lines.items() if key[1] == priority and len(line)]

    def is_ahead(self, key: Key) -> bool:
        return self.finish_s[key] > self.virtual_s[key[1]]

    def push(self, new: Ticket) -> None:
        self.latest_s = max(self.latest_s, new.arrival_s)
        self.looked_at_s = None
        self.left_s[new.id] = new.turn_allowance_s
        key = (new.client, new.priority)
        began = [key] if not len(self.lines[key]) else []
        self.lines[key].push(new)
        clients = self.clients(new.priority)
        if began and len(clients) == 2:
            began = sorted(clients, key=lambda one: one == key)
        for one in began if len(clients) > 1 else []:
            self.finish_s[one] = max(self.finish_s[one], self.virtual_s[new.priority])
            self.give_turn(one, None)
        if key in self.bids and self.lines[key].peek(self.latest_s).id == new.id != self.bids[key]:
            self.end_turn(key)
            self.give_turn(key, None)

    def give_turn(self, key: Key, since_s: float | None) -> None:
        if key in self.bids or self.is_ahead(key) or not len(self.lines[key]):
            return
        head = self.lines[key].peek(self.latest_s)
        self.bid(head, since_s)

    def bid(self, head: Ticket, since_s: float | None) -> None:
        rank = {}
        if (
            since_s is not None
            and head.arrival_s < since_s
            and not head.served_s
            and head.remaining_s == head.size_s
        ):
            self.num_turns += 1
            rank = {"arrival_s": since_s, "sequence": 10**15 + self.num_turns}
        self.bids[head.client, head.priority] = head.id
        self.contests[head.priority].push(replace(head, allowance_s=self.left_s[head.id], **rank))

    def end_turn(self, key: Key) -> None:
        job_id = self.bids.pop(key)
        self.left_s[job_id] = self.contests[key[1]].remove(job_id).allowance_s

    def winner(self, at_s: float) -> Key | None:
        waiting = [key for key, line in self.lines.items() if len(line)]
        if not waiting:
            return None
        clients = self.clients(min(priority for _, priority in waiting))
        if len(clients) == 1:
            return clients[0]
        bid = self.contests[clients[0][1]].peek(at_s)
        return bid.client, bid.priority

    def peek(self, now_s: float) -> Ticket | None:
        self.latest_s = max(self.latest_s, now_s)
        self.looked_at_s = now_s
        key = self.winner(now_s)
        return None if key is None else self.lines[key].peek(now_s)

    def pop(self, now_s: float) -> Ticket | None:
        self.latest_s = max(self.latest_s, now_s)
        at_s = now_s if self.looked_at_s is None else self.looked_at_s
        key = self.winner(at_s)
        if key is None:
            return None
        self.lines[key].peek(at_s)
        contender = self.contests[key[1]].pop(now_s) if key in self.bids else None
        return self.taken(key, self.lines[key].pop(now_s), contender)

    def take(self, wanted: Ticket, now_s: float) -> Ticket:
        self.latest_s = max(self.latest_s, now_s)
        key = (wanted.client, wanted.priority)
        ticket, contender = taken_from(self.lines[key], wanted.id), None
        if len(self.clients(key[1])) > 1 or (self.clients(key[1]) not in ([], [key])):
            if self.bids.get(key) != wanted.id:
                if key in self.bids:
                    self.end_turn(key)
                self.bid(ticket, None)
            contender = taken_from(self.contests[key[1]], wanted.id)
        return self.taken(key, ticket, contender)

    def taken(self, key: Key, ticket: Ticket, contender: Ticket | None) -> Ticket:
        num_clients = len({key, *self.clients(key[1])})
        if contender is not None:
            del self.bids[key]
            self.left_s[contender.id] = contender.allowance_s
            if not self.is_ahead(key):
                self.got_ahead[key] = len(self.got_ahead) + 1 + max(self.got_ahead.values(), default=0)
            self.finish_s[key] += ticket.next_service_s
        got_ahead = self.is_ahead(key)
        self.virtual_s[key[1]] += ticket.next_service_s / num_clients
        return self.gone(key, ticket, got_ahead=got_ahead)

    def remove(self, victim: Ticket) -> Ticket:
        key = (victim.client, victim.priority)
        if self.bids.get(key) == victim.id:
            self.end_turn(key)
        return self.gone(key, self.lines[key].remove(victim.id), got_ahead=self.is_ahead(key))

    def gone(self, key: Key, ticket: Ticket, *, got_ahead: bool) -> Ticket:
        self.looked_at_s = None
        clients = self.clients(key[1])
        if not clients:
            self.virtual_s[key[1]] = 0.0
            self.finish_s = defaultdict(float, {k: v for k, v in self.finish_s.items() if k[1] != key[1]})
        if len(clients) == 1:
            (lone,) = clients
            if lone in self.bids:
                self.end_turn(lone)
            self.virtual_s[key[1]] = self.finish_s[lone] = max(self.virtual_s[key[1]], self.finish_s[lone])
        while len(clients) > 1:
            by_tag = sorted(clients, key=lambda one: (self.finish_s[one], self.got_ahead.get(one, 0)))
            for one in sorted(by_tag, key=lambda one: one == key and not got_ahead):
                self.give_turn(one, self.latest_s)
            if any(one in self.bids for one in clients):
                break
            ahead_s = [one_s for one, one_s in self.finish_s.items() if one[1] == key[1] and self.is_ahead(one)]
            self.virtual_s[key[1]] = min(ahead_s)
        return replace(ticket, turn_allowance_s=self.left_s.pop(ticket.id))

    def waiting(self) -> list[Ticket]:
        now_s = self.left_s | {t.id: t.allowance_s for contest in self.contests.values() for t in contest}
        return [replace(t, turn_allowance_s=now_s[t.id]) for line in self.lines.values() for t in line]

    def ordered(self, now_s: float) -> list[Ticket]:
        now = {t.id: t for t in self.waiting()}
        replay = deepcopy(self)
        order = []
        while replay.peek(now_s) is not None:
            order.append(now[replay.pop(now_s).id])
        return order


class GroupsAgainstScan(RuleBasedStateMachine):
    """Every operation is done on the queue and on the reference."""

    @initialize(make=st.sampled_from(QUEUES))
    def begin(self, make: Callable[[], ReadyQueue]) -> None:
        self.queue = GroupedQueue(make)
        self.naive = NaiveGroups(make)
        self.make = make
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

    @precondition(lambda self: self.naive.waiting())
    @rule(data=st.data())
    def take_out_of_turn(self, data: st.DataObject) -> None:
        wanted = data.draw(st.sampled_from(self.naive.waiting()))
        taken = self.queue.take(wanted.id, self.now_s)
        assert taken == self.naive.take(wanted, self.now_s)
        self.running.append(taken)

    @rule()
    def move_to_a_new_queue(self) -> None:
        waiting = sorted(self.queue, key=lambda t: t.sequence)
        self.queue, self.naive = GroupedQueue(self.make), NaiveGroups(self.make)
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


GroupsAgainstScan.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestGroupsAgainstScan = GroupsAgainstScan.TestCase


class NobodyInParticular(RuleBasedStateMachine):
    """Without clients and classes the queue hands out the contest's very tickets, in its order."""

    @initialize(make=st.sampled_from(ORDERS))
    def begin(self, make: Callable[[], ReadyQueue]) -> None:
        self.queue = GroupedQueue(make)
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
    queue = GroupedQueue(make)
    for n in range(1000):
        queue.push(ticket(n, client="flood"))
    assert serve(queue, count=50, now_s=0.0, each_s=each_s) == ["flood"] * 50
    queue.push(ticket(1000, client="other", arrival_s=50 * each_s))
    assert "other" in serve(queue, count=3, now_s=50 * each_s, each_s=each_s)
    queue.check()


def test_nobody_is_in_debt_where_nobody_waited() -> None:
    """Files are taken out of turn, as overdue ones are; what that cost their client does not outlast the work."""
    queue = GroupedQueue(sjf)
    for n in range(20):
        queue.push(ticket(n, client="late", size_s=4.0))
    queue.push(ticket(20, client="other", size_s=4.0))
    for n in range(20):
        queue.take(f"job{n}", 0.0)
    assert queue.pop(0.0).client == "other"
    for n in range(30, 40):
        queue.push(ticket(n, client="other", arrival_s=1.0, size_s=4.0))
    queue.push(ticket(40, client="late", arrival_s=1.0, size_s=1.0))
    assert queue.pop(1.0).client == "late"
    queue.check()


@pytest.mark.parametrize("each_s", [0.0, 1.0])
def test_fcfs_becomes_round_robin(each_s: float) -> None:
    queue = GroupedQueue(fcfs)
    for n in range(12):
        queue.push(ticket(n, client="abc"[n // 4]))
    assert [t.client for t in queue.ordered(0.0)] == list("abc" * 4)
    assert serve(queue, count=12, now_s=0.0, each_s=each_s) == list("abc" * 4)


def test_the_order_foretold_keeps_ranks_that_were_given_at_another_time() -> None:
    weights = [1.0]
    make = lambda: HeapQueue(lambda t: t.arrival_s + weights[-1] * t.size_s)  # noqa: E731
    queue = GroupedQueue(make)
    for n in range(9):
        queue.push(whole(n, client=[None, "a", "b"][n % 3], arrival_s=float(n), size_s=float(9 - n)))
        weights.append(1.5 - weights[-1])
    foretold = queue.ordered(9.0)
    assert [queue.pop(9.0) for _ in range(9)] == foretold


@pytest.mark.parametrize("make", QUEUES)
def test_who_is_alone_again_is_served_as_if_nobody_else_had_been(make: Callable[[], ReadyQueue]) -> None:
    """Whatever turns there were: what is left of a client's own jobs has the policy's own order and promises."""
    queue, bare = GroupedQueue(make), make()
    for n in range(12):
        own = ticket(n, client="a", arrival_s=float(n), size_s=float(7 * n % 11 + 1))
        for one in (queue, bare):
            one.push(own)
        queue.push(ticket(100 + n, client="bc"[n % 2], arrival_s=float(n), size_s=2.0))
    while {t.client for t in queue} != {"a"}:
        taken = queue.pop(20.0)
        if taken.client == "a":
            assert replace(taken, turn_allowance_s=None) == bare.pop(20.0)
    assert 1 < len(queue) == len(bare)
    while len(bare):
        assert replace(queue.pop(30.0), turn_allowance_s=None) == bare.pop(30.0)


def test_a_clip_does_not_wait_behind_a_file_of_its_own_client() -> None:
    queue = GroupedQueue(sjf)
    for n, client in enumerate("ab"):
        queue.push(ticket(n, client=client, size_s=60.0))
    queue.push(ticket(2, client="b", size_s=1.0))
    assert queue.pop(0.0).id == "job2"


def test_a_begun_job_waits_for_its_client_s_share_and_keeps_its_arrival() -> None:
    queue = GroupedQueue(fcfs)
    for n in range(3):
        queue.push(ticket(n, client="a", size_s=10.0))
    for n in range(3, 7):
        queue.push(ticket(n, client="b", arrival_s=1.0, size_s=4.0))
    back = after_a_window(queue.pop(2.0))
    queue.push(back)
    assert [t.id for t in queue.ordered(6.0)] == ["job3", "job0", "job4", "job1", "job5", "job2", "job6"]
    assert queue.pop(6.0).id == "job3"
    queue.push(ticket(7, client="c", arrival_s=7.0))
    assert queue.pop(7.0) == back


def test_the_lower_priority_number_is_served_first_and_has_turns_of_its_own() -> None:
    queue = GroupedQueue(fcfs)
    for n, priority in enumerate([5, 5, 0, 0, 1]):
        queue.push(ticket(n, client="a", priority=priority))
    assert [queue.pop(1.0).priority for _ in range(3)] == [0, 0, 1]
    queue.push(ticket(5, priority=-1, arrival_s=9.0))
    assert [queue.pop(9.0).priority for _ in range(3)] == [-1, 5, 5]
    assert queue.pop(9.0) is None
    queue.check()


def test_a_turn_that_is_cancelled_passes_on_at_the_latest_second_heard_of() -> None:
    queue = GroupedQueue(fcfs)
    queue.push(ticket(0, client="a"))
    queue.push(ticket(1, client="a"))
    queue.push(ticket(2, client="c", arrival_s=2.5))
    assert queue.peek(3.0).id == "job0"
    queue.push(ticket(3, client="b", arrival_s=2.0))  # measured longer than the others: 3.0 stays the latest
    assert queue.remove("job0") == ticket(0, client="a")
    assert [t.id for t in queue.ordered(3.0)] == ["job3", "job2", "job1"]
    assert queue.remove("job1") == ticket(1, client="a")
    queue.check()


def promises(queue: GroupedQueue) -> dict[str, tuple[float | None, float | None]]:
    return {t.id: (t.allowance_s, t.turn_allowance_s) for t in queue}


def test_a_job_is_promised_something_against_its_own_client_s_and_with_its_turn_against_others() -> None:
    queue = GroupedQueue(guarded(fcfs, Guard(scale=1.0, slack_s=0.5)))
    for n in range(2):
        queue.push(ticket(n, client="a"))
    assert promises(queue) == {"job0": (1.0, None), "job1": (2.0, None)}  # the slack: 0.5 s of two workers
    for n, client in enumerate("bc", start=2):
        queue.push(ticket(n, client=client, arrival_s=1.0, size_s=3.0))
    expected = {"job0": (1.0, 1.0), "job1": (2.0, None), "job2": (1.0, 2.0), "job3": (1.0, 5.0)}
    assert promises(queue) == expected
    taken = [queue.pop(4.0) for _ in range(4)]
    assert [t.id for t in taken] == ["job0", "job2", "job3", "job1"]
    assert {t.id: (t.allowance_s, t.turn_allowance_s) for t in taken} == expected | {"job1": (2.0, 4.0)}


def test_what_others_turns_took_is_remembered_while_the_client_is_alone_or_served() -> None:
    queue = GroupedQueue(guarded(sjf, Guard(scale=0.0, slack_s=1.5)))  # 3 s of two workers
    queue.push(ticket(0, client="a", size_s=9.0))
    for n in (1, 2):
        queue.push(ticket(n, client=f"client {n}", arrival_s=float(n)))
        assert queue.pop(float(n)).id == f"job{n}"
        assert promises(queue) == {"job0": (3.0, 3.0 - n)}
    back = after_a_window(queue.pop(3.0))
    queue.push(back)
    for n in (3, 4):
        queue.push(ticket(n, client=f"client {n}", arrival_s=7.0))
    assert queue.pop(7.0).id == "job3"
    assert queue.pop(8.0) == replace(back, turn_allowance_s=0.0)
    queue.check()


@pytest.mark.parametrize("guard", GUARDS)
def test_jobs_that_are_due_do_not_let_a_flood_past_its_share(guard: Guard) -> None:
    queue = GroupedQueue(guarded(sjf, guard))
    for n in range(100):
        queue.push(replace(ticket(n, client="flood"), allowance_s=0.0))
    queue.push(ticket(100, client="other", arrival_s=50.0, size_s=600.0))
    assert serve(queue, count=2, now_s=50.0, each_s=0.0) == ["flood", "other"]


def test_whoever_was_served_a_file_waits_until_the_others_had_as_much() -> None:
    queue = GroupedQueue(sjf)
    queue.push(whole(0, client="a", size_s=6.0))
    queue.push(whole(10, client="a", size_s=7.0))
    for n in range(1, 9):
        queue.push(whole(n, client="b", size_s=2.0))
    assert queue.pop(0.0).client == "b"
    assert queue.pop(2.0).client == "a"
    queue.push(whole(9, client="a", size_s=1.0, arrival_s=8.0))
    assert serve(queue, count=3, now_s=8.0, each_s=2.0) == ["b", "b", "a"]
    assert serve(queue, count=6, now_s=14.0, each_s=2.0) == ["b", "a", "b", "b", "b", "b"]
    assert queue.pop(31.0) is None
    queue.check()


@pytest.mark.parametrize("make", ORDERS)
def test_a_short_clip_of_a_flood_goes_before_a_file_once(make: Callable[[], ReadyQueue]) -> None:
    queue = GroupedQueue(make)
    for n in range(100):
        queue.push(whole(n, client="flood", size_s=5.0))
    queue.push(whole(100, client="other", size_s=600.0))
    assert "other" in serve(queue, count=2, now_s=0.0, each_s=5.0)


def test_shares_are_forgotten_with_those_who_had_them() -> None:
    queue = GroupedQueue(fcfs)
    for n in range(200):
        queue.push(whole(n, client=f"client {n}"))
        queue.push(whole(200 + n))
    serve(queue, count=400, now_s=0.0, each_s=1.0)
    shares = queue._classes[0].shares
    assert len(shares.tags) == len(shares.ahead) <= 200
    for n in range(400):
        queue.push(whole(400 + n, arrival_s=400.0))
        queue.pop(400.0)
    assert not shares.tags
    assert not shares.ahead


backlogs = st.lists(st.tuples(st.sampled_from([0.5, 3.0, 9.0, 60.0]), st.booleans()), min_size=1, max_size=30)


def flooded(make: Callable[[], ReadyQueue], backlog: list[tuple[float, bool]]) -> GroupedQueue:
    """A queue in which one client alone waits, some of whose jobs were served a window."""
    queue = GroupedQueue(make)
    for n, (one_s, is_taken) in enumerate(backlog):
        queue.push(ticket(n, client="flood", arrival_s=n / 4, size_s=one_s))
        if is_taken:
            back = after_a_window(queue.pop(n / 4))
            if back.remaining_s > 0:
                queue.push(back)
    return queue


@given(make=st.sampled_from(QUEUES), backlog=backlogs, size_s=size_s)
def test_of_a_flood_one_window_at_most_goes_before_a_newcomer(
    make: Callable[[], ReadyQueue], backlog: list[tuple[float, bool]], size_s: float
) -> None:
    queue = flooded(make, backlog)
    for n, now_s in enumerate((100.0, 200.0)):  # and again after it was alone
        queue.push(ticket(1000 + n, client=f"new {n}", arrival_s=now_s, size_s=size_s))
        assert f"new {n}" in serve(queue, count=min(2, len(queue)), now_s=now_s, each_s=0.0)
        queue.check()


@given(make=st.sampled_from(QUEUES), backlog=backlogs, num_others=st.integers(1, 4), size_s=size_s)
def test_who_begins_to_wait_with_others_is_served_within_what_is_stated(
    make: Callable[[], ReadyQueue], backlog: list[tuple[float, bool]], num_others: int, size_s: float
) -> None:
    """N clients that never stop sending, and none of them is behind: N · (N - 1) windows go before it at most."""
    queue = flooded(make, backlog)
    for n in range(num_others):
        for number in range(50):
            queue.push(ticket(1000 + 50 * n + number, client=f"other {n}", arrival_s=100.0, size_s=0.5))
    queue.push(ticket(9999, client="new", arrival_s=100.0, size_s=size_s))
    num_clients = len({t.client for t in queue})
    before_s = 0.0
    while (taken := queue.pop(100.0)).client != "new":
        before_s += taken.next_service_s
        back = after_a_window(taken)
        queue.push(back if back.remaining_s > 0 else replace(taken, id=f"{taken.id}'"))
    assert before_s <= num_clients * (num_clients - 1) * WINDOW_S


@settings(max_examples=40, deadline=None)
@given(
    make=st.sampled_from(ORDERS),
    sizes_s=st.lists(st.sampled_from([1.0, 3.0, 5.0, 60.0]), min_size=2, max_size=5),
    window_s=st.sampled_from([2.0, math.inf]),
)
def test_clients_that_never_stop_sending_get_equal_service(
    make: Callable[[], ReadyQueue], sizes_s: list[float], window_s: float
) -> None:
    """At every moment each is off its share by a window of each client at most; with equal sizes by one."""
    queue = GroupedQueue(make)
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
        windows_s = [min(one_s, window_s) for one_s in sizes_s]
        slack_s = sum(windows_s) if len(set(sizes_s)) > 1 else windows_s[0]
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
    queue = GroupedQueue(fcfs)
    queue.push(ticket(0, client="a"))
    with pytest.raises(DuplicateJobError, match="'job0'"):
        queue.push(ticket(0, client="b", priority=1))
    with pytest.raises(UnknownJobError, match="'job1'"):
        queue.remove("job1")
    queue.check()
    assert [t.id for t in queue] == ["job0"]
