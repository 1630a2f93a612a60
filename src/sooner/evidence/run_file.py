"""Runs on disk: one JSON object a line, the same for the load generator, the server and the simulator.

A line is a header (``"kind": "run"``), a served request (``"request"``) or one that got no text (``"failure"``);
requests belong to the header above them, so files can be joined by ``cat``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from sooner.core.latency import LatencyRecord
from sooner.errors import RunFileError

__all__ = ["Failure", "Run", "RunHeader", "RunWriter", "read_runs", "write_runs"]


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


_KINDS: dict[str, type[RunHeader | LatencyRecord | Failure]] = {
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

    def write(self, line: RunHeader | LatencyRecord | Failure) -> None:
        """Write one line, without the fields that are not known, and flush it."""
        assert self._file is not None, "used outside its with block"
        known = {name: value for name, value in asdict(line).items() if value is not None}
        self._file.write(json.dumps({"kind": _KIND_OF[type(line)], **known}) + "\n")
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

    Raises:
        RunFileError: a file cannot be read, or a line is not what it should be; says which.
    """
    runs: list[Run] = []
    for path in _files(paths):
        try:
            with path.open(encoding="utf-8") as file:
                runs.extend(_runs(path, file))
        except (OSError, UnicodeDecodeError) as error:
            raise RunFileError(path=path, reason=str(error)) from error
    return runs


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = sorted(path.glob("*.jsonl"))
        if not found:
            raise RunFileError(path=path, reason="there is no .jsonl file in this folder")
        yield from found


def _runs(path: Path, lines: Iterable[str]) -> Iterator[Run]:
    header: RunHeader | None = None
    requests: list[LatencyRecord | Failure] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
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


def _parse(path: Path, number: int, line: str) -> RunHeader | LatencyRecord | Failure:
    try:
        value = json.loads(line)
        cls = _KINDS[value.pop("kind")]
        known = {one.name for one in fields(cls)}
        return cls(**{name: given for name, given in value.items() if name in known})
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        reason = f"it is not a line of a run ({type(error).__name__}: {error})"
        raise RunFileError(path=path, line=number, reason=reason) from error
