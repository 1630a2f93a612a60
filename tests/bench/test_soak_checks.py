"""The verdicts of the soak test, without a server."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sooner.workload.recordings import clips


@pytest.fixture(scope="module")
def checks() -> Iterator[ModuleType]:
    """``benchmarks/soak_checks.py``, which is in no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
        yield importlib.import_module("soak_checks")


def outcome(checks: ModuleType, **changes: Any) -> Any:
    fields = {
        "kind": "clip",
        "label": "jfk.flac",
        "allowed": frozenset({"done"}),
        "sent_s": 100.0,
        "ended_s": 110.0,
    }
    return checks.Outcome(**(fields | {"status": 200, "code": "done"} | changes))


@pytest.mark.parametrize(
    "end",
    [
        {"status": 200, "code": "done"},
        {"status": 503, "code": "queue_full", "has_retry_after": True},
        {"status": 429, "code": "client_limit", "has_retry_after": True},
        {"status": 400, "code": "unreadable_audio", "allowed": frozenset({"unreadable_audio"})},
        {"status": 504, "code": "deadline", "allowed": frozenset({"deadline"})},
        {"status": 0, "code": "left", "allowed": frozenset({"left"})},
    ],
)
def test_ends_that_are_right(checks: ModuleType, end: dict[str, Any]) -> None:
    assert outcome(checks, **end).fault([]) is None


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"status": 0, "code": "timeout"}, "timeout"),
        ({"status": 0, "code": "broken"}, "broken"),
        ({"status": 503, "code": "queue_full"}, "without Retry-After"),
        ({"status": 500, "code": "queue_full", "has_retry_after": True}, "status 500"),
        ({"status": 500, "code": "internal_error", "allowed": frozenset({"internal_error"})}, "internal_error"),
        ({"status": 504, "code": "deadline"}, "deadline"),
        ({"status": 200, "code": "done", "allowed": frozenset({"unreadable_audio"})}, "done"),
    ],
)
def test_ends_that_are_wrong(checks: ModuleType, end: dict[str, Any], words: str) -> None:
    assert words in outcome(checks, **end).fault([])


def test_a_lost_engine_excuses_only_those_who_were_there(checks: ModuleType) -> None:
    lost = outcome(checks, status=500, code="engine_lost")
    assert lost.fault([105.0]) is None
    assert "no engine" in lost.fault([])
    assert "no engine" in lost.fault([111.0])
    assert "no engine" in lost.fault([10.0])


def test_texts_are_told_apart(checks: ModuleType) -> None:
    said = {clip.path.name: clip.transcript for clip in clips()} | {"silence": ""}
    labels = [clip.path.name for clip in clips()]
    for label in labels:
        assert checks.text_fault(outcome(checks, label=label, text=said[label]), said, labels) is None
        assert checks.closest(said[label], {one: said[one] for one in labels}) == label
    other = outcome(checks, text=said["austen-0870.flac"])
    assert "nearest: austen-0870.flac" in checks.text_fault(other, said, labels)
    assert checks.text_fault(outcome(checks, label="silence", text=""), said, labels) is None
    assert "nobody speaks" in checks.text_fault(outcome(checks, label="silence", text="Thank you."), said, labels)
    assert checks.text_fault(outcome(checks, label="of unknown text", text="what"), said, labels) is None


def test_a_slope_is_that_of_the_time_after_the_warm_up(checks: ModuleType) -> None:
    warming = [(float(second), 100.0 + 5 * min(second, 60)) for second in range(200)]
    assert checks.slope_of(warming).per_min == pytest.approx(0.0, abs=1e-9)
    growing = [(1e6 + second, 200.0 + second / 10) for second in range(240)]
    assert checks.slope_of(growing) == checks.Slope(pytest.approx(6.0), pytest.approx(223.9))
    steps = [(float(second), 490.0 + 50.0 * (second % 40 > 30)) for second in range(300)]
    assert checks.slope_of(steps).per_min == pytest.approx(0.0)  # taken and given back


def test_a_short_run_tells_no_slope(checks: ModuleType) -> None:
    assert checks.slope_of([]) == checks.Slope(None, 0.0)
    assert checks.slope_of([(0.0, 5.0), (150.0, 7.0)]).per_min is None
    short = [(float(second), 100.0) for second in range(150)]
    assert checks.flat("memory", short, most_per_min=1.0, most=200.0).word == "----"
    assert checks.flat("memory", short, most_per_min=1.0, most=99.0).word == "FAIL"


def test_memory_may_neither_grow_nor_be_large(checks: ModuleType) -> None:
    growing = [(float(second), 100.0 + second / 30) for second in range(300)]  # 2 MB a minute
    assert checks.flat("memory", growing, most_per_min=3.0, most=200.0).word == "PASS"
    assert checks.flat("memory", growing, most_per_min=1.0, most=200.0).word == "FAIL"
    assert checks.flat("memory", growing, most_per_min=3.0, most=105.0).word == "FAIL"


def test_answers_must_come_and_be_quick(checks: ModuleType) -> None:
    assert checks.quick("health", [0.001] * 100, 0, most_p99_s=0.1).word == "PASS"
    assert checks.quick("health", [0.001] * 98 + [0.5, 0.5], 0, most_p99_s=0.1).word == "FAIL"
    assert checks.quick("health", [0.001] * 100, 1, most_p99_s=0.1).word == "FAIL"
    assert checks.quick("health", [], 0, most_p99_s=0.1).word == "FAIL"
