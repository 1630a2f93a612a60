"""Stretches of speech against a naive reference, and the real detector over real speech."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.audio.decode import SAMPLE_RATE_HZ, decode_all
from sooner.audio.probe import Audio
from sooner.audio.silero import SileroDetector
from sooner.audio.voice import CHUNK_SAMPLES, VoiceMeter
from sooner.errors import MissingExtraError
from sooner.workload.recordings import clip_named, clips

DATA = Path(__file__).parents[1] / "data"
SPEECH = [
    *(clip.path for clip in clips()),
    *(path for folder in (DATA, DATA / "speech") for path in sorted(folder.glob("*.*"))),
]
RNG = np.random.default_rng(0)
TIMES_S = np.arange(30 * SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ

Stretches = tuple[tuple[float, float], ...]


@pytest.fixture(scope="module")
def silero() -> SileroDetector:
    return SileroDetector()


def as_told(samples: np.ndarray) -> np.ndarray:
    """A scripted detector: each chunk's first sample is its probability."""
    return samples.reshape(-1, CHUNK_SAMPLES)[:, 0]


def measure(samples: np.ndarray, detector=as_told, blocks: tuple[int, ...] = (16_000,)) -> Stretches:
    meter = VoiceMeter(detector)
    start, turn = 0, 0
    while start < len(samples):
        size = blocks[turn % len(blocks)]
        meter.feed(samples[start : start + size])
        start, turn = start + size, turn + 1
    return meter.finish()


def expected(probabilities: list[float], num_samples: int) -> Stretches:
    """Chunk by chunk: those that are heard, put into groups by the pauses between them."""
    heard: list[int] = []
    for chunk, probability in enumerate(probabilities):
        goes_on = any(chunk - earlier <= 62 for earlier in heard[-1:])
        if probability >= 0.3 or (goes_on and probability >= 0.15):
            heard.append(chunk)
    groups = [[chunk] for chunk in heard[:1]]
    for before, chunk in itertools.pairwise(heard):
        if chunk - before > 62:
            groups.append([])
        groups[-1].append(chunk)
    groups = [group for group in groups if sum(probabilities[chunk] >= 0.3 for chunk in group) >= 2]
    bounds = [(max(0, group[0] * 512 - 6400), min(num_samples, group[-1] * 512 + 6912)) for group in groups]
    return tuple((start / 16_000, end / 16_000) for start, end in bounds)


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.4]), st.integers(1, 200)), min_size=1, max_size=25),
    ragged=st.integers(0, CHUNK_SAMPLES - 1),
    blocks=st.lists(st.integers(1_000, 600_000), min_size=1, max_size=3),
)
def test_stretches_are_those_of_the_reference(
    runs: list[tuple[float, int]], ragged: int, blocks: list[int]
) -> None:
    probabilities = [np.float32(value).item() for value, length in runs for _ in range(length)]
    samples = np.repeat(np.array(probabilities, dtype=np.float32), CHUNK_SAMPLES)
    samples = samples[: len(samples) - ragged]
    found = measure(samples, blocks=tuple(blocks))
    assert found == expected(probabilities, len(samples))
    audio = Audio(path=Path(), num_samples=len(samples), speech=found)
    flat = [0.0, *(bound for stretch in found for bound in stretch), audio.audio_s]
    assert flat[1:-1] == sorted(set(flat[1:-1]))
    assert flat[0] <= flat[1]
    assert flat[-2] <= flat[-1]


@pytest.mark.parametrize("first", [0, 900, 937, 938, 939, 1875, 1876])
def test_a_detector_may_need_a_second_to_warm_up(first: int) -> None:
    """Its state begins anew at each call; nothing is lost there. At the very beginning there is no before."""

    def forgetful(samples: np.ndarray) -> np.ndarray:
        judged = as_told(samples).copy()
        judged[:31] = 0
        return judged

    probabilities = np.full(2000, 0.01, dtype=np.float32)
    probabilities[first : first + 35] = 0.9
    (stretch,) = measure(np.repeat(probabilities, CHUNK_SAMPLES), forgetful)
    assert stretch[0] <= max(first, 31) * 0.032
    assert stretch[1] >= (first + 35) * 0.032


def test_hours_of_silence_cost_neither_memory_nor_a_look() -> None:
    def never(samples: np.ndarray) -> np.ndarray:
        raise AssertionError(f"shown {len(samples)} silent samples")

    faint = np.full(SAMPLE_RATE_HZ, 10 ** (-71 / 20), dtype=np.float32)
    meter = VoiceMeter(never)
    tracemalloc.start()
    for _ in range(3 * 3600):
        meter.feed(faint)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert meter.finish() == ()
    assert peak_bytes < 12 * 2**20  # half a minute is 1.9 MB


def test_nothing_fed() -> None:
    assert VoiceMeter(as_told).finish() == ()


@pytest.mark.parametrize("path", SPEECH, ids=lambda path: path.name)
def test_real_speech_is_kept(path: Path, silero: SileroDetector) -> None:
    """All that the detector is sure of when it hears the whole as it is, also where all is a tenth as loud."""
    samples = decode_all(path)
    whole = np.pad(samples, (0, -len(samples) % CHUNK_SAMPLES))
    sure = np.flatnonzero(silero(whole) >= 0.7)
    assert len(sure) > 10
    for loudness in (1.0, 0.1):
        found = measure(samples * np.float32(loudness), silero)
        kept = [any(start <= chunk * 0.032 < end for start, end in found) for chunk in sure]
        assert np.mean(kept) > 0.99


def test_pauses_are_left_out(silero: SileroDetector) -> None:
    jfk, pause = decode_all(clip_named("jfk").path), np.zeros(20 * SAMPLE_RATE_HZ, dtype=np.float32)
    far = decode_all(clip_named("austen-0870").path) * np.float32(0.005)  # a far voice among near ones
    found = measure(np.concatenate([jfk, pause, far, pause, jfk]), silero)
    bounds = [(0.0, 11.0), (31.0, 38.1), (58.1, 69.1)]
    assert len(found) == 3
    for (start, end), (spoken_from, spoken_to) in zip(found, bounds, strict=True):
        assert spoken_from - 0.6 <= start <= spoken_from + 0.6
        assert spoken_to - 0.8 <= end <= spoken_to + 0.8


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(30 * SAMPLE_RATE_HZ),
        RNG.standard_normal(160) * 0.1,
        RNG.standard_normal(len(TIMES_S)) * 0.01,
        np.cumsum(RNG.standard_normal(len(TIMES_S))) * 0.001,
        np.sin(2 * np.pi * 440 * TIMES_S) * 0.3,
        np.sin(2 * np.pi * 50 * TIMES_S) * 0.1 + np.sin(2 * np.pi * 100 * TIMES_S) * 0.03,
        (RNG.random(len(TIMES_S)) < 1 / 8000) * 0.5,
    ],
    ids=["silence", "10 ms", "white noise", "brown noise", "tone", "hum", "clicks"],
)
def test_no_voice(samples: np.ndarray, silero: SileroDetector) -> None:
    assert measure(samples.astype(np.float32), silero) == ()


def test_threads_share_a_detector(silero: SileroDetector) -> None:
    recordings = [decode_all(clip.path) for clip in clips()[:6]]
    alone = [measure(samples, silero) for samples in recordings]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda samples: measure(samples, silero), recordings * 2)) == alone * 2


def test_the_detector_does_not_load_a_speech_model_s_runtime() -> None:
    program = (
        "import sys; from sooner.audio.silero import SileroDetector; SileroDetector(); "
        "print(sorted({'ctranslate2', 'faster_whisper'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.strip() == b"[]"


@pytest.mark.parametrize("missing", ["onnxruntime", "faster_whisper"])
def test_without_its_packages(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "onnxruntime":
        monkeypatch.setitem(sys.modules, missing, None)
    else:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="serve"):
        SileroDetector()
