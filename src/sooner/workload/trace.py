"""Traces: which recordings arrive when. What the load generator sends and the simulator plays.

A trace is a list of ``TraceRequest`` in order of arrival. On disk it is JSONL, CSV or TSV with the same names;
only the arrival and the length are needed, so a query of any server's log makes one:

    arrival_s,audio_s
    0.0,4.2
    0.7,611.0
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sooner.errors import TraceError

__all__ = ["TraceRequest", "read_trace", "write_trace"]

_ARRIVAL_NAMES = ("arrival_s", "arrival", "at_s")
_TOKEN_NAMES = ("num_tokens", "tokens")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        arrival_s: seconds after the start of the trace.
        audio_s: length of the recording, seconds.
        num_tokens: tokens that its text has, ``None`` where not known.
        language: language code that the client names, ``None`` for none.
        path: the recording, ``None`` where only its length is known.
        transcript: what is said in it, ``None`` where not known.
    """

    arrival_s: float
    audio_s: float
    num_tokens: int | None = None
    language: str | None = None
    path: Path | None = None
    transcript: str | None = None


def read_trace(path: Path) -> list[TraceRequest]:
    """Read a trace: ``.csv``, ``.tsv``, anything else as JSONL. Sorted by arrival, which then begins at 0.

    The arrival is a number of seconds on any clock; a relative ``path`` is taken from the trace's folder.

    Raises:
        TraceError: the file cannot be read, or a line is not a request; says which line and why.
    """
    try:
        lines = list(_lines(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(path=path, reason=str(error)) from error
    requests = [_request(path, number, line) for number, line in lines]
    if not requests:
        raise TraceError(path=path, reason="it holds no request")
    requests.sort(key=lambda request: request.arrival_s)
    return list(_from_zero(requests))


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8", newline="") as file:
        if delimiter := _DELIMITERS.get(path.suffix.lower()):
            reader = csv.DictReader(file, delimiter=delimiter)
            yield from ((reader.line_num, row) for row in reader)
            return
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, _json_object(path, number, line)


def _json_object(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(path=path, line=number, reason=f"it is not JSON ({error.msg})") from error
    if not isinstance(value, dict):
        raise TraceError(path=path, line=number, reason="it is not a JSON object")
    return value


def _request(path: Path, number: int, row: Mapping[str, Any]) -> TraceRequest:
    try:
        arrival_s = _number(row, *_ARRIVAL_NAMES)
        audio_s = _number(row, "audio_s")
        num_tokens = _number(row, *_TOKEN_NAMES)
        if arrival_s is None or audio_s is None:
            raise ValueError("it needs arrival_s and audio_s")
        if audio_s <= 0:
            raise ValueError(f"audio_s must be more than 0, not {audio_s:g}")
        if num_tokens is not None and num_tokens < 0:
            raise ValueError(f"num_tokens must be at least 0, not {num_tokens:g}")
    except ValueError as error:
        raise TraceError(path=path, line=number, reason=str(error)) from error
    recording = row.get("path") or None
    return TraceRequest(
        arrival_s=arrival_s,
        audio_s=audio_s,
        num_tokens=None if num_tokens is None else round(num_tokens),
        language=row.get("language") or None,
        path=path.parent / recording if recording else None,
        transcript=row.get("transcript") or None,
    )


def _number(row: Mapping[str, Any], *names: str) -> float | None:
    """The finite number under the first of ``names`` that is there; ``None`` where none is."""
    for name in names:
        value = row.get(name)
        if value is None or value == "":
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a number, not {value!r}") from None
        if not math.isfinite(number):
            raise ValueError(f"{name} must be finite, not {number}")
        return number
    return None


def _from_zero(requests: list[TraceRequest]) -> Iterator[TraceRequest]:
    begin_s = requests[0].arrival_s
    for request in requests:
        yield replace(request, arrival_s=request.arrival_s - begin_s)


def write_trace(path: Path, trace: Iterable[TraceRequest]) -> None:
    """Write a trace as JSONL, without the fields that are not known."""
    with path.open("w", encoding="utf-8") as file:
        for request in trace:
            line = {
                "arrival_s": request.arrival_s,
                "audio_s": request.audio_s,
                "num_tokens": request.num_tokens,
                "language": request.language,
                "path": None if request.path is None else str(request.path.resolve()),
                "transcript": request.transcript,
            }
            file.write(json.dumps({key: value for key, value in line.items() if value is not None}) + "\n")
