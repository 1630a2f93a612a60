"""What ships: recordings, the lengths of whole corpora, meetings."""

from __future__ import annotations

import re
from collections.abc import Callable
from statistics import correlation

import pytest

from sooner.workload.recordings import (
    Utterance,
    clip_named,
    clips,
    librispeech_dev_clean,
    librispeech_test_clean,
    librispeech_test_other,
    meetings,
)


def test_clips_are_there_and_small() -> None:
    assert len(clips()) == 12
    assert sum(clip.path.stat().st_size for clip in clips()) < 5_000_000
    assert clip_named("jfk").audio_s == 11.0


def test_librispeech_durations() -> None:
    corpus = librispeech_test_clean()
    assert sum(u.audio_s for u in corpus) / 3600 == pytest.approx(5.40, abs=0.01)
    assert max(u.audio_s for u in corpus) == pytest.approx(34.96, abs=0.01)


def test_librispeech_transcripts() -> None:
    corpus = librispeech_test_clean()
    assert corpus[1].transcript == "stuff it into you his belly counselled him"
    assert all(re.fullmatch(r"[a-z']+( [a-z']+)*", u.transcript or "") for u in corpus)


@pytest.mark.parametrize(
    ("corpus", "num_utterances", "kappa", "r"),
    [
        (librispeech_test_clean, 2620, 3.02, 0.958),
        (librispeech_test_other, 2939, 3.05, 0.956),
        (librispeech_dev_clean, 2703, 3.13, 0.961),
    ],
)
def test_tokens_follow_lengths_in_each_corpus(
    corpus: Callable[[], tuple[Utterance, ...]], num_utterances: int, kappa: float, r: float
) -> None:
    utterances = corpus()
    lengths_s = [utterance.audio_s for utterance in utterances]
    tokens = [utterance.num_tokens for utterance in utterances]
    assert len({utterance.id for utterance in utterances}) == len(utterances) == num_utterances
    assert sum(tokens) / sum(lengths_s) == pytest.approx(kappa, abs=0.01)
    assert correlation(lengths_s, tokens) == pytest.approx(r, abs=0.001)


def test_only_test_clean_has_transcripts() -> None:
    assert all(utterance.transcript for utterance in librispeech_test_clean())
    assert {utterance.transcript for utterance in librispeech_test_other()} == {None}


def test_meetings() -> None:
    ami = [meeting for meeting in meetings() if meeting.corpus == "AMI"]
    calls = [meeting for meeting in meetings() if meeting.corpus == "Earnings-21"]
    assert (len(ami), len(calls), len(meetings())) == (170, 44, 214)
    shares = [meeting.speech_s / meeting.audio_s for meeting in ami if meeting.speech_s is not None]
    assert len(shares) == 170
    assert (min(shares), max(shares)) == pytest.approx((0.44, 0.96), abs=0.01)
    assert {meeting.speech_s for meeting in calls} == {None}
    assert min(meeting.audio_s for meeting in meetings()) == 477.88
    assert max(meeting.audio_s for meeting in meetings()) == 5740.64
