"""Putting the server together, and taking it down without losing a reply."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from sooner.audio.silero import SileroDetector
from sooner.core.guard import Guard
from sooner.core.scheduler import Limits, Scheduler
from sooner.engines.base import Engine
from sooner.engines.isolated import IsolatedEngine
from sooner.engines.models import find_model
from sooner.engines.whisper import WhisperEngine, resolve_device
from sooner.errors import ConfigurationError
from sooner.server import queue_routes, routes, transcriptions
from sooner.server.access import Access, parse_key, read_keys
from sooner.server.connections import backlog_of, max_connections, protocol_for
from sooner.server.door import Door
from sooner.server.errors import code_of, install_error_handlers
from sooner.server.journal import Journal
from sooner.server.learned import LearnedFile
from sooner.server.metrics import ServiceMetrics
from sooner.server.options import ServeOptions
from sooner.server.queue_view import QueueView
from sooner.server.recent import Recent
from sooner.server.records import RecordLog, header_of
from sooner.server.requests import ClientLimits, OpenRequests
from sooner.server.routes import Service
from sooner.server.spool import Spool
from sooner.server.tally import Tally
from sooner.server.upload import Intake, IntakeLimits
from sooner.service.clock import Clock, MonotonicClock
from sooner.service.dispatcher import Dispatcher, WindowRecord
from sooner.service.prober import Prober

__all__ = ["Server", "load_engine", "make_access", "make_app"]

_log = logging.getLogger(__name__)


def load_engine(options: ServeOptions) -> tuple[Engine, int]:
    """Load the model that the options name, in a process of its own; close it in the end.

    Returns it with the number of workers it was loaded for.

    Raises:
        ModelUnavailableError: there is no such model.
    """
    device = resolve_device(options.device)
    num_workers = options.num_workers_on(device)
    make_engine = partial(
        WhisperEngine,
        find_model(options.model),
        num_workers=num_workers,
        device=device,
        compute_type=options.compute_type,
        beam_size=options.beam_size,
    )
    engine = IsolatedEngine(
        make_engine,
        num_workers=num_workers,
        window_limit_s=options.window_limit_s,
        voice=SileroDetector(),
    )
    return engine, num_workers


def make_access(options: ServeOptions, *, api_key: str | None = None) -> Access:
    """Who may pass, and which priority is open to whom.

    Args:
        options: see ``ServeOptions``.
        api_key: one key more than the options' file has, written as a line of it.

    Raises:
        ConfigurationError: see ``read_keys``.
    """
    keys = [] if options.api_keys is None else list(read_keys(options.api_keys))
    if api_key is not None:
        keys.append(parse_key(api_key, where="SOONER_API_KEY"))
    return Access(keys, highest=options.highest_priority)


def make_app(
    options: ServeOptions,
    *,
    engine: Engine,
    num_workers: int,
    clock: Clock | None = None,
    on_window: Callable[[WindowRecord], None] | None = None,
    access: Access | None = None,
) -> FastAPI:
    """The ASGI application. Its service lives from start-up to shutdown of the application.

    Args:
        options: see ``ServeOptions``.
        engine: what recognises.
        num_workers: windows that run at once.
        clock: the time; ``None`` for the real one.
        on_window: see ``Dispatcher``.
        access: who may pass; ``None`` for what the options say.

    Raises:
        ConfigurationError: see ``RecordLog``, ``Spool`` and ``read_keys``.
    """
    access = access or make_access(options)
    spool = Spool(options.spool_dir)  # this and the records here, because uvicorn hides errors of the lifespan
    try:
        records = _open_records(options, engine, num_workers)
    except ConfigurationError:
        spool.close()
        raise
    parts = _Parts(
        engine=engine,
        num_workers=num_workers,
        clock=clock or MonotonicClock(),
        on_window=on_window,
        access=access,
        spool=spool,
        records=records,
        tally=Tally(),
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            service = _make_service(options, parts)
            app.state.service = service
            saving = asyncio.create_task(service.learned.save_often()) if service.learned is not None else None
            try:
                yield
            finally:
                if saving is not None:
                    saving.cancel()  # it saves once more
                    await asyncio.wait((saving,))
                await service.dispatcher.close(grace_s=0.0)  # ``Server`` gave the grace before this
                service.prober.close()
        finally:
            parts.spool.close()
            if parts.records is not None:
                await asyncio.to_thread(parts.records.close)

    app = FastAPI(
        title="Sooner",
        description="Duration-aware speech-to-text serving, OpenAI-compatible.",
        lifespan=lifespan,
    )
    for part in (transcriptions, queue_routes, routes):
        app.include_router(part.router)
    install_error_handlers(app)
    app.add_middleware(Door, access=parts.access, on_refused=lambda error: parts.tally.refused(code_of(error)))
    return app


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a service is made around."""

    engine: Engine
    num_workers: int
    clock: Clock
    on_window: Callable[[WindowRecord], None] | None
    access: Access
    spool: Spool
    records: RecordLog | None
    tally: Tally


def _open_records(options: ServeOptions, engine: Engine, num_workers: int) -> RecordLog | None:
    if options.records is None:
        return None
    statistics = _make_scheduler(options, num_workers).statistics()
    return RecordLog(options.records, header_of(options, engine.model_id, statistics))


def _make_service(options: ServeOptions, parts: _Parts) -> Service:
    engine, clock = parts.engine, parts.clock
    scheduler = _make_scheduler(options, parts.num_workers)
    estimator = options.make_estimator()
    recent = Recent(started_s=clock.now_s())
    learned = None
    if options.learned is not None:
        learned = LearnedFile(options.learned, estimator, model_id=engine.model_id)
    dispatcher = Dispatcher(
        engine=engine,
        scheduler=scheduler,
        estimator=estimator,
        clock=clock,
        num_workers=parts.num_workers,
        on_window=parts.on_window,
    )
    requests = OpenRequests(
        clock=clock,
        on_end=Journal(records=parts.records, tally=parts.tally, recent=recent).note,
        limits=ClientLimits(
            max_jobs=options.client_jobs_on(parts.num_workers), max_audio_s=options.max_client_audio_s
        ),
        retry_after_s=lambda: scheduler.retry_after_s,
    )
    return Service(
        engine=engine,
        access=parts.access,
        requests=requests,
        intake=_make_intake(options, scheduler, parts.spool),
        prober=Prober(
            max_audio_s=options.max_audio_s,
            log_mel=engine.log_mel,
            voice=engine.voice if options.vad else None,
            max_decoded_bytes=options.max_decoded_bytes,
        ),
        dispatcher=dispatcher,
        clock=clock,
        learned=learned,
        metrics=ServiceMetrics(
            parts.tally.registry,
            engine=engine,
            dispatcher=dispatcher,
            estimator=estimator,
            requests=requests,
            clock=clock,
        ),
        queue=QueueView(dispatcher=dispatcher, requests=requests, recent=recent, engine=engine, clock=clock),
        started_at_s=int(time.time()),
    )


def _make_intake(options: ServeOptions, scheduler: Scheduler, spool: Spool) -> Intake:
    return Intake(
        scheduler=scheduler,
        spool=spool,
        limits=IntakeLimits(
            max_waiting=options.max_queue,
            max_upload_bytes=options.max_upload_bytes,
            max_spool_bytes=options.max_spool_bytes,
            idle_s=options.upload_idle_s,
            max_upload_s=options.max_upload_s,
        ),
    )


def _make_scheduler(options: ServeOptions, num_workers: int) -> Scheduler:
    return Scheduler(
        options.make_policy(),
        num_workers=num_workers,
        preempt=options.preempt,
        guard=Guard.parse(options.guard),
        max_wait_s=options.max_wait_s,
        limits=Limits(
            max_waiting=options.max_queue,
            max_audio_s=options.max_audio_s,
            max_backlog_s=options.max_backlog_s,
        ),
    )


class Server(uvicorn.Server):
    """uvicorn, with the service drained *before* it closes its sockets.

    On a stop signal uvicorn closes them, waits for open requests and only then runs the application's shutdown.
    A request that waits in our queue would hold that up for as long as the queue is, and nobody could ask whether
    the server is ready. So the dispatcher is closed first: accepted jobs are served within the grace, everything
    else is answered with 503, and ``/ready`` says why. A second signal ends all at once.

    Args:
        app: what ``make_app`` returned.
        options: the same options.
    """

    _AFTER_GRACE_S = 10  # to write the last replies; uvicorn cancels what is left
    _LOOK_EVERY_S = 0.1  # for a second signal: it sets a flag, as uvicorn has it

    def __init__(self, app: FastAPI, options: ServeOptions) -> None:
        self._app = app
        self._options = options
        most = max_connections()
        if most < options.max_queue:
            _log.warning("open files are left for %d connections; raise their limit (ulimit -n)", most)
        config = uvicorn.Config(
            app,
            host=options.host,
            port=options.port,
            http=protocol_for(most),
            ws="none",
            backlog=backlog_of(most),
            log_level="warning",
            timeout_graceful_shutdown=self._AFTER_GRACE_S,
            proxy_headers=options.trusted_proxies is not None,  # uvicorn's default believes every local client
            forwarded_allow_ips=options.trusted_proxies,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = self.address
        service: Service = self._app.state.service
        statistics = service.dispatcher.scheduler.statistics()
        _log.info(
            "listening on http://%s:%d, policy %s, %d workers, model %s",
            f"[{host}]" if ":" in host else host,
            port,
            statistics.policy,
            statistics.num_workers,
            service.engine.model_id,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        service: Service = self._app.state.service
        now = service.dispatcher.scheduler.statistics()
        _log.info(
            "stopping: %d running, %d waiting, at most %g s",
            now.num_running,
            now.num_waiting,
            self._options.shutdown_grace_s,
        )
        service.intake.refuse()
        service.prober.refuse()
        closing = asyncio.ensure_future(service.dispatcher.close(grace_s=self._options.shutdown_grace_s))
        while not closing.done() and not self.force_exit:
            await asyncio.wait((closing,), timeout=self._LOOK_EVERY_S)
        if self.force_exit:
            closing.cancel()
            closing = asyncio.ensure_future(service.dispatcher.close(grace_s=0.0))
            await asyncio.to_thread(service.engine.close)  # or its windows would be waited for
            self.config.timeout_graceful_shutdown = 0
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()  # uvicorn leaves it out then, and uploads would stay on disk

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at the first signal and end at once at the second, whichever they are."""
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in use once started, also where port 0 was asked for."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return host, port
