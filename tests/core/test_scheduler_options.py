"""What a scheduler does about jobs that outrun their size, and its guard, clients and classes of priority."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner import Estimator, Job, Scheduler, policies, policy_named
from sooner.core.guard import Guard

NAMES = [policy.name for policy in policies()]
ESTIMATOR = Estimator(kappa=3.0, encode_s=0.5, token_s=0.005)  # a full window: 0.95 s
WINDOW_S = 0.95


def job(job_id: str, *, arrival_s: float = 0.0, audio_s: float = 3.0, **facts: str | int | None) -> Job:
    made = Job(id=job_id, arrival_s=arrival_s, audio_s=audio_s, estimate=ESTIMATOR.estimate(audio_s))
    return replace(made, **facts)  # type: ignore[arg-type]


def scheduler(policy: str, *, num_workers: int = 1, guard: Guard | None = None) -> Scheduler:
    return Scheduler(policy_named(policy), num_workers=num_workers, guard=guard)


def served(s: Scheduler, now_s: float, count: int) -> list[str]:
    """The next jobs, each to its end at once."""
    ids = []
    for _ in range(count):
        one = s.next(now_s)
        assert one is not None
        s.finish(one.id, now_s=now_s)
        ids.append(one.id)
    return ids


def remaining_s(s: Scheduler, job_id: str, now_s: float) -> float:
    (row,) = (row for row in s.forecast(now_s) if row.job.id == job_id)
    return row.remaining_s


@given(
    num_windows=st.integers(2, 20),
    taken_s=st.lists(st.floats(0.0, 40.0), min_size=1, max_size=19),
    policy=st.sampled_from(NAMES),
)
def test_what_remains_grows_only_where_a_job_took_more_than_twice_its_time(
    num_windows: int, taken_s: list[float], policy: str
) -> None:
    s = scheduler(policy)
    s.submit(job("file", audio_s=30.0 * num_windows))
    now_s = 0.0
    for done, seconds in enumerate(taken_s[: num_windows - 1], start=1):
        s.next(now_s)
        now_s += seconds
        rest = ESTIMATOR.estimate(30.0 * (num_windows - done))
        s.yield_back("file", remaining=rest, now_s=now_s)
        slower = now_s / (done * WINDOW_S)  # alone, it was in service all the time
        if abs(slower - 2.0) > 1e-9:
            scaled = rest.size_s * (min(16.0, slower) if slower > 2 else 1.0)
            assert remaining_s(s, "file", now_s) == pytest.approx(scaled)
        s.check()


@pytest.mark.parametrize(("slower", "factor"), [(1.95, 1.0), (2.05, 2.05), (15.0, 15.0), (40.0, 16.0)])
def test_from_twice_its_time_on_what_remains_is_scaled(slower: float, factor: float) -> None:
    s = scheduler("sjf")
    s.submit(job("file", audio_s=120.0))
    s.next(0.0)
    now_s = 2 * WINDOW_S * slower
    s.yield_back("file", remaining=ESTIMATOR.estimate(60.0), now_s=now_s)
    assert remaining_s(s, "file", now_s) == pytest.approx(2 * WINDOW_S * factor)


@pytest.mark.parametrize("is_running", [True, False])
def test_what_was_lost_does_not_count_as_having_taken_long(is_running: bool) -> None:
    s = scheduler("sjf")
    s.submit(job("file", audio_s=3000.0))
    s.next(0.0)
    if not is_running:
        s.yield_back("file", remaining=ESTIMATOR.estimate(30.0), now_s=99 * WINDOW_S)
    s.begin_anew("file", now_s=99 * WINDOW_S)
    for number in range(2):
        s.next(100.0 + number)
        rest = ESTIMATOR.estimate(3000.0 - 30.0 * (number + 1))
        s.yield_back("file", remaining=rest, now_s=100.0 + number + WINDOW_S)
        assert remaining_s(s, "file", 100.0 + number) == pytest.approx(rest.size_s)
    s.next(200.0)
    s.yield_back("file", remaining=ESTIMATOR.estimate(2910.0), now_s=200.0 + 7 * WINDOW_S)
    assert remaining_s(s, "file", 300.0) == pytest.approx(3 * 97 * WINDOW_S)


def test_a_job_that_outruns_its_size_loses_its_place() -> None:
    """Two files of one size; by what was predicted the first would keep its place, having less to go."""
    s = scheduler("sjf")
    s.submit(job("slow", audio_s=120.0))
    s.next(0.0)
    s.submit(job("other", arrival_s=0.1, audio_s=120.0))
    s.yield_back("slow", remaining=ESTIMATOR.estimate(90.0), now_s=5.0)
    assert s.next(5.0).id == "other"


@pytest.mark.parametrize("slower", [4.0, 0.25])
def test_where_all_jobs_are_as_slow_none_outruns_its_size(slower: float) -> None:
    """The engine's speed is measured, so that a machine slower than configured is not a fault of each job."""
    s = scheduler("sjf")
    now_s = 0.0
    for number in range(30):
        s.submit(job(f"clip{number}", audio_s=30.0))
    for _ in range(29):
        one = s.next(now_s)
        now_s += WINDOW_S * slower
        s.finish(one.id, now_s=now_s)
    s.submit(job("file", arrival_s=now_s, audio_s=90.0))
    s.next(now_s)
    assert s.next(now_s).id == "file"
    rest = ESTIMATOR.estimate(60.0)
    s.yield_back("file", remaining=rest, now_s=now_s + 1.5 * WINDOW_S * slower)
    assert remaining_s(s, "file", now_s) == pytest.approx(rest.size_s)


def test_a_guarded_file_is_not_put_off_for_ever() -> None:
    """Twice the work ahead of it (none) and 5 s: sjf alone would serve the file after all clips."""
    s, free = scheduler("sjf", guard=Guard(scale=2.0, slack_s=5.0)), scheduler("sjf")
    clip_s = ESTIMATOR.estimate(3.0).size_s
    for one in (s, free):
        one.submit(job("file", audio_s=30.0))
        for number in range(40):
            one.submit(job(f"clip{number}", arrival_s=0.01 * (number + 1)))
    assert served(free, 1.0, 41).index("file") == 40
    overtaken = served(s, 1.0, 41).index("file")
    assert 5.0 <= overtaken * clip_s < 5.0 + clip_s


def test_a_promise_is_kept_through_windows_and_changes_of_policy() -> None:
    s = scheduler("sjf", guard=Guard(scale=0.0, slack_s=1.0))
    s.submit(job("file", audio_s=60.0))
    for number in range(10):
        s.submit(job(f"clip{number}", arrival_s=0.1))
    assert served(s, 0.2, 1) == ["clip0"]  # 0.545 s of the second are gone
    s.switch_policy(policy_named("srpt"))
    assert served(s, 0.3, 1) == ["clip1"]
    assert s.next(0.4).id == "file"
    s.yield_back("file", remaining=ESTIMATOR.estimate(30.0), now_s=1.4)
    assert s.next(1.4).id == "file"  # it has nothing left to give, though clips are shorter than its rest
    s.check()


def test_a_fixed_guard_serves_who_waited_that_long() -> None:
    s = scheduler("sjf", guard=Guard(max_wait_s=10.0))
    s.submit(job("file", audio_s=300.0))
    s.submit(job("clip", arrival_s=9.0))
    s.submit(job("clip2", arrival_s=9.0))
    assert s.next(9.9).id == "clip"
    assert s.next(10.0).id == "file"


@pytest.mark.parametrize("policy", ["fcfs", "hrrn"])
def test_a_client_with_many_jobs_has_no_more_turns_than_one_with_few(policy: str) -> None:
    s = scheduler(policy)
    for number in range(20):
        s.submit(job(f"many{number}", client="many"))
    s.submit(job("few0", arrival_s=0.5, client="few"))
    s.submit(job("nobody", arrival_s=0.6))
    assert served(s, 1.0, 3) == ["many0", "few0", "nobody"]
    assert served(s, 1.0, 19) == [f"many{number}" for number in range(1, 20)]
    s.check()


@pytest.mark.parametrize("policy", NAMES)
def test_a_lower_class_of_priority_goes_first_whatever_the_policy(policy: str) -> None:
    s = scheduler(policy)
    s.submit(job("later", audio_s=1.0, priority=1))
    s.submit(job("urgent", arrival_s=5.0, audio_s=600.0, priority=-1))
    s.submit(job("usual", arrival_s=4.0, audio_s=60.0))
    assert [row.job.id for row in s.forecast(6.0)] == ["urgent", "usual", "later"]
    assert served(s, 6.0, 3) == ["urgent", "usual", "later"]


@pytest.mark.parametrize("policy", NAMES)
def test_within_a_class_of_priority_order_and_guard_are_as_without_classes(policy: str) -> None:
    """Two classes, the second of which is served when the first is empty, and as if there were no other."""
    s, alone = (scheduler(policy, guard=Guard(scale=0.0, slack_s=1.0)) for _ in range(2))
    for number in range(12):
        one = job(f"job{number}", arrival_s=number / 8, audio_s=[20.0, 3.0, 90.0][number % 3], priority=number % 2)
        s.submit(one)
        if one.priority:
            alone.submit(one)
    first, second = served(s, 2.0, 6), served(s, 2.0, 6)
    assert {int(job_id[3:]) % 2 for job_id in first} == {0}
    if policy != "adaptive":  # which looks at all that waits, of any class
        assert second == served(alone, 2.0, 6)
    assert s.next(2.0) is None


@pytest.mark.parametrize("policy", NAMES)
def test_one_client_is_served_as_if_there_were_none(policy: str) -> None:
    """Arrivals, windows and idle times of one worker, with the guard that a server has."""
    orders = []
    for client in (None, "proxy"):
        rng, s = random.Random(3), scheduler(policy, guard=Guard.parse("scaled:5,120"))
        left_s: dict[str, float] = {}
        order, now_s, arrival_s = [], 0.0, 0.0
        for number in range(250):
            arrival_s += rng.expovariate(0.7)
            while now_s < arrival_s and (taken := s.next(now_s)) is not None:
                window_s = min(30.0, left_s[taken.id])
                now_s += ESTIMATOR.estimate(window_s).size_s
                left_s[taken.id] -= window_s
                order.append((taken.id, now_s))
                if left_s[taken.id]:
                    s.yield_back(taken.id, remaining=ESTIMATOR.estimate(left_s[taken.id]), now_s=now_s)
                else:
                    s.finish(taken.id, now_s=now_s)
            now_s = max(now_s, arrival_s)
            audio_s = rng.choice([3.0, 5.0, 8.0, 12.0]) if rng.random() < 0.97 else rng.uniform(100.0, 600.0)
            left_s[f"job{number}"] = audio_s
            s.submit(job(f"job{number}", arrival_s=arrival_s, audio_s=audio_s, client=client))
        orders.append((order, [row.job.id for row in s.forecast(now_s)]))
    assert len(orders[0][0]) > 200
    assert orders[0] == orders[1]


uploads = st.lists(
    st.tuples(
        st.sampled_from([1.0, 5.0, 20.0, 29.0, 60.0, 600.0]), st.sampled_from([None, "a", "b"]), st.booleans()
    ),
    min_size=2,
    max_size=40,
)


@settings(deadline=None)
@given(
    uploads=uploads,
    policy=st.sampled_from(NAMES),
    guarded=st.booleans(),
    max_wait_s=st.sampled_from([None, 2.0]),
)
def test_the_forecasts_first_is_who_a_free_worker_gets(
    uploads: list[tuple[float, str | None, bool]], policy: str, guarded: bool, max_wait_s: float | None
) -> None:
    """Also where clients wait behind their turns, and ranks were given at another backlog than today's."""
    guard = Guard(scale=1.0, slack_s=2.0) if guarded else None
    s = Scheduler(policy_named(policy), num_workers=1, guard=guard, max_wait_s=max_wait_s)
    for number, (audio_s, client, takes) in enumerate(uploads):
        now_s = number / 4
        s.submit(job(f"job{number}", arrival_s=now_s, audio_s=audio_s, client=client))
        if takes:
            first = s.forecast(now_s)[0].job.id
            assert served(s, now_s, 1) == [first]
    rows = s.forecast(now_s)
    assert [row.position for row in rows] == list(range(1, len(rows) + 1))
    while rows := s.forecast(now_s):
        assert served(s, now_s, 1) == [rows[0].job.id]
