"""What every request passes first: an id for each reply, the key where keys are asked for, and a reply to a bug.

It is ASGI and no dependency of single routes, so that a route which is added later, or one of the framework's
own, is not open by mistake.

It also sees to it that who is refused hears of it. A server that closes a connection on which bytes lie unread
resets it, and the client gets the reset instead of the reply. So what is on its way of a body that nobody wants is
read first, within bounds, and dropped.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable
from contextlib import suppress

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sooner.errors import AuthenticationError, SoonerError
from sooner.server.access import Access
from sooner.server.errors import error_response

__all__ = ["Door", "is_request_id"]

_log = logging.getLogger(__name__)

_OPEN = frozenset({"/", "/health", "/ready"})
_MOST_UNWANTED_BYTES = 16 * 2**20
_MOST_UNWANTED_S = 2.0
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_request_id(value: str) -> bool:
    """Whether a client may give this id to a request."""
    return _REQUEST_ID.fullmatch(value) is not None


class Door:
    """ASGI middleware. Every reply bears ``x-request-id``: the client's where it is well formed, else a new one.

    Args:
        app: what is behind it.
        access: who may pass.
        on_refused: told of each request without a valid key.
    """

    def __init__(self, app: ASGIApp, *, access: Access, on_refused: Callable[[AuthenticationError], None]) -> None:
        self._app = app
        self._access = access
        self._on_refused = on_refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        given = request.headers.get("x-request-id")
        request_id = given if given is not None and is_request_id(given) else uuid.uuid4().hex
        if given is None:  # the endpoint is to use the same; a malformed one is left for it to refuse
            scope["headers"] = [*scope["headers"], (b"x-request-id", request_id.encode())]

        body = _Body(receive)
        has_begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message).setdefault("x-request-id", request_id)
                if body.is_asked_for or "expect" not in request.headers:  # or it sends nothing until it is told to
                    await body.drop_rest()
            await send(message)

        if scope["path"] not in _OPEN:
            try:
                self._access.caller(request)
            except AuthenticationError as error:
                self._on_refused(error)
                await error_response(error)(scope, body.receive, send_with_id)
                return
        try:
            await self._app(scope, body.receive, send_with_id)
        except Exception:  # whatever it is, the client has to hear of it
            if has_begun:
                raise  # uvicorn logs it, and closes the connection
            _log.exception("request %s met a bug", request_id)
            await error_response(SoonerError())(scope, body.receive, send_with_id)


class _Body:
    """The body of a request, as far as it was received.

    Attributes:
        is_asked_for: whether anybody wanted to receive it: then a client that asked for leave to send has it.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_over = False
        self.is_asked_for = False

    async def receive(self) -> Message:
        self.is_asked_for = True
        message = await self._receive()
        self._is_over = not message.get("more_body", False)  # a disconnect ends it, too
        return message

    async def drop_rest(self) -> None:
        """Receive what is left, as far as it is not too much."""
        num_bytes = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOST_UNWANTED_S):
                while not self._is_over and num_bytes < _MOST_UNWANTED_BYTES:
                    num_bytes += len((await self.receive()).get("body", b""))
