"""The journal: what it says, and that it never takes an engine down."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from sooner import Estimator, policy_named
from sooner.errors import ConfigurationError
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


def test_a_full_disk_ends_the_journal_and_not_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    queue = watched(Path("/dev/full"))
    with caplog.at_level(logging.ERROR, logger="vllm.sooner"):
        queue.add_request(FakeRequest(request_id="r"))
        assert queue.pop_request().request_id == "r"
    assert caplog.text.count("The journal of the queue ends here") == 1


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sooner\.journal_path: .*Is a directory"):
        Journal(tmp_path)
