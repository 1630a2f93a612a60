"""Pages in headless Chromium, over the DevTools protocol: what they asked for, what went wrong, how they look.

``visit`` looks at a file once; a ``Browser`` opens live pages that a test then uses as a person would.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import aiohttp

__all__ = ["Browser", "LivePage", "Visit", "find_chromium", "visit"]

T = TypeVar("T")

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


class Browser:
    """One Chromium for many pages, one after the other; a context manager. For one thread."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()

    def __enter__(self) -> Browser:
        self._devtools, self._session = self._run(self._start())
        return self

    async def _start(self) -> tuple[str, aiohttp.ClientSession]:
        devtools = await self._stack.enter_async_context(_browser())
        return devtools, await self._stack.enter_async_context(aiohttp.ClientSession())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._stack.aclose())
        self._runner.close()

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> LivePage:
        """Open an address in a tab of its own, and wait for its load event."""
        return LivePage(self._runner, self._run(self._open(url, width, height, dark)))

    async def _open(self, url: str, width: int, height: int, dark: bool) -> _Tab:
        tab = _Tab(await self._session.ws_connect(self._devtools, max_msg_size=_LARGEST_MESSAGE_BYTES))
        await tab.open(url, width, height, dark)
        return tab

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, _LIMIT_S))


class LivePage:
    """A page that is open; a context manager that closes its tab."""

    def __init__(self, runner: asyncio.Runner, tab: _Tab) -> None:
        self._runner = runner
        self._tab = tab

    def __enter__(self) -> LivePage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._tab.close())

    def evaluate(self, expression: str) -> Any:
        """What a JavaScript expression, or the promise that it is, comes to."""
        return self._run(self._tab.evaluate(expression))

    def wait_for(self, expression: str, *, within_s: float = 20.0) -> Any:
        """Ask again and again until ``expression`` is true; gives what it is then."""
        give_up_s = time.monotonic() + within_s
        while not (value := self.evaluate(expression)):
            if time.monotonic() > give_up_s:
                text = self.evaluate("document.body.innerText")
                raise AssertionError(f"the page never got to: {expression}\nerrors: {self.errors}\n{text}")
            time.sleep(0.02)  # between two looks, not in place of one
        return value

    def choose_files(self, selector: str, paths: Sequence[Path]) -> None:
        """Give files to a file input, as its dialog would."""
        self._run(self._tab.choose_files(selector, paths))

    def press(self, key: str) -> None:
        """Press and release a key such as ``ArrowDown``."""
        for kind in ("keyDown", "keyUp"):
            self._run(self._tab.call("Input.dispatchKeyEvent", type=kind, key=key, code=key))

    def move_mouse(self, x: float, y: float) -> None:
        """Move the mouse to a point of the window, CSS pixels."""
        self._run(self._tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y))

    def look(self, *, width: int, height: int = 900, dark: bool = False, still: bool = False) -> None:
        """Give the window another size, and the page light or dark, with or without motion."""
        self._run(self._tab.emulate(width, height, dark, still=still))

    def screenshot(self) -> bytes:
        """PNG of the window."""
        return self._run(self._tab.screenshot())

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong so far; see ``Visit``."""
        return self._tab.errors

    @property
    def requests(self) -> tuple[str, ...]:
        """What was asked for so far; see ``Visit``."""
        return self._tab.requests

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asyncio.wait_for(work, _LIMIT_S))


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
        self._target = ""
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []

    async def look(self, url: str, expression: str, width: int, dark: bool) -> Visit:
        await self.open(url, width, 900, dark)
        value = await self.evaluate(expression)
        picture = await self.screenshot()
        await self.close()
        return Visit(width=width, errors=self.errors, requests=self.requests, value=value, screenshot=picture)

    async def open(self, url: str, width: int, height: int, dark: bool) -> None:
        target = await self.call("Target.createTarget", url="about:blank", newWindow=True)
        self._target = target["targetId"]
        attached = await self.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        await self.emulate(width, height, dark)
        await self.call("Page.navigate", url=url)
        await self._loaded()

    async def emulate(self, width: int, height: int, dark: bool, *, still: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        wishes = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def evaluate(self, expression: str) -> Any:
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def choose_files(self, selector: str, paths: Sequence[Path]) -> None:
        found = await self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")
        node = found["result"]["objectId"]
        await self.call("DOM.setFileInputFiles", objectId=node, files=[str(path.resolve()) for path in paths])

    async def screenshot(self) -> bytes:
        picture = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(picture["data"])

    async def close(self) -> None:
        await self.call("Target.closeTarget", targetId=self._target)
        await self._socket.close()

    @property
    def errors(self) -> tuple[str, ...]:
        return tuple(error for event in self._events if (error := _error(event)))

    @property
    def requests(self) -> tuple[str, ...]:
        return tuple(url for event in self._events if (url := _request(event)))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
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
