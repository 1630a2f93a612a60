"""Watching the queue, one's own request in it, and taking that out."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from sooner.errors import InvalidParameterError, RequestNotFoundError
from sooner.server.requests import OpenRequest
from sooner.server.routes import service_of

__all__ = ["router"]

router = APIRouter()

_LIMIT: dict[str, Any] = {
    "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 0}}],
}
_NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"description": "the caller has no request with this id on its way"}
}


@router.get(
    "/v1/queue",
    openapi_extra=_LIMIT,
    responses={400: {"description": "the limit is no whole number"}},
)
async def show_queue(request: Request) -> JSONResponse:
    """Who runs, who waits, in which order, and until when by prediction; the last minutes, too."""
    limit = request.query_params.get("limit")
    if limit is not None and not (limit.isascii() and limit.isdecimal() and len(limit) < 10):
        raise InvalidParameterError("limit must be a whole number of rows, such as 50", param="limit")
    # A reply of its own: the framework would look at each of a thousand rows before it writes them.
    return JSONResponse(service_of(request).queue.queue(limit=None if limit is None else int(limit)))


@router.get("/v1/queue/{request_id}", responses=_NOT_FOUND)
async def show_request(request: Request, request_id: str) -> dict[str, object]:
    """One's own request on its way: its place, when it is predicted to be done, how far it is."""
    return service_of(request).queue.request(_own(request, request_id))


@router.delete("/v1/queue/{request_id}", responses=_NOT_FOUND)
async def cancel_request(request: Request, request_id: str) -> dict[str, object]:
    """Cancel one's own request. It is answered with the error ``cancelled``; a window that runs is left to end."""
    entry = _own(request, request_id)
    if entry.transcript is not None:  # all but sent
        raise RequestNotFoundError(request_id)
    entry.cancelled.set()
    return {"id": entry.id, "status": "cancelled"}


def _own(request: Request, request_id: str) -> OpenRequest:
    service = service_of(request)
    return service.requests.get(request_id, service.access.caller(request))
