"""Fixtures shared by all tests: the real engine once per run, and audio of any length in no time."""

from __future__ import annotations

import importlib.util
import wave
from collections.abc import Callable
from pathlib import Path

import pytest

from sooner.engines.models import ModelFiles, find_model
from sooner.engines.whisper import WhisperEngine

DATA = Path(__file__).parent / "data"
HOSTILE = DATA / "hostile"
TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="session")
def whisper() -> WhisperEngine:
    """The bundled tiny.en, loaded once."""
    return WhisperEngine(find_model(None), num_workers=2)


@pytest.fixture(scope="session")
def whisper_base(tmp_path_factory: pytest.TempPathFactory) -> WhisperEngine:
    """Whisper base, multilingual, loaded once."""
    spec = importlib.util.spec_from_file_location("base_ct2", TOOLS / "base_ct2.py")
    assert spec is not None
    assert spec.loader is not None
    base_ct2 = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(base_ct2)
    folder = tmp_path_factory.mktemp("models") / "base"
    base_ct2.make_ct2(folder)
    return WhisperEngine(ModelFiles(model_id="base", location=str(folder)), num_workers=2, compute_type="int8")


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
