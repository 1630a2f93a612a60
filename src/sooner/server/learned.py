"""What was learnt of sizes, kept in a file over a restart.

The file is replaced as a whole, so that a crash leaves the last one or the new one. One that cannot be used
(another model's, a damaged one) is a reason to learn anew and not to refuse to serve; the log says so, and the
file is left as it is: it may be worth something to somebody.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from sooner.core.estimator import Estimator
from sooner.errors import LearntStateError
from sooner.service.threads import run_to_its_end

__all__ = ["LearnedFile"]

_log = logging.getLogger(__name__)
_SAVE_EVERY_S = 60.0
_MAX_BYTES = 2**20  # what is learnt of two thousand clients takes a fifth of it


class LearnedFile:
    """Loads what was learnt into ``estimator``, and saves it from time to time.

    Args:
        path: the file; it need not be there.
        estimator: what learns.
        model_id: the model; what was learnt of another is not loaded.
    """

    def __init__(self, path: Path, estimator: Estimator, *, model_id: str) -> None:
        self._path = path
        self._estimator = estimator
        self._model_id = model_id
        self._may_replace = True
        self._saved: dict[str, Any] | None = None
        self._load()

    def _load(self) -> None:
        try:
            self._path = self._path.resolve()  # what a link points to is replaced, not the link
            if self._path.exists() and not self._path.is_file():  # reading a pipe would not end
                raise LearntStateError(reason="it is no file")
            if self._path.stat().st_size > _MAX_BYTES:
                raise LearntStateError(reason=f"it has more than {_MAX_BYTES} bytes")
            body = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(body, dict) or "model" not in body or "state" not in body:
                raise LearntStateError(reason="it is no such file")
            if body["model"] != self._model_id:
                raise LearntStateError(reason=f"it was learnt with {body['model']}, and this is {self._model_id}")
            self._estimator.load_state(body["state"])
        except FileNotFoundError:
            return
        except (OSError, RuntimeError, ValueError, LearntStateError) as error:  # RuntimeError: a loop of links
            self._may_replace = False
            _log.warning("%s cannot be used, and is not written to; learning anew: %s", self._path, error)
            return
        _log.info("sizes as learnt before: kappa %.2f, from %s", self._estimator.kappa, self._path)

    async def save_often(self) -> None:
        """Save every minute until cancelled, and then once more."""
        try:
            while True:
                await asyncio.sleep(_SAVE_EVERY_S)
                await self._save()
        finally:
            await self._save()

    async def _save(self) -> None:
        if not self._may_replace:
            return
        body = {"model": self._model_id, "state": self._estimator.state()}  # here: the loop's thread changes it
        if body == self._saved:
            return
        try:
            await run_to_its_end(None, lambda: _replace(self._path, body))  # never two at once, the older last
            self._saved = body
        except OSError as error:
            _log.error("what was learnt cannot be saved in %s: %s", self._path, error)


def _replace(path: Path, body: dict[str, Any]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
