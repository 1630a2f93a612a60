"""One contract, run over the scripted engine, here and in a process of its own, and over the real model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sooner import Estimator, Job
from sooner.audio.probe import Audio, Probe
from sooner.bench.joined import JoinedRecording, join_clips
from sooner.engines.base import Decoding, DecodingOptions, Engine, WindowResult
from sooner.engines.fake import FakeEngine
from sooner.engines.isolated import IsolatedEngine
from sooner.errors import SchedulerUsageError
from sooner.workload.recordings import clip_named


@pytest.fixture(scope="module", params=["fake", "isolated", "whisper"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    if request.param == "whisper":
        yield request.getfixturevalue("whisper")
        return
    engine = (
        FakeEngine() if request.param == "fake" else IsolatedEngine(FakeEngine, num_workers=2, window_limit_s=60)
    )
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> JoinedRecording:
    return join_clips(tmp_path_factory.mktemp("joined") / "joined.wav", at_least_s=70.0, seed=5)


def measured(path: Path, engine: Engine) -> Audio:
    probe = Probe(path, max_audio_s=1e6, log_mel=engine.log_mel)
    while (audio := probe.step()) is None:
        pass
    return audio


def start(engine: Engine, path: Path, options: DecodingOptions | None = None) -> tuple[Decoding, Audio]:
    audio = measured(path, engine)
    job = Job(id=path.stem, arrival_s=0.0, audio_s=audio.audio_s, estimate=Estimator().estimate(audio.audio_s))
    return engine.start(job, audio, options or DecodingOptions()), audio


def to_the_end(decoding: Decoding) -> list[WindowResult]:
    results = [decoding.step()]
    while not results[-1].done:
        results.append(decoding.step())
    return results


def text_of(results: list[WindowResult]) -> str:
    return "".join(segment.text for result in results for segment in result.segments)


def test_one_window_a_step(engine: Engine, joined: JoinedRecording) -> None:
    decoding, audio = start(engine, joined.path)
    results = to_the_end(decoding)
    assert len(results) >= 3
    positions = [result.position_s for result in results]
    assert positions == sorted(positions)
    for before, after in zip([0.0, *positions], positions, strict=False):
        assert after - before <= 30.0 + 1e-6
    assert positions[-1] == pytest.approx(audio.audio_s)
    assert all(result.num_tokens > 0 for result in results)


def test_segments_are_in_order_and_inside_the_recording(engine: Engine, joined: JoinedRecording) -> None:
    decoding, audio = start(engine, joined.path)
    segments = [segment for result in to_the_end(decoding) for segment in result.segments]
    assert segments
    for segment in segments:
        assert 0 <= segment.start_s <= segment.end_s <= audio.audio_s + 0.5
        assert segment.text.strip()
    starts = [segment.start_s for segment in segments]
    assert starts == sorted(starts)


def test_a_clip_is_one_step(engine: Engine) -> None:
    decoding, audio = start(engine, clip_named("jfk").path)
    result = decoding.step()
    assert result.done
    assert result.position_s == pytest.approx(audio.audio_s)
    assert result.language == "en"


def test_it_says_what_it_is(engine: Engine) -> None:
    assert engine.ready
    assert engine.model_id
    assert "en" in engine.languages
    assert engine.can_translate in (True, False)


def test_words_where_they_are_asked_for(engine: Engine) -> None:
    decoding, audio = start(engine, clip_named("jfk").path, DecodingOptions(words=True))
    segments = decoding.step().segments
    assert segments
    for segment in segments:
        assert "".join(word.text for word in segment.words) == segment.text
    words = [word for segment in segments for word in segment.words]
    times_s = [time_s for word in words for time_s in (word.start_s, word.end_s)]
    assert times_s == sorted(times_s)
    assert 0 <= times_s[0] < times_s[-1] <= audio.audio_s
    assert all(0 < word.probability <= 1 for word in words)
    decoding, _ = start(engine, clip_named("jfk").path)
    assert [segment.words for segment in decoding.step().segments] == [()] * len(segments)


def test_after_the_end_there_is_no_step(engine: Engine) -> None:
    decoding, _ = start(engine, clip_named("jfk").path)
    to_the_end(decoding)
    with pytest.raises(SchedulerUsageError):
        decoding.step()


def test_a_closed_decoding_does_not_step(engine: Engine, joined: JoinedRecording) -> None:
    decoding, _ = start(engine, joined.path)
    decoding.step()
    decoding.close()
    decoding.close()
    with pytest.raises(SchedulerUsageError):
        decoding.step()


def test_interleaved_decodings_do_not_disturb_each_other(engine: Engine, joined: JoinedRecording) -> None:
    alone = text_of(to_the_end(start(engine, joined.path)[0]))
    first, _ = start(engine, joined.path)
    results = [first.step()]
    for name in ("jfk", "austen-0890"):  # what overtakes at window boundaries
        to_the_end(start(engine, clip_named(name).path)[0])
        results.append(first.step())
    while not results[-1].done:
        results.append(first.step())
    assert text_of(results) == alone
