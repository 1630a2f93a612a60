#!/usr/bin/env python3
"""Lay the Python files of another vLLM over the compiled parts of the installed one.

Why: a new vLLM often exists as a wheel for GPUs only, or not yet for the Python at hand. What the plugin relies on
is Python, so most of it can be looked at all the same: names, signatures, and vLLM's real scheduler with our
queues. An engine built of such a mixture means nothing; do not serve with it.

Usage, in the environment that has vLLM::

    pip download --no-deps --dest wheels vllm==0.33.0
    python tools/overlay_vllm.py wheels/vllm-0.33.0-*.whl overlay
    VLLM_TARGET_DEVICE=cpu PYTHONPATH=overlay python -m sooner.vllm_plugin
    VLLM_TARGET_DEVICE=cpu PYTHONPATH=overlay python -m pytest tests_vllm/test_scheduler.py
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path

PACKAGE = "vllm"
COMPILED = ".so"


def overlay(wheel: Path, target: Path) -> int:
    """Write the mixture to ``target`` and return how many compiled parts were laid in.

    Raises:
        FileExistsError: ``target`` is there already.
        ModuleNotFoundError: no vLLM is installed here.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("no vLLM is installed in this environment")
    installed = Path(spec.origin).parent
    target.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(PACKAGE) and not n.endswith(COMPILED)]
        archive.extractall(target, members=names)
    parts = list(installed.rglob(f"*{COMPILED}"))
    for part in parts:
        place = target / PACKAGE / part.relative_to(installed)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(part, place)
    return len(parts)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path, help="the other vLLM")
    parser.add_argument("target", type=Path, help="a folder to make")
    options = parser.parse_args(arguments)
    try:
        num_parts = overlay(options.wheel, options.target)
    except (OSError, ModuleNotFoundError, zipfile.BadZipFile) as error:
        print(f"overlay_vllm: {error}", file=sys.stderr)
        return 1
    print(f"{options.wheel.name} is in {options.target}, with {num_parts} compiled parts of the installed vLLM")
    return 0


if __name__ == "__main__":
    sys.exit(main())
