"""Recordings, joined recordings and arrivals."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from sooner.audio.decode import SAMPLE_RATE_HZ, decode_all
from sooner.bench.accuracy import is_right, word_error_rate
from sooner.bench.joined import join_clips
from sooner.workload.arrivals import poisson_arrivals
from sooner.workload.recordings import clip_named, clips, librispeech_test_clean


def test_clips_are_there_and_small() -> None:
    assert len(clips()) == 12
    assert sum(clip.path.stat().st_size for clip in clips()) < 5_000_000
    assert clip_named("jfk").audio_s == 11.0


def test_librispeech_durations() -> None:
    corpus = librispeech_test_clean()
    assert sum(u.audio_s for u in corpus) / 3600 == pytest.approx(5.40, abs=0.01)
    assert max(u.audio_s for u in corpus) == pytest.approx(34.96, abs=0.01)


def test_joined_clips(tmp_path: Path) -> None:
    joined = join_clips(tmp_path / "a.wav", at_least_s=100.0, seed=1)
    samples = decode_all(joined.path)
    assert len(samples) / SAMPLE_RATE_HZ == pytest.approx(joined.audio_s)
    assert 100.0 <= joined.audio_s < 120.0
    assert JFK_WORDS in joined.transcript
    again = join_clips(tmp_path / "b.wav", at_least_s=100.0, seed=1)
    assert again.path.read_bytes() == joined.path.read_bytes()
    other = join_clips(tmp_path / "c.wav", at_least_s=100.0, seed=2)
    assert other.transcript != joined.transcript


JFK_WORDS = "ask not what your country can do for you"


def test_poisson_arrivals() -> None:
    times_s = list(islice(poisson_arrivals(random.Random(1), rate_per_s=5.0), 5000))
    assert times_s == sorted(times_s)
    assert times_s[-1] == pytest.approx(1000.0, rel=0.05)
    assert times_s == list(islice(poisson_arrivals(random.Random(1), rate_per_s=5.0), 5000))
    with pytest.raises(ValueError, match="positive"):
        next(poisson_arrivals(random.Random(1), rate_per_s=0.0))


def test_right_and_wrong_texts() -> None:
    said = clip_named("jfk").transcript
    assert word_error_rate(said, said.upper() + "!") == 0.0
    assert word_error_rate("mister dashwood", "Mr. Dashwood.") == 0.0
    assert is_right(said, said.replace("americans", "american"))
    assert not is_right(said, "")
    assert not is_right(said, clip_named("austen-0870").transcript)
    assert not is_right(said, f"{said} {said}")
