"""Where a run was made and of which source: what the header of every run file tells."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

__all__ = ["num_cores", "source_commit", "this_machine"]

_CPUINFO = Path("/proc/cpuinfo")
_GIT_LIMIT_S = 5


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))  # fewer than os.cpu_count() under taskset
    return os.cpu_count() or 1


def this_machine() -> str:
    """The machine in words: its processor and the cores that may be used, such as ``"AMD EPYC 7B13, 2 cores"``."""
    return f"{_processor()}, {num_cores()} cores"


def _processor() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def source_commit() -> str | None:
    """The commit that Sooner is run from; ``None`` where it is installed, or git is not there."""
    source = Path(__file__)
    # A package installed inside somebody's repository is not part of it: only a tracked file tells.
    if _git(source.parent, "ls-files", "--error-unmatch", source.with_name("__init__.py").name) is None:
        return None
    return _git(source.parent, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=_GIT_LIMIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):  # no git, no repository, a file that is not tracked, or too slow
        return None
    return result.stdout.strip()
