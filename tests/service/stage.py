"""A dispatcher over a scripted engine, whose windows end when the test says so. No sleeping, exact logs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sooner import Estimator, Job, Limits, Scheduler, policy_named
from sooner.audio.probe import Audio
from sooner.engines.fake import FakeEngine
from sooner.service.clock import Clock, ManualClock
from sooner.service.dispatcher import Dispatcher, JobRequest, OnText, Transcript, WindowRecord

_ANY = "*"


def a_second_a_window(**options: Any) -> Estimator:
    """Sizes that a test can add up: one second a window, whatever is said in it."""
    return Estimator(encode_s=1.0, token_s=0.0, **options)


class Stage:
    """What a test holds in its hands.

    Attributes:
        log: windows that began, in order, as far as the test waited for them.
        windows: windows that ended.
        failures: what each window of a job raises.
        failures_once: what the next window of a job raises.
        at_end: called when a window has ended, before the dispatcher does anything about it.
    """

    def __init__(
        self,
        policy: str,
        *,
        num_workers: int = 1,
        preempt: bool | None = None,
        limits: Limits | None = None,
        estimator: Estimator | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.manual_clock = ManualClock()
        self.clock = clock or self.manual_clock
        self.entered: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.ended: asyncio.Queue[WindowRecord] = asyncio.Queue()
        self.log: list[tuple[str, int]] = []
        self.windows: list[WindowRecord] = []
        self.failures: dict[str, Exception] = {}
        self.failures_once: dict[str, Exception] = {}
        self.at_end: Callable[[], object] | None = None
        self._changed = threading.Condition()
        self._passes: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self.estimator = estimator or Estimator()
        self.engine = FakeEngine(self._on_step)
        self.dispatcher = Dispatcher(
            engine=self.engine,
            scheduler=Scheduler(policy_named(policy), num_workers=num_workers, preempt=preempt, limits=limits),
            estimator=self.estimator,
            clock=self.clock,
            num_workers=num_workers,
            on_window=self._on_window,
        )

    def _on_step(self, job: Job, index: int) -> None:
        self._loop.call_soon_threadsafe(self.entered.put_nowait, (job.id, index))
        with self._changed:
            self._changed.wait_for(lambda: self._passes[job.id] or self._passes[_ANY])
            self._passes[job.id if self._passes[job.id] else _ANY] -= 1
        failure = self.failures_once.pop(job.id, None) or self.failures.get(job.id)
        if failure is not None:
            raise failure

    def _on_window(self, window: WindowRecord) -> None:
        self.windows.append(window)
        self.ended.put_nowait(window)
        if self.at_end is not None:
            self.at_end()

    def send(
        self,
        job_id: str,
        audio_s: float,
        language: str | None = None,
        *,
        speech: tuple[tuple[float, float], ...] | None = None,
        on_text: OnText | None = None,
        **request: Any,
    ) -> asyncio.Task[Transcript]:
        """A client that waits for its text; it has queued its job when the test has waited for anything."""
        audio = Audio(path=Path("unused"), num_samples=round(audio_s * 16_000), speech=speech)
        asked = JobRequest(job_id=job_id, audio=audio, language=language, **request)
        return asyncio.ensure_future(self.dispatcher.transcribe(asked, on_text=on_text))

    async def window_begins(self) -> tuple[str, int]:
        """Wait until a worker is inside a window, and note which."""
        window = await self.entered.get()
        self.log.append(window)
        return window

    async def windows_begin(self, number: int) -> set[tuple[str, int]]:
        return {await self.window_begins() for _ in range(number)}

    def let_windows_end(self, number: int = 1, *, after_s: float = 1.0, of: str = _ANY) -> None:
        self.manual_clock.advance(after_s)
        with self._changed:
            self._passes[of] += number
            self._changed.notify_all()

    async def end_window(self, of: str = _ANY, *, after_s: float = 1.0) -> None:
        """Let a window end, and wait until the dispatcher has done what it does then."""
        self.let_windows_end(after_s=after_s, of=of)
        await self.ended.get()

    def run_dry(self) -> None:
        """From now on every window ends at once."""
        self.let_windows_end(1000, after_s=0.0)


@asynccontextmanager
async def stage(policy: str = "hrrn", **options: Any) -> AsyncIterator[Stage]:
    s = Stage(policy, **options)
    try:
        yield s
    finally:
        s.run_dry()
        await s.dispatcher.close(grace_s=10.0)
        s.dispatcher.scheduler.check()


def run(test: Callable[[], Coroutine[Any, Any, object]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))
