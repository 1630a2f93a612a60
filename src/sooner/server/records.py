"""A server's own log of requests: a run file that grows by a line as each request ends.

A thread of its own writes, so that a slow disk holds nobody up; a disk that fails costs the rest of the log and
nothing else.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self, TextIO

from sooner import __version__
from sooner.core.latency import LatencyRecord
from sooner.core.scheduler import SchedulerStatistics
from sooner.errors import ConfigurationError
from sooner.evidence.machine import source_commit, this_machine
from sooner.evidence.run_file import Failure, RunHeader, RunWriter
from sooner.server.options import ServeOptions
from sooner.server.outcome import has_left
from sooner.service.dispatcher import Transcript
from sooner.workload.trace import is_torn

if sys.platform != "win32":
    import fcntl

__all__ = ["RecordLog", "failure_of", "header_of", "record_of"]

_log = logging.getLogger(__name__)
_MAX_QUEUED = 10_000
_CLOSE_LIMIT_S = 5.0
_BLOCK_BYTES = 2**16
_LINE_BEGIN = b'{"kind": "'  # of every line that ``RunWriter`` writes


class _ContinuingWriter(RunWriter):
    """Goes on with the file, so that a server that is started again keeps what the last one noted.

    Raises ``ConfigurationError`` where it cannot.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._file = _open_to_continue(path)

    def __enter__(self) -> Self:
        return self


class RecordLog:
    """Appends each line it is given, in the background. The file is this log's alone until it is closed.

    The header is written with the first line: a server that starts in vain must not leave one in the file.

    Args:
        path: the file; one that is there is continued.
        header: what these requests have in common.

    Raises:
        ConfigurationError: the file cannot be written, another server that runs writes to it, or it holds
            something else.
    """

    def __init__(self, path: Path, header: RunHeader) -> None:
        self._path = path
        self._header = header
        self._writer = _ContinuingWriter(path)
        self._lines: queue.Queue[LatencyRecord | Failure | None] = queue.Queue(_MAX_QUEUED)
        self._failed = threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="sooner-records", daemon=True)
        self._thread.start()

    def put(self, line: LatencyRecord | Failure) -> None:
        """Hand a line to the writer. Never blocks, never raises."""
        if self._failed.is_set():
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._give_up(f"the disk is {_MAX_QUEUED} lines behind")

    def close(self) -> None:
        """Wait until all is written, or for five seconds where the disk hangs."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:  # the thread is stuck; it is a daemon
            return
        self._thread.join(_CLOSE_LIMIT_S)

    def _write_all(self) -> None:
        try:
            with self._writer as writer:
                line = self._lines.get()
                if line is not None:
                    writer.write(self._header)
                while line is not None:
                    writer.write(line)
                    line = self._lines.get()
        except OSError as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        if not self._failed.is_set():
            self._failed.set()
            _log.error("no more requests are recorded in %s: %s", self._path, reason)


def _open_to_continue(path: Path) -> TextIO:
    try:
        with ExitStack() as stack:
            file = stack.enter_context(path.open("a", encoding="utf-8"))
            if path.is_file():  # a device such as /dev/null is anybody's, and has no last line
                _lock(file, path)
                _cut_unfinished_line(path)
            stack.pop_all()
            return file
    except OSError as error:
        raise ConfigurationError(f"--records {path}: {error}") from error


def _lock(file: TextIO, path: Path) -> None:
    """Lock the file until it is closed; Windows and some network drives have no such locks."""
    try:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigurationError(
            f"--records {path}: another server that runs writes to it; name another file"
        ) from error
    except OSError as error:
        _log.warning("%s cannot be locked, so see to it that no other server writes to it: %s", path, error)


def _cut_unfinished_line(path: Path) -> None:
    """Take away what a server that was killed left of a line; the next one would be written behind it."""
    with path.open("r+b") as file:
        begin = _begin_of_unfinished_line(file)
        for place in (0, begin):
            file.seek(place)
            if not _LINE_BEGIN.startswith(file.read(len(_LINE_BEGIN))):
                raise ConfigurationError(f"--records {path} holds something else than records; name another file")
        file.seek(begin)
        if is_torn(file.read().decode(errors="replace")):
            file.truncate(begin)
        elif begin < file.tell():
            file.write(b"\n")


def _begin_of_unfinished_line(file: BinaryIO) -> int:
    """Where the text behind the last newline begins, bytes: at the end of a file whose last line is whole."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def header_of(options: ServeOptions, model_id: str, statistics: SchedulerStatistics) -> RunHeader:
    """What all requests of this server have in common. How many there will be is not known: it says 0."""
    return RunHeader(
        source="server",
        policy=statistics.policy,
        preempt=statistics.preempt,
        workload="live traffic",
        num_requests=0,
        num_workers=statistics.num_workers,
        engine=model_id,
        hardware=this_machine(),
        version=__version__,
        commit=source_commit(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        notes={"kappa": options.kappa, "encode_s": options.encode_s, "token_s": options.token_s},
    )


def record_of(transcript: Transcript) -> LatencyRecord:
    """The line of a request that got its text. It arrived when its length was known."""
    job = transcript.job
    return LatencyRecord(
        id=job.id,
        audio_s=job.audio_s,
        speech_s=job.speech_s,
        size_s=job.size_s,
        arrival_s=job.arrival_s,
        finished_s=transcript.finished_s,
        first_text_s=transcript.first_text_s,
        wait_s=transcript.wait_s,
        service_s=transcript.service_s,
        num_windows=transcript.num_windows,
        num_tokens=transcript.num_tokens,
        num_preemptions=transcript.num_preemptions,
        language=transcript.language,
    )


def failure_of(error: BaseException, *, job_id: str, audio_s: float, arrival_s: float, failed_s: float) -> Failure:
    """The line of a request that got none; of a client that left where its task was cancelled."""
    left = has_left(error)
    return Failure(
        id=job_id,
        audio_s=audio_s,
        arrival_s=arrival_s,
        failed_s=failed_s,
        error="ClientLeft" if left else type(error).__name__,
        message="" if left else str(error),
    )
