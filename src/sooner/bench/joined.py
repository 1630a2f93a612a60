"""Long recordings with known text, made by joining the shipped clips."""

from __future__ import annotations

import random
import wave
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import av
import numpy as np
from av.audio.stream import AudioStream
from numpy.typing import NDArray

from sooner.audio.decode import SAMPLE_RATE_HZ, decode_all
from sooner.workload.recordings import Clip, clips

__all__ = ["JoinedRecording", "join_clips", "join_to_length"]

_PAUSE_S = 0.4
_CLOSE_S = 20.0
"""What is left to be filled when ``join_to_length`` looks for clips that fill it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedRecording:
    """A recording made of clips.

    Attributes:
        path: a 16 kHz mono file.
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
    pcm_of = _pcm_of_clips()
    said: list[str] = []
    num_samples = 0
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        for clip in _rounds(random.Random(seed)):
            if num_samples >= at_least_s * SAMPLE_RATE_HZ:
                break
            pcm = pcm_of[clip.path]
            file.writeframes(pcm.tobytes())
            num_samples += len(pcm)
            said.append(clip.transcript)
    return JoinedRecording(path=path, audio_s=num_samples / SAMPLE_RATE_HZ, transcript=" ".join(said))


def join_to_length(path: Path, *, audio_s: float, seed: int) -> JoinedRecording:
    """Write a FLAC of shipped clips with short pauses between them, of about ``audio_s``, at least a clip.

    The last clips are chosen so that it is off by less than a second where it is longer than ``_CLOSE_S``. FLAC
    is half as large as WAV (63 MB an hour) and holds the clips as they are.
    """
    chosen = _clips_for(audio_s, random.Random(seed))
    pcm_of = _pcm_of_clips()
    with av.open(str(path), "w", format="flac") as file:
        stream = file.add_stream("flac", rate=SAMPLE_RATE_HZ)
        stream.layout = "mono"
        num_samples = 0
        for frame in _frames([pcm_of[clip.path] for clip in chosen], stream):
            file.mux(stream.encode(frame))
            num_samples += frame.samples
        file.mux(stream.encode(None))
    return JoinedRecording(
        path=path,
        audio_s=num_samples / SAMPLE_RATE_HZ,
        transcript=" ".join(clip.transcript for clip in chosen),
    )


def _pcm_of_clips() -> dict[Path, NDArray[np.int16]]:
    """Samples of each clip, with the pause after it."""
    pause = np.zeros(int(_PAUSE_S * SAMPLE_RATE_HZ), dtype="<i2")
    return {clip.path: np.concatenate([(decode_all(clip.path) * 32768).astype("<i2"), pause]) for clip in clips()}


def _frames(pieces: Iterable[NDArray[np.int16]], stream: AudioStream) -> Iterator[av.AudioFrame]:
    """The pieces in frames of the size that the encoder wants."""
    fifo = av.AudioFifo()
    for pcm in pieces:
        frame = av.AudioFrame.from_ndarray(pcm[np.newaxis], format="s16", layout="mono")
        frame.sample_rate = SAMPLE_RATE_HZ
        fifo.write(frame)
        yield from fifo.read_many(stream.codec_context.frame_size)
    rest = fifo.read(0, partial=True)
    if rest is not None:
        yield rest


def _clips_for(audio_s: float, rng: random.Random) -> list[Clip]:
    chosen: list[Clip] = []
    left_s = audio_s
    for clip in _rounds(rng):
        if left_s <= _CLOSE_S:
            break
        chosen.append(clip)
        left_s -= clip.audio_s + _PAUSE_S
    return [*chosen, *_filling(left_s, not_again=chosen[-4:])]


def _filling(left_s: float, *, not_again: Sequence[Clip]) -> tuple[Clip, ...]:
    """The one to three clips that come closest to ``left_s``; none that was heard just before, see ``_rounds``."""
    fresh = [clip for clip in clips() if clip not in not_again]
    sets = (some for number in (1, 2, 3) for some in combinations(fresh, number))
    return min(sets, key=lambda some: abs(sum(clip.audio_s + _PAUSE_S for clip in some) - left_s))


def _rounds(rng: random.Random) -> Iterator[Clip]:
    """All clips in random order, then again in another: the same clip twice in a window would look to Whisper
    like a text that repeats itself, and be decoded over and over."""
    while True:
        yield from rng.sample(clips(), k=len(clips()))
