"""Where uploads lie: for this user alone, and gone when the server is, however it went."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sooner.engines.fake import FakeEngine
from sooner.errors import ConfigurationError
from sooner.server.app import make_app
from sooner.server.options import ServeOptions
from sooner.server.spool import Spool
from sooner.workload.recordings import clip_named

from .conftest import Serve

CLIP = clip_named("austen-0880").path
posix = pytest.mark.skipif(sys.platform == "win32", reason="has no such locks and modes")

LIVE = """
import sys
from pathlib import Path
from sooner.server.spool import Spool
spool = Spool(Path(sys.argv[1]))
(spool.new_folder() / "recording").write_bytes(b"RIFF")
print("ready", flush=True)
sys.stdin.read()
"""


def start(parent: Path) -> subprocess.Popen[str]:
    """A process with a spool and an upload in it, which lives until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", LIVE, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str], *, kill: bool) -> None:
    with process:
        if kill:
            process.kill()


@posix
def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed, living = start(tmp_path), start(tmp_path)
    end(killed, kill=True)
    assert len(list(tmp_path.iterdir())) == 2
    assert len(list(tmp_path.rglob("recording"))) == 2
    spool = Spool(tmp_path)
    try:
        assert len(list(tmp_path.iterdir())) == 2  # its own, and that of the one that lives
        assert len(list(tmp_path.rglob("recording"))) == 1
    finally:
        spool.close()
        end(living, kill=False)
    assert list(tmp_path.iterdir()) == [], "one that ends by itself leaves nothing"


@posix
def test_nothing_else_is_removed(tmp_path: Path) -> None:
    results = tmp_path / "sooner-bench"
    results.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (tmp_path / "sooner-spool-link").symlink_to(elsewhere)
    (tmp_path / "sooner-spool-file").touch()
    Spool(tmp_path).close()
    assert {path.name for path in tmp_path.iterdir()} == {
        "sooner-bench",
        "elsewhere",
        "sooner-spool-link",
        "sooner-spool-file",
    }
    assert (elsewhere / "kept").exists()


@posix
def test_a_folder_that_belongs_to_somebody_else_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "sooner-spool-theirs"
    theirs.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: theirs.stat().st_uid + 1)
        Spool(tmp_path).close()
    assert list(tmp_path.iterdir()) == [theirs]
    Spool(tmp_path).close()
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_spool_that_was_cleaned_away_is_made_and_held_anew(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    (own,) = tmp_path.iterdir()
    own.rmdir()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: spool.new_folder(), range(40)))
    assert len(set(made)) == 40
    other = Spool(tmp_path)
    assert all(folder.is_dir() for folder in made), "another server removed what is in use"
    other.close()
    spool.close()
    assert list(tmp_path.iterdir()) == []


@posix
def test_a_drive_without_locks_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no locks here")

    (tmp_path / "sooner-spool-old").mkdir()
    monkeypatch.setattr("fcntl.flock", refuse)
    spool = Spool(tmp_path)
    assert "cannot be locked; after a crash, remove it by hand: no locks here" in caplog.text
    assert spool.new_folder().is_dir()
    spool.close()
    assert [path.name for path in tmp_path.iterdir()] == ["sooner-spool-old"]  # who knows whose it is


def test_a_place_for_it_that_is_none_is_said_in_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    options = ServeOptions(spool_dir=folder)
    folder.rmdir()
    with pytest.raises(ConfigurationError, match=r"^--spool-dir .*gone: [A-Z][^/]*$"):
        make_app(options, engine=FakeEngine(), num_workers=1)


@posix
def test_nobody_else_can_read_an_upload(serve: Serve) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(server.post, CLIP)
        server.gate.wait_for_windows(1)
        (recording,) = server.spool.rglob("recording")
        assert recording.read_bytes() == CLIP.read_bytes()
        assert stat.S_IMODE(recording.stat().st_mode) == 0o600
        for folder in (recording.parent, recording.parent.parent):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        server.gate.open()
        assert future.result().status_code == 200
