"""A client that sends recordings at given times, whether or not earlier ones were answered (open loop)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

__all__ = ["Answer", "Sending", "send_all", "wait_until_running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One request to be made.

    Attributes:
        path: the recording.
        at_s: seconds after the start of the run.
        label: what it is, for the reader of the results.
    """

    path: Path
    at_s: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back.

    Attributes:
        sending: the request.
        request_id: the server's id of it, empty where the reply has none.
        status: HTTP status.
        text: the transcript, or the body of an error.
        sent_s: monotonic second at which it was sent.
        answered_s: monotonic second of the last byte.
        wait_s: the server's own figure for time not in service, seconds.
        size_s: the server's prediction of its service time, seconds.
    """

    sending: Sending
    request_id: str
    status: int
    text: str
    sent_s: float
    answered_s: float
    wait_s: float
    size_s: float

    @property
    def e2e_s(self) -> float:
        """Sent to last byte, seconds."""
        return self.answered_s - self.sent_s


async def send_all(
    url: str, sendings: Sequence[Sending], *, on_answer: Callable[[Answer], None] | None = None
) -> list[Answer]:
    """Send every recording at its time and return the answers in the order of ``sendings``."""
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
    with sending.path.open("rb") as file:
        form = aiohttp.FormData({"model": "whisper-1", "response_format": "text"})
        form.add_field("file", file, filename=sending.path.name)
        sent_s = time.monotonic()
        async with session.post(f"{url}/v1/audio/transcriptions", data=form) as response:
            text = await response.text()
    return Answer(
        sending=sending,
        request_id=response.headers.get("x-request-id", ""),
        status=response.status,
        text=text,
        sent_s=sent_s,
        answered_s=time.monotonic(),
        wait_s=float(response.headers.get("x-sooner-wait-s", "nan")),
        size_s=float(response.headers.get("x-sooner-size-s", "nan")),
    )


async def wait_until_running(url: str, num_running: int) -> None:
    """Return once so many jobs are being served."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/v1/queue") as response:
                if (await response.json())["num_running"] >= num_running:
                    return
            await asyncio.sleep(0.05)
