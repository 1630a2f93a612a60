"""``sooner serve`` in a process of its own, for as long as a run takes."""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
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
            "sooner.cli",
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
        """
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
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
        """Copy what it prints to the log, and tell of the line that says that it listens, or of the last one."""
        assert self._process.stderr is not None
        last = ""
        with self._log.open("a", encoding="utf-8") as log:
            for line in self._process.stderr:
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
        assert self._process.stderr is not None
        self._process.stderr.close()
