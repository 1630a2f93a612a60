"""The real model: right text, equal to a run to completion, safe on silence."""

from __future__ import annotations

import re
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sooner import Estimator, Job
from sooner.audio.decode import SAMPLE_RATE_HZ, Samples, decode_all
from sooner.audio.probe import Audio, Probe
from sooner.bench.accuracy import is_right, word_errors
from sooner.bench.joined import join_clips
from sooner.engines.base import DecodingOptions, Segment
from sooner.engines.models import ModelFiles
from sooner.engines.whisper import WhisperDecoding, WhisperEngine
from sooner.errors import EngineError, ModelUnavailableError
from sooner.workload.recordings import Clip, clip_named, clips

DATA = Path(__file__).parents[1] / "data"


def measured(engine: WhisperEngine, path: Path) -> Audio:
    probe = Probe(path, max_audio_s=1e6, log_mel=engine.log_mel)
    while (audio := probe.step()) is None:
        pass
    return audio


def transcribe(
    engine: WhisperEngine, path: Path, options: DecodingOptions | None = None, *, all_speech: bool = False
) -> tuple[list[Segment], int]:
    """All segments, and the number of steps it took."""
    audio = measured(engine, path)
    if all_speech:
        audio = replace(audio, speech=((0.0, audio.audio_s),))
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


def write_wav(path: Path, samples: Samples) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes((samples * 32768).astype("<i2").tobytes())
    return path


def silence(audio_s: float) -> Samples:
    return np.zeros(round(audio_s * SAMPLE_RATE_HZ), dtype=np.float32)


def decoding_of(engine: WhisperEngine, audio: Audio) -> WhisperDecoding:
    job = Job(id="job", arrival_s=0.0, audio_s=audio.audio_s, estimate=Estimator().estimate(audio.audio_s))
    return engine.start(job, audio, DecodingOptions())


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
    path = write_wav(tmp_path / "cut.wav", samples)
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
    path = write_wav(tmp_path / "stutter.wav", np.tile(decode_all(clip_named("7902-96591-0000").path), 13))
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


def test_words_equal_a_run_to_completion(whisper: WhisperEngine, tmp_path: Path) -> None:
    """Where all is speech, listening for voices changes nothing either."""
    joined = join_clips(tmp_path / "joined.wav", at_least_s=70.0, seed=5)
    for path in (joined.path, clip_named("jfk").path):
        segments, _ = transcribe(whisper, path, DecodingOptions(words=True), all_speech=True)
        whole, _ = whisper.model.transcribe(str(path), language="en", word_timestamps=True)
        expected = list(whole)
        assert [(s.text, s.start_s, s.end_s, s.seek) for s in segments] == [
            (s.text, s.start, s.end, s.seek) for s in expected
        ]
        assert [(w.text, w.start_s, w.end_s, w.probability) for s in segments for w in s.words] == [
            (w.word, w.start, w.end, w.probability) for s in expected for w in s.words or ()
        ]


def test_silence_between_voices_costs_no_window(whisper: WhisperEngine, tmp_path: Path) -> None:
    first, second = decode_all(clip_named("jfk").path), decode_all(clip_named("austen-0890").path)
    path = write_wav(
        tmp_path / "apart.wav",
        np.concatenate([silence(50), first, silence(70), second, silence(100)]),
    )
    first_end_s = 50 + len(first) / SAMPLE_RATE_HZ
    second_s = first_end_s + 70
    speech = ((50.0, first_end_s), (second_s, second_s + len(second) / SAMPLE_RATE_HZ))
    audio = replace(measured(whisper, path), speech=speech)
    decoding = decoding_of(whisper, audio)
    one, two = decoding.step(), decoding.step()
    assert not one.done
    assert two.done
    assert "ask not what your country can do for you" in text_of(list(one.segments))
    assert is_right(clip_named("austen-0890").transcript, text_of(list(two.segments)))
    assert one.position_s == pytest.approx(second_s, abs=0.01)
    assert audio.rest(one.position_s).windows == 1
    assert two.position_s == audio.audio_s
    assert 50 <= one.segments[0].start_s < 51
    assert two.segments[0].start_s == pytest.approx(second_s, abs=1)


def test_a_recording_without_speech_needs_no_model(
    whisper: WhisperEngine, silent_wav: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whisper.model, "encode", None)
    audio = replace(measured(whisper, silent_wav(100.0)), speech=())
    result = decoding_of(whisper, audio).step()
    assert result.done
    assert result.segments == ()
    assert result.position_s == audio.audio_s


@pytest.mark.parametrize("num_samples", [1, 80, 160, 240])
def test_a_recording_of_no_length_gives_no_text(whisper: WhisperEngine, tmp_path: Path, num_samples: int) -> None:
    voice = decode_all(clip_named("jfk").path)[16_000 : 16_000 + num_samples]
    segments, steps = transcribe(whisper, write_wav(tmp_path / "short.wav", voice))
    assert (segments, steps) == ([], 1)


LANGUAGES = [
    ("es_test_clip.wav", "es", "grabaci.n de librivox.*dominio p.blico"),
    ("french.aiff", "fr", "dictée"),
    ("chinese.flac", "zh", "自己"),
]


@pytest.mark.parametrize(("name", "language", "said"), LANGUAGES)
def test_the_language_is_detected(whisper_base: WhisperEngine, name: str, language: str, said: str) -> None:
    audio = measured(whisper_base, DATA / name)
    result = decoding_of(whisper_base, audio).step()
    assert result.language == language
    assert re.search(said, text_of(list(result.segments)).lower())


def test_translation(whisper_base: WhisperEngine) -> None:
    assert whisper_base.can_translate
    options = DecodingOptions(task="translate", words=True)
    segments, _ = transcribe(whisper_base, DATA / "es_test_clip.wav", options)
    text = text_of(segments)
    assert "this is a" in text.lower()
    assert "public domain" in text.lower()
    words = [word for segment in segments for word in segment.words]
    assert "".join(word.text for word in words).strip() == text
    assert 0 <= words[0].start_s < words[-1].end_s <= measured(whisper_base, DATA / "es_test_clip.wav").audio_s


def test_an_english_model_does_not_translate(whisper: WhisperEngine) -> None:
    assert not whisper.can_translate
