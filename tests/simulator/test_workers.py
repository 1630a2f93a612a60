"""The worker model by hand: exact records of tiny runs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sooner.simulator.bounds import lower_bounds
from sooner.simulator.profile import WorkersProfile, load_profile
from sooner.simulator.simulate import capacity_per_s, simulate
from sooner.simulator.workers import works_of
from sooner.workload.trace import TraceRequest


def profile(**numbers: float) -> WorkersProfile:
    given = {"encode_s": 1.0, "token_s": 0.1, "kappa": 1.0} | numbers
    return WorkersProfile(name="test", model="none", hardware="none", **given)  # type: ignore[arg-type]


def request(arrival_s: float, audio_s: float, num_tokens: int | None = None) -> TraceRequest:
    return TraceRequest(arrival_s=arrival_s, audio_s=audio_s, num_tokens=num_tokens)


def test_a_clip_alone() -> None:
    """One window of 1 s and five tokens of .1 s, .3 s on its way in."""
    (record,) = simulate(profile(overhead_s=0.3), [request(2.0, 5.0)], policy="fcfs").records
    assert record.finished_s == pytest.approx(3.8)
    assert record.first_text_s == record.finished_s
    assert record.service_s == pytest.approx(1.5)
    assert record.wait_s == pytest.approx(0.3)
    assert record.size_s == pytest.approx(1.8)
    assert record.slowdown == pytest.approx(1.0)


def test_true_tokens_count_not_predicted_ones() -> None:
    (record,) = simulate(profile(), [request(0.0, 5.0, num_tokens=20)], policy="fcfs").records
    assert record.finished_s == pytest.approx(3.0)
    assert record.size_s == pytest.approx(1.5)
    assert record.num_tokens == 20


@pytest.mark.parametrize(
    ("policy", "clip_s", "file_s", "num_preemptions"),
    [("fcfs", 12.5, 12.0, 0), ("sjf", 5.5, 13.5, 1), ("hrrn", 5.5, 13.5, 1)],
)
def test_a_clip_overtakes_a_file_between_windows(
    policy: str, clip_s: float, file_s: float, num_preemptions: int
) -> None:
    """A file of three windows (1 + 3 s each) from 0; a clip of 1.5 s comes at 1 and may start at 4."""
    trace = [request(0.0, 90.0), request(1.0, 5.0)]
    file, clip = simulate(profile(), trace, policy=policy).records
    assert clip.finished_s == pytest.approx(clip_s + 1 if policy == "fcfs" else clip_s)
    assert file.finished_s == pytest.approx(file_s)
    assert file.num_windows == 3
    assert file.first_text_s == pytest.approx(4.0)
    assert file.num_preemptions == num_preemptions
    assert file.service_s == pytest.approx(12.0)


def test_without_preemption_a_started_file_runs_to_its_end() -> None:
    trace = [request(0.0, 90.0), request(1.0, 5.0)]
    file, clip = simulate(profile(), trace, policy="sjf", preempt=False).records
    assert (file.finished_s, clip.finished_s) == (pytest.approx(12.0), pytest.approx(13.5))


def test_windows_go_on_by_less_than_they_hold() -> None:
    """Whisper resumes where its last whole segment ended: 90 s in steps of 20 are windows at 0, 20, 40 and 60."""
    assert [profile(window_s=20.0).num_windows(s) for s in (5.0, 30.0, 30.1, 50.0, 51.0, 90.0)] == [
        1,
        1,
        2,
        2,
        3,
        4,
    ]
    assert [profile().num_windows(s) for s in (30.0, 60.0, 61.0)] == [1, 2, 3]


def test_a_window_that_goes_on_reads_what_was_said() -> None:
    engine = profile(context_s=0.5)
    file, clip = simulate(engine, [request(0.0, 90.0), request(100.0, 5.0)], policy="fcfs").records
    assert file.service_s == pytest.approx(4.0 + 2 * 4.5)
    assert file.slowdown == pytest.approx(1.0)
    assert clip.service_s == pytest.approx(1.5)
    burst = [request(0.0, 90.0) for _ in range(50)]
    run = simulate(engine, burst, policy="fcfs")
    assert max(record.finished_s for record in run.records) == pytest.approx(50 / capacity_per_s(engine, burst))


def test_workers_serve_at_the_same_time() -> None:
    records = simulate(profile(num_workers=2), [request(0.0, 5.0) for _ in range(4)], policy="fcfs").records
    assert [record.finished_s for record in records] == pytest.approx([1.5, 1.5, 3.0, 3.0])


def test_deviations_keep_the_mean_and_are_the_same_under_every_policy() -> None:
    trace = [request(float(n), 5.0) for n in range(20_000)]
    spread = 0.4
    windows_s = [work.windows_s[0] for work in works_of(trace, profile(spread=spread), seed=1)]
    logs = [math.log(seconds / 1.5) for seconds in windows_s]
    mean = sum(logs) / len(logs)
    assert sum(windows_s) / len(windows_s) == pytest.approx(1.5, rel=0.01)
    assert math.sqrt(sum((value - mean) ** 2 for value in logs) / len(logs)) == pytest.approx(spread, rel=0.02)
    under = {
        policy: [
            record.service_s
            for record in simulate(profile(spread=spread), trace[:50], policy=policy, seed=3).records
        ]
        for policy in ("fcfs", "sjf")
    }
    assert under["fcfs"] == pytest.approx(under["sjf"])


def test_capacity() -> None:
    engine = profile(num_workers=2)
    trace = [request(0.0, 5.0) for _ in range(100)]
    assert capacity_per_s(engine, trace) == pytest.approx(2 / 1.5)
    run = simulate(engine, trace, policy="fcfs")
    assert max(record.finished_s for record in run.records) == pytest.approx(100 / capacity_per_s(engine, trace))


def test_the_header_tells_the_load() -> None:
    trace = [request(2.0 * n, 5.0) for n in range(11)]
    header = simulate(profile(), trace, policy="hrrn", seed=5).header
    assert header.rate_per_s == pytest.approx(0.5)
    assert header.load == pytest.approx(0.75)
    assert (header.policy, header.preempt, header.seed, header.num_workers) == ("hrrn", True, 5, 1)
    assert simulate(profile(), [request(0.0, 5.0)] * 3, policy="hrrn").header.load is None


def test_a_full_queue_refuses_with_the_servers_error() -> None:
    run = simulate(profile(), [request(0.0, 5.0) for _ in range(6)], policy="fcfs", max_queue=3)
    assert len(run.records) == 4  # one runs, three wait
    assert [failure.error for failure in run.failures] == ["QueueFullError"] * 2


def spoken(
    arrival_s: float, audio_s: float, speech_s: float | None, num_tokens: int | None = None
) -> TraceRequest:
    return TraceRequest(arrival_s=arrival_s, audio_s=audio_s, speech_s=speech_s, num_tokens=num_tokens)


def test_silence_is_skipped_as_in_the_server() -> None:
    """Three files of 300 s with 11 s of speech and three clips, which the server served in 0.8 to 1.1 s each."""
    trace = [spoken(0.1 * n, 300.0, 11.0, 28) for n in range(3)] + [spoken(0.3, 11.0, 11.0, 28)] * 3
    engine = load_profile("embedded-tiny")
    records = simulate(engine, trace, policy="hrrn").records
    assert all(0.4 < (record.service_s or 0.0) < 1.1 for record in records)
    assert max(record.e2e_s for record in records) < 3 * 1.1
    assert [(record.audio_s, record.speech_s, record.num_windows) for record in records[2:4]] == [
        (300.0, 11.0, 1),
        (11.0, 11.0, 1),
    ]
    whole = simulate(engine, [replace(one, speech_s=None) for one in trace], policy="hrrn").records
    assert max(record.e2e_s for record in whole) > 5 * max(record.e2e_s for record in records)


def test_sizes_windows_and_what_remains_are_those_of_the_speech() -> None:
    whole, pauses = (spoken(0.0, audio_s, speech_s) for audio_s, speech_s in ((90.0, None), (900.0, 90.0)))
    engine = profile(context_s=0.5, window_s=25.0, spread=0.2)
    (of_whole,), (of_pauses,) = (list(works_of([one], engine, seed=1)) for one in (whole, pauses))
    assert of_pauses.job == replace(of_whole.job, audio_s=900.0, speech_s=90.0)
    assert (of_pauses.windows_s, of_pauses.remaining) == (of_whole.windows_s, of_whole.remaining)
    assert capacity_per_s(engine, [pauses]) == capacity_per_s(engine, [whole])


def test_a_recording_without_speech_takes_no_worker() -> None:
    """Two clips of 1.5 s on one worker; the silent one comes while the first runs and the second waits."""
    trace = [request(0.0, 5.0), request(0.1, 5.0), spoken(0.2, 300.0, 0.0, 900)]
    engine = profile()
    first, second, silent = simulate(engine, trace, policy="fcfs", max_queue=1).records
    assert (first.finished_s, second.finished_s, silent.finished_s) == (1.5, 3.0, 0.2)
    assert (silent.num_windows, silent.num_tokens, silent.service_s, silent.wait_s) == (0, 0, 0.0, 0.0)
    assert (silent.first_text_s, silent.speech_s) == (None, 0.0)
    assert capacity_per_s(engine, trace) == pytest.approx(3 / 3.0)  # three requests, two of which take 1.5 s
    assert capacity_per_s(engine, trace[2:]) == math.inf
    bounds = lower_bounds(engine, trace, percents=[0, 50, 100])
    assert (bounds.percentiles_s[0], bounds.percentiles_s[50]) == (0.0, pytest.approx(1.5))


def test_an_engine_that_batches_skips_nothing() -> None:
    engine = load_profile("a100-large-v3")
    trace = [spoken(0.0, 300.0, speech_s) for speech_s in (None, 11.0, 0.0)]
    whole, *others = (simulate(engine, [one], policy="fcfs").records[0] for one in trace)
    assert whole.num_windows == 10
    assert [replace(one, speech_s=None) for one in others] == [whole] * 2
    assert len({capacity_per_s(engine, [one]) for one in trace}) == 1
