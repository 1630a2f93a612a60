"""An engine in a process of its own, which is replaced when it hangs or dies.

What decodes and recognises is native code that is given files from anywhere. A crash there ends its process, the
kernel's out-of-memory killer ends the largest one, and a loop that never ends can be stopped in no other way. So
the server and the engine are two processes: what is lost is the windows under way and the decodings between two
windows, all of which the server can begin anew.

One process with a thread for each worker, as without isolation, because the threads share the weights. A process
for each worker would lose less at a time and hold the model as many times; it lost.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import multiprocessing
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from sooner.audio.probe import Audio
from sooner.audio.voice import VoiceDetector
from sooner.core.job import Job
from sooner.engines.base import DecodingOptions, WindowResult
from sooner.engines.child import Begin, Facts, Forget, MakeEngine, Reply, Step, serve
from sooner.engines.process import tune_for_workers
from sooner.errors import EngineError, EngineLostError, ModelUnavailableError, SchedulerUsageError

__all__ = ["IsolatedDecoding", "IsolatedEngine"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_LOAD_LIMIT_S = 600.0  # of a replacement; the first one may have to be fetched from the model hub
_END_S = 10.0  # for a killed process to be gone


class IsolatedEngine:
    """The engine that ``make_engine`` makes, in a process of its own; safe to use from several threads.

    A process that is lost is replaced at once, but after a pause, from 1 s on twice as long each time up to 30 s,
    where it was lost before it had done a single window. Meanwhile a decoding that is not begun waits.

    Args:
        make_engine: called in the process; picklable.
        num_workers: windows that may run at once.
        window_limit_s: an engine that takes longer over a window hangs, and is killed, seconds. As long does a
            decoding wait for a replacement.
        voice: see ``Engine.voice``; used in this process.

    Raises:
        ModelUnavailableError: the engine could not be made.
    """

    def __init__(
        self,
        make_engine: MakeEngine,
        *,
        num_workers: int,
        window_limit_s: float,
        voice: VoiceDetector | None = None,
    ) -> None:
        tune_for_workers()  # this process measures uploads, with the same front end
        self.voice = voice
        self._make_engine = make_engine
        self._num_workers = num_workers
        self._window_limit_s = window_limit_s
        self._ids = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._last_loss = ""
        self.num_restarts = 0
        self._child = child = _Child(make_engine, num_workers)
        try:
            facts = child.load()
        except BaseException:  # a Ctrl-C, which the process does not heed
            child.kill("the engine was closed")
            raise
        if facts is None:
            child.read()
            raise ModelUnavailableError(f"the engine could not be started: {child.loss}")
        self.model_id = facts.model_id
        self.languages = facts.languages
        self.log_mel = facts.log_mel
        self.can_translate = facts.can_translate
        self._keeper = threading.Thread(target=self._keep, args=(child,), name="sooner-engine", daemon=True)
        self._keeper.start()
        atexit.register(self.close)  # multiprocessing's own end waits for its processes

    @property
    def ready(self) -> bool:
        return not self._closed and self._child.ready

    @property
    def pid(self) -> int | None:
        """The id of the process that runs windows now, or will when it is loaded."""
        return self._child.pid

    def start(self, job: Job, audio: Audio, options: DecodingOptions) -> IsolatedDecoding:
        begin = Begin(job=job, audio=audio, options=options)
        return IsolatedDecoding(begin, next(self._ids), self._ready_child, self._window_limit_s)

    def close(self) -> None:
        """End the process; windows under way fail. Takes seconds at most. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            child = self._child
        child.kill("the engine was closed")
        self._keeper.join(_END_S)
        atexit.unregister(self.close)

    def _ready_child(self) -> _Child:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._child.ready, self._window_limit_s)
            if self._closed:
                raise EngineError("the engine is closed")
            if not self._child.ready:
                raise EngineError(f"the engine could not be started again: {self._last_loss}")
            return self._child

    def _keep(self, child: _Child | None) -> None:
        """Bring replies to those who wait for them, and replace a process that is lost."""
        pause_s = 0.0
        while True:
            num_windows = 0 if child is None else child.read()
            pause_s = 0.0 if num_windows else min(_LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * pause_s))
            if child is not None and child.loss is not None:
                self._last_loss = child.loss
            with self._changed:
                if self._closed:
                    return
                _log.error("lost the engine: %s; another one is started in %g s", self._last_loss, pause_s)
                if self._changed.wait_for(lambda: self._closed, pause_s):
                    return
                self.num_restarts += 1
                child = self._start_child()
            if child is not None and child.load(_LOAD_LIMIT_S) is not None:
                _log.info("the engine is there again")
                with self._changed:
                    self._changed.notify_all()

    def _start_child(self) -> _Child | None:
        try:
            self._child = _Child(self._make_engine, self._num_workers)
        except Exception as error:  # noqa: BLE001  no process, thread or memory to be had: perhaps later
            self._last_loss = f"no process can be started: {error}"
            return None
        return self._child


class IsolatedDecoding:
    """See ``Decoding``. It belongs to the process in which its first window ran, and is lost with it."""

    def __init__(self, begin: Begin, number: int, ready_child: Callable[[], _Child], limit_s: float) -> None:
        self._begin = begin
        self._number = number
        self._ready_child = ready_child
        self._limit_s = limit_s
        self._child: _Child | None = None
        self._finished = False

    def step(self) -> WindowResult:
        if self._finished:
            raise SchedulerUsageError("this decoding is finished or closed")
        begin = None
        if self._child is None:
            begin, self._child = self._begin, self._ready_child()
        window = self._child.step(Step(decoding=self._number, begin=begin), self._limit_s)
        if window.done:
            self.close()
        return window

    def close(self) -> None:
        if not self._finished and self._child is not None:
            self._child.forget(Forget(decoding=self._number))
        self._finished = True


class _Child:
    """One process, from its start to its end; ``loss`` says why it is of no use any more.

    A process that is stopped or swapped out does not read, and the pipe is soon full. So what is for it is sent by
    a thread, and nobody else ever waits for it to read.

    Raises:
        OSError: the system has no process or no pipe left.
    """

    def __init__(self, make_engine: MakeEngine, num_workers: int) -> None:
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()  # None: nothing will follow
        self._outbox.put(pickle.dumps(make_engine))
        # Not a fork: that would copy locks that are held by threads which are not in the copy.
        context = multiprocessing.get_context("spawn")
        self._connection, other_end = context.Pipe()
        self._process = context.Process(
            target=serve, args=(other_end, num_workers), name="sooner-engine", daemon=True
        )
        with other_end:
            self._process.start()
        self.pid = self._process.pid
        self.loss: str | None = None
        self._loaded = False
        self._lock = threading.Lock()  # guards the loss and what is pending; nobody blocks who holds it
        self._pending: dict[int, Future[Reply]] = {}
        self._sender = threading.Thread(target=self._send, name="sooner-engine-sender", daemon=True)
        self._sender.start()

    @property
    def ready(self) -> bool:
        """Whether it is loaded and not lost."""
        return self._loaded and self.loss is None

    def load(self, limit_s: float | None = None) -> Facts | None:
        """Wait until the engine is loaded. ``None`` where it is lost instead."""
        answer = self._receive(limit_s)
        if isinstance(answer, Facts):
            self._loaded = True
            return answer
        if isinstance(answer, str):
            self.kill(answer)
        else:
            self._lose(f"{self._end()} while it loaded the model")
        return None

    def read(self) -> int:
        """Bring each reply to its step until the process is gone. Returns how many there were."""
        num_windows = 0
        while isinstance(reply := self._receive(), Reply):
            num_windows += 1
            with self._lock:
                future = self._pending.pop(reply.decoding, None)
            if future is not None:
                future.set_result(reply)
        self._lose(self._end())
        self._sender.join(_END_S)  # or it might write to whatever is opened under the same number
        self._connection.close()
        return num_windows

    def _receive(self, limit_s: float | None = None) -> Facts | Reply | str | None:
        """What the process wrote next; ``None`` where it ended or is of no use any more."""
        try:
            if limit_s is not None and not self._connection.poll(limit_s):
                self.kill(f"loading took more than {limit_s:.0f} s")
            message: Facts | Reply | str = self._connection.recv()
        except (EOFError, OSError):
            return None
        except Exception as error:  # noqa: BLE001  no memory, or no message at all: whatever it is, it is replaced
            self.kill(f"what it wrote cannot be read: {error!r}")
            return None
        return message

    def step(self, step: Step, limit_s: float) -> WindowResult:
        """Run a window.

        Raises:
            EngineError: it failed.
            EngineLostError: the process is lost, or takes too long and is killed.
        """
        future: Future[Reply] = Future()
        message = pickle.dumps(step)
        with self._lock:
            if self.loss is not None:
                raise self._lost(is_cause=False)
            self._pending[step.decoding] = future
            self._outbox.put(message)
        try:
            reply = future.result(limit_s)
        except TimeoutError:
            self.kill(f"a window took more than {limit_s:g} s", cause=step.decoding)
            reply = future.result()
        if reply.window is None:
            raise EngineError(reply.error)
        return reply.window

    def forget(self, forget: Forget) -> None:
        """Let a decoding go, unless everything is lost anyway."""
        self._outbox.put(pickle.dumps(forget))

    def kill(self, reason: str, *, cause: int | None = None) -> None:
        """End the process at once, unless the decoding that is the cause has its reply. The first reason stays."""
        if self._lose(reason, cause):
            self._process.kill()

    def _send(self) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                self._connection.send_bytes(message)
        except Exception as error:  # noqa: BLE001  no memory: a message that is left out would look like a hang
            if not isinstance(error, OSError):  # the process is gone, which shows where replies are read
                self.kill(f"nothing can be sent to it: {error!r}")

    def _lose(self, reason: str, cause: int | None = None) -> bool:
        """Fail all that is pending. Returns whether it is so: not where the cause is not pending any more."""
        with self._lock:
            if cause is not None and cause not in self._pending:
                return False
            self.loss = self.loss or reason
            pending, self._pending = self._pending, {}
        self._outbox.put(None)
        for decoding, future in pending.items():
            future.set_exception(self._lost(is_cause=None if cause is None else decoding == cause))
        return True

    def _lost(self, *, is_cause: bool | None) -> EngineLostError:
        return EngineLostError(
            f"the engine is lost with all that it was doing: {self.loss}; send the request again",
            is_cause=is_cause,
        )

    def _end(self) -> str:
        """How the process ended; it is made sure that it did, and that nothing is left of it."""
        self._process.join(_END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join(_END_S)
        code = self._process.exitcode
        if code is not None and code < 0:
            hint = ", perhaps for want of memory" if code == -9 else ""
            return f"its process died of signal {-code} ({signal.strsignal(-code)}{hint})"
        return f"its process died with exit code {code}"
