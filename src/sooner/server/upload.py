"""Receiving a multipart upload straight to disk, within limits.

Nothing of a file is held in memory but the chunk on its way. Every wait for the client has an end, every count
a bound: bytes of one body, bytes of all uploads on disk, bytes of a form's fields, number of parts.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from fastapi import Request
from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from sooner.core.scheduler import Scheduler
from sooner.errors import (
    InvalidParameterError,
    QueueFullError,
    ServiceClosedError,
    SoonerError,
    SpoolFullError,
    UploadTimeoutError,
    UploadTooLargeError,
)
from sooner.server.parameters import FIELDS
from sooner.server.spool import Spool
from sooner.service.threads import run_to_its_end

__all__ = ["Intake", "IntakeLimits", "Upload"]

_MAX_TEXT_BYTES = 64 * 1024
_MAX_PARTS = 64
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
_MULTIPART_HELP = "send the recording as multipart/form-data with a part named 'file'"


@dataclass(slots=True)
class Upload:
    """One request body as received.

    Attributes:
        folder: its own folder on disk; gone after the request.
        fields: the known text fields; the last of equal names counts, lists (``name[]``) are joined by commas.
        path: the recording, ``None`` where no file was sent.
        num_bytes: bytes of the body so far.
    """

    folder: Path
    fields: dict[str, str] = field(default_factory=dict)
    path: Path | None = None
    num_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """What uploads may take.

    Attributes:
        max_waiting: uploads on their way in and jobs waiting, together.
        max_upload_bytes: largest body.
        max_spool_bytes: all uploads on disk together.
        idle_s: longest silence of a client in the middle of its upload, seconds.
        max_upload_s: longest time an upload may take, seconds.
    """

    max_waiting: int
    max_upload_bytes: int
    max_spool_bytes: int
    idle_s: float
    max_upload_s: float


class Intake:
    """The door: admits uploads within limits and keeps them on disk until their request ends.

    Args:
        scheduler: asked for room before a body is read.
        spool: where uploads lie.
        limits: see ``IntakeLimits``.
    """

    def __init__(self, *, scheduler: Scheduler, spool: Spool, limits: IntakeLimits) -> None:
        self._scheduler = scheduler
        self._spool = spool
        self._limits = limits
        self._num_open = 0
        self._spool_bytes = 0
        self._refusing = asyncio.Event()

    @property
    def num_arriving(self) -> int:
        """Uploads that are being received or measured, not yet in the queue."""
        statistics = self._scheduler.statistics()
        return max(0, self._num_open - statistics.num_waiting - statistics.num_running)

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[Upload]:
        """Receive a request's body; its files are removed when the context ends.

        Raises:
            QueueFullError, BacklogTooLargeError, SpoolFullError: no room now.
            SoonerError: the disk fails.
            ServiceClosedError: ``refuse`` was called.
            UploadTooLargeError, UploadTimeoutError, InvalidParameterError: see their classes.
            starlette.requests.ClientDisconnect: the client went away.
        """
        self._check_room(request)
        self._num_open += 1
        upload = None
        try:
            with self._disk():
                upload = Upload(await run_to_its_end(None, self._spool.new_folder))
                await self._read_body(request, upload)
            yield upload
        finally:
            self._num_open -= 1
            if upload is not None:
                self._spool_bytes -= upload.num_bytes
                await run_to_its_end(None, partial(shutil.rmtree, upload.folder, ignore_errors=True))

    def _check_room(self, request: Request) -> None:
        self._scheduler.check_room()
        num_waiting = self._scheduler.num_waiting + self.num_arriving
        if num_waiting >= self._limits.max_waiting:
            raise QueueFullError(
                limit=self._limits.max_waiting, actual=num_waiting, retry_after_s=self._scheduler.retry_after_s
            )
        declared = request.headers.get("content-length", "")
        if declared.isdecimal():
            self._check_size(int(declared))
            self._check_spool(int(declared))

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self._limits.max_upload_bytes:
            raise UploadTooLargeError(limit_bytes=self._limits.max_upload_bytes, actual_bytes=num_bytes)

    def _check_spool(self, more_bytes: int) -> None:
        if self._spool_bytes + more_bytes > self._limits.max_spool_bytes:
            raise SpoolFullError(
                limit_bytes=self._limits.max_spool_bytes,
                actual_bytes=self._spool_bytes,
                retry_after_s=self._scheduler.retry_after_s,
            )

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """A disk that is full within the block, and one that fails, are errors of ours."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise SoonerError(f"the upload cannot be kept: {error}") from error
            raise SpoolFullError(
                limit_bytes=self._limits.max_spool_bytes,
                actual_bytes=self._spool_bytes,
                retry_after_s=self._scheduler.retry_after_s,
            ) from error

    async def _read_body(self, request: Request, upload: Upload) -> None:
        form = _FormWriter(_boundary_of(request), upload)
        chunks = request.stream()
        refusing = asyncio.ensure_future(self._refusing.wait())
        try:
            async with asyncio.timeout(self._limits.max_upload_s):
                while chunk := await self._next_chunk(chunks, refusing):
                    self._check_size(upload.num_bytes + len(chunk))
                    self._check_spool(len(chunk))
                    upload.num_bytes += len(chunk)
                    self._spool_bytes += len(chunk)
                    await run_to_its_end(None, partial(form.write, chunk))
            form.finish()
        except TimeoutError:
            raise UploadTimeoutError(
                f"the upload was not complete after {self._limits.max_upload_s:.0f} s",
                limit_s=self._limits.max_upload_s,
            ) from None
        except MultipartError as error:
            # The parser's message; behind it may be an exception, which tells a client nothing.
            raise InvalidParameterError(
                f"the form is malformed ({error.args[0]}); {_MULTIPART_HELP}", param=None
            ) from error
        finally:
            refusing.cancel()
            form.close()

    async def _next_chunk(self, chunks: AsyncIterator[bytes], refusing: asyncio.Future[Any]) -> bytes:
        """The next bytes of the body, empty at its end; raises where the client stalls or the server closes."""

        async def read() -> bytes:
            return await anext(chunks, b"")

        reading = asyncio.ensure_future(read())
        try:
            await asyncio.wait(
                (reading, refusing), timeout=self._limits.idle_s, return_when=asyncio.FIRST_COMPLETED
            )
            if reading.done():
                return reading.result()
            if refusing.done():
                raise ServiceClosedError
            raise UploadTimeoutError(
                f"no byte of the upload arrived for {self._limits.idle_s:.0f} s", limit_s=self._limits.idle_s
            )
        finally:
            reading.cancel()

    def refuse(self) -> None:
        """Take no more uploads; those under way that send nothing more end with ``ServiceClosedError``."""
        self._refusing.set()


def _boundary_of(request: Request) -> str:
    content_type, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get("boundary", "")
    if content_type != "multipart/form-data" or not boundary:
        raise InvalidParameterError(f"the body is not a form; {_MULTIPART_HELP}", param="file")
    return str(boundary)


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


class _FormWriter:
    """Parses a form as it arrives: the part named ``file`` goes to disk, fields that are known to a dict."""

    def __init__(self, boundary: str, upload: Upload) -> None:
        self._parser = PushMultipartParser(boundary, max_segment_count=_MAX_PARTS)
        self._upload = upload
        self._name = ""
        self._file: BinaryIO | None = None
        self._text = bytearray()
        self._num_text_bytes = 0

    def write(self, chunk: bytes) -> None:
        for event in self._parser.parse(chunk):
            if isinstance(event, MultipartSegment):
                self._begin(event)
            elif event is None:
                self._end()
            else:
                self._take(bytes(event))

    def _begin(self, segment: MultipartSegment) -> None:
        self._name = segment.name
        self._text.clear()
        if segment.name == "file":
            self._upload.path = self._upload.folder / "recording"
            self._file = open(self._upload.path, "wb", opener=_open_private)  # noqa: SIM115  see ``close``

    def _take(self, data: bytes) -> None:
        if self._file is not None:
            self._file.write(data)
        elif self._name in FIELDS:
            self._text += data
            self._num_text_bytes += len(data)
            if self._num_text_bytes > _MAX_TEXT_BYTES:
                raise InvalidParameterError(
                    f"the fields hold more than {_MAX_TEXT_BYTES} bytes together; shorten {self._name!r}",
                    param=self._name,
                )

    def _end(self) -> None:
        if self._file is not None:
            self.close()
        elif self._name in FIELDS:
            try:
                self._set_field(self._name, self._text.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise InvalidParameterError(f"field {self._name!r} is not UTF-8 text", param=self._name) from error

    def _set_field(self, name: str, value: str) -> None:
        fields = self._upload.fields
        if name.endswith("[]") and name in fields:  # a list, one value a part
            value = f"{fields[name]},{value}"
        fields[name] = value

    def finish(self) -> None:
        """Raise ``MultipartError`` where the form is not complete."""
        self._parser.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
