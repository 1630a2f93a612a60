"""The front end against faster-whisper's, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from faster_whisper.feature_extractor import FeatureExtractor

from sooner.audio.decode import decode_all
from sooner.audio.mel import HOP_SAMPLES, WINDOW_FRAMES, LogMel, PeakMeter
from sooner.workload.recordings import clips

EXTRACTOR = FeatureExtractor()
LOG_MEL = LogMel(EXTRACTOR.mel_filters)


@pytest.fixture(scope="module")
def recording() -> np.ndarray:
    return np.concatenate([decode_all(clip.path) for clip in clips()])


def peak_of(samples: np.ndarray, block: int = 16_000) -> float | None:
    meter = PeakMeter(LOG_MEL)
    for start in range(0, len(samples), block):
        meter.feed(samples[start : start + block])
    return meter.finish()


@pytest.mark.parametrize("seek", [0, 1, 2500, 5321, 8000])
def test_features_of_a_window_are_those_of_the_whole(recording: np.ndarray, seek: int) -> None:
    whole = EXTRACTOR(recording)
    num_frames = min(WINDOW_FRAMES, len(recording) // HOP_SAMPLES - seek)
    start, stop = LogMel.span(seek, num_frames)
    log_mel = LOG_MEL.frames(recording[max(0, start) : stop], seek, num_frames)
    peak = peak_of(recording)
    assert peak is not None
    np.testing.assert_array_equal(LogMel.scale(log_mel, peak), whole[:, seek : seek + num_frames])


@pytest.mark.parametrize("loud_at", [0.0, 29.9, 30.0, 30.02, 47.3, 59.99, 71.0])
@pytest.mark.parametrize("block", [7_000, 16_000, 480_000])
def test_the_peak_is_found_wherever_it_is(loud_at: float, block: int) -> None:
    rng = np.random.default_rng(0)
    samples = (rng.standard_normal(round(71.003 * 16_000)) * 0.001).astype(np.float32)
    at = round(loud_at * 16_000)
    samples[at : at + 300] += 0.5
    spectrum = LOG_MEL.frames(samples, 0, len(samples) // HOP_SAMPLES + 1)
    assert peak_of(samples, block) == float(spectrum.max())


@pytest.mark.parametrize("num_samples", [1, 16_000, 30 * 16_000, 30 * 16_000 + 159])
def test_a_recording_that_the_first_window_sees_whole_needs_no_peak(num_samples: int) -> None:
    assert peak_of(np.zeros(num_samples, dtype=np.float32)) is None


@pytest.mark.parametrize("num_samples", [30 * 16_000 + 160, 30 * 16_000 + 479, 31 * 16_000])
def test_one_frame_more_than_a_window_needs_it(num_samples: int) -> None:
    samples = np.zeros(num_samples, dtype=np.float32)
    samples[-100:] = 0.5
    spectrum = LOG_MEL.frames(samples, 0, num_samples // HOP_SAMPLES + 1)
    assert peak_of(samples) == float(spectrum.max())


def test_silence_has_the_least_peak() -> None:
    samples = np.zeros(61 * 16_000, dtype=np.float32)
    assert peak_of(samples) == float(LOG_MEL.frames(samples, 0, 3000).max())
