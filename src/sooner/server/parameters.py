"""The form fields of a transcription request, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from sooner.engines.base import DecodingOptions, Engine
from sooner.errors import InvalidParameterError, ModelNotFoundError

__all__ = ["ANY_MODEL", "Parameters", "ResponseFormat", "parse_parameters"]

ANY_MODEL = "whisper-1"
"""OpenAI's name for its hosted Whisper: clients send it, and it means whatever model is served here."""

ResponseFormat = Literal["json", "text", "verbose_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What the client asked for.

    Attributes:
        language: language code, ``None`` to detect.
        response_format: shape of the reply.
        decoding: options of the recognition.
    """

    language: str | None
    response_format: ResponseFormat
    decoding: DecodingOptions


def parse_parameters(fields: Mapping[str, str], engine: Engine) -> Parameters:
    """Check the fields against what ``engine`` can do.

    Fields that change nothing here are ignored, as OpenAI's API does with new ones; fields that would change
    the reply and are not supported are refused.

    Raises:
        InvalidParameterError: a value is missing, malformed or not supported.
        ModelNotFoundError: another model is asked for.
    """
    _check_model(fields, engine)
    _refuse_unsupported(fields)
    return Parameters(
        language=_language(fields.get("language", "").strip(), engine),
        response_format=_response_format(fields.get("response_format") or "json"),
        decoding=DecodingOptions(
            prompt=fields.get("prompt") or None, temperature=_temperature(fields.get("temperature") or "0")
        ),
    )


def _check_model(fields: Mapping[str, str], engine: Engine) -> None:
    model = fields.get("model", "")
    if not model:
        raise InvalidParameterError(f"field 'model' is missing; send {ANY_MODEL}", param="model")
    if model not in (ANY_MODEL, engine.model_id):
        raise ModelNotFoundError(model=model, served=(engine.model_id, ANY_MODEL))


def _refuse_unsupported(fields: Mapping[str, str]) -> None:
    if fields.get("stream", "").strip().lower() not in ("", "false", "0"):
        raise InvalidParameterError("stream=true is not supported; leave it out", param="stream")
    granularities = fields.get("timestamp_granularities[]", "") + fields.get("timestamp_granularities", "")
    if "word" in granularities:
        raise InvalidParameterError(
            "word timestamps are not supported; ask for segment", param="timestamp_granularities"
        )


def _language(value: str, engine: Engine) -> str | None:
    if not value:
        return None
    if value.lower() not in engine.languages:
        raise InvalidParameterError(
            f"model {engine.model_id} does not know language {value!r}; it knows {', '.join(engine.languages)}",
            param="language",
        )
    return value.lower()


def _response_format(value: str) -> ResponseFormat:
    for known in get_args(ResponseFormat):
        if value == known:
            return known  # type: ignore[no-any-return]
    known_names = ", ".join(get_args(ResponseFormat))
    raise InvalidParameterError(
        f"response_format {value!r} is not supported; use one of: {known_names}", param="response_format"
    )


def _temperature(value: str) -> float:
    try:
        temperature = float(value)
    except ValueError:
        temperature = math.nan
    if not 0 <= temperature <= 1:
        raise InvalidParameterError(
            f"temperature must be a number between 0 and 1, not {value!r}", param="temperature"
        )
    return temperature
