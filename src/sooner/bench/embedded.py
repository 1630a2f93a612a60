"""``sooner serve`` in a process of its own, for as long as a run takes.

The process runs this module, which adds one thing to the command: it stops when its standard input closes, which
it does however the parent ends, also where that is killed.
"""

from __future__ import annotations

import os
import queue
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from sooner.errors import ConfigurationError

__all__ = ["EmbeddedServer"]

_LISTENING = re.compile(r"listening on (http://\S+?),.* (\d+) workers, model (.+)")
_START_LIMIT_S = 300.0  # a model may have to be fetched
_STOP_LIMIT_S = 60.0


class EmbeddedServer:
    """Context manager: a server on a free port of this machine inside the block, and none after it.

    Args:
        policy: its scheduling policy.
        log: file that gets what it prints.
        arguments: further arguments of ``sooner serve``.

    Attributes:
        url: where it listens, once entered.
        num_workers: how many workers it has.
        model_id: the model that it serves.
    """

    def __init__(self, policy: str, *, log: Path, arguments: Sequence[str] = ()) -> None:
        self._command = [
            sys.executable,
            "-m",
            "sooner.bench.embedded",
            "serve",
            "--port",
            "0",
            "--policy",
            policy,
            *arguments,
        ]
        self._log = log
        self.url = ""
        self.num_workers = 0
        self.model_id = ""

    def __enter__(self) -> Self:
        """Start it and wait until it listens.

        Raises:
            ConfigurationError: it ended, or did not listen in time; the message holds the last line it printed.
            OSError: the log cannot be written.
        """
        self._log.touch()  # an error here is ours to raise; in the thread that reads, nobody would hear of it
        self._process = subprocess.Popen(
            self._command,
            env=_own_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # a Ctrl-C is ours; it is stopped when the run is
        )
        found: queue.SimpleQueue[re.Match[str] | str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(found,), daemon=True)
        self._reader.start()
        try:
            first = found.get(timeout=_START_LIMIT_S)
        except BaseException as error:
            self._stop()
            if isinstance(error, queue.Empty):
                raise ConfigurationError(f"sooner serve does not listen; see {self._log}") from error
            raise
        if isinstance(first, str):
            self._stop()
            raise ConfigurationError(f"sooner serve ended: {first or 'see'} ({self._log})")
        self.url, self.num_workers, self.model_id = first[1], int(first[2]), first[3]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _read(self, found: queue.SimpleQueue[re.Match[str] | str]) -> None:
        """Copy what it prints to the log, and tell of the line that says that it listens, or of the last one.

        It reads to the end also where the log cannot be written: a server whose pipe is full stands still.
        """
        assert self._process.stderr is not None
        last = ""
        with suppress(OSError), self._log.open("a", encoding="utf-8") as log:  # closing it writes, too
            for line in self._process.stderr:
                with suppress(OSError):  # such as a full disk, of which a run under way will hear by itself
                    log.write(line)
                    log.flush()
                last = line.strip() or last
                if match := _LISTENING.search(line):
                    found.put(match)
        found.put(last)

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        self._process.stdin.close()
        self._process.stderr.close()


def _own_environment() -> dict[str, str]:
    """Ours without the options of ``sooner serve``, which are meant for another server than the one measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SOONER_")}


def _stop_with_parent() -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock this thread would hold when the interpreter ends
        pass
    while True:  # one that comes before the server listens to signals is lost
        signal.raise_signal(signal.SIGTERM)
        time.sleep(1.0)


if __name__ == "__main__":
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    runpy.run_module("sooner.cli", run_name="__main__", alter_sys=True)  # no import: cli is a layer above
