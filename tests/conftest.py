"""Fixtures shared by all tests: the real engine once per run, and audio of any length in no time."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import pytest

from sooner.engines.models import find_model
from sooner.engines.whisper import WhisperEngine

DATA = Path(__file__).parent / "data"
HOSTILE = DATA / "hostile"


@pytest.fixture(scope="session")
def whisper() -> WhisperEngine:
    """The bundled tiny.en, loaded once."""
    return WhisperEngine(find_model(None), num_workers=2)


@pytest.fixture
def silent_wav(tmp_path: Path) -> Callable[[float], Path]:
    """Makes a WAV of silence of the given length: 8 kHz, 8 bit, so an hour is 29 MB and decodes in a second."""
    made: list[Path] = []

    def make(audio_s: float) -> Path:
        path = tmp_path / f"silence{len(made)}.wav"
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(1)
            file.setframerate(8000)
            file.writeframes(b"\x80" * round(audio_s * 8000))
        made.append(path)
        return path

    return make
