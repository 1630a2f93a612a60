"""The HTTP endpoints: thin, each a few calls into the service."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from sooner.audio.probe import Audio
from sooner.engines.base import Engine
from sooner.errors import InvalidParameterError, ModelNotFoundError, ServiceClosedError
from sooner.server.learned import LearnedFile
from sooner.server.metrics import ServiceMetrics
from sooner.server.parameters import ANY_MODEL, Parameters, parse_parameters
from sooner.server.records import RecordLog, failure_of, record_of
from sooner.server.responses import queue_body, transcript_response
from sooner.server.upload import Intake, Upload
from sooner.service.clock import Clock
from sooner.service.dispatcher import Dispatcher, Transcript
from sooner.service.prober import Prober

__all__ = ["Service", "router"]

_log = logging.getLogger(__name__)
T = TypeVar("T")

router = APIRouter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts that requests are served with; one per application, in ``app.state.service``."""

    engine: Engine
    intake: Intake
    prober: Prober
    dispatcher: Dispatcher
    clock: Clock
    records: RecordLog | None
    learned: LearnedFile | None
    metrics: ServiceMetrics
    started_at_s: int


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


_FORM_SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "model"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "model": {"type": "string", "example": ANY_MODEL},
                        "language": {"type": "string", "example": "en"},
                        "prompt": {"type": "string"},
                        "response_format": {"enum": ["json", "text", "verbose_json"], "default": "json"},
                        "temperature": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
                    },
                }
            }
        },
    }
}


@router.post("/v1/audio/transcriptions", openapi_extra=_FORM_SCHEMA)
async def create_transcription(request: Request) -> Response:
    """Transcribe an uploaded recording."""
    service = _service(request)
    if service.dispatcher.closing:
        raise ServiceClosedError
    try:
        async with service.intake.receive(request) as upload:
            return await _unless_disconnected(request, _transcribe(service, upload))
    except ClientDisconnect:
        _log.info("a client went away; its job is cancelled")
        return Response(status_code=499)  # nobody reads it


async def _transcribe(service: Service, upload: Upload) -> Response:
    parameters = parse_parameters(upload.fields, service.engine)
    if upload.path is None:
        raise InvalidParameterError("field 'file' is missing; send the recording as a file", param="file")
    audio = await service.prober.measure(upload.path)
    transcript = await _recorded(service, audio, parameters)
    _log.info(
        "%s: %.1f s of audio, waited %.2f s, served %.2f s (predicted %.2f s)",
        transcript.job.id,
        transcript.job.audio_s,
        transcript.wait_s,
        transcript.service_s,
        transcript.job.size_s,
    )
    return transcript_response(transcript, parameters.response_format)


async def _recorded(service: Service, audio: Audio, parameters: Parameters) -> Transcript:
    """Queue a measured upload and wait for its text; how it ends is noted where a record is kept."""
    job_id = uuid.uuid4().hex
    arrival_s = service.clock.now_s()
    try:
        transcript = await service.dispatcher.transcribe(
            job_id=job_id, audio=audio, language=parameters.language, options=parameters.decoding
        )
    except BaseException as error:  # cancellation too: a client that left is one that got no text
        if service.records is not None:
            now_s = service.clock.now_s()
            service.records.put(
                failure_of(error, job_id=job_id, audio_s=audio.audio_s, arrival_s=arrival_s, failed_s=now_s)
            )
        raise
    if service.records is not None:
        service.records.put(record_of(transcript))
    return transcript


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; cancels it and raises ``ClientDisconnect`` as soon as the client goes away."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.wait((working, watching))
        if not working.cancelled():
            working.exception()  # seen, also where nobody is left to hear of it


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, object]:
    """The model served here."""
    return {"object": "list", "data": [_model(_service(request))]}


@router.get("/v1/models/{model_id:path}")
async def retrieve_model(request: Request, model_id: str) -> dict[str, object]:
    """The model served here, by its name."""
    service = _service(request)
    if model_id not in (service.engine.model_id, ANY_MODEL):
        raise ModelNotFoundError(model=model_id, served=(service.engine.model_id, ANY_MODEL))
    return _model(service)


def _model(service: Service) -> dict[str, object]:
    return {
        "id": service.engine.model_id,
        "object": "model",
        "created": service.started_at_s,
        "owned_by": "sooner",
    }


@router.get("/v1/queue")
async def show_queue(request: Request) -> dict[str, object]:
    """Who runs, who waits, in which order, and until when by prediction."""
    service = _service(request)
    scheduler = service.dispatcher.scheduler
    return queue_body(
        scheduler.statistics(),
        scheduler.forecast(service.clock.now_s()),
        num_arriving=service.intake.num_arriving,
    )


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Queue, order and estimates, as Prometheus reads them."""
    body, media_type = _service(request).metrics.exposition()
    return Response(body, media_type=media_type)


@router.api_route("/health", methods=["GET", "HEAD"])
async def health(request: Request) -> Response:
    """200 while requests are taken, 503 once the server is shutting down."""
    if _service(request).dispatcher.closing:
        return JSONResponse({"status": "closing"}, status_code=503)
    return JSONResponse({"status": "ok"})
