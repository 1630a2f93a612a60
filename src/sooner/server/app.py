"""Putting the server together, and taking it down without losing a reply."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from sooner.core.guard import Guard
from sooner.core.scheduler import Limits, Scheduler
from sooner.engines.base import Engine
from sooner.engines.models import find_model
from sooner.engines.whisper import WhisperEngine, resolve_device
from sooner.server import queue_routes, routes, transcriptions
from sooner.server.access import Access
from sooner.server.errors import install_error_handlers
from sooner.server.journal import Journal
from sooner.server.learned import LearnedFile
from sooner.server.metrics import ServiceMetrics
from sooner.server.options import ServeOptions
from sooner.server.records import RecordLog, header_of
from sooner.server.requests import OpenRequests
from sooner.server.routes import Service
from sooner.server.upload import Intake, IntakeLimits
from sooner.service.clock import Clock, MonotonicClock
from sooner.service.dispatcher import Dispatcher, WindowRecord
from sooner.service.prober import Prober

__all__ = ["Server", "load_engine", "make_app"]

_log = logging.getLogger(__name__)


def load_engine(options: ServeOptions) -> tuple[Engine, int]:
    """Load the model that the options name. Returns it with the number of workers it was loaded for.

    Raises:
        ModelUnavailableError: there is no such model.
    """
    device = resolve_device(options.device)
    num_workers = options.num_workers_on(device)
    engine = WhisperEngine(
        find_model(options.model),
        num_workers=num_workers,
        device=device,
        compute_type=options.compute_type,
        beam_size=options.beam_size,
    )
    return engine, num_workers


def make_app(
    options: ServeOptions,
    *,
    engine: Engine,
    num_workers: int,
    clock: Clock | None = None,
    on_window: Callable[[WindowRecord], None] | None = None,
) -> FastAPI:
    """The ASGI application. Its service lives from start-up to shutdown of the application.

    Args:
        options: see ``ServeOptions``.
        engine: what recognises.
        num_workers: windows that run at once.
        clock: the time; ``None`` for the real one.
        on_window: see ``Dispatcher``.

    Raises:
        ConfigurationError: see ``RecordLog``.
    """
    clock = clock or MonotonicClock()
    records = _open_records(options, engine, num_workers)  # here, because uvicorn hides errors of the lifespan

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            service = _make_service(options, engine, num_workers, clock, on_window, records)
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
                service.intake.close()
        finally:
            if records is not None:
                await asyncio.to_thread(records.close)

    app = FastAPI(
        title="Sooner",
        description="Duration-aware speech-to-text serving, OpenAI-compatible.",
        lifespan=lifespan,
    )
    for part in (transcriptions, queue_routes, routes):
        app.include_router(part.router)
    install_error_handlers(app)
    return app


def _open_records(options: ServeOptions, engine: Engine, num_workers: int) -> RecordLog | None:
    if options.records is None:
        return None
    statistics = _make_scheduler(options, num_workers).statistics()
    return RecordLog(options.records, header_of(options, engine.model_id, statistics))


def _make_service(
    options: ServeOptions,
    engine: Engine,
    num_workers: int,
    clock: Clock,
    on_window: Callable[[WindowRecord], None] | None,
    records: RecordLog | None,
) -> Service:
    scheduler = _make_scheduler(options, num_workers)
    estimator = options.make_estimator()
    learned = None
    if options.learned is not None:
        learned = LearnedFile(options.learned, estimator, model_id=engine.model_id)
    return Service(
        engine=engine,
        access=Access(highest=options.highest_priority),
        requests=OpenRequests(clock=clock, on_end=Journal(records=records).note),
        intake=Intake(
            scheduler=scheduler,
            spool_dir=options.spool_dir,
            limits=IntakeLimits(
                max_waiting=options.max_queue,
                max_upload_bytes=options.max_upload_bytes,
                max_spool_bytes=options.max_spool_bytes,
                idle_s=options.upload_idle_s,
                max_upload_s=options.max_upload_s,
            ),
        ),
        prober=Prober(max_audio_s=options.max_audio_s, log_mel=engine.log_mel),
        dispatcher=Dispatcher(
            engine=engine,
            scheduler=scheduler,
            estimator=estimator,
            clock=clock,
            num_workers=num_workers,
            on_window=on_window,
        ),
        clock=clock,
        learned=learned,
        metrics=ServiceMetrics(scheduler, estimator),
        started_at_s=int(time.time()),
    )


def _make_scheduler(options: ServeOptions, num_workers: int) -> Scheduler:
    return Scheduler(
        options.make_policy(),
        num_workers=num_workers,
        preempt=options.preempt,
        guard=Guard.parse(options.guard),
        limits=Limits(
            max_waiting=options.max_queue,
            max_audio_s=options.max_audio_s,
            max_backlog_s=options.max_backlog_s,
        ),
    )


class Server(uvicorn.Server):
    """uvicorn, with the service closed *before* it waits for open requests.

    uvicorn waits for requests to end and only then runs the application's shutdown; a request that waits in
    our queue would hold that up for as long as the queue is. Closing the dispatcher first lets started jobs
    finish within the grace and answers all others with 503.

    Args:
        app: what ``make_app`` returned.
        options: the same options.
    """

    _AFTER_GRACE_S = 10  # to write the last replies; uvicorn cancels what is left

    def __init__(self, app: FastAPI, options: ServeOptions) -> None:
        self._app = app
        self._options = options
        config = uvicorn.Config(
            app,
            host=options.host,
            port=options.port,
            log_level="warning",
            timeout_graceful_shutdown=int(options.shutdown_grace_s) + self._AFTER_GRACE_S,
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
        service.intake.refuse()
        service.prober.refuse()
        closing = asyncio.ensure_future(service.dispatcher.close(grace_s=self._options.shutdown_grace_s))
        await super().shutdown(sockets)
        if self.force_exit:  # a second signal: no more grace
            closing.cancel()
            return
        await closing

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in use once started, also where port 0 was asked for."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return host, port
