"""The queue that vLLM is given, against a plain list that is scanned in full."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import Estimator, policy_named
from sooner.core.adaptive import Switch
from sooner.core.guard import Guard
from sooner.vllm_plugin.chunk import ESTIMATE_KEY, chunk_of, chunks_of_upload
from sooner.vllm_plugin.request_queue import PolicyRequestQueue
from tests.vllm_plugin.test_chunk import FakeRequest

ESTIMATOR = Estimator(kappa=3.0, encode_s=0.5, token_s=0.25)  # binary fractions: sums are exact
grid_s = st.integers(0, 64 * 100).map(lambda n: n / 64)


def new_queue(policy: str, **options: Any) -> PolicyRequestQueue:
    return PolicyRequestQueue(policy_named(policy), ESTIMATOR, **options)


def requests_of(upload: str, chunks_s: list[float], arrival_s: float) -> list[FakeRequest]:
    return [
        FakeRequest(request_id=f"{upload}-{chunk.number}", arrival_time=arrival_s, extra_args=chunk.extra_args())
        for chunk in chunks_of_upload(upload, chunks_s, ESTIMATOR)
    ]


def remaining_s(request: FakeRequest) -> float:
    """Of the upload, from this chunk on."""
    chunk = chunk_of(request)
    decoded = min(request.num_output_tokens, chunk.tokens - 1)
    return (chunk.windows + chunk.later_windows) * 0.5 + (chunk.tokens + chunk.later_tokens - decoded) * 0.25


def window_s(request: FakeRequest) -> float:
    """Of this chunk alone, which is what others are overtaken by."""
    chunk = chunk_of(request)
    return chunk.windows * 0.5 + (chunk.tokens - min(request.num_output_tokens, chunk.tokens - 1)) * 0.25


class QueueAgainstScan(RuleBasedStateMachine):
    """``scale`` is the guard's: ``None`` for no guard, and no slack, so that nothing depends on a capacity."""

    policy: str
    scale: float | None = None

    @initialize()
    def begin(self) -> None:
        guard = None if self.scale is None else Guard(scale=self.scale, slack_s=0.0)
        self.queue = new_queue(self.policy, guard=guard)
        self.allowances: dict[str, float] = {}
        self.waiting: list[FakeRequest] = []
        self.absent: list[FakeRequest] = []  # running, or not sent yet
        self.first_added: dict[str, int] = {}
        self.num_uploads = self.num_added = 0
        self.now_s = 100.0
        self.queue.begin_step(self.now_s)

    def key(self, request: FakeRequest) -> tuple[float, ...]:
        chunk = chunk_of(request)
        decoded = min(request.num_output_tokens, chunk.tokens - 1)
        arrival_s, order = request.arrival_time, self.first_added[chunk.upload_id]
        if self.policy == "sjf":
            return (remaining_s(request), arrival_s, order)
        size_s = chunk.upload_windows * 0.5 + (chunk.upload_tokens - decoded) * 0.25
        return (-(self.now_s - arrival_s + size_s) / size_s, arrival_s, order)

    def arrival(self, request: FakeRequest) -> tuple[float, int]:
        return request.arrival_time, self.first_added[chunk_of(request).upload_id]

    def charge(self, allowances: dict[str, float], taken: FakeRequest) -> None:
        """What came before ``taken`` is overtaken by its chunk."""
        for group in self.uploads():
            if self.scale is not None and self.arrival(group[0]) < self.arrival(taken):
                allowances[chunk_of(group[0]).upload_id] -= window_s(taken)

    def in_order(self) -> list[FakeRequest]:
        """Uploads as policy and guard have them, judged by their first waiting chunk; chunks of one by index."""
        groups = sorted(self.uploads(), key=lambda group: self.key(group[0]))
        allowances = dict(self.allowances)
        order: list[FakeRequest] = []
        while groups:
            due = [g for g in groups if allowances.get(chunk_of(g[0]).upload_id, 1.0) <= 0]
            group = min(due, key=lambda g: self.arrival(g[0]), default=groups[0])
            groups.remove(group)
            self.charge(allowances, group[0])
            order += group
        return order

    def uploads(self) -> list[list[FakeRequest]]:
        uploads: dict[str, list[FakeRequest]] = {}
        for request in self.waiting:
            uploads.setdefault(chunk_of(request).upload_id, []).append(request)
        for group in uploads.values():
            group.sort(key=lambda request: chunk_of(request).number)
        return list(uploads.values())

    @rule(seconds=grid_s)
    def begin_a_step(self, seconds: float) -> None:
        self.now_s += seconds
        self.queue.begin_step(self.now_s)

    @rule(chunks_s=st.lists(st.integers(1, 30).map(float), min_size=1, max_size=4), ago_s=grid_s)
    def upload(self, chunks_s: list[float], ago_s: float) -> None:
        self.num_uploads += 1
        self.absent += requests_of(f"u{self.num_uploads}", chunks_s, self.now_s - ago_s)

    @rule(tokens=st.integers(1, 400), ago_s=grid_s)
    def send_text(self, tokens: int, ago_s: float) -> None:
        self.num_uploads += 1
        name = f"t{self.num_uploads}"
        extra_args = {ESTIMATE_KEY: tokens} if tokens % 2 else None
        self.absent.append(
            FakeRequest(
                request_id=name,
                arrival_time=self.now_s - ago_s,
                max_tokens=tokens,
                extra_args=extra_args,
                mm_features=[],
            )
        )

    @precondition(lambda self: self.absent)
    @rule(data=st.data(), decoded=st.sampled_from([0, 0, 1, 20, 500]), back=st.booleans())
    def add(self, data: st.DataObject, decoded: int, back: bool) -> None:
        """A request comes, or comes back after it has decoded some."""
        request = self.absent.pop(data.draw(st.integers(0, len(self.absent) - 1)))
        request.num_output_tokens = decoded
        upload_id = chunk_of(request).upload_id
        self.num_added += 1
        if all(chunk_of(other).upload_id != upload_id for other in self.waiting):
            self.first_added[upload_id] = self.num_added
            if self.scale is not None:  # promised once, whatever chunks come later
                self.allowances[upload_id] = self.scale * sum(remaining_s(group[0]) for group in self.uploads())
        self.waiting.append(request)
        if back:
            self.queue.prepend_requests([request])
        else:
            self.queue.add_request(request)

    @precondition(lambda self: self.waiting)
    @rule()
    def look_then_take(self) -> None:
        expected = self.in_order()[0]
        assert self.queue.peek_request() is expected
        assert self.queue.pop_request() is expected
        self.charge(self.allowances, expected)
        self.waiting.remove(expected)
        self.absent.append(expected)

    @precondition(lambda self: self.waiting)
    @rule()
    def look_and_leave(self) -> None:
        assert self.queue.peek_request() is self.in_order()[0]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), stranger=st.booleans())
    def remove(self, data: st.DataObject, stranger: bool) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.waiting), min_size=1, max_size=5, unique=True))
        self.queue.remove_requests([*self.absent[:1], *gone] if stranger else set(gone))
        for request in gone:
            self.waiting.remove(request)

    @invariant()
    def holds_what_it_should(self) -> None:
        self.queue.check()
        assert len(self.queue) == len(self.waiting)
        assert bool(self.queue) == bool(self.waiting)
        assert list(self.queue) == self.in_order()


class SjfAgainstScan(QueueAgainstScan):
    policy = "sjf"


class HrrnAgainstScan(QueueAgainstScan):
    policy = "hrrn"


class GuardedSjfAgainstScan(QueueAgainstScan):
    policy = "sjf"
    scale = 0.5


class AdaptiveLosesNothing(QueueAgainstScan):
    """The order is whatever the queue shows; all that waits is in it, and each change follows from the last."""

    policy = "adaptive"
    scale = 0.5

    @initialize()
    def begin_calm(self) -> None:
        self.order = "fcfs"

    def in_order(self) -> list[FakeRequest]:
        shown = list(self.queue)
        assert sorted(map(id, shown)) == sorted(map(id, self.waiting))
        return shown

    @invariant()
    def tells_every_change(self) -> None:
        for switch in self.queue.take_switches():
            assert switch.before == self.order != switch.after
            self.order = switch.after
        assert self.queue.order == self.order


many = settings(max_examples=60, stateful_step_count=60, deadline=None)
SjfAgainstScan.TestCase.settings = many
HrrnAgainstScan.TestCase.settings = many
GuardedSjfAgainstScan.TestCase.settings = many
AdaptiveLosesNothing.TestCase.settings = many
TestSjfAgainstScan = SjfAgainstScan.TestCase
TestHrrnAgainstScan = HrrnAgainstScan.TestCase
TestGuardedSjfAgainstScan = GuardedSjfAgainstScan.TestCase
TestAdaptiveLosesNothing = AdaptiveLosesNothing.TestCase

both = pytest.mark.parametrize("policy", ["sjf", "hrrn"])


@both
def test_an_empty_queue_says_so_as_vllms_own_do(policy: str) -> None:
    queue = new_queue(policy)
    with pytest.raises(IndexError):
        queue.peek_request()
    with pytest.raises(IndexError):
        queue.pop_request()
    queue.remove_request(FakeRequest())
    assert not queue
    assert len(queue) == 0


@both
def test_a_long_upload_waits_as_what_it_is_and_comes_in_order(policy: str) -> None:
    queue = new_queue(policy)
    for request in reversed(requests_of("meeting", [30.0] * 19 + [2.0], arrival_s=0.0)):
        queue.add_request(request)
    (clip,) = requests_of("clip", [20.0], arrival_s=0.0)
    queue.add_request(clip)
    queue.begin_step(1.0)
    taken = [queue.pop_request().request_id for _ in range(21)]
    assert taken == ["clip-0", *(f"meeting-{index}" for index in range(20))]


def test_hrrn_shows_what_it_gives_within_a_step_and_thinks_again_at_the_next() -> None:
    queue = new_queue("hrrn")
    (long,) = requests_of("long", [30.0], arrival_s=0.0)
    (short,) = requests_of("short", [1.0], arrival_s=97.0)
    queue.add_request(long)
    queue.add_request(short)
    queue.begin_step(98.0)
    assert queue.peek_request() is long  # R = 1 + 98/23 against 1 + 1/1.25
    queue.begin_step(150.0)
    assert queue.peek_request() is short  # 1 + 53/1.25 against 1 + 150/23
    assert queue.pop_request() is short


@both
def test_a_step_that_is_over_shows_an_empty_queue_of_true_length(policy: str) -> None:
    queue = new_queue(policy)
    queue.add_request(FakeRequest())
    is_over = False
    queue.begin_step(1.0, lambda: is_over)
    assert queue
    is_over = True
    assert not queue
    assert len(queue) == 1
    queue.end_step()
    assert queue


class NeverScanned(dict[str, Any]):
    """A dictionary in which one thing is looked up at a time."""

    def __iter__(self) -> Any:
        raise AssertionError("all that waits was looked through")

    items = values = keys = __iter__


@both
def test_removing_and_taking_do_not_look_at_the_rest(policy: str) -> None:
    queue = new_queue(policy)
    requests = [FakeRequest(request_id=f"r{n}", extra_args={ESTIMATE_KEY: 1 + n % 50}) for n in range(2000)]
    for request in requests:
        queue.add_request(request)
    queue._uploads = NeverScanned(queue._uploads)
    queue._upload_id_of = NeverScanned(queue._upload_id_of)
    queue.remove_requests(reversed(requests[:-5]))
    for _ in range(5):
        queue.pop_request()
    assert len(queue) == 0


def test_a_request_is_removed_by_its_id() -> None:
    queue = new_queue("sjf")
    queue.add_request(FakeRequest(request_id="r"))
    queue.remove_request(FakeRequest(request_id="r"))
    assert len(queue) == 0


def test_an_observer_sees_every_coming_and_going() -> None:
    seen: list[tuple[str, str, int]] = []
    queue = new_queue(
        "sjf", observer=lambda event, r, chunk, ticket: seen.append((event, r.request_id, chunk.number))
    )
    first, second = requests_of("u", [30.0, 5.0], arrival_s=0.0)
    queue.add_request(first)
    queue.add_request(second)
    queue.pop_request()
    queue.remove_requests([second])
    assert seen == [("added", "u-0", 0), ("added", "u-1", 1), ("taken", "u-0", 0), ("removed", "u-1", 1)]


def test_a_guards_promise_outlives_the_chunks_of_an_upload() -> None:
    """The file may be overtaken by half of the 23 s before it, in all and not anew at each of its chunks."""
    queue = new_queue("sjf", guard=Guard(scale=0.5, slack_s=0.0))
    (first,) = requests_of("first", [30.0], arrival_s=0.0)  # 0.5 + 90 · 0.25 = 23 s
    queue.add_request(first)
    for request in requests_of("file", [30.0] * 3, arrival_s=1.0):
        queue.add_request(request)
    clips = [requests_of(f"clip{n}", [10.0], arrival_s=2.0 + n)[0] for n in range(6)]  # 8 s each
    queue.begin_step(10.0)
    taken = [queue.pop_request().request_id]  # before any clip has come
    for clip in clips:
        queue.add_request(clip)
    taken += [queue.pop_request().request_id for _ in range(9)]
    clips_first = ["clip0-0", "clip1-0"]  # 11.5 s hold one whole clip and the beginning of another
    assert taken == [
        "first-0",
        *clips_first,
        *(f"file-{n}" for n in range(3)),
        *(f"clip{n}-0" for n in range(2, 6)),
    ]


def test_a_rush_changes_the_order_with_all_that_waits_and_is_told_once() -> None:
    queue = new_queue("adaptive")
    assert queue.order == "fcfs"
    sent = [
        request
        for n in range(40)
        for request in requests_of(f"u{n}", [30.0] * 8 if n % 10 == 0 else [5.0 + n % 7], arrival_s=n / 64)
    ]
    for request in sent:
        queue.add_request(request)
        queue.check()
    switches: list[Switch] = queue.take_switches()
    assert (switches[0].before, switches[-1].after) == ("fcfs", queue.order)
    assert "wait, " in switches[0].reason
    assert queue.take_switches() == []
    queue.begin_step(10.0)
    taken = []
    while queue:
        shown = queue.peek_request()
        assert queue.pop_request() is shown
        queue.check()
        taken.append(shown.request_id)
    assert sorted(taken) == sorted(request.request_id for request in sent)
    for n in range(0, 40, 10):
        chunks = [name for name in taken if name.startswith(f"u{n}-")]
        assert chunks == [f"u{n}-{number}" for number in range(8)]
