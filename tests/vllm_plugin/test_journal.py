"""The journal: what it says, and that it never takes an engine down."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sooner import Estimator, policy_named
from sooner.errors import ConfigurationError
from sooner.vllm_plugin.chunk import lone_request
from sooner.vllm_plugin.journal import Journal
from sooner.vllm_plugin.request_queue import PolicyRequestQueue
from tests.vllm_plugin.test_chunk import FakeRequest


def watched(path: Path) -> PolicyRequestQueue:
    return PolicyRequestQueue(policy_named("sjf"), Estimator(), observer=Journal(path))


def test_a_line_for_every_coming_and_going(tmp_path: Path) -> None:
    queue = watched(tmp_path / "j.jsonl")
    queue.add_request(FakeRequest(request_id="r", arrival_time=5.0, max_tokens=9))
    queue.pop_request()
    lines = [json.loads(line) for line in (tmp_path / "j.jsonl").read_text().splitlines()]
    assert [(line["event"], line["request_id"]) for line in lines] == [("added", "r"), ("taken", "r")]
    assert lines[0]["arrival_s"] == 5.0
    assert lines[0]["estimated_output_tokens"] == 9


@dataclass
class FakeCached:
    resumed_req_ids: Sequence[str] = ()


@dataclass
class FakeOutput:
    """The plan of a step, as far as the journal looks at it."""

    num_scheduled_tokens: Mapping[str, int]
    scheduled_new_reqs: Sequence[object] = ()
    scheduled_cached_reqs: FakeCached = field(default_factory=FakeCached)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_for_every_step_when_its_tokens_are_there(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    first = FakeOutput({"a": 4, "b": 4, "c": 1}, ["a"], FakeCached(["b"]))
    second = FakeOutput({"a": 1, "b": 1})
    journal.now_s = 5.0
    journal.planned(first)
    journal.now_s = 5.5  # planned while the first one runs
    journal.planned(second)
    assert lines_of(tmp_path / "j.jsonl") == []
    journal.done(first, done_s=6.0)
    journal.done(second, done_s=6.25)
    assert lines_of(tmp_path / "j.jsonl") == [
        {"event": "step", "now_s": 5.0, "done_s": 6.0, "num_running": 3, "num_admitted": 2},
        {"event": "step", "now_s": 5.5, "done_s": 6.25, "num_running": 2, "num_admitted": 0},
    ]


def test_a_step_without_work_is_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    idle = FakeOutput({})
    journal.planned(idle)
    journal.done(idle, done_s=6.0)
    assert lines_of(tmp_path / "j.jsonl") == []


def test_what_bounds_the_engine_and_what_is_finished(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    journal.engine({"max_running": 8}, now_s=1.0)
    request = FakeRequest(request_id="r", max_tokens=9)
    journal.finished(request, lone_request(request), now_s=7.0)
    assert lines_of(tmp_path / "j.jsonl") == [
        {"event": "engine", "now_s": 1.0, "max_running": 8},
        {
            "event": "finished",
            "now_s": 7.0,
            "request_id": "r",
            "upload_id": "r",
            "number": 0,
            "num_chunks": 1,
            "audio_s": None,
            "estimated_output_tokens": 9,
            "num_output_tokens": 0,
        },
    ]


def test_a_full_disk_ends_the_journal_and_not_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    queue = watched(Path("/dev/full"))
    with caplog.at_level(logging.ERROR, logger="vllm.sooner"):
        queue.add_request(FakeRequest(request_id="r"))
        assert queue.pop_request().request_id == "r"
    assert caplog.text.count("The journal of the queue ends here") == 1


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sooner\.journal_path: .*Is a directory"):
        Journal(tmp_path)
