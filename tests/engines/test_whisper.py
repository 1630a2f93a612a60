"""The real model: right text, equal to a run to completion, safe on silence."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from sooner import Estimator, Job
from sooner.audio.decode import decode_all
from sooner.audio.probe import Audio, Probe
from sooner.bench.accuracy import is_right, word_errors
from sooner.bench.joined import join_clips
from sooner.engines.base import DecodingOptions, Segment
from sooner.engines.models import ModelFiles
from sooner.engines.whisper import WhisperEngine
from sooner.errors import EngineError, ModelUnavailableError
from sooner.workload.recordings import Clip, clip_named, clips

DATA = Path(__file__).parents[1] / "data"


def measured(engine: WhisperEngine, path: Path) -> Audio:
    probe = Probe(path, max_audio_s=1e6, log_mel=engine.log_mel)
    while (audio := probe.step()) is None:
        pass
    return audio


def transcribe(
    engine: WhisperEngine, path: Path, options: DecodingOptions | None = None
) -> tuple[list[Segment], int]:
    """All segments, and the number of steps it took."""
    audio = measured(engine, path)
    job = Job(id="job", arrival_s=0.0, audio_s=audio.audio_s, estimate=Estimator().estimate(audio.audio_s))
    decoding = engine.start(job, audio, options or DecodingOptions())
    segments: list[Segment] = []
    steps = 0
    done = False
    while not done:
        window = decoding.step()
        segments.extend(window.segments)
        done = window.done
        steps += 1
    return segments, steps


def text_of(segments: list[Segment]) -> str:
    return "".join(segment.text for segment in segments).strip()


@pytest.mark.parametrize("clip", clips(), ids=lambda clip: clip.path.stem)
def test_shipped_clips(whisper: WhisperEngine, clip: Clip) -> None:
    segments, _ = transcribe(whisper, clip.path)
    assert is_right(clip.transcript, text_of(segments))


@pytest.mark.parametrize("seed", [2, 3])
def test_windows_equal_a_run_to_completion(whisper: WhisperEngine, tmp_path: Path, seed: int) -> None:
    """Text, times and tokens of every segment are those of faster-whisper's own loop over the whole file."""
    joined = join_clips(tmp_path / "joined.wav", at_least_s=150.0, seed=seed)
    segments, steps = transcribe(whisper, joined.path)
    whole, _ = whisper.model.transcribe(str(joined.path), language="en")
    expected = list(whole)
    assert all(segment.temperature == 0 for segment in expected), "sampled text differs from run to run"
    assert steps >= 5
    assert [(s.text, s.start_s, s.end_s, list(s.tokens), s.seek) for s in segments] == [
        (s.text, s.start, s.end, s.tokens, s.seek) for s in expected
    ]
    assert word_errors(joined.transcript, text_of(segments)).rate < 0.12


@pytest.mark.parametrize("seed", range(4))
def test_two_windows_within_30_s_equal_a_run_to_completion(
    whisper: WhisperEngine, tmp_path: Path, seed: int
) -> None:
    """The second window of a short recording keeps the peak of the first, also where it is much quieter."""
    loud = decode_all(clips()[seed].path)
    quiet = np.concatenate([decode_all(clip.path) for clip in clips()[seed + 1 : seed + 6]]) * np.float32(0.02)
    samples = np.concatenate([loud, quiet])[: 30 * 16_000]
    path = tmp_path / "cut.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((samples * 32768).astype("<i2").tobytes())
    segments, _ = transcribe(whisper, path)
    whole, _ = whisper.model.transcribe(str(path), language="en")
    expected = [s for s in whole if s.temperature == 0]
    num_compared = len(expected)
    assert num_compared >= 1
    assert [s.text for s in segments][:num_compared] == [s.text for s in expected]


def test_a_prompt_steers_the_text_as_it_does_in_faster_whisper(whisper: WhisperEngine) -> None:
    path = DATA / "jfk.mp3"
    prompt = "AMERICANS, IN CAPITALS:"
    segments, _ = transcribe(whisper, path, DecodingOptions(prompt=prompt))
    whole, _ = whisper.model.transcribe(str(path), language="en", initial_prompt=prompt)
    assert text_of(segments) == "".join(s.text for s in whole).strip()


def test_a_very_long_prompt_is_cut_not_fatal(whisper: WhisperEngine) -> None:
    segments, _ = transcribe(whisper, DATA / "jfk.mp3", DecodingOptions(prompt="country " * 2000))
    assert segments is not None


def test_a_given_temperature_is_used_once(whisper: WhisperEngine) -> None:
    segments, steps = transcribe(whisper, DATA / "jfk.mp3", DecodingOptions(temperature=0.3))
    assert steps == 1
    assert {segment.temperature for segment in segments} == {0.3}


def test_another_try_is_another_step(whisper: WhisperEngine, tmp_path: Path) -> None:
    """The same words over and over look wrong to Whisper; each try gives the scheduler a chance."""
    path = tmp_path / "stutter.wav"
    once = (decode_all(clip_named("7902-96591-0000").path) * 32768).astype("<i2").tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(once * 13)
    audio = measured(whisper, path)
    assert audio.audio_s < 30
    segments, steps = transcribe(whisper, path)
    assert 2 <= steps <= 6
    assert "cutter" in text_of(segments).lower()


@pytest.mark.parametrize("name", ["silence_zero_30s.flac", "short_100ms.wav"])
def test_nothing_is_heard_where_nothing_is_said(whisper: WhisperEngine, name: str) -> None:
    segments, _ = transcribe(whisper, DATA / "hostile" / name)
    assert segments == []


def test_speech_before_a_long_silence(whisper: WhisperEngine) -> None:
    segments, _ = transcribe(whisper, DATA / "hostile" / "speech3.5s_then_silence_to_30s.flac")
    assert is_right("concord returned to its place amidst the tents", text_of(segments))


def test_a_recording_that_vanishes_is_an_error_not_a_crash(whisper: WhisperEngine, tmp_path: Path) -> None:
    audio = Audio(path=tmp_path / "gone.wav", num_samples=16_000)
    job = Job(id="job", arrival_s=0.0, audio_s=1.0, estimate=Estimator().estimate(1.0))
    with pytest.raises(EngineError, match=r"failed at 0\.0 s"):
        whisper.start(job, audio, DecodingOptions()).step()


def test_a_folder_without_a_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"not a model")
    with pytest.raises(ModelUnavailableError, match="could not be loaded on cpu"):
        WhisperEngine(ModelFiles(model_id="x", location=str(tmp_path)), num_workers=1, device="cpu")
