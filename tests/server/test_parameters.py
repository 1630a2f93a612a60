"""What is asked for where nothing is, and who may ask for what."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.audio.probe import Audio
from sooner.engines.base import Task
from sooner.engines.fake import FakeEngine
from sooner.errors import InvalidParameterError, PriorityError
from sooner.server.access import Caller, Priority
from sooner.server.parameters import FIELDS, Parameters, parse_parameters
from sooner.server.requests import OpenRequest
from sooner.server.transcriptions import _job_request


def parsed(
    fields: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    *,
    task: Task = "transcribe",
    highest: Priority = "standard",
) -> Parameters:
    form = {"model": "whisper-1"} | (fields or {})
    return parse_parameters(form, headers or {}, engine=FakeEngine(), task=task, highest=highest)


def test_defaults() -> None:
    found = parsed()
    assert (found.response_format, found.stream, found.granularities) == ("json", False, {"segment"})
    assert (found.language, found.deadline_s) == (None, None)
    assert (found.decoding.temperature, found.decoding.task, found.decoding.words) == (0.0, "transcribe", False)


@pytest.mark.parametrize(("highest", "priority"), [("interactive", 1), ("standard", 1), ("batch", 2)])
def test_who_asks_for_no_class_gets_standard_or_what_is_open_to_them(highest: Priority, priority: int) -> None:
    assert parsed(highest=highest).priority == priority


@pytest.mark.parametrize(
    ("asked", "highest", "priority"),
    [("interactive", "interactive", 0), ("standard", "interactive", 1), ("batch", "standard", 2)],
)
def test_a_class_that_is_open(asked: str, highest: Priority, priority: int) -> None:
    assert parsed({"priority": asked}, highest=highest).priority == priority
    assert parsed(headers={"x-sooner-priority": asked}, highest=highest).priority == priority


@pytest.mark.parametrize(("asked", "highest"), [("interactive", "standard"), ("standard", "batch")])
def test_a_class_that_is_not(asked: str, highest: Priority) -> None:
    with pytest.raises(PriorityError, match=f"highest that is: {highest}"):
        parsed({"priority": asked}, highest=highest)


def test_a_field_counts_where_a_header_says_something_else() -> None:
    headers = {"x-sooner-priority": "interactive", "x-sooner-deadline-s": "1"}
    found = parsed({"priority": "batch", "deadline_s": "2.5"}, headers)
    assert (found.priority, found.deadline_s) == (2, 2.5)
    with pytest.raises(InvalidParameterError) as refused:
        parsed({"deadline_s": "soon"}, {"x-sooner-deadline-s": "1"})
    assert refused.value.param == "deadline_s"


class Noting(dict[str, str]):
    """A form that takes note of what it is asked for."""

    def __init__(self, **fields: str) -> None:
        super().__init__(fields)
        self.names: set[str] = set()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.names.add(name)
        return super().get(name, default)


def test_the_fields_that_are_kept_are_those_that_are_looked_at() -> None:
    fields = Noting(model="whisper-1")
    parse_parameters(fields, {}, engine=FakeEngine(), task="transcribe", highest="standard")
    assert fields.names == FIELDS


def test_a_translation_has_no_language() -> None:
    assert parsed({"language": "tlh"}, task="translate").language is None
    assert parsed({"language": "EN"}).language == "en"


@pytest.mark.parametrize("value", ["true", "True", " 1 "])
def test_ways_to_say_yes(value: str) -> None:
    assert parsed({"stream": value}).stream


def test_a_deadline_counts_from_the_head_of_the_request() -> None:
    caller = Caller(client="key:team", highest="standard")
    entry = OpenRequest("a", caller, 100.0)
    audio = Audio(path=Path("a"), num_samples=16_000)
    job = _job_request(entry, audio, parsed({"deadline_s": "5"}))
    assert (job.allowed_s, job.allowed_from_s, job.client, job.priority) == (5.0, 100.0, "key:team", 1)
    assert _job_request(entry, audio, parsed()).allowed_s is None
