"""Recordings with known text that ship with the package, and the lengths of whole corpora.

Attribution is in ``NOTICE`` and, per file, in ``speech/manifest.tsv``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = [
    "Clip",
    "Meeting",
    "Utterance",
    "clip_named",
    "clips",
    "librispeech_dev_clean",
    "librispeech_test_clean",
    "librispeech_test_other",
    "meetings",
]

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One recording of read English speech.

    Attributes:
        path: the file.
        audio_s: its length, seconds.
        transcript: what is said, lower case, without punctuation.
    """

    path: Path
    audio_s: float
    transcript: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """One utterance of LibriSpeech, without its audio.

    Attributes:
        id: LibriSpeech's id: speaker, chapter and number.
        audio_s: its length, seconds.
        num_tokens: its transcript in Whisper's multilingual vocabulary, without special tokens.
        transcript: what is said, lower case, without punctuation; ``None`` where it does not ship.
    """

    id: str
    audio_s: float
    num_tokens: int
    transcript: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """The length of one long recording.

    Attributes:
        corpus: ``AMI`` (meetings) or ``Earnings-21`` (telephone conferences).
        id: the corpus's id.
        audio_s: its length, seconds.
        speech_s: seconds in which at least one person speaks, ``None`` where not known.
    """

    corpus: str
    id: str
    audio_s: float
    speech_s: float | None


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t")


@cache
def clips() -> tuple[Clip, ...]:
    """The recordings that ship with the package: 12 of 2 to 17 s, 16 kHz mono FLAC."""
    folder = _HERE / "speech"
    return tuple(
        Clip(path=folder / row["file"], audio_s=float(row["audio_s"]), transcript=row["transcript"])
        for row in _rows(folder / "manifest.tsv")
    )


def clip_named(name: str) -> Clip:
    """The shipped recording with this file name, without ending. Raises ``KeyError``."""
    return {clip.path.stem: clip for clip in clips()}[name]


@cache
def librispeech_test_clean() -> tuple[Utterance, ...]:
    """All 2,620 utterances of LibriSpeech test-clean (https://www.openslr.org/12), in corpus order."""
    return _utterances("librispeech_test_clean.tsv")


@cache
def librispeech_test_other() -> tuple[Utterance, ...]:
    """All 2,939 utterances of LibriSpeech test-other, in corpus order, without transcripts."""
    return _utterances("librispeech_test_other.tsv")


@cache
def librispeech_dev_clean() -> tuple[Utterance, ...]:
    """All 2,703 utterances of LibriSpeech dev-clean, in corpus order, without transcripts."""
    return _utterances("librispeech_dev_clean.tsv")


def _utterances(file: str) -> tuple[Utterance, ...]:
    return tuple(
        Utterance(
            id=row["utterance_id"],
            audio_s=float(row["audio_s"]),
            num_tokens=int(row["num_tokens"]),
            transcript=row.get("transcript"),
        )
        for row in _rows(_HERE / file)
    )


@cache
def meetings() -> tuple[Meeting, ...]:
    """170 meetings of AMI and 44 calls of Earnings-21, 8 to 96 minutes long."""
    return tuple(
        Meeting(
            corpus=row["corpus"],
            id=row["id"],
            audio_s=float(row["audio_s"]),
            speech_s=float(row["speech_s"]) if row["speech_s"] else None,
        )
        for row in _rows(_HERE / "meetings.tsv")
    )
