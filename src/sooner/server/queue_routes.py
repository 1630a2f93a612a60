"""Watching the queue, one's own request in it, and taking that out."""

from __future__ import annotations

from fastapi import APIRouter, Request

from sooner.server.responses import queue_body
from sooner.server.routes import service_of

__all__ = ["router"]

router = APIRouter()


@router.get("/v1/queue")
async def show_queue(request: Request) -> dict[str, object]:
    """Who runs, who waits, in which order, and until when by prediction."""
    service = service_of(request)
    scheduler = service.dispatcher.scheduler
    return queue_body(
        scheduler.statistics(),
        scheduler.forecast(service.clock.now_s()),
        num_arriving=service.intake.num_arriving,
    )
