"""What a soak test saw, what must hold of it, and what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from soak_checks import REFUSALS, Check, Outcome, flat, none_waits_for_ever, quick, text_fault
from soak_server import MAX_WAIT_S
from soak_traffic import Recordings

OVERDUE_S = 90.0
"""What those who waited for ``--max-wait-s`` may still wait for each other, and be served, seconds."""

QUEUE_COUNTS = ("num_waiting", "num_running", "num_arriving")

SHARES = {
    "clip": 0.52,
    "long": 0.04,
    "stream": 0.10,
    "hostile": 0.09,
    "form": 0.06,
    "leaves uploading": 0.04,
    "leaves waiting": 0.05,
    "drops its stream": 0.03,
    "deletes": 0.04,
    "hurries": 0.03,
}
"""How often each kind of client comes."""

MOST_P99_S = 0.25
SERVER_MB_PER_MIN, SERVER_MB = 3.0, 1000.0
ENGINE_MB_PER_MIN, ENGINE_MB = 5.0, 1500.0
MORE_FILES, MORE_THREADS = 4, 8


@dataclass(slots=True)
class Seen:
    """Everything that a run saw.

    Attributes:
        outcomes: of the requests of the load.
        alone: text of each clip before the load.
        again: text of each clip after it.
        num_losses: how often the engine was to be killed or stopped.
        losses_s: monotonic seconds at which it was.
        load_from_s: monotonic second at which the load began.
        load_until_s: monotonic second at which the last request of it was over.
        rate_per_s: arrivals a second.
        clip_service_s: seconds in service of a clip, measured.
        audio_service: seconds in service of a second of a long file, measured.
        left_idle: files left on disk when nothing was under way.
        left_stopped: files left on disk after the stop.
        queue: counts of the server's queue at the end.
        stopped: exit code, seconds and processes left, of the stop.
        samples: of the watcher.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    alone: dict[str, str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)
    num_losses: int = 0
    losses_s: list[float] = field(default_factory=list)
    load_from_s: float = 0.0
    load_until_s: float = 0.0
    rate_per_s: float = 0.0
    clip_service_s: float = 0.0
    audio_service: float = 0.0
    left_idle: list[str] = field(default_factory=list)
    left_stopped: list[str] = field(default_factory=list)
    queue: dict[str, int] = field(default_factory=dict)
    stopped: tuple[int | None, float, list[int]] = (None, 0.0, [])
    samples: list[dict[str, Any]] = field(default_factory=list)


def checks_of(seen: Seen, recordings: Recordings, log: str) -> list[Check]:
    """All that must hold; ``log`` is what the server printed."""
    num_lost = len(seen.losses_s)
    lost = Check("the engine was lost as planned", num_lost == seen.num_losses, f"{num_lost} times")
    num_bugs = log.count("Traceback")
    bugs = Check("the server's log tells of no bug", num_bugs == 0, f"{num_bugs} tracebacks")
    return [*_request_checks(seen, recordings), lost, *_watch_checks(seen), *_end_checks(seen, recordings), bugs]


def _request_checks(seen: Seen, recordings: Recordings) -> list[Check]:
    faults = [(one, fault) for one in seen.outcomes if (fault := one.fault(seen.losses_s))]
    wrong = [fault for one in seen.outcomes if (fault := text_fault(one, recordings.said, recordings.clips))]
    num_texts = sum(one.code == "done" and one.label in recordings.said for one in seen.outcomes)
    refused = Counter(one.code for one in seen.outcomes if one.code in REFUSALS)
    kinds = {one.kind for one in seen.outcomes}
    first_faults = "; ".join(f"{one.kind}, {one.label}: {fault}" for one, fault in faults[:5])
    return [
        Check(
            "every request ends in a text or a typed error",
            not faults,
            f"{len(seen.outcomes)} requests, {len(faults)} faults {first_faults}",
        ),
        Check(
            "never a text for another request",
            not wrong,
            f"{num_texts} texts compared, {len(wrong)} wrong {'; '.join(wrong[:5])}",
        ),
        none_waits_for_ever(seen.outcomes, most_s=MAX_WAIT_S + OVERDUE_S),
        Check("overload is refused, with Retry-After", bool(refused), f"{dict(refused)}"),
        Check("all kinds of clients took part", kinds == {*SHARES, "flood"}, ", ".join(sorted(kinds))),
    ]


def _watch_checks(seen: Seen) -> list[Check]:
    health = [one for one in seen.samples if "health_s" in one]
    looks = [one for one in seen.samples if "server" in one]
    load = [one for one in looks if seen.load_from_s <= one["at_s"] <= seen.load_until_s]
    before = [one["server"] for one in looks if one["at_s"] < seen.load_from_s]
    after = [one["server"] for one in looks[-2:]]
    checks = [
        quick(
            "/health answers, quickly",
            [one["health_s"] for one in health],
            sum(one["failure"] is not None for one in health),
            most_p99_s=MOST_P99_S,
        ),
        flat(
            "memory of the server is flat",
            [(one["at_s"], one["server"]["rss_bytes"] / 2**20) for one in load],
            most_per_min=SERVER_MB_PER_MIN,
            most=SERVER_MB,
        ),
        flat(
            "memory of the last engine is flat",
            _last_engine(load),
            most_per_min=ENGINE_MB_PER_MIN,
            most=ENGINE_MB,
        ),
    ]
    for what, more in (("num_files", MORE_FILES), ("num_threads", MORE_THREADS)):
        first, last = min(one[what] for one in before), min(one[what] for one in after)
        checks.append(
            Check(f"{what[4:]} are as before the load", last <= first + more, f"{first:g}, then {last:g}")
        )
    return checks


def _last_engine(looks: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Memory of the engine's process that was there at the end, MB: one that is replaced starts anew."""
    pids = [engine["pid"] for engine in looks[-1]["engines"]] if looks else []
    return [
        (one["at_s"], engine["rss_bytes"] / 2**20)
        for one in looks
        for engine in one["engines"]
        if engine["pid"] in pids[-1:]
    ]


def _end_checks(seen: Seen, recordings: Recordings) -> list[Check]:
    other = [label for label in recordings.clips if seen.again.get(label) != seen.alone[label]]
    code, took_s, left = seen.stopped
    return [
        Check("nothing is left in the queue", not any(seen.queue.values()), f"{seen.queue}"),
        Check("no upload is left on disk while idle", not seen.left_idle, ", ".join(seen.left_idle) or "none"),
        Check(
            "the same texts as before the load, to the letter",
            not other,
            f"{len(recordings.clips)} clips, others: {', '.join(other) or 'none'}",
        ),
        Check("a stop signal ends it with 0", code == 0, f"exit code {code} after {took_s:.1f} s"),
        Check(
            "nothing is left after it",
            not left and not seen.left_stopped,
            f"processes: {left or 'none'}, files: {', '.join(seen.left_stopped) or 'none'}",
        ),
    ]


def results_of(seen: Seen, checks: Sequence[Check]) -> dict[str, object]:
    """What is kept: the verdicts, and the raw numbers in rows; seconds count from the beginning of the load."""
    begin_s = seen.load_from_s
    health = [one for one in seen.samples if "health_s" in one]
    looks = [one for one in seen.samples if "server" in one]
    return {
        "rate_per_s": round(seen.rate_per_s, 3),
        "clip_service_s": round(seen.clip_service_s, 3),
        "service_s_of_a_long_second": round(seen.audio_service, 4),
        "checks": [{"name": one.name, "result": one.word, "figures": one.figures} for one in checks],
        "ends_by_kind": {
            kind: dict(Counter(one.code for one in seen.outcomes if one.kind == kind))
            for kind in sorted({one.kind for one in seen.outcomes})
        },
        "engine_lost_at_s": [round(loss_s - begin_s, 1) for loss_s in seen.losses_s],
        "requests: kind, label, sent s, ended s, status, code": [
            _request_row(one, begin_s) for one in sorted(seen.outcomes, key=lambda one: one.sent_s)
        ],
        "health: s, ms": [[round(one["at_s"] - begin_s, 1), round(1e3 * one["health_s"], 1)] for one in health],
        "processes: s, then for the server and its engines: pid, MB, files, threads": [
            [round(one["at_s"] - begin_s), *map(_look_row, (one["server"], *one["engines"]))] for one in looks
        ],
    }


def _request_row(one: Outcome, begin_s: float) -> list[object]:
    return [
        one.kind,
        one.label,
        round(one.sent_s - begin_s, 2),
        round(one.ended_s - begin_s, 2),
        one.status,
        one.code,
    ]


def _look_row(look: dict[str, float]) -> list[float]:
    return [look["pid"], round(look["rss_bytes"] / 2**20), look["num_files"], look["num_threads"]]
