"""Fixtures for tests with the real vLLM: its scheduler without an engine, and its server."""

from __future__ import annotations

from pathlib import Path

import pytest
from vllm.plugins import load_general_plugins

MODEL = Path(__file__).parents[1] / ".venv-vllm" / "whisper-base" / "hf"


@pytest.fixture(scope="session")
def model() -> Path:
    """Whisper base in Hugging Face's layout."""
    assert (MODEL / "model.safetensors").is_file(), "run `make install-vllm` first"
    return MODEL


@pytest.fixture(scope="session", autouse=True)
def plugin() -> None:
    """The plugin, loaded the way vLLM loads it."""
    load_general_plugins()
