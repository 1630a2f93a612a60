"""Reads what a scheduler's queue did and replays it with a plain scan of all that waits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Line = dict[str, Any]
WINDOW_S, TOKEN_S = 0.033, 0.0012  # the plugin's defaults, as documented


QUEUE_EVENTS = frozenset({"added", "taken", "removed"})


def read_journal(path: Path) -> list[Line]:
    """What the queue did; the steps and what is finished are left out."""
    return [line for line in read_all(path) if line["event"] in QUEUE_EVENTS]


def read_all(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@dataclass(frozen=True)
class Decision:
    """Which upload was started, which should have been, and among how many."""

    taken: str
    expected: str
    num_waiting: int
    oldest: str


def replay(lines: Sequence[Line], policy: str) -> list[Decision]:
    """Every start, beside what the definition of ``policy`` gives for arrivals, estimates and that second."""
    tokens = estimates_by_upload(lines)
    waiting: list[Line] = []
    decisions = []
    for line in lines:
        if line["event"] == "added":
            waiting.append(line)
            continue
        if line["event"] == "taken":
            best = min(next_chunks(waiting), key=lambda chunk: _rank(chunk, tokens, policy, line["now_s"]))
            decisions.append(
                Decision(
                    taken=line["request_id"],
                    expected=best["request_id"],
                    num_waiting=len({w["upload_id"] for w in waiting}),
                    oldest=min(waiting, key=lambda w: w["arrival_s"])["request_id"],
                )
            )
        waiting = [other for other in waiting if other["request_id"] != line["request_id"]]
    assert decisions, "nothing was decided"
    assert not waiting, "requests were left in the queue"
    return decisions


def next_chunks(waiting: Iterable[Line]) -> list[Line]:
    """Of each upload the first chunk that waits: it stands for the upload, and no other may start before it."""
    first: dict[str, Line] = {}
    for line in waiting:
        if line["upload_id"] not in first or line["number"] < first[line["upload_id"]]["number"]:
            first[line["upload_id"]] = line
    return list(first.values())


def estimates_by_upload(lines: Iterable[Line]) -> dict[str, dict[int, int]]:
    """n̂ of each chunk, by upload and index: the whole upload, also of chunks that came later."""
    tokens: dict[str, dict[int, int]] = {}
    for line in lines:
        tokens.setdefault(line["upload_id"], {})[line["number"]] = line["estimated_output_tokens"]
    return tokens


def _rank(line: Line, tokens: dict[str, dict[int, int]], policy: str, now_s: float) -> tuple[float, ...]:
    of_upload = tokens[line["upload_id"]]
    assert line["num_output_tokens"] == 0, "this replay knows no preemption"
    if policy == "sjf":
        left = [n for index, n in of_upload.items() if index >= line["number"]]
        return (round(len(left) * WINDOW_S + sum(left) * TOKEN_S, 9), line["arrival_s"], line["number"])
    size_s = len(of_upload) * WINDOW_S + sum(of_upload.values()) * TOKEN_S
    ratio = (now_s - line["arrival_s"] + size_s) / size_s
    return (-round(ratio, 9), line["arrival_s"], line["number"])
