"""Samplers of recordings: from their corpora, in their ranges, equal for equal seeds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice, repeat
from statistics import mean

import pytest

from sooner.workload.lengths import (
    MIN_FILE_S,
    UNIFORM_S,
    Recording,
    clip_lengths,
    file_lengths,
    mixed_lengths,
    uniform_lengths,
)
from sooner.workload.recordings import librispeech_test_clean, meetings


def hour_files(rng: random.Random) -> Iterator[Recording]:
    return file_lengths(rng, max_file_s=3600.0)


def drawn(sampler: Callable[[random.Random], Iterator[Recording]], *, seed: int = 1) -> list[Recording]:
    return list(islice(sampler(random.Random(seed)), 6000))


@pytest.mark.parametrize("sampler", [clip_lengths, uniform_lengths, hour_files])
def test_equal_seeds_give_equal_recordings(sampler: Callable[[random.Random], Iterator[Recording]]) -> None:
    assert drawn(sampler, seed=3) == drawn(sampler, seed=3)
    assert drawn(sampler, seed=3) != drawn(sampler, seed=4)


def test_clips_are_utterances_of_test_clean() -> None:
    corpus = {(u.audio_s, u.num_tokens, u.transcript) for u in librispeech_test_clean()}
    recordings = drawn(clip_lengths)
    assert {(one.audio_s, one.num_tokens, one.transcript) for one in recordings} <= corpus
    assert mean(one.audio_s for one in recordings) == pytest.approx(7.42, rel=0.03)


def test_uniform_lengths_are_near_theirs_and_equally_often() -> None:
    recordings = drawn(uniform_lengths)
    nearest_s = [min(UNIFORM_S, key=lambda target_s: abs(target_s - one.audio_s)) for one in recordings]
    assert {target_s: count / 6000 for target_s, count in Counter(nearest_s).items()} == pytest.approx(
        dict.fromkeys(UNIFORM_S, 1 / 6), abs=0.015
    )
    off_s = dict.fromkeys(UNIFORM_S, 0.0)
    for target_s, one in zip(nearest_s, recordings, strict=True):
        off_s[target_s] = max(off_s[target_s], abs(one.audio_s - target_s))
    assert max(off_s[target_s] for target_s in (5.0, 10.0, 15.0, 20.0)) <= 0.5
    assert off_s[25.0] <= 0.6
    assert off_s[30.0] <= 2.0
    assert max(one.audio_s for one in recordings) <= 30.0


def test_half_of_the_files_are_whole_and_the_others_log_uniform() -> None:
    recordings = drawn(hour_files)
    whole_s = {round(min(meeting.audio_s, 3600.0), 2) for meeting in meetings()}
    parts = [one for one in recordings if one.audio_s not in whole_s]
    assert len(parts) / len(recordings) == pytest.approx(0.5, abs=0.02)
    assert min(one.audio_s for one in parts) >= MIN_FILE_S
    assert max(one.audio_s for one in recordings) == 3600.0
    # Half of a log-uniform part lie below the geometric mean of its ends, about 350 s for these wholes.
    assert mean(one.audio_s < 350.0 for one in parts) == pytest.approx(0.5, abs=0.05)


def test_tokens_of_files_follow_speech_and_pace() -> None:
    paces = [one.num_tokens / one.audio_s for one in drawn(hour_files)]
    assert mean(paces) == pytest.approx(0.81 * 3.02, rel=0.03)
    assert min(paces) >= 0.4 * 2.2
    assert max(paces) <= 3.8
    assert max(paces) - min(paces) > 1.0


def test_short_files_are_still_files() -> None:
    recordings = list(islice(file_lengths(random.Random(1), max_file_s=MIN_FILE_S), 50))
    assert {one.audio_s for one in recordings} == {MIN_FILE_S}


def test_the_mix_follows_its_shares() -> None:
    shares = [0.0] * 500 + [1.0] * 500 + [0.25] * 4000
    recordings = list(mixed_lengths(random.Random(1), file_shares=shares, max_file_s=600.0))
    is_file = [one.transcript is None for one in recordings]
    assert len(recordings) == len(shares)
    assert not any(is_file[:500])
    assert all(is_file[500:1000])
    assert mean(is_file[1000:]) == pytest.approx(0.25, abs=0.02)
    assert all(one.audio_s <= 600.0 for one in recordings)


def test_an_endless_mix_is_taken_as_it_comes() -> None:
    mix = mixed_lengths(random.Random(1), file_shares=repeat(0.5), max_file_s=600.0)
    assert len(list(islice(mix, 3))) == 3
