"""What ``/openapi.json`` says of the endpoints that take a recording."""

from __future__ import annotations

from typing import Any, get_args

from sooner.engines.base import Task
from sooner.server.access import PRIORITIES
from sooner.server.parameters import (
    ANY_MODEL,
    DEADLINE_HEADER,
    PRIORITY_HEADER,
    Granularity,
    ResponseFormat,
)

__all__ = ["ERROR", "RESPONSES", "request_schema"]

_STRING = {"type": "string"}
_NUMBER = {"type": "number"}
_INTEGER = {"type": "integer"}
_PRIORITY = {"type": "string", "enum": list(PRIORITIES)}
_DEADLINE = {"type": "number", "exclusiveMinimum": 0}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": required | (optional or {})}


def _list_of(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def request_schema(task: Task) -> dict[str, Any]:
    """The request of an endpoint, as OpenAPI has it."""
    fields = {
        "language": {
            "type": "string",
            "example": "en",
            "description": "ISO 639-1; detected where it is not given",
        },
        "prompt": {
            "type": "string",
            "description": "text that precedes the recording, to steer spelling and style",
        },
        "response_format": {"type": "string", "enum": list(get_args(ResponseFormat)), "default": "json"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 1, "default": 0},
        "timestamp_granularities[]": _list_of({"type": "string", "enum": list(get_args(Granularity))}),
        "stream": {"type": "boolean", "default": False, "description": "send the text as it is recognised"},
        "priority": _PRIORITY,
        "deadline_s": _DEADLINE | {"description": "seconds within which the text is of use"},
    }
    if task == "translate":
        del fields["language"]
    file = {"type": "string", "format": "binary", "description": "the recording, in any format that FFmpeg reads"}
    form = _object({"file": file, "model": {"type": "string", "example": ANY_MODEL}}, fields)
    headers = {
        "x-request-id": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
        PRIORITY_HEADER: _PRIORITY,
        DEADLINE_HEADER: _DEADLINE,
    }
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}},
        "parameters": [
            {"name": name, "in": "header", "required": False, "schema": schema} for name, schema in headers.items()
        ],
    }


ERROR = _object(
    {
        "error": _object(
            {
                "message": _STRING,
                "type": _STRING,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            }
        )
    }
)
"""The body of every error."""

_REMARKS = {
    "usage": _object({"type": {"const": "duration"}, "seconds": _INTEGER}),
    "warnings": _list_of(_STRING),
}
_WORD = _object({"word": _STRING, "start": _NUMBER, "end": _NUMBER})
_SEGMENT = _object(
    {
        "id": _INTEGER,
        "seek": _INTEGER,
        "start": _NUMBER,
        "end": _NUMBER,
        "text": _STRING,
        "tokens": _list_of(_INTEGER),
        "temperature": _NUMBER,
        "avg_logprob": _NUMBER,
        "compression_ratio": _NUMBER,
        "no_speech_prob": _NUMBER,
    }
)
_PLAIN = _object({"text": _STRING}, _REMARKS)
_VERBOSE = _object(
    {"task": {"enum": list(get_args(Task))}, "language": _STRING, "duration": _NUMBER, "text": _STRING},
    {"words": _list_of(_WORD), "segments": _list_of(_SEGMENT), **_REMARKS},
)
_EVENT = _object(
    {
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "anyOf": [
                    _object({"type": {"const": "transcript.text.delta"}, "delta": _STRING}),
                    _object({"type": {"const": "transcript.text.done"}, "text": _STRING}, _REMARKS),
                    ERROR,
                ]
            },
        }
    }
)
_REPLY_HEADERS = {
    "x-request-id": "id of the request",
    "x-sooner-wait-s": "seconds between arrival and end in which nothing worked on it; not with a stream",
    "x-sooner-service-s": "seconds in which a worker did; not with a stream",
    "x-sooner-size-s": "predicted seconds of service; not with a stream",
    "x-sooner-num-tokens": "tokens decoded; not with a stream",
    "x-sooner-num-windows": "steps on a worker; not with a stream",
    "x-sooner-warning": "what is wrong with the file, where something is",
}
_ERRORS = {
    400: "a field or the recording cannot be used; param names it",
    401: "no valid API key",
    403: "this priority is not open to you",
    404: "another model is served here",
    408: "the upload stalled",
    409: "the id is taken, or the request was cancelled",
    413: "the upload or the recording is too large",
    429: "this client has too much on its way",
    500: "the engine failed",
    503: "no room now, or the server is shutting down",
    504: "the text cannot be there by the deadline",
}

RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The text, in the format asked for.",
        "headers": {name: {"description": text, "schema": _STRING} for name, text in _REPLY_HEADERS.items()},
        "content": {
            "application/json": {"schema": {"anyOf": [_VERBOSE, _PLAIN]}},
            "text/plain": {"schema": _STRING},
            "text/vtt": {"schema": _STRING},
            "text/event-stream": {"schema": _EVENT},
        },
    },
    **{
        status: {"description": description, "content": {"application/json": {"schema": ERROR}}}
        for status, description in _ERRORS.items()
    },
}
"""All that the endpoints may reply."""
