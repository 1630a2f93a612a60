"""Long recordings with known text, made by joining the shipped clips."""

from __future__ import annotations

import random
import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sooner.audio.decode import SAMPLE_RATE_HZ, decode_all
from sooner.workload.recordings import Clip, clips

__all__ = ["JoinedRecording", "join_clips"]

_PAUSE_S = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRecording:
    """A recording made of clips.

    Attributes:
        path: a 16 kHz mono WAV.
        audio_s: its length, seconds.
        transcript: what is said in it.
    """

    path: Path
    audio_s: float
    transcript: str


def join_clips(path: Path, *, at_least_s: float, seed: int) -> JoinedRecording:
    """Write a WAV of shipped clips with short pauses between them, until it is ``at_least_s`` long.

    Each clip is written as soon as it is decoded, so length costs no memory.
    """
    rng = random.Random(seed)
    samples_of = {clip.path: decode_all(clip.path) for clip in clips()}
    pause = bytes(2 * int(_PAUSE_S * SAMPLE_RATE_HZ))
    said: list[str] = []
    num_samples = 0
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        for clip in _rounds(rng):
            if num_samples >= at_least_s * SAMPLE_RATE_HZ:
                break
            samples = samples_of[clip.path]
            file.writeframes((samples * 32768).astype("<i2").tobytes() + pause)
            num_samples += len(samples) + len(pause) // 2
            said.append(clip.transcript)
    return JoinedRecording(path=path, audio_s=num_samples / SAMPLE_RATE_HZ, transcript=" ".join(said))


def _rounds(rng: random.Random) -> Iterator[Clip]:
    """All clips in random order, then again in another: the same clip twice in a window would look to Whisper
    like a text that repeats itself, and be decoded over and over."""
    while True:
        yield from rng.sample(clips(), k=len(clips()))
