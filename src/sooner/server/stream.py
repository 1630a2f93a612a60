"""A transcript as server-sent events, sent while it is recognised.

The events are OpenAI's: ``transcript.text.delta`` for each window with text, ``transcript.text.done`` with the
whole, and no ``[DONE]`` after it. The head waits for the first text, or for the end, so that what fails before has
its true status.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Message, Send

from sooner.engines.base import Segment
from sooner.errors import SoonerError
from sooner.server.errors import error_response
from sooner.service.dispatcher import Transcript

__all__ = ["EventStream"]

_WAITING_S = 15.0
"""Silence after which a comment says that the stream lives, seconds: proxies close what is silent for a minute."""

_SEND_LIMIT_S = 60.0
"""A client that takes nothing for so long has left, seconds: what it sent must not stay on disk for ever."""

_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would keep events back until it has some kilobytes of them
}


class EventStream:
    """The events of one request.

    Args:
        send: where they go.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()  # bounded by the length of the recording
        self._text = ""
        self._num_sent = 0
        self.has_begun = False

    def add(self, segments: Sequence[Segment]) -> None:
        """Take the text of a window; it is sent by ``follow``. See ``dispatcher.OnText``."""
        self._texts.put_nowait("".join(segment.text for segment in segments))

    async def follow(self, work: Coroutine[Any, Any, Transcript], headers: Mapping[str, str]) -> Transcript:
        """Send text as it is added until ``work`` is done, and return its result.

        Args:
            work: what adds the text; cancelled where this is.
            headers: of the reply.

        Raises:
            starlette.requests.ClientDisconnect: the client takes nothing any more.
            Exception: what ``work`` raises; ``has_begun`` then tells whether the reply has.
        """
        working = asyncio.ensure_future(work)
        working.add_done_callback(lambda _: self._texts.put_nowait(None))
        try:
            while (text := await self._next_text()) is not None:
                await self._begin(headers)
                await self._send_delta(text)
            transcript = await working
            await self._begin(headers)
            return transcript
        finally:
            working.cancel()
            await asyncio.wait((working,))
            if not working.cancelled():
                working.exception()  # seen, also where the client is gone before it

    async def _next_text(self) -> str | None:
        while True:
            try:
                async with asyncio.timeout(_WAITING_S if self.has_begun else None):
                    return await self._texts.get()
            except TimeoutError:
                await self._send_bytes(b": waiting\n\n")

    async def _begin(self, headers: Mapping[str, str]) -> None:
        if self.has_begun:
            return
        self.has_begun = True
        pairs = [(name.encode(), value.encode()) for name, value in {**_HEADERS, **headers}.items()]
        await self._to_client({"type": "http.response.start", "status": 200, "headers": pairs})

    async def _send_delta(self, text: str) -> None:
        """Send what the text has grown by; the whole is stripped, so space at its end waits for more text."""
        self._text = (self._text + text).lstrip()
        grown = self._text.rstrip()[self._num_sent :]
        if grown:
            self._num_sent += len(grown)
            await self._send_bytes(_event({"type": "transcript.text.delta", "delta": grown}))

    async def _send_bytes(self, data: bytes, *, more: bool = True) -> None:
        await self._to_client({"type": "http.response.body", "body": data, "more_body": more})

    async def _to_client(self, message: Message) -> None:
        try:
            async with asyncio.timeout(_SEND_LIMIT_S):
                await self._send(message)
        except (TimeoutError, OSError) as error:
            raise ClientDisconnect from error

    async def finish(self, last: Mapping[str, object] | SoonerError) -> None:
        """Send the last event, or the error that is in its place, and end the reply."""
        if isinstance(last, SoonerError):
            data = b"data: " + bytes(error_response(last).body) + b"\n\n"
        else:
            data = _event(last)
        await self._send_bytes(data, more=False)


def _event(body: Mapping[str, object]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()  # ASCII: some clients end a line at Unicode's line breaks, too
