"""From an upload to its text: the endpoints that do the work."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from sooner.audio.probe import Audio
from sooner.engines.base import Task
from sooner.errors import InvalidParameterError, RequestCancelledError, ServiceClosedError, SoonerError
from sooner.server.errors import log_fault
from sooner.server.parameters import Parameters, parse_parameters
from sooner.server.requests import OpenRequest
from sooner.server.responses import done_event, transcript_response, warning_header
from sooner.server.routes import Service, service_of
from sooner.server.schema import RESPONSES, request_schema
from sooner.server.stream import EventStream
from sooner.server.upload import Upload
from sooner.service.dispatcher import JobRequest

__all__ = ["router"]

T = TypeVar("T")

router = APIRouter()


@router.post("/v1/audio/transcriptions", openapi_extra=request_schema("transcribe"), responses=RESPONSES)
async def create_transcription(request: Request) -> Response:
    """Transcribe an uploaded recording."""
    return _Answer(request, "transcribe")


@router.post("/v1/audio/translations", openapi_extra=request_schema("translate"), responses=RESPONSES)
async def create_translation(request: Request) -> Response:
    """Transcribe an uploaded recording in English, whatever language is spoken."""
    return _Answer(request, "translate")


class _Answer(Response):
    """A reply that is worked out while it is sent.

    What a request holds (its place, its upload on disk) is held until its stream ends. Were that begun in the
    endpoint and ended in the response, a request that dies between the two would hold it for ever; here it is one
    block.
    """

    def __init__(self, request: Request, task: Task) -> None:
        super().__init__()
        self._request = request
        self._task = task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = EventStream(send)
        last: Response | Mapping[str, object] | SoonerError
        try:
            last = await _serve(self._request, self._task, stream)
        except ClientDisconnect:
            return  # nobody reads it
        except SoonerError as error:
            if not stream.has_begun:
                raise
            log_fault(error, self._request)
            last = error
        if isinstance(last, Response):
            await last(scope, receive, send)
        else:
            with suppress(ClientDisconnect):
                await stream.finish(last)


async def _serve(request: Request, task: Task, stream: EventStream) -> Response | Mapping[str, object]:
    """All of a request but the end of its reply: the reply, or the last event of its stream.

    That is sent when all is noted and removed, so that whoever reads it finds it so.
    """
    service = service_of(request)
    caller = service.access.caller(request)
    with service.requests.open(caller, request_id=request.headers.get("x-request-id")) as entry:
        if service.dispatcher.closing:
            raise ServiceClosedError
        work = _receive(request, task, entry, stream)
        return await _unless(entry.cancelled.wait(), RequestCancelledError, work)


async def _receive(
    request: Request, task: Task, entry: OpenRequest, stream: EventStream
) -> Response | Mapping[str, object]:
    service = service_of(request)
    async with service.intake.receive(request) as upload:
        parameters = parse_parameters(
            upload.fields, request.headers, engine=service.engine, task=task, highest=entry.caller.highest
        )
        entry.priority = parameters.priority
        work = _recognise(service, entry, upload, parameters, stream)
        return await _unless(_disconnected(request), ClientDisconnect, work)


async def _recognise(
    service: Service, entry: OpenRequest, upload: Upload, parameters: Parameters, stream: EventStream
) -> Response | Mapping[str, object]:
    if upload.path is None:
        raise InvalidParameterError("field 'file' is missing; send the recording as a file", param="file")
    audio = await service.prober.measure(upload.path)
    service.requests.measured(entry, audio)
    job = _job_request(entry, audio, parameters)
    if not parameters.stream:
        entry.transcript = await service.dispatcher.transcribe(job)
        return transcript_response(entry.transcript, audio, parameters)
    headers = {"x-request-id": entry.id, **warning_header(audio)}
    entry.transcript = await stream.follow(service.dispatcher.transcribe(job, on_text=stream.add), headers)
    return done_event(entry.transcript, audio)


def _job_request(entry: OpenRequest, audio: Audio, parameters: Parameters) -> JobRequest:
    return JobRequest(
        job_id=entry.id,
        audio=audio,
        language=parameters.language,
        options=parameters.decoding,
        client=entry.caller.client,
        priority=parameters.priority,
        allowed_s=parameters.deadline_s,
        allowed_from_s=entry.opened_s,  # the time of the upload is in it: that is what the client waits for
    )


async def _unless(event: Coroutine[Any, Any, object], error: type[Exception], work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; where ``event`` comes first, ``work`` is cancelled and ``error`` is raised."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event)
    both: tuple[asyncio.Future[Any], ...] = (working, waiting)
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():  # also where both are: who cancels is told that it is cancelled
            raise error
        return working.result()
    finally:
        for future in both:
            future.cancel()
        await asyncio.wait(both)
        if not working.cancelled():
            working.exception()  # seen, also where nobody is left to hear of it


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
