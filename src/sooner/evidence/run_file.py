"""Runs on disk: one JSON object a line, the same for the load generator, the server and the simulator.

A line is a header (``"kind": "run"``), a served request (``"request"``) or one that got no text (``"failure"``);
requests belong to the header above them, so files can be joined by ``cat``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from sooner.core.latency import LatencyRecord
from sooner.errors import RunFileError
from sooner.workload.trace import is_torn

__all__ = ["Failure", "Run", "RunHeader", "RunWriter", "files_of", "read_runs", "write_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What was run. Reports group by ``policy`` and load, and pair by ``seed``.

    Attributes:
        source: ``bench``, ``server`` or ``simulator``.
        policy: the policy, or the name of the server that was measured.
        preempt: whether jobs gave way between windows, ``None`` where unknown.
        workload: what was sent, in words: lengths, arrivals, shares.
        num_requests: requests sent.
        rate_per_s: requests offered a second, ``None`` for a burst.
        load: ρ, offered load, ``None`` where unknown.
        seed: seed of the trace: equal seeds, equal traffic.
        num_workers: windows served at once, ``None`` where unknown.
        engine: profile or model.
        hardware: what it ran on; ``simulated`` in the simulator.
        version: of Sooner.
        commit: of the source, ``None`` outside a repository.
        started_at: ISO 8601 time, ``None`` in the simulator, whose output depends on its input alone.
        notes: anything else worth keeping, such as options.
    """

    source: str
    policy: str
    workload: str
    num_requests: int
    engine: str
    hardware: str
    version: str
    preempt: bool | None = None
    rate_per_s: float | None = None
    load: float | None = None
    seed: int | None = None
    num_workers: int | None = None
    commit: str | None = None
    started_at: str | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A request without a text.

    Attributes:
        id: the request's id.
        audio_s: its audio, seconds.
        arrival_s: second of arrival.
        failed_s: second at which it was over.
        error: its kind, such as ``HTTP 503`` or ``ServerDisconnectedError``; few distinct ones.
        message: what was said about it.
    """

    id: str
    audio_s: float
    arrival_s: float
    failed_s: float
    error: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: served requests in order of arrival, and the failed ones."""

    header: RunHeader
    records: tuple[LatencyRecord, ...]
    failures: tuple[Failure, ...] = ()


_Line = RunHeader | LatencyRecord | Failure
_KINDS: dict[str, type[_Line]] = {
    "run": RunHeader,
    "request": LatencyRecord,
    "failure": Failure,
}
_KIND_OF = {cls: kind for kind, cls in _KINDS.items()}


class RunWriter:
    """Writes lines as they come, so that a run that is broken off keeps what it had. A context manager.

    Args:
        path: the file, begun anew; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> RunWriter:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("w", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        self._file.close()

    def write(self, line: _Line) -> None:
        """Write one line, without the fields that are not known, and flush it.

        Raises:
            ValueError: a number is not finite.
        """
        assert self._file is not None, "used outside its with block"
        values = {name: getattr(line, name) for name in _RULES[type(line)]}
        known = {name: value for name, value in values.items() if value is not None}
        self._file.write(json.dumps({"kind": _KIND_OF[type(line)], **known}, allow_nan=False) + "\n")
        self._file.flush()


def write_runs(path: Path, runs: Iterable[Run]) -> None:
    """Write whole runs to one file."""
    with RunWriter(path) as writer:
        for run in runs:
            writer.write(run.header)
            requests: list[LatencyRecord | Failure] = [*run.records, *run.failures]
            for line in sorted(requests, key=_arrival_s):
                writer.write(line)


def read_runs(paths: Iterable[Path]) -> list[Run]:
    """Read all runs of all files; a folder stands for the ``*.jsonl`` in it. Requests come in order of arrival.

    A last line that was not written to its end, as of a process that was killed, is passed over.

    Raises:
        RunFileError: a file cannot be read, or a line is not what it should be; says which.
    """
    runs: list[Run] = []
    for path in files_of(paths):
        try:
            with path.open(encoding="utf-8") as file:
                runs.extend(_runs(path, file))
        except (OSError, UnicodeDecodeError) as error:
            raise RunFileError(path=path, reason=str(error)) from error
    return runs


def files_of(paths: Iterable[Path]) -> Iterator[Path]:
    """The files that are meant: a folder stands for the ``*.jsonl`` in it, in order of name.

    Raises:
        RunFileError: there is none in a folder, or a file is named twice, which would count all in it twice.
    """
    seen: set[Path] = set()
    for path in paths:
        found = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not found:
            raise RunFileError(path=path, reason="there is no .jsonl file in this folder")
        for file in found:
            if file.resolve() in seen:
                raise RunFileError(path=file, reason="it is named twice")
            seen.add(file.resolve())
            yield file


def _runs(path: Path, lines: Iterable[str]) -> Iterator[Run]:
    header: RunHeader | None = None
    requests: list[LatencyRecord | Failure] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or is_torn(line):
            continue
        value = _parse(path, number, line)
        if isinstance(value, RunHeader):
            if header is not None:
                yield _run(header, requests)
            header, requests = value, []
        elif header is None:
            raise RunFileError(path=path, line=number, reason="a request before any header")
        else:
            requests.append(value)
    if header is None:
        raise RunFileError(path=path, reason="it holds no run")
    yield _run(header, requests)


def _arrival_s(request: LatencyRecord | Failure) -> float:
    return request.arrival_s


def _run(header: RunHeader, requests: Iterable[LatencyRecord | Failure]) -> Run:
    ordered = sorted(requests, key=_arrival_s)
    return Run(
        header=header,
        records=tuple(one for one in ordered if isinstance(one, LatencyRecord)),
        failures=tuple(one for one in ordered if isinstance(one, Failure)),
    )


def _parse(path: Path, number: int, line: str) -> _Line:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("it is not a JSON object")
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise ValueError(f"kind must be one of {', '.join(_KINDS)}, not {kind!r}")
        return _checked(_KINDS[kind], value)
    except (ValueError, RecursionError) as error:
        raise RunFileError(path=path, line=number, reason=f"it is not a line of a run: {error}") from error


def _checked(cls: type[_Line], value: Mapping[str, Any]) -> _Line:
    """A line as its class; fields of later versions are passed over. ``ValueError`` says what is wrong."""
    given: dict[str, Any] = {}
    for name, (test, expected, required) in _RULES[cls].items():
        one = value.get(name)
        if one is None:
            if required:
                raise ValueError(f"{name} is missing")
        elif not test(one):
            raise ValueError(f"{name} must be {expected}, not {str(one)[:40]!r}")
        else:
            given[name] = one
    end_s = given.get("finished_s", given.get("failed_s"))
    if end_s is not None and end_s < given["arrival_s"]:
        raise ValueError(f"it ends at {end_s:g} s, before its arrival at {given['arrival_s']:g} s")
    return cls(**given)


def _is_finite(value: Any) -> bool:
    # A whole number beyond the range of a float has no place among seconds; isfinite() would raise.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_Rule = tuple[Callable[[Any], bool], str]
_BY_TYPE: dict[str, _Rule] = {
    "str": (lambda value: isinstance(value, str), "text"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (_is_whole, "a whole number"),
    "float": (_is_finite, "a finite number"),
    "Mapping[str, Any]": (lambda value: isinstance(value, dict), "an object"),
}
_AT_LEAST_0: _Rule = (lambda value: _is_finite(value) and value >= 0, "a finite number of at least 0")
_ABOVE_0: _Rule = (lambda value: _is_finite(value) and value > 0, "a finite number above 0")
_COUNT: _Rule = (lambda value: _is_whole(value) and value >= 0, "a whole number of at least 0")
_BY_NAME: dict[str, _Rule] = {
    "audio_s": _AT_LEAST_0,
    "load": _AT_LEAST_0,
    "num_preemptions": _COUNT,
    "num_requests": _COUNT,
    "num_tokens": _COUNT,
    "num_windows": _COUNT,
    "rate_per_s": _ABOVE_0,
    "service_s": _AT_LEAST_0,
    "size_s": _ABOVE_0,
    "speech_s": _AT_LEAST_0,
    "wait_s": _AT_LEAST_0,
    "word_error_rate": _AT_LEAST_0,
}


def _rules(cls: type[_Line]) -> dict[str, tuple[Callable[[Any], bool], str, bool]]:
    """For each field a test, what it asks for in words, and whether the field must be there."""
    rules = {}
    for one in fields(cls):
        test, expected = _BY_NAME.get(one.name) or _BY_TYPE[str(one.type).removesuffix(" | None")]
        rules[one.name] = (test, expected, one.default is MISSING and one.default_factory is MISSING)
    return rules


_RULES = {cls: _rules(cls) for cls in _KINDS.values()}
