"""From Sooner's errors to OpenAI's error replies; the only place that knows HTTP status codes."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from sooner.errors import (
    AdmissionError,
    AudioTooLongError,
    AuthenticationError,
    BacklogTooLargeError,
    ClientLimitError,
    DeadlineError,
    DecodedTooLargeError,
    EngineError,
    EngineLostError,
    InvalidParameterError,
    ModelNotFoundError,
    PriorityError,
    QueueFullError,
    RequestCancelledError,
    RequestError,
    RequestIdTakenError,
    RequestNotFoundError,
    ServiceClosedError,
    SoonerError,
    SpoolFullError,
    UnreadableAudioError,
    UploadTimeoutError,
    UploadTooLargeError,
)

__all__ = ["code_of", "error_response", "install_error_handlers", "log_fault", "status_of"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    type: str
    code: str


_INVALID = "invalid_request_error"
_BUSY = "overloaded_error"
_REPLIES: dict[type[SoonerError], _Reply] = {
    AudioTooLongError: _Reply(413, _INVALID, "audio_too_long"),
    AuthenticationError: _Reply(401, "authentication_error", "invalid_api_key"),
    BacklogTooLargeError: _Reply(503, _BUSY, "backlog_too_large"),
    ClientLimitError: _Reply(429, "rate_limit_error", "client_limit"),
    DeadlineError: _Reply(504, "timeout_error", "deadline"),
    DecodedTooLargeError: _Reply(413, _INVALID, "decoded_too_large"),
    QueueFullError: _Reply(503, _BUSY, "queue_full"),
    SpoolFullError: _Reply(503, _BUSY, "spool_full"),
    AdmissionError: _Reply(503, _BUSY, "refused"),
    InvalidParameterError: _Reply(400, _INVALID, "invalid_parameter"),
    ModelNotFoundError: _Reply(404, _INVALID, "model_not_found"),
    PriorityError: _Reply(403, "permission_error", "priority_not_open"),
    RequestCancelledError: _Reply(409, _INVALID, "cancelled"),
    RequestIdTakenError: _Reply(409, _INVALID, "request_id_taken"),
    RequestNotFoundError: _Reply(404, _INVALID, "request_not_found"),
    UnreadableAudioError: _Reply(400, _INVALID, "unreadable_audio"),
    UploadTimeoutError: _Reply(408, _INVALID, "upload_timeout"),
    UploadTooLargeError: _Reply(413, _INVALID, "upload_too_large"),
    RequestError: _Reply(400, _INVALID, "bad_request"),
    ServiceClosedError: _Reply(503, _BUSY, "shutting_down"),
    EngineLostError: _Reply(500, "server_error", "engine_lost"),
    EngineError: _Reply(500, "server_error", "engine_failed"),
    SoonerError: _Reply(500, "server_error", "internal_error"),
}
_CODES = {404: "not_found", 405: "method_not_allowed"}  # of the framework's own errors
_PARAMS: dict[type[SoonerError], str] = {
    AudioTooLongError: "file",
    DecodedTooLargeError: "file",
    DeadlineError: "deadline_s",
    PriorityError: "priority",
    UnreadableAudioError: "file",
    UploadTooLargeError: "file",
    UploadTimeoutError: "file",
    ModelNotFoundError: "model",
}


def _body(message: str, kind: str, param: str | None, code: str | None) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _reply_of(error: BaseException) -> _Reply:
    """The row of the nearest kind that has one; what Sooner did not raise on purpose is a bug of the server."""
    kinds = (*type(error).__mro__, SoonerError)
    return next(_REPLIES[kind] for kind in kinds if kind in _REPLIES)


def code_of(error: BaseException) -> str:
    """The code that clients, log and metrics know an error by."""
    return _reply_of(error).code


def status_of(error: BaseException) -> int:
    """The HTTP status of the reply for an error."""
    return _reply_of(error).status


def _message_of(error: SoonerError) -> str:
    """What the client is told; of a fault of ours no more than that: details may name files of this machine."""
    if isinstance(error, EngineLostError):
        return str(error).removesuffix("; send the request again")  # that was done for the client, and in vain
    if isinstance(error, EngineError):
        return "the engine failed on this recording; the server's log says more"
    return "the server made a mistake; its log says more" if status_of(error) == 500 else str(error)


def error_response(error: SoonerError) -> Response:
    """The reply for an error: its status, OpenAI's body, and whether and when retrying helps."""
    reply = _reply_of(error)
    param = getattr(error, "param", None) or _PARAMS.get(type(error))
    headers = {}
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(retry_after_s))
    if isinstance(error, AuthenticationError):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, UploadTimeoutError | RequestCancelledError):
        headers["Connection"] = "close"  # the rest of the body is not wanted any more
    if isinstance(error, RequestCancelledError | DeadlineError | EngineError):
        headers["x-should-retry"] = "false"  # OpenAI's client would send a 409 and a 5xx twice more
    return JSONResponse(
        _body(_message_of(error), reply.type, param, reply.code), status_code=reply.status, headers=headers
    )


def log_fault(error: SoonerError, request: Request) -> None:
    """Say in the log what the client is not told. That there is no room, and the like, is said in the journal."""
    if status_of(error) == 500:
        request_id = request.headers.get("x-request-id")
        _log.warning("%s %s, request %r: %s", request.method, request.url.path, request_id, error)


def install_error_handlers(app: FastAPI) -> None:
    """Make every error of ``app`` that is raised on purpose, its own and the framework's, an OpenAI error body."""

    @app.exception_handler(SoonerError)
    async def on_sooner_error(request: Request, error: SoonerError) -> Response:
        log_fault(error, request)
        return error_response(error)

    @app.exception_handler(HTTPException)
    async def on_http_exception(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return JSONResponse(
            _body(message, _INVALID, None, _CODES.get(error.status_code)),
            status_code=error.status_code,
            headers=error.headers,
        )
