"""The HTTP endpoints: thin, each a few calls into the service."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from sooner.engines.base import Engine
from sooner.errors import ModelNotFoundError
from sooner.server.access import Access
from sooner.server.learned import LearnedFile
from sooner.server.metrics import ServiceMetrics
from sooner.server.parameters import ANY_MODEL
from sooner.server.queue_view import QueueView
from sooner.server.requests import OpenRequests
from sooner.server.upload import Intake
from sooner.service.clock import Clock
from sooner.service.dispatcher import Dispatcher
from sooner.service.prober import Prober

__all__ = ["Service", "router", "service_of"]


router = APIRouter()

_PAGE = files("sooner.server").joinpath("page/index.html").read_bytes()
_PAGE_HEADERS = {
    # All of the page is in the one file: whatever else finds its way into it is not to run, load or call anybody.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts that requests are served with; one per application, in ``app.state.service``."""

    engine: Engine
    access: Access
    requests: OpenRequests
    intake: Intake
    prober: Prober
    dispatcher: Dispatcher
    clock: Clock
    learned: LearnedFile | None
    metrics: ServiceMetrics
    queue: QueueView
    started_at_s: int


def service_of(request: Request) -> Service:
    """The service of the application that a request came to."""
    service: Service = request.app.state.service
    return service


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, object]:
    """The model served here."""
    return {"object": "list", "data": [_model(service_of(request))]}


@router.get("/v1/models/{model_id:path}", responses={404: {"description": "Another model is served here"}})
async def retrieve_model(request: Request, model_id: str) -> dict[str, object]:
    """The model served here, by its name."""
    service = service_of(request)
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


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Queue, order and estimates, as Prometheus reads them."""
    body, media_type = service_of(request).metrics.exposition()
    return Response(body, media_type=media_type)


@router.head("/health", include_in_schema=False)
@router.get("/health")
async def health() -> Response:
    """200 for as long as the process serves: whoever restarts what hangs asks here."""
    return JSONResponse({"status": "ok"})


@router.head("/ready", include_in_schema=False)
@router.get("/ready", responses={503: {"description": "not now, and why"}})
async def ready(request: Request) -> Response:
    """200 while an upload would be served, else 503 with the reason: whoever shares out requests asks here."""
    state = service_of(request).queue.state()
    return JSONResponse({"status": "ready"}) if state == "ok" else JSONResponse({"status": state}, 503)


@router.head("/", include_in_schema=False)
@router.get("/", include_in_schema=False)
async def page() -> Response:
    """The queue to look at, and a place to drop a recording."""
    return HTMLResponse(_PAGE, headers=_PAGE_HEADERS)
