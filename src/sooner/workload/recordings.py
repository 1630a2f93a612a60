"""Recordings with known text that ship with the package, and the durations of a whole corpus.

Attribution is in ``NOTICE`` and, per file, in ``speech/manifest.tsv``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Clip", "Utterance", "clip_named", "clips", "librispeech_test_clean"]

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
    """One utterance of LibriSpeech test-clean, without its audio.

    Attributes:
        id: LibriSpeech's id.
        audio_s: its length, seconds.
        num_tokens: its transcript in Whisper's multilingual vocabulary.
        transcript: what is said, lower case, without punctuation.
    """

    id: str
    audio_s: float
    num_tokens: int
    transcript: str


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t")


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


def librispeech_test_clean() -> tuple[Utterance, ...]:
    """All 2,620 utterances of LibriSpeech test-clean (https://www.openslr.org/12), in corpus order."""
    return tuple(
        Utterance(
            id=row["utterance_id"],
            audio_s=float(row["audio_s"]),
            num_tokens=int(row["num_tokens"]),
            transcript=row["transcript"],
        )
        for row in _rows(_HERE / "librispeech_test_clean.tsv")
    )
