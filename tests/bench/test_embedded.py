"""The server that a run starts: what it inherits, and that it ends with whoever started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sooner.bench.embedded import EmbeddedServer

ENTER = """
import sys
from pathlib import Path
from sooner.bench.embedded import EmbeddedServer
with EmbeddedServer("fcfs", log=Path(sys.argv[1]), arguments=["--workers", "1"]):
    print("it listens", flush=True)
    sys.stdin.read()
"""


def test_options_of_another_server_are_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOONER_WORKERS", "many")  # which sooner serve would refuse
    monkeypatch.setenv("SOONER_RECORDS", str(tmp_path / "live.jsonl"))
    with EmbeddedServer("fcfs", log=tmp_path / "server.log"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]


def test_it_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENTER, str(tmp_path / "server.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == "it listens\n"
            (server,) = psutil.Process(parent.pid).children()
        finally:
            parent.kill()
    try:
        psutil.wait_procs([server], timeout=30)
        assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE  # nobody may reap it
    finally:
        if server.is_running():
            server.kill()


def test_a_log_that_cannot_be_made_is_told() -> None:
    with pytest.raises(NotADirectoryError), EmbeddedServer("fcfs", log=Path(__file__) / "server.log"):
        pass


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_server_whose_log_is_full_serves_on() -> None:
    """Nobody may stop reading what it prints: its pipe would fill, and it would stand still."""
    with EmbeddedServer("fcfs", log=Path("/dev/full"), arguments=["--workers", "1"]) as server:
        assert server.num_workers == 1
