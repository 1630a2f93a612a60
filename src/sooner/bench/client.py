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
from typing import Any

import aiohttp

__all__ = ["NO_REPLY", "PLAIN_TEXT", "Answer", "Caller", "Sending", "send_all", "wait_until_running"]

PLAIN_TEXT: Mapping[str, str] = MappingProxyType({"model": "whisper-1", "response_format": "text"})
"""Form fields of the plainest request."""

NO_REPLY = 0
"""Status of an answer that never came, broke off or made no sense: the server's side failed, not its HTTP."""

_DATA = b"data:"
_DONE = b"[DONE]"
_LONGEST_LINE_BYTES = 2**22  # OpenAI's last event holds the whole text in one line


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
    """What came back. What the server did not tell is ``None``.

    Attributes:
        sending: the request.
        request_id: the server's id of it, empty where the reply has none.
        status: HTTP status, or ``NO_REPLY``; an error in the middle of a stream counts by its own code.
        text: the transcript, or what tells of the error.
        error: kind of error, such as ``HTTP 503`` or ``timeout``; ``None`` where there is a transcript.
        due_s: monotonic second at which it should have been sent.
        sent_s: monotonic second at which it was sent.
        first_s: monotonic second of the first text; of the last byte where nothing is streamed.
        answered_s: monotonic second of the last byte.
        is_streamed: whether text came before the last byte, so that ``first_s`` tells something.
        wait_s: the server's own figure for time not in service, seconds.
        service_s: its figure for the time in service, seconds.
        size_s: its prediction of the service time, seconds.
        num_tokens: tokens that it decoded.
        num_windows: windows that it served.
    """

    sending: Sending
    request_id: str
    status: int
    text: str
    error: str | None
    due_s: float
    sent_s: float
    first_s: float
    answered_s: float
    is_streamed: bool
    wait_s: float | None
    service_s: float | None
    size_s: float | None
    num_tokens: int | None
    num_windows: int | None

    @property
    def e2e_s(self) -> float:
        """Sent to last byte, seconds."""
        return self.answered_s - self.sent_s

    @property
    def lag_s(self) -> float:
        """Seconds by which it was sent late: the fault of this client, not of the server."""
        return max(0.0, self.sent_s - self.due_s)

    @property
    def ttft_s(self) -> float:
        """Sent to first text, seconds."""
        return self.first_s - self.sent_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """How requests are made, the same for all of a run.

    Attributes:
        timeout_s: longest that one may take from sending to last byte, seconds; ``None`` for no limit.
        api_key: sent as a bearer token, ``None`` for none.
    """

    timeout_s: float | None = None
    api_key: str | None = None

    def session(self) -> aiohttp.ClientSession:
        """A session without a bound on connections, which would close the loop, and with a new one a request.

        A connection kept for later may be closed by the server in the moment it is used again; that would count
        as a failure of the server.
        """
        return aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self.timeout_s),
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            headers={} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"},
            read_bufsize=_LONGEST_LINE_BYTES,
        )


@dataclass(frozen=True, slots=True)
class _Reply:
    """What ``_read`` makes of a response: ``first_s`` is infinite where no text comes before the end."""

    status: int
    text: str
    first_s: float = math.inf
    error: str | None = None


async def send_all(
    url: str,
    sendings: Sequence[Sending],
    *,
    on_sent: Callable[[], None] | None = None,
    on_answer: Callable[[Answer], None] | None = None,
    caller: Caller | None = None,
) -> list[Answer]:
    """Send every recording at its time and return the answers in the order of ``sendings``.

    A request that fails in whatever way gives an answer that says so, so that the others still count.

    Args:
        url: where the server is, without ``/v1``.
        sendings: what to send.
        on_sent: called as each is sent.
        on_answer: called with each answer as it is over.
        caller: see ``Caller``.
    """
    caller = caller or Caller()
    async with caller.session() as session:
        begin_s = time.monotonic()

        async def send(sending: Sending) -> Answer:
            due_s = begin_s + sending.at_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if on_sent is not None:
                on_sent()
            answer = await _post(session, url, sending, due_s)
            if on_answer is not None:
                on_answer(answer)
            return answer

        return list(await asyncio.gather(*map(send, sendings)))


async def _post(session: aiohttp.ClientSession, url: str, sending: Sending, due_s: float) -> Answer:
    headers: Mapping[str, str] = {}
    sent_s = time.monotonic()
    try:
        with sending.path.open("rb") as file:
            form = aiohttp.FormData(dict(sending.form))
            form.add_field("file", file, filename=sending.path.name)
            async with session.post(f"{url}/v1/audio/transcriptions", data=form) as response:
                headers = response.headers
                reply = await _read(response, wants_json=_wants_json(sending))
    except TimeoutError:
        reply = _Reply(NO_REPLY, "no whole answer in time", error="timeout")
    except (aiohttp.ClientError, OSError) as error:  # OSError: also too many open files
        reply = _Reply(NO_REPLY, f"{type(error).__name__}: {error}", error=type(error).__name__)
    answered_s = time.monotonic()
    num_tokens, num_windows = (_number(headers, f"x-sooner-num-{name}") for name in ("tokens", "windows"))
    return Answer(
        sending=sending,
        request_id=headers.get("x-request-id", ""),
        status=reply.status,
        text=reply.text,
        error=reply.error,
        due_s=due_s,
        sent_s=sent_s,
        first_s=min(reply.first_s, answered_s),
        answered_s=answered_s,
        is_streamed=reply.first_s < math.inf,
        wait_s=_number(headers, "x-sooner-wait-s"),
        service_s=_number(headers, "x-sooner-service-s"),
        size_s=_number(headers, "x-sooner-size-s"),
        num_tokens=None if num_tokens is None else int(num_tokens),
        num_windows=None if num_windows is None else int(num_windows),
    )


def _number(headers: Mapping[str, str], name: str) -> float | None:
    try:
        value = float(headers.get(name, ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _wants_json(sending: Sending) -> bool:
    return sending.form.get("response_format", "json") in ("json", "verbose_json")


async def _read(response: aiohttp.ClientResponse, *, wants_json: bool) -> _Reply:
    """What came, whatever it calls itself: a proxy's page with status 200 is no text."""
    try:
        if response.content_type == "text/event-stream":
            return await _read_events(response)
        text = (await response.read()).decode("utf-8", errors="replace")
        if response.status != HTTPStatus.OK:
            return _Reply(response.status, text, error=f"HTTP {response.status}")
        if wants_json or response.content_type == "application/json":
            text = _text_of(json.loads(text))
        return _Reply(response.status, text)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:  # not JSON, or another shape
        return _Reply(NO_REPLY, f"{type(error).__name__}: {error}", error="malformed reply")


def _text_of(body: Any) -> str:
    text = body["text"]
    if not isinstance(text, str):
        raise TypeError(f"text is {text!r}")
    return text


async def _read_events(response: aiohttp.ClientResponse) -> _Reply:
    """Read server-sent events, one ``data:`` line with JSON each.

    vLLM sends choices with deltas and ends with ``[DONE]``; OpenAI sends ``transcript.text.delta`` and ends with
    ``transcript.text.done``, which holds the whole text.
    """
    parts: list[str] = []
    first_s = math.inf
    async for line in response.content:
        if not line.startswith(_DATA):
            continue
        data = line.removeprefix(_DATA).strip()
        if data == _DONE:
            return _Reply(response.status, "".join(parts), first_s)
        event = json.loads(data)
        if event.get("error") is not None:
            status = _status_of(event["error"])
            return _Reply(status, data.decode(), error=f"HTTP {status}")
        if event.get("type") == "transcript.text.done":
            return _Reply(response.status, _text_of(event), first_s)
        part = _part_of(event)
        if part.strip() and first_s == math.inf:
            first_s = time.monotonic()
        parts.append(part)
    return _Reply(NO_REPLY, "the stream broke off: " + "".join(parts), error="broken stream")


def _status_of(error: Any) -> int:
    """The code of an error within a stream; OpenAI's are words, which count as 500."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and code else int(HTTPStatus.INTERNAL_SERVER_ERROR)


def _part_of(event: Mapping[str, Any]) -> str:
    if event.get("type") == "transcript.text.delta":
        return str(event["delta"])
    return "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ()))


async def wait_until_running(url: str, num_running: int) -> None:
    """Return once so many jobs are being served."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/v1/queue") as response:
                if (await response.json())["num_running"] >= num_running:
                    return
            await asyncio.sleep(0.05)
