"""A client that sends recordings at given times, whether or not earlier ones were answered (open loop).

It needs only aiohttp, so that it can drive any server that speaks OpenAI's API, from any environment.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType

import aiohttp

__all__ = ["NO_REPLY", "PLAIN_TEXT", "Answer", "Sending", "send_all", "wait_until_running"]

PLAIN_TEXT: Mapping[str, str] = MappingProxyType({"model": "whisper-1", "response_format": "text"})
"""Form fields of the plainest request."""

NO_REPLY = 0
"""Status of an answer that never came, or broke off: the server's side of the connection failed."""

_DATA = b"data:"
_DONE = b"[DONE]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One request to be made.

    Attributes:
        path: the recording.
        at_s: seconds after the start of the run.
        label: what it is, for the reader of the results.
        form: form fields beside the file: model, language, response_format, stream…
    """

    path: Path
    at_s: float
    label: str
    form: Mapping[str, str] = field(default_factory=lambda: PLAIN_TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back.

    Attributes:
        sending: the request.
        request_id: the server's id of it, empty where the reply has none.
        status: HTTP status, or ``NO_REPLY``; an error in the middle of a stream counts by its own code.
        text: the transcript, or what tells of the error.
        sent_s: monotonic second at which it was sent.
        first_s: monotonic second of the first text; of the last byte where nothing is streamed.
        answered_s: monotonic second of the last byte.
        wait_s: the server's own figure for time not in service, seconds; NaN where it gives none.
        size_s: the server's prediction of its service time, seconds; NaN where it gives none.
    """

    sending: Sending
    request_id: str
    status: int
    text: str
    sent_s: float
    first_s: float
    answered_s: float
    wait_s: float
    size_s: float

    @property
    def e2e_s(self) -> float:
        """Sent to last byte, seconds."""
        return self.answered_s - self.sent_s

    @property
    def ttft_s(self) -> float:
        """Sent to first text, seconds."""
        return self.first_s - self.sent_s


async def send_all(
    url: str, sendings: Sequence[Sending], *, on_answer: Callable[[Answer], None] | None = None
) -> list[Answer]:
    """Send every recording at its time and return the answers in the order of ``sendings``.

    A connection that fails gives an answer with the status ``NO_REPLY``, so that the others still count.
    """
    begin_s = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:

        async def send(sending: Sending) -> Answer:
            await asyncio.sleep(max(0.0, begin_s + sending.at_s - time.monotonic()))
            answer = await _post(session, url, sending)
            if on_answer is not None:
                on_answer(answer)
            return answer

        return list(await asyncio.gather(*map(send, sendings)))


async def _post(session: aiohttp.ClientSession, url: str, sending: Sending) -> Answer:
    headers: Mapping[str, str] = {}
    with sending.path.open("rb") as file:
        form = aiohttp.FormData(dict(sending.form))
        form.add_field("file", file, filename=sending.path.name)
        sent_s = time.monotonic()
        try:
            async with session.post(f"{url}/v1/audio/transcriptions", data=form) as response:
                headers = response.headers
                status, text, first_s = await _read(response)
        except aiohttp.ClientError as error:
            status, text, first_s = NO_REPLY, f"{type(error).__name__}: {error}", math.inf
    answered_s = time.monotonic()
    return Answer(
        sending=sending,
        request_id=headers.get("x-request-id", ""),
        status=status,
        text=text,
        sent_s=sent_s,
        first_s=min(first_s, answered_s),
        answered_s=answered_s,
        wait_s=float(headers.get("x-sooner-wait-s", "nan")),
        size_s=float(headers.get("x-sooner-size-s", "nan")),
    )


async def _read(response: aiohttp.ClientResponse) -> tuple[int, str, float]:
    """Status, text and the monotonic second of the first text (infinite where it does not come first)."""
    if response.content_type == "text/event-stream":
        return await _read_events(response)
    text = await response.text()
    if response.status == HTTPStatus.OK and response.content_type == "application/json":
        text = json.loads(text)["text"]
    return response.status, text, math.inf


async def _read_events(response: aiohttp.ClientResponse) -> tuple[int, str, float]:
    """Read server-sent events as vLLM sends them: one ``data:`` line with JSON each, the last is ``[DONE]``."""
    parts: list[str] = []
    first_s = math.inf
    async for line in response.content:
        if not line.startswith(_DATA):
            continue
        data = line.removeprefix(_DATA).strip()
        if data == _DONE:
            return response.status, "".join(parts), first_s
        event = json.loads(data)
        if "error" in event:
            return int(event["error"].get("code") or HTTPStatus.INTERNAL_SERVER_ERROR), data.decode(), math.inf
        part = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
        if part.strip() and first_s == math.inf:
            first_s = time.monotonic()
        parts.append(part)
    return NO_REPLY, "the stream broke off: " + "".join(parts), math.inf


async def wait_until_running(url: str, num_running: int) -> None:
    """Return once so many jobs are being served."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/v1/queue") as response:
                if (await response.json())["num_running"] >= num_running:
                    return
            await asyncio.sleep(0.05)
