"""Length by decoding, in slices, within limits."""

from __future__ import annotations

import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from faster_whisper.feature_extractor import FeatureExtractor
from hypothesis import given
from hypothesis import strategies as st

from sooner.audio.decode import SAMPLE_RATE_HZ, decode_all
from sooner.audio.mel import LogMel
from sooner.audio.probe import Audio, Probe
from sooner.audio.silero import SileroDetector
from sooner.errors import AudioTooLongError, DecodedTooLargeError, UnreadableAudioError
from sooner.workload.recordings import clip_named, clips

from . import makers

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"


def measure(path: Path, *, max_audio_s: float = 1e6, **options: Any) -> tuple[Audio, int]:
    probe = Probe(path, max_audio_s=max_audio_s, **options)
    steps = 1
    while (audio := probe.step()) is None:
        steps += 1
    probe.close()
    return audio, steps


def test_shipped_clips_are_as_long_as_the_manifest_says() -> None:
    for clip in clips():
        assert measure(clip.path)[0].audio_s == pytest.approx(clip.audio_s, abs=1e-3)


def test_a_forged_header_does_not_shorten_a_job() -> None:
    assert measure(HOSTILE / "jfk_declared_2s_but_11s.wav")[0].audio_s == pytest.approx(11.0)


def test_a_cut_file_is_as_long_as_what_is_left() -> None:
    audio = measure(HOSTILE / "jfk_truncated50pct.mp3")[0]
    assert audio.audio_s == pytest.approx(5.5, abs=0.1)
    assert audio.warning == "the file breaks off after 5.5 s; what is there was transcribed"


def test_a_long_file_is_measured_in_slices_of_a_minute(silent_wav) -> None:
    audio, steps = measure(silent_wav(600.0))
    assert audio.audio_s == pytest.approx(600.0)
    assert 10 <= steps <= 12


def test_decoding_stops_at_the_limit(silent_wav) -> None:
    probe = Probe(silent_wav(600.0), max_audio_s=100.0)
    assert probe.step() is None
    with pytest.raises(AudioTooLongError) as refused:
        probe.step()
    probe.close()
    assert refused.value.limit_s == 100.0
    assert 100.0 < refused.value.actual_s < 102.0


@pytest.mark.parametrize("name", ["empty.flac", "not_audio.wav", "random_bytes.flac"])
def test_no_audio(name: str) -> None:
    with pytest.raises(UnreadableAudioError):
        measure(HOSTILE / name)


def test_a_file_with_a_header_and_no_samples(silent_wav) -> None:
    with pytest.raises(UnreadableAudioError):
        measure(silent_wav(0.0))


def test_voices_are_found_on_the_way(tmp_path: Path) -> None:
    jfk, pause = decode_all(clip_named("jfk").path), np.zeros(40 * SAMPLE_RATE_HZ, dtype=np.float32)
    path = makers.make_wav(tmp_path / "pause.wav", np.concatenate([jfk, pause, jfk]))
    audio = measure(path, voice=SileroDetector())[0]
    assert audio.speech is not None
    assert [(round(start), round(end)) for start, end in audio.speech] == [(0, 11), (51, 62)]
    assert audio.speech_s == pytest.approx(22.0, abs=1.0)
    assert audio.rest().windows == 2
    assert measure(path)[0].speech is None
    assert measure(HOSTILE / "silence_zero_30s.flac", voice=SileroDetector())[0].speech == ()


def test_a_bomb_costs_neither_memory_nor_much_time(tmp_path: Path) -> None:
    """Three hours in 37 kB, through all that a probe measures."""
    path = makers.make_bomb(tmp_path / "bomb.flac")
    assert path.stat().st_size < 40_000
    options = {"log_mel": LogMel(FeatureExtractor().mel_filters), "voice": SileroDetector()}
    started_s, before_bytes = time.process_time(), psutil.Process().memory_info().rss
    audio, steps = measure(path, **options)
    assert audio.audio_s == pytest.approx(3 * 3600, abs=5)
    assert audio.speech == ()
    assert steps > 40
    assert time.process_time() - started_s < 10  # 1 s where nothing else runs
    assert psutil.Process().memory_info().rss - before_bytes < 64 * 2**20  # unpacked, it is 345 MB


@pytest.mark.parametrize(("rate_hz", "channels"), [(192_000, 8), (48_000, 2), (8_000, 1)])
def test_a_bomb_is_defused_by_what_it_unpacks_to(tmp_path: Path, rate_hz: int, channels: int) -> None:
    path = makers.make_bomb(tmp_path / "bomb.flac", audio_s=600.0, rate_hz=rate_hz, channels=channels)
    limit_bytes = 5 * 2**20
    tracemalloc.start()
    with pytest.raises(DecodedTooLargeError) as refused:
        measure(path, max_decoded_bytes=limit_bytes)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused.value.limit_bytes == limit_bytes
    assert peak_bytes < 64 * 2**20


def test_a_slice_is_bounded_in_bytes_too(tmp_path: Path) -> None:
    path = makers.make_bomb(tmp_path / "bomb.flac", audio_s=10.0, rate_hz=655_350, channels=8)
    assert measure(path)[1] == 2  # 100 MiB in slices of 64


@st.composite
def _audios(draw: st.DrawFn) -> tuple[Audio, list[bool]]:
    """Speech and pauses of whole seconds, and whether somebody speaks in each second."""
    lengths = draw(st.lists(st.integers(1, 70), max_size=12))
    begins_with_speech = draw(st.booleans())
    spoken = [
        (index % 2 == 0) == begins_with_speech for index, length in enumerate(lengths) for _ in range(length)
    ]
    bounds = [
        second for second in range(len(spoken) + 1) if [False, *spoken, False][second] != [*spoken, False][second]
    ]
    stretches = tuple((float(start), float(end)) for start, end in zip(bounds[::2], bounds[1::2], strict=True))
    return Audio(path=Path(), num_samples=len(spoken) * SAMPLE_RATE_HZ, speech=stretches), spoken


@given(_audios(), st.integers(0, 300))
def test_the_rest_second_by_second(made: tuple[Audio, list[bool]], position: int) -> None:
    """A decoding skips, at each window's beginning, to the next second in which somebody speaks."""
    audio, spoken = made
    windows, at = 0, position
    while any(spoken[at:]):
        at = spoken.index(True, at) + 30
        windows += 1
    rest = audio.rest(float(position))
    assert rest.windows == windows
    assert rest.speech_s == sum(spoken[position:])
    assert rest.audio_s == max(0, len(spoken) - position)


@given(_audios(), st.lists(st.floats(0, 400), min_size=2, max_size=2).map(sorted))
def test_the_rest_only_shrinks(made: tuple[Audio, list[bool]], positions: list[float]) -> None:
    early, late = (made[0].rest(position) for position in positions)
    assert early.windows is not None
    assert late.windows is not None
    assert early.speech_s is not None
    assert late.speech_s is not None
    assert late.windows <= early.windows
    assert late.speech_s <= early.speech_s + 1e-9
    assert late.audio_s <= early.audio_s
    assert late.speech_s <= 30 * late.windows + 1e-9
