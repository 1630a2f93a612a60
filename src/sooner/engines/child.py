"""The inside of an engine's own process; ``isolated`` is its other side.

One thread listens, so that the end of the pipe, which is the end of the server, is noticed at once, also while a
model is loaded or a window runs. Everything else is done in as many threads as there are workers.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection

from sooner.audio.mel import LogMel
from sooner.audio.probe import Audio
from sooner.core.job import Job
from sooner.engines.base import Decoding, DecodingOptions, Engine, WindowResult
from sooner.errors import SoonerError

__all__ = ["Begin", "Facts", "Forget", "MakeEngine", "Reply", "Step", "serve"]

_log = logging.getLogger(__name__)

MakeEngine = Callable[[], Engine]
"""Loads the engine. It travels to the process, so it has to be picklable: a class, a function, a ``partial``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the server has to know of an engine that is loaded."""

    model_id: str
    languages: tuple[str, ...]
    log_mel: LogMel | None
    can_translate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The arguments of ``Engine.start``; the recording travels as its path."""

    job: Job
    audio: Audio
    options: DecodingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Run the next window of a decoding, which is begun where ``begin`` is given."""

    decoding: int
    begin: Begin | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Close a decoding; no step of it runs."""

    decoding: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a step: a window or, where there is none, what went wrong."""

    decoding: int
    window: WindowResult | None = None
    error: str = ""


def serve(connection: Connection, num_workers: int) -> None:
    """Load an engine and run windows until the pipe ends; never returns.

    It reads a ``MakeEngine``, writes ``Facts``, or an error's text and no more, and then answers each ``Step``.
    """
    # A Ctrl-C goes to the whole group and systemd's stop to the whole unit: both are for the server, which lets
    # windows end before it closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.dup2(2, 1)  # what libraries print is none of the server's output
    faulthandler.enable()  # a crash in native code says where
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    host = _Host(connection)
    pool = ThreadPoolExecutor(num_workers)
    try:
        pool.submit(host.load, connection.recv())
        while True:
            request = connection.recv()
            if isinstance(request, Step):
                pool.submit(host.step, request)
            else:
                host.forget(request)
    except (EOFError, OSError):
        os._exit(0)  # nobody is left to answer, and a window may run for minutes yet


class _Host:
    """One engine and its decodings."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._engine: Engine | None = None
        self._decodings: dict[int, Decoding] = {}

    def load(self, make_engine: MakeEngine) -> None:
        try:
            engine = self._engine = make_engine()
        except Exception as error:  # noqa: BLE001  whatever it is, the server has to know
            self._send(_text_of(error))
            return
        facts = Facts(
            model_id=engine.model_id,
            languages=engine.languages,
            log_mel=engine.log_mel,
            can_translate=engine.can_translate,
        )
        self._send(facts)

    def step(self, step: Step) -> None:
        try:
            if step.begin is not None:
                assert self._engine is not None
                begin = step.begin
                self._decodings[step.decoding] = self._engine.start(begin.job, begin.audio, begin.options)
            reply = Reply(decoding=step.decoding, window=self._decodings[step.decoding].step())
        except Exception as error:  # noqa: BLE001  the process survives whatever a file does to the libraries
            reply = Reply(decoding=step.decoding, error=_text_of(error))
        self._send(reply)

    def forget(self, forget: Forget) -> None:
        decoding = self._decodings.pop(forget.decoding, None)
        if decoding is not None:
            decoding.close()

    def _send(self, message: Facts | Reply | str) -> None:
        with self._sending:
            self._connection.send(message)


def _text_of(error: Exception) -> str:
    if isinstance(error, (SoonerError, OSError, ValueError)):
        return str(error)
    _log.error("the engine failed", exc_info=error)
    return f"the engine failed: {error}"
