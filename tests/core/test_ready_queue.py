"""The queues against naive references, under thousands of random operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import Estimator, HeapQueue, ReadyQueue, ResponseRatioQueue, Ticket
from sooner.errors import DuplicateJobError, UnknownJobError

# Times on a grid of 1/64 s: differences are exact in binary, so the scan and the queue round alike.
grid_s = st.integers(0, 64 * 600).map(lambda n: n / 64)
audio_s = st.one_of(st.integers(1, 35), st.integers(36, 7200)).map(float)


def ticket(
    job_id: str,
    *,
    arrival_s: float = 0.0,
    size_s: float = 1.0,
    sequence: int = 0,
    remaining_s: float | None = None,
) -> Ticket:
    return Ticket(
        id=job_id,
        arrival_s=arrival_s,
        size_s=size_s,
        remaining_s=size_s if remaining_s is None else remaining_s,
        sequence=sequence,
    )


class QueueAgainstScan(RuleBasedStateMachine):
    """Every operation is done on the queue and on a plain list that is scanned in full."""

    make: Callable[[], ReadyQueue]
    key: Callable[[Ticket, float], tuple[float, ...]]

    @initialize()
    def begin(self) -> None:
        self.queue = type(self).make()
        self.waiting: list[Ticket] = []
        self.now_s = 0.0
        self.peeked: Ticket | None = None
        self.sequence = 0
        self.removed: list[Ticket] = []

    def scan(self) -> Ticket | None:
        return min(self.waiting, key=lambda t: type(self).key(t, self.now_s), default=None)

    @rule(seconds=grid_s)
    def let_time_pass(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(audio=audio_s, served_s=grid_s, ago_s=grid_s)
    def push(self, audio: float, served_s: float, ago_s: float) -> None:
        self.sequence += 1
        size_s = Estimator().estimate(audio).size_s
        new = Ticket(
            id=f"job{self.sequence}",
            arrival_s=self.now_s - ago_s,
            size_s=size_s,
            remaining_s=size_s / 2 if served_s else size_s,
            sequence=self.sequence,
            served_s=min(served_s, ago_s),
        )
        self.queue.push(new)
        self.waiting.append(new)
        self.peeked = None

    @precondition(lambda self: self.removed)
    @rule(data=st.data())
    def push_back_one_that_left(self, data: st.DataObject) -> None:
        back = self.removed.pop(data.draw(st.integers(0, len(self.removed) - 1)))
        self.queue.push(back)
        self.waiting.append(back)
        self.peeked = None

    @rule()
    def peek(self) -> None:
        expected = self.scan()
        assert self.queue.peek(self.now_s) is expected
        self.peeked = expected

    @rule()
    def pop(self) -> None:
        expected = self.peeked or self.scan()
        assert self.queue.pop(self.now_s) is expected
        self.forget(expected)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        victim = data.draw(st.sampled_from(self.waiting))
        assert self.queue.remove(victim.id) is victim
        self.forget(victim)

    def forget(self, gone: Ticket | None) -> None:
        if gone is not None:
            self.waiting.remove(gone)
            self.removed.append(gone)
        self.peeked = None

    @rule()
    def list_in_order(self) -> None:
        expected = sorted(self.waiting, key=lambda t: type(self).key(t, self.now_s))
        assert self.queue.ordered(self.now_s) == expected

    @invariant()
    def holds_what_it_should(self) -> None:
        self.queue.check()
        assert len(self.queue) == len(self.waiting)
        assert {t.id for t in self.queue} == {t.id for t in self.waiting}
        assert all(t.id in self.queue for t in self.waiting)


class HrrnAgainstScan(QueueAgainstScan):
    make = ResponseRatioQueue
    key = staticmethod(lambda t, now_s: (-t.response_ratio(now_s), t.arrival_s, t.sequence))


class SjfAgainstScan(QueueAgainstScan):
    make = staticmethod(lambda: HeapQueue(lambda t: t.remaining_s))
    key = staticmethod(lambda t, _: (t.remaining_s, t.arrival_s, t.sequence))


many = settings(max_examples=60, stateful_step_count=80, deadline=None)
HrrnAgainstScan.TestCase.settings = many
SjfAgainstScan.TestCase.settings = many
TestHrrnAgainstScan = HrrnAgainstScan.TestCase
TestSjfAgainstScan = SjfAgainstScan.TestCase

queues = pytest.mark.parametrize("make", [ResponseRatioQueue, lambda: HeapQueue(lambda t: t.size_s)])


@queues
def test_empty_queue_gives_nothing(make: Callable[[], ReadyQueue]) -> None:
    queue = make()
    assert queue.peek(0.0) is None
    assert queue.pop(0.0) is None
    assert len(queue) == 0


@queues
def test_an_id_can_wait_once(make: Callable[[], ReadyQueue]) -> None:
    queue = make()
    queue.push(ticket("a"))
    with pytest.raises(DuplicateJobError, match="'a'"):
        queue.push(ticket("a"))
    queue.check()


@queues
def test_removing_a_stranger_is_an_error(make: Callable[[], ReadyQueue]) -> None:
    with pytest.raises(UnknownJobError, match="no waiting job has the id 'a'"):
        make().remove("a")


@queues
def test_ties_go_to_the_earlier_arrival_then_to_the_lower_sequence(make: Callable[[], ReadyQueue]) -> None:
    queue = make()
    queue.push(ticket("late", arrival_s=2.0, sequence=1))
    queue.push(ticket("second", arrival_s=1.0, sequence=3))
    queue.push(ticket("first", arrival_s=1.0, sequence=2))
    order = [queue.pop(5.0) for _ in range(3)]
    assert [t.id for t in order if t] == ["first", "second", "late"]


def test_hrrn_pop_hands_out_what_peek_showed_though_the_order_moved() -> None:
    queue = ResponseRatioQueue()
    queue.push(ticket("long", arrival_s=0.0, size_s=10.0, sequence=1))
    queue.push(ticket("short", arrival_s=9.5, size_s=1.0, sequence=2))
    assert queue.peek(10.0).id == "long"  # R = 2.0 against 1.5
    assert queue.ordered(30.0)[0].id == "short"  # R = 4.0 against 21.5
    assert queue.pop(30.0).id == "long"


def test_hrrn_looks_again_when_asked_at_another_time() -> None:
    queue = ResponseRatioQueue()
    queue.push(ticket("long", arrival_s=0.0, size_s=10.0, sequence=1))
    queue.push(ticket("short", arrival_s=9.5, size_s=1.0, sequence=2))
    assert queue.peek(10.0).id == "long"
    assert queue.peek(30.0).id == "short"
    assert queue.pop(10.0).id == "short"


def test_hrrn_forgets_what_it_showed_when_the_queue_changes() -> None:
    queue = ResponseRatioQueue()
    queue.push(ticket("long", arrival_s=0.0, size_s=10.0, sequence=1))
    assert queue.peek(10.0).id == "long"
    queue.push(ticket("short", arrival_s=9.5, size_s=1.0, sequence=2))
    assert queue.pop(30.0).id == "short"


def test_hrrn_never_starves_a_long_job() -> None:
    """A 60 s job among 1 s jobs that never stop coming is served once it has waited long enough."""
    queue = ResponseRatioQueue()
    queue.push(ticket("long", arrival_s=0.0, size_s=60.0, sequence=0))
    for second in range(1, 400):
        queue.push(ticket(f"short{second}", arrival_s=float(second), size_s=1.0, sequence=second))
        if queue.pop(second + 0.5).id == "long":
            break
    assert 25 <= second <= 35  # a short one that waited 0.5 s has R = 1.5; so has the long one after 30 s


def test_dead_entries_do_not_pile_up() -> None:
    queue = HeapQueue(lambda t: t.size_s)
    queue.push(ticket("stays", size_s=0.5))
    for n in range(10_000):
        queue.push(ticket(f"job{n}", size_s=1.0 + n, sequence=n))
        queue.remove(f"job{n}")
    queue.check()
    assert len(queue) == 1
