"""How long the recordings of a workload are, and how many tokens their texts have.

Each sampler draws from the generator that it is given and never ends, so equal seeds give equal recordings.

A file of the mixed workload has the length of a real meeting or call, but nobody's transcript of it ships: its
tokens are its seconds of speech times the tokens per second of one speaker of test-clean, drawn anew for each
file. That keeps the two things that make real files differ from κ · length, silence and the pace of speaking. It
is a model, not a measurement: nobody says that people talk at the pace at which they read aloud. The alternative,
a fixed κ, would make every estimate exact.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sooner.core.estimator import WINDOW_S
from sooner.workload.recordings import Meeting, Utterance, librispeech_test_clean, meetings

__all__ = [
    "MIN_FILE_S",
    "UNIFORM_S",
    "Recording",
    "clip_lengths",
    "file_lengths",
    "mixed_lengths",
    "uniform_lengths",
]

MIN_FILE_S = 60.0
"""No file of the mixed workload is shorter, seconds."""

UNIFORM_S = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0)
"""Lengths of the uniform workload, seconds: the uniform split of https://arxiv.org/abs/2603.11273."""

_NEAR_S = 0.5
_FEWEST_NEAR = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A recording that could be sent, without its audio.

    Attributes:
        audio_s: its length, seconds.
        num_tokens: tokens that its text has.
        transcript: what is said in it, ``None`` where not known.
    """

    audio_s: float
    num_tokens: int
    transcript: str | None = None


def clip_lengths(rng: random.Random) -> Iterator[Recording]:
    """Utterances of LibriSpeech test-clean: 1.3 to 35 s, mean 7.4 s, each as likely as the others."""
    corpus = librispeech_test_clean()
    while True:
        yield _recording(rng.choice(corpus))


def uniform_lengths(rng: random.Random) -> Iterator[Recording]:
    """Each of ``UNIFORM_S`` as often as the others, as utterances of test-clean within 0.5 s of it.

    Where fewer than eight are that near (25 s and 30 s: long utterances are rare) the eight nearest stand in, down
    to 28 s. None is longer than 30 s, so that each is one window.
    """
    corpus = [utterance for utterance in librispeech_test_clean() if utterance.audio_s <= WINDOW_S]
    choices = [_nearest(corpus, target_s) for target_s in UNIFORM_S]
    while True:
        yield _recording(rng.choice(rng.choice(choices)))


def _nearest(corpus: Iterable[Utterance], target_s: float) -> Sequence[Utterance]:
    ordered = sorted(corpus, key=lambda utterance: abs(utterance.audio_s - target_s))
    num_near = sum(abs(utterance.audio_s - target_s) <= _NEAR_S for utterance in ordered)
    return ordered[: max(num_near, _FEWEST_NEAR)]


def file_lengths(rng: random.Random, *, max_file_s: float) -> Iterator[Recording]:
    """Whole meetings and calls, and as often a part of one: log-uniform, from ``MIN_FILE_S`` to the whole.

    Args:
        rng: draws.
        max_file_s: longer meetings are cut to this first, seconds; at least ``MIN_FILE_S``.
    """
    recorded = meetings()
    known_shares = [share for meeting in recorded if (share := _speech_share(meeting)) is not None]
    paces = _tokens_per_s_of_speakers()
    while True:
        meeting = rng.choice(recorded)
        whole_s = min(meeting.audio_s, max_file_s)
        is_part = rng.random() < 0.5
        audio_s = MIN_FILE_S * (whole_s / MIN_FILE_S) ** rng.random() if is_part else whole_s
        # Nobody counted the silence of the calls: they take that of a meeting.
        share = _speech_share(meeting) or rng.choice(known_shares)
        yield Recording(audio_s=round(audio_s, 2), num_tokens=round(audio_s * share * rng.choice(paces)))


def mixed_lengths(rng: random.Random, *, file_shares: Iterable[float], max_file_s: float) -> Iterator[Recording]:
    """Clips and files: one recording for each of ``file_shares``, which is the chance that it is a file."""
    clips, files = clip_lengths(rng), file_lengths(rng, max_file_s=max_file_s)
    for share in file_shares:
        yield next(files if rng.random() < share else clips)


def _recording(utterance: Utterance) -> Recording:
    return Recording(audio_s=utterance.audio_s, num_tokens=utterance.num_tokens, transcript=utterance.transcript)


def _speech_share(meeting: Meeting) -> float | None:
    return None if meeting.speech_s is None else meeting.speech_s / meeting.audio_s


def _tokens_per_s_of_speakers() -> list[float]:
    """For each of the 40 speakers of test-clean: tokens per second, 2.2 to 3.8."""
    tokens: dict[str, int] = defaultdict(int)
    audio_s: dict[str, float] = defaultdict(float)
    for utterance in librispeech_test_clean():
        speaker = utterance.id.partition("-")[0]
        tokens[speaker] += utterance.num_tokens
        audio_s[speaker] += utterance.audio_s
    return [tokens[speaker] / audio_s[speaker] for speaker in tokens]
