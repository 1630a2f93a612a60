#!/usr/bin/env python3
"""Speak LibriSpeech test-clean: short recordings at its true lengths, and long ones joined from more of them.

Why: a load for a benchmark needs hundreds of different recordings whose lengths are those of a real corpus. The
corpus itself is 350 MB of audio; its lengths and transcripts ship with Sooner. So each transcript is spoken by
a synthesizer and then stretched, without a change of pitch, to the length that its reader took for it. Whisper
understands the voice, and answers with about as many tokens as for the original, which is what a schedule is
about.

Usage::

    python tools/make_speech.py FOLDER --clips 146 --long 4 --seed 7

Into FOLDER go ``clip-NNN.wav`` (one utterance each, drawn without repetition), ``long-NN.wav`` (1 to 5 minutes,
joined from utterances that are not among the clips, with a pause of 0.4 s behind each), all 16 kHz, mono,
16 bit, and at the end ``manifest.tsv`` with the columns file, audio_s (measured, seconds), kind (``clip`` or
``long``) and transcript. Where that file is, everything is. Equal arguments give equal files.

Needs Debian's ``flite`` and ``sox``, and Sooner for the transcripts. A recording takes about 0.2 s to make.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
import wave
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sooner.workload.recordings import Utterance, librispeech_test_clean

__all__ = ["SpokenRecording", "main", "make_speech"]

SAMPLE_RATE_HZ = 16_000
SHORTEST_LONG_S = 60.0
LONGEST_LONG_S = 264.0  # the last utterance ends a file, and the longest one has 35 s: 5 minutes at most
PAUSE_S = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenRecording:
    """A row of the manifest; the fields are its columns."""

    file: str
    audio_s: float
    kind: str
    transcript: str


def make_speech(folder: Path, *, num_clips: int, num_long: int, seed: int) -> list[SpokenRecording]:
    """Make all recordings and the manifest in ``folder``, clips first.

    Raises:
        SystemExit: flite or sox is missing.
        ValueError: the corpus has fewer utterances than that takes.
    """
    require_programs("flite", "sox")
    folder.mkdir(parents=True, exist_ok=True)
    corpus = librispeech_test_clean()
    order = iter(random.Random(seed).sample(corpus, k=len(corpus)))
    groups = list(draw_groups(order, num_clips=num_clips, num_long=num_long))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(lambda group: speak_group(folder, *group), groups))
    unfinished = folder / "manifest.unfinished"
    with unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("file", "audio_s", "kind", "transcript"))
        writer.writerows((row.file, f"{row.audio_s:.3f}", row.kind, row.transcript) for row in rows)
    unfinished.replace(folder / "manifest.tsv")
    return rows


def require_programs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"make_speech: {' and '.join(missing)} not found; on Debian: apt-get install flite sox")


def draw_groups(
    order: Iterator[Utterance], *, num_clips: int, num_long: int
) -> Iterator[tuple[str, list[Utterance]]]:
    """What to speak: pairs of a kind with number, such as ``clip-003``, and the utterances of that file.

    The lengths of the long files are spread evenly.
    """
    for index in range(num_clips):
        yield f"clip-{index:03}", [draw(order)]
    for index in range(num_long):
        share = index / (num_long - 1) if num_long > 1 else 0.5
        at_least_s = SHORTEST_LONG_S + share * (LONGEST_LONG_S - SHORTEST_LONG_S)
        group: list[Utterance] = []
        while sum(utterance.audio_s + PAUSE_S for utterance in group) < at_least_s:
            group.append(draw(order))
        yield f"long-{index:02}", group


def draw(order: Iterator[Utterance]) -> Utterance:
    utterance = next(order, None)
    if utterance is None:
        raise ValueError("test-clean has too few utterances for so many recordings")
    return utterance


def speak_group(folder: Path, name: str, group: list[Utterance]) -> SpokenRecording:
    """Speak utterances into one file; a pause follows each where there are several."""
    pause = bytes(2 * round(PAUSE_S * SAMPLE_RATE_HZ)) if len(group) > 1 else b""
    num_bytes = 0
    with wave.open(str(folder / f"{name}.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        for utterance in group:
            samples = speak(utterance) + pause
            file.writeframes(samples)
            num_bytes += len(samples)
    return SpokenRecording(
        file=f"{name}.wav",
        audio_s=num_bytes / 2 / SAMPLE_RATE_HZ,
        kind=name.partition("-")[0],
        transcript=" ".join(utterance.transcript for utterance in group),
    )


def speak(utterance: Utterance) -> bytes:
    """The utterance at its true length: 16-bit samples at 16 kHz."""
    with tempfile.TemporaryDirectory(prefix="make-speech-") as temporary:
        spoken, stretched = Path(temporary) / "spoken.wav", Path(temporary) / "stretched.wav"
        run_quietly("flite", "-voice", "slt", "-t", utterance.transcript, "-o", str(spoken))
        with wave.open(str(spoken)) as file:
            factor = file.getnframes() / file.getframerate() / utterance.audio_s
        # No dither (-D): it is noise, and the same words shall give the same bytes.
        format_ = ("-D", str(spoken), "-r", str(SAMPLE_RATE_HZ), "-c", "1", "-b", "16")
        run_quietly("sox", *format_, str(stretched), "tempo", "-s", f"{factor:.5f}")
        with wave.open(str(stretched)) as file:
            return file.readframes(file.getnframes())


def run_quietly(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{command[0]} failed with {result.returncode}: {result.stderr.strip()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the recordings go")
    parser.add_argument("--clips", type=int, default=146, help="short recordings (default: %(default)s)")
    parser.add_argument("--long", type=int, default=4, help="long recordings (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7, help="which utterances (default: %(default)s)")
    options = parser.parse_args()
    rows = make_speech(options.folder, num_clips=options.clips, num_long=options.long, seed=options.seed)
    audio_s = sum(row.audio_s for row in rows)
    print(f"{len(rows)} recordings, {audio_s / 60:.1f} minutes, in {options.folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
