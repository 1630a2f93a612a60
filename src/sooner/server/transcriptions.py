"""From an upload to its text: the endpoints that do the work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from sooner.errors import InvalidParameterError, RequestCancelledError, ServiceClosedError
from sooner.server.parameters import ANY_MODEL, Parameters, parse_parameters
from sooner.server.requests import OpenRequest
from sooner.server.responses import transcript_response
from sooner.server.routes import Service, service_of
from sooner.server.upload import Upload
from sooner.service.dispatcher import JobRequest

__all__ = ["router"]

T = TypeVar("T")

router = APIRouter()

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
    return await _answer(request)


async def _answer(request: Request) -> Response:
    service = service_of(request)
    if service.dispatcher.closing:
        raise ServiceClosedError
    caller = service.access.caller(request)
    try:
        with service.requests.open(caller, request_id=request.headers.get("x-request-id")) as entry:
            async with service.intake.receive(request) as upload:
                return await _until_over(request, entry, _transcribe(service, entry, upload))
    except ClientDisconnect:
        return Response(status_code=499)  # nobody reads it


async def _transcribe(service: Service, entry: OpenRequest, upload: Upload) -> Response:
    parameters = parse_parameters(upload.fields, service.engine)
    if upload.path is None:
        raise InvalidParameterError("field 'file' is missing; send the recording as a file", param="file")
    service.requests.measured(entry, await service.prober.measure(upload.path))
    transcript = await service.dispatcher.transcribe(_job_request(entry, parameters))
    entry.transcript = transcript
    return transcript_response(transcript, parameters.response_format)


def _job_request(entry: OpenRequest, parameters: Parameters) -> JobRequest:
    assert entry.audio is not None
    return JobRequest(
        job_id=entry.id, audio=entry.audio, language=parameters.language, options=parameters.decoding
    )


async def _until_over(request: Request, entry: OpenRequest, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``, which is cancelled as soon as nobody wants it any more.

    Raises:
        starlette.requests.ClientDisconnect: the client went away.
        RequestCancelledError: it was cancelled from elsewhere.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(request))
    cancelling = asyncio.ensure_future(entry.cancelled.wait())
    all_three: tuple[asyncio.Future[Any], ...] = (working, leaving, cancelling)
    try:
        await asyncio.wait(all_three, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if entry.cancelled.is_set():
            raise RequestCancelledError
        raise ClientDisconnect
    finally:
        for future in all_three:
            future.cancel()
        await asyncio.wait(all_three)
        if not working.cancelled():
            working.exception()  # seen, also where nobody is left to hear of it


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
