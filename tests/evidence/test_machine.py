"""What run files tell of the machine and the source."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sooner.evidence import machine

ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", folder, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_machine_in_words() -> None:
    name, _, cores = machine.this_machine().rpartition(", ")
    assert name
    assert cores == f"{machine.num_cores()} cores"
    assert 1 <= machine.num_cores() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a clone")
def test_the_commit_of_a_clone() -> None:
    assert machine.source_commit() == git(ROOT, "rev-parse", "HEAD")


def test_a_package_inside_somebody_elses_repository_has_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet")
    theirs = (
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "commit",
        "--quiet",
        "--allow-empty",
        "-m",
        "one",
    )
    git(tmp_path, *theirs)
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    assert machine.source_commit() is None
    git(tmp_path, "add", "__init__.py")
    assert machine.source_commit() == git(tmp_path, "rev-parse", "HEAD")


def test_without_git_there_is_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert machine.source_commit() is None
