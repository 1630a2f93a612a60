"""A page in headless Chromium, over the DevTools protocol: what it asked for, what went wrong, how it looks."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

__all__ = ["Visit", "find_chromium", "visit"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_LIMIT_S = 30.0
_LARGEST_MESSAGE_BYTES = 1 << 28  # a screenshot comes as one message


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """What was seen of a page at one width.

    Attributes:
        width: of the window, CSS pixels.
        errors: console errors, exceptions and entries of the browser's log that are errors or warnings.
        requests: URLs asked for, ``data:`` ones left out.
        value: what the expression came to.
        screenshot: PNG of the window.
    """

    width: int
    errors: tuple[str, ...]
    requests: tuple[str, ...]
    value: Any
    screenshot: bytes


def find_chromium() -> str | None:
    """The browser's path, ``None`` where there is none. In CI there has to be one, so there it is an error."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None and os.environ.get("CI"):
        raise FileNotFoundError("there is no Chromium on this machine, and CI has to have one")
    return found


def visit(page: Path, *, expression: str, widths: Sequence[int], dark: bool = False) -> list[Visit]:
    """Open a file at each width, wait for its load event, and evaluate ``expression`` (JSON comes back).

    Raises:
        TimeoutError: the browser does not start, or the page is not loaded, in time.
    """
    return asyncio.run(asyncio.wait_for(_visit(page.resolve().as_uri(), expression, widths, dark), _LIMIT_S))


async def _visit(url: str, expression: str, widths: Sequence[int], dark: bool) -> list[Visit]:
    async with _browser() as devtools, aiohttp.ClientSession() as session:
        visits = []
        for width in widths:
            async with session.ws_connect(devtools, max_msg_size=_LARGEST_MESSAGE_BYTES) as socket:
                visits.append(await _Tab(socket).look(url, expression, width, dark))
        return visits


@asynccontextmanager
async def _browser() -> AsyncIterator[str]:
    """Start a browser with a profile of its own; gives the address of its DevTools and ends it."""
    chromium = find_chromium()
    assert chromium is not None
    with tempfile.TemporaryDirectory(prefix="sooner-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            chromium,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        drain: asyncio.Task[bytes] | None = None
        try:
            async for line in process.stderr:
                _, found, url = line.decode(errors="replace").partition("DevTools listening on ")
                if found:
                    drain = asyncio.create_task(process.stderr.read())  # a full pipe would stop the browser
                    yield url.strip()
                    return
            raise RuntimeError("Chromium ended before it listened")
        finally:
            process.kill()
            await process.wait()
            if drain is not None:
                await drain


class _Tab:
    """One tab, driven through the browser's own connection."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._num_sent = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []

    async def look(self, url: str, expression: str, width: int, dark: bool) -> Visit:
        target = await self._call("Target.createTarget", url="about:blank")
        attached = await self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self._call(f"{domain}.enable")
        await self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self._call("Emulation.setEmulatedMedia", features=[scheme])
        await self._call("Page.navigate", url=url)
        await self._loaded()
        result = await self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        picture = await self._call("Page.captureScreenshot", format="png")
        await self._call("Target.closeTarget", targetId=target["targetId"])
        return Visit(
            width=width,
            errors=tuple(error for event in self._events if (error := _error(event))),
            requests=tuple(url for event in self._events if (url := _request(event))),
            value=result["result"].get("value"),
            screenshot=base64.b64decode(picture["data"]),
        )

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._num_sent += 1
        number = self._num_sent
        session = {} if self._session is None else {"sessionId": self._session}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        while True:
            message = await self._receive()
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                return dict(message["result"])

    async def _loaded(self) -> None:
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            await self._receive()

    async def _receive(self) -> dict[str, Any]:
        message = dict(json.loads(await self._socket.receive_str()))
        if "method" in message:
            self._events.append(message)
        return message


def _error(event: dict[str, Any]) -> str | None:
    params = event["params"]
    if event["method"] == "Runtime.exceptionThrown":
        return f"exception: {params['exceptionDetails']['text']}"
    if event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
        return f"console: {params['args']}"
    if event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
        return f"log: {params['entry']['text']}"
    return f"failed: {params['errorText']}" if event["method"] == "Network.loadingFailed" else None


def _request(event: dict[str, Any]) -> str | None:
    if event["method"] != "Network.requestWillBeSent":
        return None
    url = str(event["params"]["request"]["url"])
    return None if url.startswith("data:") else url
