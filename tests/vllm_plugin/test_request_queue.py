"""The queue that vLLM is given, against a plain list that is scanned in full."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sooner import Estimator, policy_named
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


class QueueAgainstScan(RuleBasedStateMachine):
    policy: str

    @initialize()
    def begin(self) -> None:
        self.queue = new_queue(self.policy)
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
            windows, tokens = chunk.windows + chunk.later_windows, chunk.tokens + chunk.later_tokens - decoded
            return (windows * 0.5 + tokens * 0.25, arrival_s, order)
        size_s = chunk.upload_windows * 0.5 + (chunk.upload_tokens - decoded) * 0.25
        return (-(self.now_s - arrival_s + size_s) / size_s, arrival_s, order)

    def in_order(self) -> list[FakeRequest]:
        """Uploads as the policy has them, judged by their first waiting chunk; chunks of one by index."""
        uploads: dict[str, list[FakeRequest]] = {}
        for request in self.waiting:
            uploads.setdefault(chunk_of(request).upload_id, []).append(request)
        for group in uploads.values():
            group.sort(key=lambda request: chunk_of(request).number)
        return [request for group in sorted(uploads.values(), key=lambda g: self.key(g[0])) for request in group]

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


many = settings(max_examples=60, stateful_step_count=60, deadline=None)
SjfAgainstScan.TestCase.settings = many
HrrnAgainstScan.TestCase.settings = many
TestSjfAgainstScan = SjfAgainstScan.TestCase
TestHrrnAgainstScan = HrrnAgainstScan.TestCase

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
