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
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, TextIO, TypeVar

from sooner.errors import TraceError

__all__ = [
    "MAX_AUDIO_S",
    "TraceRequest",
    "is_torn",
    "mean_rate_per_s",
    "read_arrivals",
    "read_trace",
    "write_trace",
]

MAX_AUDIO_S = 7 * 86_400.0
"""Longest recording of a trace, seconds. What is longer than a week was given in milliseconds."""

_MAX_ARRIVAL_S = 1e11  # the year 5138; milliseconds since 1970 are beyond it
_ARRIVAL_NAMES = ("arrival_s", "arrival", "at_s")
_TOKEN_NAMES = ("num_tokens", "tokens")
_WRITTEN_NAMES = ("arrival_s", "audio_s", "speech_s", "num_tokens", "language", "client", "path", "transcript")
_RUN_HEADER = "run"  # a header's kind in run files, see sooner.evidence.run_file
_SECOND_RUN = (
    "a second run begins here (a server that was started again begins one), and a trace is of one run: "
    "keep the lines of one of them"
)
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_Row = Mapping[str, Any]
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        arrival_s: seconds after the start of the trace.
        audio_s: length of the recording, seconds.
        speech_s: seconds of it in which somebody speaks; ``None`` where not known.
        num_tokens: tokens that its text has, ``None`` where not known.
        language: language code that the client names, ``None`` for none.
        client: whose request it is, ``None`` for nobody's in particular.
        path: the recording, ``None`` where only its length is known.
        transcript: what is said in it, ``None`` where not known.
    """

    arrival_s: float
    audio_s: float
    speech_s: float | None = None
    num_tokens: int | None = None
    language: str | None = None
    client: str | None = None
    path: Path | None = None
    transcript: str | None = None

    @property
    def spoken_s(self) -> float:
        """Seconds to transcribe where silence is skipped: those of speech where they are known, else all."""
        return self.audio_s if self.speech_s is None else self.speech_s


def read_trace(path: Path) -> list[TraceRequest]:
    """Read a trace: ``.csv``, ``.tsv``, anything else as JSONL. Sorted by arrival, which then begins at 0.

    The arrival is a number of seconds on any clock; a relative ``path`` is taken from the trace's folder. Other
    columns are passed over. A run file of one run is a trace too.

    Raises:
        TraceError: the file cannot be read, or a line is not a request; says which line and why.
    """
    requests = _read(path, lambda row: _request(row, path.parent))
    requests.sort(key=lambda request: request.arrival_s)
    begin_s = requests[0].arrival_s
    return [replace(request, arrival_s=request.arrival_s - begin_s) for request in requests]


def read_arrivals(path: Path) -> list[float]:
    """Read nothing but the arrivals of a trace, whose lengths may be missing. Sorted, from 0 on, seconds.

    Raises:
        TraceError: as ``read_trace``.
    """
    arrivals_s = sorted(_read(path, _arrival_s))
    return [arrival_s - arrivals_s[0] for arrival_s in arrivals_s]


def _read(path: Path, parse: Callable[[_Row], _Parsed]) -> list[_Parsed]:
    """Parse each line; what ``parse`` says is wrong with one becomes a ``TraceError`` with its number."""
    parsed: list[_Parsed] = []
    try:
        for number, row in _rows(path):
            try:
                parsed.append(parse(row))
            except ValueError as error:
                raise TraceError(path=path, line=number, reason=str(error)) from error
    except UnicodeDecodeError as error:
        raise TraceError(path=path, reason="it is not text in UTF-8") from error
    except OSError as error:
        raise TraceError(path=path, reason=error.strerror or str(error)) from error
    if not parsed:
        raise TraceError(path=path, reason="it holds no request")
    return parsed


def _rows(path: Path) -> Iterator[tuple[int, _Row]]:
    # Spreadsheets begin a file with a byte order mark, which would become part of the first name.
    with path.open(encoding="utf-8-sig", newline="") as file:
        if delimiter := _DELIMITERS.get(path.suffix.lower()):
            yield from _table_rows(path, file, delimiter)
            return
        yield from _json_rows(path, file)


def is_torn(line: str) -> bool:
    """Whether the writer of a file of JSON lines was stopped in the middle of this one.

    Only the last line of a file can have no end.
    """
    if line.endswith("\n"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def _json_rows(path: Path, file: TextIO) -> Iterator[tuple[int, _Row]]:
    """Each object; a run file's header is passed over, and its requests, served or not, are what was sent."""
    num_runs = 0
    for number, line in enumerate(file, start=1):
        if not line.strip() or is_torn(line):
            continue
        row = _json_object(path, number, line)
        if row.get("kind") == _RUN_HEADER:
            num_runs += 1
            if num_runs > 1:
                raise TraceError(path=path, line=number, reason=_SECOND_RUN)
        else:
            yield number, row


def _table_rows(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, _Row]]:
    reader = csv.DictReader(file, delimiter=delimiter)
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        # DictReader's own count stops at the last row that was whole.
        raise TraceError(path=path, line=reader.reader.line_num, reason=str(error)) from error


def _json_object(path: Path, number: int, line: str) -> _Row:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(path=path, line=number, reason=f"it is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise TraceError(path=path, line=number, reason="it is not a JSON object")
    return value


def _request(row: _Row, folder: Path) -> TraceRequest:
    audio_s = _needed(row, "audio_s")
    if not 0 < audio_s <= MAX_AUDIO_S:
        raise ValueError(f"audio_s must be more than 0 and at most a week, in seconds, not {audio_s:g}")
    speech_s = _number(row, "speech_s")
    if speech_s is not None and not 0 <= speech_s <= audio_s:
        raise ValueError(f"speech_s must be at least 0 and at most audio_s, {audio_s:g}, not {speech_s:g}")
    num_tokens = _number(row, *_TOKEN_NAMES)
    if num_tokens is not None and num_tokens < 0:
        raise ValueError(f"num_tokens must be at least 0, not {num_tokens:g}")
    recording = _text(row, "path")
    return TraceRequest(
        arrival_s=_arrival_s(row),
        audio_s=audio_s,
        speech_s=speech_s,
        num_tokens=None if num_tokens is None else round(num_tokens),
        language=_text(row, "language"),
        client=_text(row, "client"),
        path=folder / recording if recording else None,
        transcript=_text(row, "transcript"),
    )


def _arrival_s(row: _Row) -> float:
    arrival_s = _needed(row, *_ARRIVAL_NAMES)
    if abs(arrival_s) > _MAX_ARRIVAL_S:
        raise ValueError(f"arrival_s must be in seconds, at most {_MAX_ARRIVAL_S:g}, not {arrival_s:g}")
    return arrival_s


def _needed(row: _Row, *names: str) -> float:
    number = _number(row, *names)
    if number is None:
        given = ", ".join(str(name) for name, value in row.items() if value not in (None, ""))
        raise ValueError(f"it needs {names[0]}, and has {shorten(given, 100) or 'nothing'}")
    return number


def _number(row: _Row, *names: str) -> float | None:
    """The finite number under the first of ``names`` that is there; ``None`` where none is."""
    for name in names:
        value = row.get(name)
        if value is None or value == "":
            continue
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{name} must be a finite number, not {reprlib.repr(value)}")
        return number
    return None


def _text(row: _Row, name: str) -> str | None:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {reprlib.repr(value)}")
    return value or None


def mean_rate_per_s(trace: Sequence[TraceRequest]) -> float | None:
    """Mean rate of arrival of a trace that is not empty, requests a second; ``None`` where all come at once."""
    span_s = trace[-1].arrival_s - trace[0].arrival_s
    return (len(trace) - 1) / span_s if span_s > 0 else None


def write_trace(path: Path, trace: Iterable[TraceRequest]) -> None:
    """Write a trace as ``read_trace`` reads it: ``.csv``, ``.tsv``, anything else as JSONL. Its folder is made.

    Raises:
        TraceError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            _write(file, _DELIMITERS.get(path.suffix.lower()), trace)
    except OSError as error:
        raise TraceError(path=path, reason=f"it cannot be written: {error.strerror}") from error


def _write(file: TextIO, delimiter: str | None, trace: Iterable[TraceRequest]) -> None:
    if delimiter is None:
        file.writelines(json.dumps(_written(request)) + "\n" for request in trace)
        return
    # Seconds of speech are known of few traces; the others stay the files that they have always been.
    rows = [_written(request) for request in trace]
    names = [name for name in _WRITTEN_NAMES if name != "speech_s" or any(name in row for row in rows)]
    # Lines end in \r\n, the module's default: with another end it leaves a \r in a transcript unquoted.
    writer = csv.DictWriter(file, fieldnames=names, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)


def _written(request: TraceRequest) -> dict[str, Any]:
    values = {name: getattr(request, name) for name in _WRITTEN_NAMES if getattr(request, name) is not None}
    return values | ({"path": str(request.path.resolve())} if request.path else {})
