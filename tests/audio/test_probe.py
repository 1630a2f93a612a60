"""Length by decoding, in slices, within limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.audio.probe import Audio, Probe
from sooner.errors import AudioTooLongError, UnreadableAudioError
from sooner.workload.recordings import clips

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"


def measure(path: Path, *, max_audio_s: float = 1e6) -> tuple[Audio, int]:
    probe = Probe(path, max_audio_s=max_audio_s)
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
    assert measure(HOSTILE / "jfk_truncated50pct.mp3")[0].audio_s == pytest.approx(5.5, abs=0.1)


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
