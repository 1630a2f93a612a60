"""The clients of the soak test: the well-behaved, the hostile, the clumsy and those who leave."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp

from soak_checks import BROKEN, DONE, LEFT, TIMEOUT, Outcome
from sooner.bench.joined import join_to_length
from sooner.workload.recordings import clips

HOSTILE = Path(__file__).parents[1] / "tests" / "data" / "hostile"
LIMIT_S = 420.0
"""Longest that a request may take before it counts as one that hangs; far above any wait that the queue allows."""
MAX_UPLOAD_BYTES = 8 * 2**20
"""Of the server under test: more than the longest recording, and little enough to be exceeded."""
LONG_S = (45.0, 90.0, 180.0)
STREAMED_S = 45.0

_UNREADABLE = frozenset({"empty.flac", "not_audio.wav", "random_bytes.flac"})
_SILENT = frozenset({"silence_zero_30s.flac", "short_100ms.wav"})
_SAYS_JFK = frozenset({"jfk_declared_2s_but_11s.wav", "jfk_streaming_header_ffffffff.wav"})
_FORMATS = ("json", "text", "verbose_json")
_MODEL = "whisper-1"
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Client:
    """One of the server's clients.

    Attributes:
        name: its name in the file of keys.
        key: its API key.
        highest: the highest class of priority open to it.
    """

    name: str
    key: str
    highest: str


CLIENTS = (
    Client("alpha", "soak-test-key-of-alpha", "standard"),
    Client("beta", "soak-test-key-of-beta", "standard"),
    Client("gamma", "soak-test-key-of-gamma", "standard"),
    Client("night", "soak-test-key-of-night", "batch"),
)
FLOOD = Client("flood", "soak-test-key-of-flood", "standard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request to be made.

    Attributes:
        at_s: seconds after the beginning of the load.
        kind: what the client means to do; a key of ``KINDS``, or ``flood``.
        label: the recording or form.
        client: whose it is.
        patience_s: seconds after which a client that leaves, or deletes, does so.
    """

    at_s: float
    kind: str
    label: str
    client: Client
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Recordings:
    """All that is sent, read before the first request.

    Attributes:
        data: bytes by label.
        said: what is said in them, where that is known.
        audio_s: lengths in seconds of those made here.
    """

    data: dict[str, bytes]
    said: dict[str, str]
    audio_s: dict[str, float]

    @property
    def clips(self) -> tuple[str, ...]:
        """Labels of the shipped clips."""
        return tuple(clip.path.name for clip in clips())


def read_recordings(folder: Path) -> Recordings:
    """The shipped clips, longer ones joined of them in ``folder``, and the hostile files."""
    data = {clip.path.name: clip.path.read_bytes() for clip in clips()}
    said = {clip.path.name: clip.transcript for clip in clips()}
    audio_s = {clip.path.name: clip.audio_s for clip in clips()}
    for length_s in LONG_S:
        made = join_to_length(folder / long_label(length_s), audio_s=length_s, seed=int(length_s))
        data[made.path.name] = made.path.read_bytes()
        said[made.path.name] = made.transcript
        audio_s[made.path.name] = made.audio_s
    for path in sorted(HOSTILE.iterdir()):
        data[path.name] = path.read_bytes()
    said |= dict.fromkeys(_SAYS_JFK, said["jfk.flac"]) | dict.fromkeys(_SILENT, "")
    return Recordings(data, said, audio_s)


def long_label(length_s: float) -> str:
    return f"joined-{length_s:g}.flac"


@dataclass(slots=True)
class Reply:
    """What came back; ``service_s`` is the server's own figure, ``None`` where it gives none."""

    status: int = 0
    code: str = BROKEN
    text: str = ""
    has_retry_after: bool = False
    service_s: float | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """Sends requests and tells how each ended.

    Args:
        host: the server's address.
        port: its port.
        recordings: see ``read_recordings``.
        session: of aiohttp, with ``LIMIT_S`` as its limit.
    """

    host: str
    port: int
    recordings: Recordings
    session: aiohttp.ClientSession
    _rng: random.Random = field(init=False, default_factory=lambda: random.Random(7))

    async def send(self, one: Planned) -> Outcome:
        """Make a request of its kind. Whatever happens is in the outcome."""
        sent_s = time.monotonic()
        act, allowed = KINDS[one.kind]
        try:
            reply = await asyncio.wait_for(act(self, one), LIMIT_S + 10)
        except TimeoutError:
            reply = Reply(code=TIMEOUT, text=f"no end after {LIMIT_S:g} s")
        except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
            reply = Reply(code=BROKEN, text=f"{type(error).__name__}: {error}")
        return Outcome(
            kind=one.kind,
            label=one.label,
            allowed=allowed(one.label),
            sent_s=sent_s,
            ended_s=time.monotonic(),
            status=reply.status,
            code=reply.code,
            text=reply.text,
            has_retry_after=reply.has_retry_after,
        )

    async def post(
        self,
        label: str,
        client: Client,
        fields: Mapping[str, str] = _NOTHING,
        headers: Mapping[str, str] = _NOTHING,
    ) -> Reply:
        """Upload a recording and read the whole reply."""
        form = aiohttp.FormData({"model": _MODEL, **fields})
        form.add_field("file", self.recordings.data[label], filename=label)
        async with self.request("POST", "/v1/audio/transcriptions", client, headers, data=form) as response:
            return await _reply_of(response)

    def request(
        self, method: str, path: str, client: Client, headers: Mapping[str, str] = _NOTHING, **more: Any
    ) -> Any:  # aiohttp's own context manager
        all_headers = {"Authorization": f"Bearer {client.key}", **headers}
        return self.session.request(method, f"http://{self.host}:{self.port}{path}", headers=all_headers, **more)

    async def clip(self, one: Planned) -> Reply:
        return await self.post(one.label, one.client, {"response_format": self._rng.choice(_FORMATS)})

    async def stream(self, one: Planned) -> Reply:
        return await self.post(one.label, one.client, {"stream": "true"})

    async def drop_stream(self, one: Planned) -> Reply:
        """Leave after the first event."""
        form = aiohttp.FormData({"model": _MODEL, "stream": "true"})
        form.add_field("file", self.recordings.data[one.label], filename=one.label)
        async with self.request("POST", "/v1/audio/transcriptions", one.client, data=form) as response:
            if response.content_type != "text/event-stream":
                return await _reply_of(response)
            await response.content.readline()
            response.close()
            return Reply(response.status, LEFT)

    async def leave_waiting(self, one: Planned) -> Reply:
        try:
            async with asyncio.timeout(one.patience_s):
                return await self.clip(one)
        except TimeoutError:
            return Reply(code=LEFT)

    async def leave_uploading(self, one: Planned) -> Reply:
        """Announce a whole body, send half of it, and go."""
        head, body = self._raw(one.client, self.recordings.data[one.label])
        _, writer = await asyncio.open_connection(self.host, self.port)
        with suppress(OSError):  # it may refuse and close before
            try:
                writer.write(head + body[: len(body) // 2])
                await writer.drain()
                await asyncio.sleep(one.patience_s)
            finally:
                writer.close()
                await writer.wait_closed()
        return Reply(code=LEFT)

    async def delete(self, one: Planned) -> Reply:
        """Cancel a request from elsewhere while it is on its way."""
        request_id = f"soak-{one.client.name}-{self._rng.getrandbits(64):016x}"
        sending = asyncio.ensure_future(self.post(one.label, one.client, headers={"x-request-id": request_id}))
        try:
            await asyncio.sleep(one.patience_s)
            async with self.request("DELETE", f"/v1/queue/{request_id}", one.client) as response:
                if response.status not in (200, 202, 404):  # 404: refused, or over already
                    return Reply(response.status, BROKEN, await response.text())
            return await sending
        finally:
            sending.cancel()

    async def hurry(self, one: Planned) -> Reply:
        """Ask for a text sooner than any machine could have it."""
        return await self.post(one.label, one.client, {"deadline_s": "0.3"})

    async def form(self, one: Planned) -> Reply:
        """Send something that is not a right request."""
        return await _FORMS[one.label][0](self, one.client)

    async def raw(self, head: bytes, body: bytes) -> Reply:
        """Send bytes as they are and read the reply to the end of the connection."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(head + body)
            await writer.drain()
            async with asyncio.timeout(LIMIT_S):
                answer = await reader.read()  # to the end: the server was asked to close
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        found_head, _, found_body = answer.partition(b"\r\n\r\n")
        status = int(found_head.split(maxsplit=2)[1]) if found_head else 0
        return _reply(status, found_body.decode(), "retry-after:" in found_head.decode("latin-1").lower())

    def _raw(self, client: Client, data: bytes, *, num_declared: int | None = None) -> tuple[bytes, bytes]:
        """Head and body of an upload."""
        part = b"--soak\r\nContent-Disposition: form-data; name="
        body = (
            part
            + b'"model"\r\n\r\nwhisper-1\r\n'
            + part
            + b'"file"; filename="a"\r\n\r\n'
            + data
            + b"\r\n--soak--\r\n"
        )
        head = (
            f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n"
            f"Authorization: Bearer {client.key}\r\nContent-Type: multipart/form-data; boundary=soak\r\n"
            f"Content-Length: {len(body) if num_declared is None else num_declared}\r\n\r\n"
        )
        return head.encode(), body

    async def too_large(self, client: Client) -> Reply:
        head, body = self._raw(client, bytes(1000), num_declared=MAX_UPLOAD_BYTES + 1)
        return await self.raw(head, body)

    async def cut_off(self, client: Client) -> Reply:
        """A body that is as long as it says and ends in the middle of the form."""
        _, body = self._raw(client, bytes(1000))
        head, _ = self._raw(client, b"", num_declared=len(body) - 100)
        return await self.raw(head, body[:-100])

    async def no_file(self, client: Client) -> Reply:
        form = aiohttp.FormData({"model": _MODEL}, default_to_multipart=True)
        async with self.request("POST", "/v1/audio/transcriptions", client, data=form) as response:
            return await _reply_of(response)

    async def no_form(self, client: Client) -> Reply:
        path = "/v1/audio/transcriptions"
        async with self.request("POST", path, client, data=b"not a form") as response:
            return await _reply_of(response)


async def _reply_of(response: aiohttp.ClientResponse) -> Reply:
    if response.content_type == "text/event-stream":
        reply = _stream_reply(response.status, (await response.read()).decode())
    else:
        reply = _reply(response.status, await response.text(), "Retry-After" in response.headers)
    if "x-sooner-service-s" in response.headers:
        reply.service_s = float(response.headers["x-sooner-service-s"])
    return reply


def _reply(status: int, body: str, has_retry_after: bool) -> Reply:
    """A text, or an error in OpenAI's shape: anything else is broken."""
    shape: dict[str, Any] = json.loads(body) if body.startswith("{") else {"text": body}
    if status == 200:
        return Reply(status, DONE, str(shape["text"]))
    error = shape["error"]
    if not (error["message"] and error["type"] and error["code"]):
        return Reply(status, BROKEN, body)
    return Reply(status, error["code"], error["message"], has_retry_after)


def _stream_reply(status: int, body: str) -> Reply:
    """Deltas that make up the whole text at the end, or an error in their midst."""
    parts: list[str] = []
    for data in re.findall(r"^data: (\{.*\})$", body, re.MULTILINE):
        event = json.loads(data)
        if "error" in event:
            return Reply(status, event["error"]["code"], event["error"]["message"])
        if event["type"] == "transcript.text.delta":
            parts.append(event["delta"])
        elif event["type"] == "transcript.text.done":
            whole = "".join(parts) == event["text"]
            return Reply(status, DONE if whole else BROKEN, event["text"])
    return Reply(status, BROKEN, "the stream broke off: " + "".join(parts))


def _with_fields(**fields: str) -> Callable[[Traffic, Client], Awaitable[Reply]]:
    return lambda traffic, client: traffic.post("jfk.flac", client, fields)


def _with_headers(headers: Mapping[str, str]) -> Callable[[Traffic, Client], Awaitable[Reply]]:
    return lambda traffic, client: traffic.post("jfk.flac", client, headers=headers)


_FORMS: Mapping[str, tuple[Callable[[Traffic, Client], Awaitable[Reply]], str]] = MappingProxyType(
    {
        "no file": (Traffic.no_file, "invalid_parameter"),
        "no form": (Traffic.no_form, "invalid_parameter"),
        "cut off": (Traffic.cut_off, "invalid_parameter"),
        "too large": (Traffic.too_large, "upload_too_large"),
        "bad temperature": (_with_fields(temperature="9"), "invalid_parameter"),
        "bad format": (_with_fields(response_format="yaml"), "invalid_parameter"),
        "bad deadline": (_with_fields(deadline_s="-1"), "invalid_parameter"),
        "unknown model": (_with_fields(model="large-v9"), "model_not_found"),
        "endless field": (_with_fields(prompt="x" * 70_000), "invalid_parameter"),
        "bad id": (_with_headers({"x-request-id": "a b/../c"}), "invalid_parameter"),
        "wrong key": (_with_headers({"Authorization": "Bearer nobody-has-this-key"}), "invalid_api_key"),
        "priority": (_with_fields(priority="interactive"), "priority_not_open"),
    }
)
FORMS = tuple(_FORMS)


def _codes(*codes: str) -> Callable[[str], frozenset[str]]:
    return lambda label: frozenset(codes)


def _hostile_codes(label: str) -> frozenset[str]:
    return frozenset({"unreadable_audio" if label in _UNREADABLE else DONE})


def _form_codes(label: str) -> frozenset[str]:
    return frozenset({_FORMS[label][1]})


_Act = Callable[[Traffic, Planned], Awaitable[Reply]]

KINDS: Mapping[str, tuple[_Act, Callable[[str], frozenset[str]]]] = MappingProxyType(
    {
        "clip": (Traffic.clip, _codes(DONE)),
        "long": (Traffic.clip, _codes(DONE)),
        "stream": (Traffic.stream, _codes(DONE)),
        "flood": (Traffic.clip, _codes(DONE)),
        "hostile": (Traffic.clip, _hostile_codes),
        "form": (Traffic.form, _form_codes),
        "leaves uploading": (Traffic.leave_uploading, _codes(LEFT)),
        "leaves waiting": (Traffic.leave_waiting, _codes(LEFT, DONE)),
        "drops its stream": (Traffic.drop_stream, _codes(LEFT)),
        "deletes": (Traffic.delete, _codes("cancelled", DONE)),
        "hurries": (Traffic.hurry, _codes("deadline")),
    }
)
"""What to do, and the codes that are right for it beside refusals and losses, by kind."""
