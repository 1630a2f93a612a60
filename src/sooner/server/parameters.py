"""The form fields of a transcription or translation request, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from sooner.engines.base import DecodingOptions, Engine, Task
from sooner.errors import InvalidParameterError, ModelNotFoundError, PriorityError
from sooner.server.access import PRIORITIES, Priority

__all__ = [
    "ANY_MODEL",
    "DEADLINE_HEADER",
    "FIELDS",
    "PRIORITY_HEADER",
    "Granularity",
    "Parameters",
    "ResponseFormat",
    "parse_parameters",
]

ANY_MODEL = "whisper-1"
"""OpenAI's name for its hosted Whisper: clients send it, and it means whatever model is served here."""

PRIORITY_HEADER = "x-sooner-priority"
DEADLINE_HEADER = "x-sooner-deadline-s"

FIELDS = frozenset(
    {
        *("model", "language", "prompt", "response_format", "temperature", "stream", "priority", "deadline_s"),
        *("timestamp_granularities[]", "timestamp_granularities", "include[]", "include"),
    }
)
"""All fields that are looked at, the file apart."""

ResponseFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]
Granularity = Literal["word", "segment"]

_GRANULARITIES = "timestamp_granularities[]"
_STREAMED: tuple[ResponseFormat, ...] = ("json", "text")
_YES_AND_NO = {"true": True, "1": True, "": False, "false": False, "0": False}
_STANDARD = PRIORITIES.index("standard")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What the client asked for.

    Attributes:
        language: language code, ``None`` to detect.
        response_format: shape of the reply.
        granularities: what ``verbose_json`` gives times for.
        stream: whether the text is to be sent as it is recognised.
        decoding: options of the recognition.
        priority: class; see ``access.PRIORITIES``.
        deadline_s: seconds from the begin of the request within which the text is of use; ``None`` for any time.
    """

    language: str | None
    response_format: ResponseFormat
    granularities: frozenset[Granularity]
    stream: bool
    decoding: DecodingOptions
    priority: int
    deadline_s: float | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """Fields and headers of a request; a field counts where a header says something else."""

    fields: Mapping[str, str]
    headers: Mapping[str, str]

    def field(self, name: str) -> str:
        return self.fields.get(name, "").strip()

    def ours(self, field: str, header: str) -> tuple[str, str]:
        """What is asked for, and the name it is asked for by."""
        if self.field(field):
            return self.field(field), field
        return self.headers.get(header, "").strip(), header


def parse_parameters(
    fields: Mapping[str, str], headers: Mapping[str, str], *, engine: Engine, task: Task, highest: Priority
) -> Parameters:
    """Check the fields, and the two headers of ours, against what ``engine`` can do and the caller may have.

    Fields that change nothing here are ignored, as OpenAI's API does with new ones; fields that would change
    the reply and are not supported are refused.

    Args:
        fields: the form.
        headers: of the request, with names in lower case.
        engine: what recognises.
        task: what the endpoint is for; a translation has no ``language``, as OpenAI's has none.
        highest: the highest class of priority open to the caller.

    Raises:
        InvalidParameterError: a value is missing, malformed or not supported.
        ModelNotFoundError: another model is asked for.
        PriorityError: a class is asked for that is not open to the caller.
    """
    asked = _Asked(fields, headers)
    _check_model(asked, engine, task)
    _refuse_logprobs(asked)
    response_format = _response_format(asked)
    granularities = _granularities(asked, response_format)
    return Parameters(
        language=_language(asked, engine) if task == "transcribe" else None,
        response_format=response_format,
        granularities=granularities,
        stream=_stream(asked, response_format),
        decoding=DecodingOptions(
            prompt=fields.get("prompt") or None,
            temperature=_temperature(asked),
            task=task,
            words="word" in granularities,
        ),
        priority=_priority(asked, highest),
        deadline_s=_deadline_s(asked),
    )


def _check_model(asked: _Asked, engine: Engine, task: Task) -> None:
    model = asked.field("model")
    if not model:
        raise InvalidParameterError(f"field 'model' is missing; send {ANY_MODEL}", param="model")
    if model not in (ANY_MODEL, engine.model_id):
        raise ModelNotFoundError(model=model, served=(engine.model_id, ANY_MODEL))
    if task == "translate" and not engine.can_translate:
        raise InvalidParameterError(
            f"model {engine.model_id} cannot translate; that needs a server with a multilingual model, such as "
            "sooner serve --model small",
            param="model",
        )


def _refuse_logprobs(asked: _Asked) -> None:
    if "logprobs" in asked.field("include[]") + asked.field("include"):
        raise InvalidParameterError(
            "there are no log probabilities of tokens to include; verbose_json has avg_logprob of each segment",
            param="include",
        )


def _language(asked: _Asked, engine: Engine) -> str | None:
    value = asked.field("language")
    if not value:
        return None
    if value.lower() not in engine.languages:
        raise InvalidParameterError(
            f"model {engine.model_id} does not know language {value!r}; it knows {', '.join(engine.languages)}",
            param="language",
        )
    return value.lower()


def _response_format(asked: _Asked) -> ResponseFormat:
    value = asked.field("response_format") or "json"
    for known in get_args(ResponseFormat):
        if value == known:
            return known  # type: ignore[no-any-return]
    known_names = ", ".join(get_args(ResponseFormat))
    raise InvalidParameterError(
        f"response_format {value!r} is not supported; use one of: {known_names}", param="response_format"
    )


def _granularities(asked: _Asked, response_format: ResponseFormat) -> frozenset[Granularity]:
    """The set asked for; clients send a list as one part a value, or as one part with commas."""
    text = asked.field(_GRANULARITIES) or asked.field("timestamp_granularities")
    values = {value.strip() for value in text.split(",")} - {""}
    unknown = values - set(get_args(Granularity))
    if unknown:
        raise InvalidParameterError(
            f"{_GRANULARITIES} {min(unknown)!r} is not known; send word, segment or both", param=_GRANULARITIES
        )
    if values and response_format != "verbose_json":
        raise InvalidParameterError(
            f"{_GRANULARITIES} needs response_format verbose_json, not {response_format}", param=_GRANULARITIES
        )
    return frozenset(known for known in get_args(Granularity) if known in (values or {"segment"}))


def _stream(asked: _Asked, response_format: ResponseFormat) -> bool:
    value = asked.field("stream")
    stream = _YES_AND_NO.get(value.lower())
    if stream is None:
        raise InvalidParameterError(f"stream must be true or false, not {value!r}", param="stream")
    if stream and response_format not in _STREAMED:
        raise InvalidParameterError(
            f"a stream has response_format {' or '.join(_STREAMED)}, not {response_format}; drop stream or "
            "response_format",
            param="response_format",
        )
    return stream


def _temperature(asked: _Asked) -> float:
    value = asked.field("temperature") or "0"
    temperature = _number(value)
    if not 0 <= temperature <= 1:
        raise InvalidParameterError(
            f"temperature must be a number between 0 and 1, not {value!r}", param="temperature"
        )
    return temperature


def _priority(asked: _Asked, highest: Priority) -> int:
    """The class asked for; of who asks for none, standard, or the highest open to them where that is lower."""
    value, name = asked.ours("priority", PRIORITY_HEADER)
    best = PRIORITIES.index(highest)
    if not value:
        return max(_STANDARD, best)
    if value not in PRIORITIES:
        raise InvalidParameterError(
            f"{name} {value!r} is not known; send one of: {', '.join(PRIORITIES)}", param=name
        )
    priority = PRIORITIES.index(value)
    if priority < best:
        raise PriorityError(priority=value, highest=highest)
    return priority


def _deadline_s(asked: _Asked) -> float | None:
    value, name = asked.ours("deadline_s", DEADLINE_HEADER)
    if not value:
        return None
    deadline_s = _number(value)
    if not 0 < deadline_s < math.inf:
        raise InvalidParameterError(
            f"{name} must be a number of seconds greater than 0, not {value!r}", param=name
        )
    return deadline_s


def _number(text: str) -> float:
    """What the text says, not-a-number where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
