"""The HTTP endpoints: thin, each a few calls into the service."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from sooner.engines.base import Engine
from sooner.errors import ModelNotFoundError
from sooner.server.access import Access
from sooner.server.learned import LearnedFile
from sooner.server.metrics import ServiceMetrics
from sooner.server.parameters import ANY_MODEL
from sooner.server.requests import OpenRequests
from sooner.server.upload import Intake
from sooner.service.clock import Clock
from sooner.service.dispatcher import Dispatcher
from sooner.service.prober import Prober

__all__ = ["Service", "router", "service_of"]


router = APIRouter()


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
    started_at_s: int


def service_of(request: Request) -> Service:
    """The service of the application that a request came to."""
    service: Service = request.app.state.service
    return service


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, object]:
    """The model served here."""
    return {"object": "list", "data": [_model(service_of(request))]}


@router.get("/v1/models/{model_id:path}")
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


@router.api_route("/health", methods=["GET", "HEAD"])
async def health(request: Request) -> Response:
    """200 while requests are taken, 503 once the server is shutting down."""
    if service_of(request).dispatcher.closing:
        return JSONResponse({"status": "closing"}, status_code=503)
    return JSONResponse({"status": "ok"})
