"""The guides are true: every command in them runs, in order, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDES = ("simulate.md", "bench.md", "report.md", "plan.md", "calibrate.md", "workloads.md")
REPEATABLE = ("simulate.md", "plan.md", "calibrate.md")  # the same output at each run


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / guide).read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(guide: str) -> list[str]:
    """Lines that begin with ``$``, with the lines that a backslash joins to them."""
    found = []
    for block in blocks(guide, "console"):
        joined = block.replace("\\\n", " ")
        found += [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a clone to commands, and in which they may write."""
    for name in ("src", "tests", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.parametrize("guide", GUIDES)
def test_the_commands_run(guide: str, folder: Path) -> None:
    """And print what the guide says they do, where that is the same at each run."""
    found = commands(guide)
    assert any(line.startswith("sooner ") for line in found), "a guide without a command"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": "130"}
    printed: list[str] = []
    for line in found:
        result = subprocess.run(
            line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert result.returncode == 0, f"{line}\n{result.stdout}\n{result.stderr}"
        printed += map(squeezed, result.stdout.splitlines())
    if guide in REPEATABLE:
        shown = [squeezed(line) for block in blocks(guide, "text") for line in block.splitlines()]
        assert len(shown) > 5
        assert [line for line in shown if line not in printed] == []


def squeezed(line: str) -> str:
    return " ".join(line.split())


@pytest.mark.parametrize("guide", [guide for guide in GUIDES if blocks(guide, "python")])
def test_the_python_runs(guide: str, folder: Path) -> None:
    code = "\n".join(blocks(guide, "python"))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
