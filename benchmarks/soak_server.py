"""The server under test and what watches it, each in a process of its own that does not outlive this one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from soak_traffic import CLIENTS, FLOOD, MAX_UPLOAD_BYTES
from soak_watch import engines_of

NUM_WORKERS = 2
MAX_QUEUE = 60
WINDOW_LIMIT_S = 20.0
MAX_WAIT_S = 120.0
GRACE_S = 30.0

_LISTENING = re.compile(r"listening on http://(\S+?):(\d+),.* (\d+) workers")
_START_LIMIT_S = 120.0
_STOP_LIMIT_S = 90.0
_POLL_S = 0.1


@dataclass(slots=True)
class SoakServer:
    """``sooner serve`` with small limits, on a free port of this machine.

    Attributes:
        folder: for its log, its keys and its uploads.
        host: where it listens, once started.
        port: where it listens, once started.
    """

    folder: Path
    host: str = ""
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)

    @property
    def spool(self) -> Path:
        """The folder that it keeps uploads in."""
        return self.folder / "spool"

    @property
    def log(self) -> Path:
        """What it printed."""
        return self.folder / "server.log"

    @property
    def process(self) -> psutil.Process:
        """It, for those who look at its memory or its children."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def start(self) -> None:
        """Start it and wait until it listens. Raises ``RuntimeError`` where it does not."""
        self.spool.mkdir()
        keys = self.folder / "keys"
        keys.touch(mode=0o600)
        keys.write_text("".join(f"{one.key} {one.name} {one.highest}\n" for one in (*CLIENTS, FLOOD)))
        options = {
            "port": 0,
            "workers": NUM_WORKERS,
            "max-queue": MAX_QUEUE,
            "max-wait-s": MAX_WAIT_S,
            "max-upload-bytes": MAX_UPLOAD_BYTES,
            "window-limit-s": WINDOW_LIMIT_S,
            "shutdown-grace-s": GRACE_S,
            "spool-dir": self.spool,
            "api-keys": keys,
        }
        # Run through this module it ends with its parent, however that ends.
        command = [sys.executable, "-m", "sooner.bench.embedded", "serve"]
        command += [part for name, value in options.items() for part in (f"--{name}", str(value))]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={name: value for name, value in os.environ.items() if not name.startswith("SOONER_")},
            )
        limit_s = time.monotonic() + _START_LIMIT_S
        while not (found := _LISTENING.search(self.log.read_text(errors="replace"))):
            if self._process.poll() is not None or time.monotonic() > limit_s:
                self.kill()
                raise RuntimeError("the server does not listen:\n" + self.log.read_text(errors="replace")[-2000:])
            time.sleep(_POLL_S)
        self.host, self.port = found[1], int(found[2])

    def lose_engine(self, how: int) -> bool:
        """Send a signal to the process of its engine; whether there was one."""
        engines = engines_of(self.process)
        for engine in engines:
            with suppress(psutil.NoSuchProcess):
                engine.send_signal(how)
        return bool(engines)

    def files_left(self) -> list[str]:
        """Files among its uploads, but for those that tell other servers that it lives."""
        found = (path.relative_to(self.spool) for path in self.spool.rglob("*") if path.is_file())
        return sorted(str(path) for path in found if "lock" not in path.name)

    def stop(self) -> tuple[int | None, float, list[int]]:
        """Send it the stop signal: its exit code, the seconds it took, and the processes that it left behind."""
        assert self._process is not None
        family = self.process.children(recursive=True)
        begin_s = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        took_s = time.monotonic() - begin_s
        _, alive = psutil.wait_procs(family, timeout=5)
        return code, took_s, [one.pid for one in alive]

    def kill(self) -> None:
        """End it and its engine, whatever state they are in."""
        if self._process is None or self._process.poll() is not None:
            return
        for one in (*self.process.children(recursive=True), self.process):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()


@contextmanager
def watched(server: SoakServer) -> Iterator[list[dict[str, Any]]]:
    """Watch a server inside the block; the list is filled with the samples when it ends."""
    samples: list[dict[str, Any]] = []
    script = Path(__file__).with_name("soak_watch.py")
    path = server.folder / "samples.jsonl"
    with path.open("wb") as out:
        command = [sys.executable, str(script), server.host, str(server.port), str(server.process.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out) as watcher:
            try:
                yield samples
            finally:
                assert watcher.stdin is not None
                watcher.stdin.close()
    samples += [json.loads(line) for line in path.read_text().splitlines()]
