"""What is measured in which order, with which recordings, and what is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sooner import policies
from sooner.audio.decode import SAMPLE_RATE_HZ, decode_all
from sooner.bench.accuracy import WordErrors, word_errors
from sooner.bench.audio_pool import AudioPool
from sooner.bench.joined import join_to_length
from sooner.bench.options import BenchOptions
from sooner.bench.run import run_bench
from sooner.bench.visits import Target, Visit, visits_of
from sooner.errors import ConfigurationError
from sooner.workload.options import WorkloadOptions
from sooner.workload.recordings import clip_named, clips
from sooner.workload.trace import TraceRequest

JFK = clip_named("jfk")


def asked(audio_s: float, **known: Any) -> TraceRequest:
    return TraceRequest(arrival_s=0.0, audio_s=audio_s, **known)


def test_targets_are_visited_forth_and_back_with_the_same_traffic() -> None:
    a, b = Target(name="a", url="http://x"), Target(name="b")
    visits = list(visits_of([a, b], rates_per_s=[1.5, None], seeds=[7, 8], num_rounds=2))
    one_rate = [
        *(("a", 7, 1), ("b", 7, 1)),
        *(("b", 8, 1), ("a", 8, 1)),
        *(("a", 7, 2), ("b", 7, 2)),
        *(("b", 8, 2), ("a", 8, 2)),
    ]
    assert [(v.rate_per_s, v.target.name, v.seed, v.round) for v in visits] == [
        (rate_per_s, *rest) for rate_per_s in (1.5, None) for rest in one_rate
    ]
    assert len({visit.name for visit in visits}) == len(visits)
    assert Visit(target=b, rate_per_s=1.5, seed=7, round=2).name == "b-rate1.5-seed7-round2"


@pytest.mark.parametrize("seeds", [[1], [1, 2, 3]])
def test_the_order_alternates_whatever_the_number_of_seeds(seeds: list[int]) -> None:
    targets = [Target(name="a"), Target(name="b")]
    visits = list(visits_of(targets, rates_per_s=[1.0], seeds=seeds, num_rounds=2))
    assert [visit.target.name for visit in visits] == ["a", "b", "b", "a"] * len(seeds)


def test_options_say_what_is_measured(tmp_path: Path) -> None:
    options = BenchOptions(
        server=("mine=http://127.0.0.1:9000/v1/", "b-2=https://example.org"),
        policies="fcfs, hrrn",
        rate="1,2.5",
        seeds="3,1",
        out=tmp_path / "new",
    )
    assert options.targets == [
        Target(name="mine", url="http://127.0.0.1:9000"),
        Target(name="b-2", url="https://example.org"),
        Target(name="fcfs"),
        Target(name="hrrn"),
    ]
    assert (options.rates_per_s, options.seed_numbers) == ([1.0, 2.5], [3, 1])


def test_without_a_server_all_policies_are_measured(tmp_path: Path) -> None:
    assert [one.name for one in BenchOptions(out=tmp_path).targets] == [policy.name for policy in policies()]
    assert [one.name for one in BenchOptions(server=("a=http://b",), out=tmp_path).targets] == ["a"]
    assert BenchOptions(out=tmp_path).rates_per_s == [None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"server": ("http://127.0.0.1:8000",)}, "NAME=URL"),
        ({"server": ("../a=http://127.0.0.1",)}, "NAME=URL"),
        ({"server": ("a=127.0.0.1:8000",)}, "NAME=URL"),
        ({"server": ("a=http://b", "a=http://c")}, "name of its own"),
        ({"policies": "fcfs,lifo"}, "unknown scheduling policy 'lifo'"),
        ({"policies": "fcfs,fcfs"}, "--policies must be different"),
        ({"policies": ","}, "--policies must be different"),
        ({"policies": "", "server": ("a=http://b",)}, "--policies must be different"),
        ({"policies": "fcfs", "server": ("fcfs=http://b",)}, "name of its own"),
        ({"rate": "fast"}, "--rate must be different numbers"),
        ({"rate": ","}, "--rate must be different numbers"),
        ({"rate": "1,0"}, "above 0"),
        ({"rate": "inf"}, "above 0"),
        ({"seeds": "1.5"}, "--seeds must be different whole numbers"),
        ({"seeds": "1,1"}, "--seeds must be different whole numbers"),
        ({"rounds": 0}, "--rounds must be at least 1"),
        ({"warm_up": -1}, "--warm-up must be at least 0"),
        ({"timeout_s": float("inf")}, "--timeout-s must be at least"),
        ({"slo_s": 0.0}, "--slo-s must be at least"),
    ],
)
def test_options_without_sense_are_refused(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        BenchOptions(**given, out=tmp_path)


def test_a_folder_with_runs_is_not_mixed_with_new_ones(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").touch()
    with pytest.raises(ConfigurationError, match="holds runs already"):
        BenchOptions(out=tmp_path)
    with pytest.raises(ConfigurationError, match="is a file"):
        BenchOptions(out=tmp_path / "old.jsonl")


def test_a_folder_that_cannot_be_written_is_refused_before_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a server was started")

    monkeypatch.setattr("sooner.bench.run.EmbeddedServer", start)
    (tmp_path / "file").touch()
    options = BenchOptions(policies="fcfs", rate="1", out=tmp_path / "file" / "out")
    with pytest.raises(ConfigurationError, match=r"--out .*file/out is not a folder to write to: .*Not a dir"):
        run_bench(options, WorkloadOptions(workload="clips", requests=1))


@pytest.mark.parametrize("audio_s", [15.0, 30.0, 61.0, 240.0])
def test_joined_recordings_are_as_long_as_asked_and_what_they_say(audio_s: float, tmp_path: Path) -> None:
    made = join_to_length(tmp_path / "a.flac", audio_s=audio_s, seed=3)
    samples = decode_all(made.path)
    assert len(samples) == made.audio_s * SAMPLE_RATE_HZ
    assert made.audio_s == pytest.approx(audio_s, abs=1.0)
    num_words = len(made.transcript.split())
    assert 1.5 * audio_s < num_words < 4 * audio_s  # people speak two to three words a second
    again = join_to_length(tmp_path / "b.flac", audio_s=audio_s, seed=3)
    assert again.path.read_bytes() == made.path.read_bytes()


def test_a_joined_recording_holds_its_clips_unchanged(tmp_path: Path) -> None:
    made = join_to_length(tmp_path / "a.flac", audio_s=1.0, seed=0)
    shortest = min(clips(), key=lambda clip: clip.audio_s)
    assert made.transcript == shortest.transcript
    original = decode_all(shortest.path)
    assert (decode_all(made.path)[: len(original)] == original).all()


def test_the_pool_gives_clips_joined_ones_and_own_recordings(tmp_path: Path) -> None:
    pool = AudioPool(tmp_path)
    short, long, same = asked(3.3), asked(100.4), asked(99.8)
    own = asked(5.0, path=JFK.path, transcript="what I say it says")
    done: list[tuple[int, int]] = []
    pool.prepare([short, long, same, own], on_done=lambda number, total: done.append((number, total)))
    assert done == [(1, 2), (2, 2)]
    assert pool.recording_for(short).path == clip_named("austen-0930").path
    assert pool.recording_for(long) == pool.recording_for(same)
    assert pool.recording_for(long).audio_s == pytest.approx(100, abs=1)
    assert [path.name for path in tmp_path.iterdir()] == ["joined-100.flac"]
    assert pool.recording_for(own).audio_s == 11.0  # measured, whatever the trace claims
    assert pool.recording_for(own).transcript == "what I say it says"
    assert pool.recording_for(asked(5.0, path=JFK.path)).transcript is None


def test_the_pool_takes_no_more_disk_than_it_may(tmp_path: Path) -> None:
    pool = AudioPool(tmp_path, max_joined_s=120.0)
    pool.prepare([asked(60.0)])
    pool.prepare([asked(60.2), asked(5.0)])
    with pytest.raises(ConfigurationError, match="lower --max-file-s or --requests"):
        pool.prepare([asked(61.0)])


@pytest.mark.parametrize("name", ["gone.wav", "text.wav"])
def test_an_own_recording_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("not a recording")
    with pytest.raises(ConfigurationError, match=name):
        AudioPool(tmp_path).prepare([asked(5.0, path=tmp_path / name)])


def test_a_burst_has_no_rate(tmp_path: Path) -> None:
    burst = WorkloadOptions(workload="clips", arrivals="burst")
    with pytest.raises(ConfigurationError, match="a burst has no rate: leave --rate out"):
        run_bench(BenchOptions(policies="fcfs", rate="2", out=tmp_path / "runs"), burst)
    assert not (tmp_path / "runs").exists()


def test_word_errors_are_counted() -> None:
    assert word_errors("a b c d", "A, x c d e") == WordErrors(num_errors=2, num_words=4)
    assert word_errors("mister dashwood", "") == WordErrors(num_errors=2, num_words=2)
    assert WordErrors(num_errors=3, num_words=4).rate == 0.75


@pytest.mark.parametrize(
    ("said", "text", "num_errors", "num_words"),
    [
        ("привет мир", "Привет, мир!", 0, 2),
        ("für die Straße", "FÜR DIE STRASSE", 0, 3),
        ("l’été", "l'e\u0301te\u0301", 0, 1),  # typographic apostrophe; accents as characters of their own
        ("‘hello’ 'there', don't", "hello there don’t", 0, 3),  # quotes are no part of a word
        ("हिन्दी में", "हिन्दी मैं", 1, 2),  # vowels are marks, not letters
        ("今日は、晴れ。", "今日は 雨", 2, 5),
        ("…!", "", 0, 0),
    ],
)
def test_words_are_counted_in_other_languages(said: str, text: str, num_errors: int, num_words: int) -> None:
    assert word_errors(said, text) == WordErrors(num_errors=num_errors, num_words=num_words)


def test_where_no_word_was_said_there_is_no_rate() -> None:
    assert word_errors("…!", "hello").rate is None
