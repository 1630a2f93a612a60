"""A server's own log of requests: a run file that grows by a line as each request ends.

A thread of its own writes, so that a slow disk holds nobody up; a disk that fails costs the rest of the log and
nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from sooner import __version__
from sooner.core.latency import LatencyRecord
from sooner.core.scheduler import SchedulerStatistics
from sooner.evidence.machine import source_commit, this_machine
from sooner.evidence.run_file import Failure, RunHeader, RunWriter
from sooner.server.options import ServeOptions
from sooner.service.dispatcher import Transcript

__all__ = ["RecordLog", "failure_of", "header_of", "record_of"]

_log = logging.getLogger(__name__)
_MAX_QUEUED = 10_000
_CLOSE_LIMIT_S = 5.0


class _ContinuingWriter(RunWriter):
    """Goes on with the file, so that a server that is started again keeps what the last one noted."""

    def __enter__(self) -> Self:
        self._file = self._path.open("a", encoding="utf-8")
        return self


class RecordLog:
    """Appends a header, then each line it is given, in the background.

    Args:
        path: the file; one that is there is continued.
        header: what these requests have in common.
    """

    def __init__(self, path: Path, header: RunHeader) -> None:
        self._path = path
        self._lines: queue.Queue[RunHeader | LatencyRecord | Failure | None] = queue.Queue(_MAX_QUEUED)
        self._lines.put_nowait(header)
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
            with _ContinuingWriter(self._path) as writer:
                while (line := self._lines.get()) is not None:
                    writer.write(line)
        except OSError as error:
            self._give_up(str(error))

    def _give_up(self, reason: str) -> None:
        if not self._failed.is_set():
            self._failed.set()
            _log.error("no more requests are recorded in %s: %s", self._path, reason)


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
        size_s=job.size_s,
        arrival_s=job.arrival_s,
        finished_s=transcript.finished_s,
        wait_s=transcript.wait_s,
        service_s=transcript.service_s,
        num_windows=transcript.num_windows,
        num_tokens=transcript.num_tokens,
        language=transcript.language,
    )


def failure_of(error: BaseException, *, job_id: str, audio_s: float, arrival_s: float, failed_s: float) -> Failure:
    """The line of a request that got none; of a client that left where its task was cancelled."""
    left = isinstance(error, asyncio.CancelledError)
    return Failure(
        id=job_id,
        audio_s=audio_s,
        arrival_s=arrival_s,
        failed_s=failed_s,
        error="ClientLeft" if left else type(error).__name__,
        message="" if left else str(error),
    )
