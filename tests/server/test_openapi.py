"""What ``/openapi.json`` says is what the server does, whatever is sent to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sooner.engines.fake import FakeEngine
from sooner.errors import AdmissionError, RequestError
from sooner.server.app import make_app
from sooner.server.background import BackgroundServer
from sooner.server.errors import _REPLIES
from sooner.server.options import ServeOptions
from sooner.workload.recordings import clip_named

CLIP = clip_named("austen-0880").path
AUDIO = ("/v1/audio/transcriptions", "/v1/audio/translations")
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
NEVER_AS_THEY_ARE = (AdmissionError, RequestError)  # bases: all that is raised has a kind of its own
BOUNDED = settings(
    max_examples=60, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    options = ServeOptions(port=0, highest_priority="interactive")
    app = make_app(options, engine=FakeEngine(), num_workers=2)
    with BackgroundServer(app, options) as server:
        yield server.url


@pytest.fixture(scope="module")
def api(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


def check(case: schemathesis.Case) -> int:
    """Send it; the reply is one that the schema has. 504 is no mistake of the server: it kept a deadline."""
    status = case.call_and_validate(checks=CHECKS).status_code
    assert status < 500 or status == 504
    return status


@pytest.mark.parametrize("path", AUDIO)
def test_whatever_is_sent(api: Any, path: str) -> None:
    @BOUNDED
    @given(api[path]["POST"].as_strategy())
    def send(case: schemathesis.Case) -> None:
        assert check(case) >= 400  # random bytes are no recording

    send()


@pytest.mark.parametrize("path", AUDIO)
def test_whatever_is_sent_with_a_real_recording(api: Any, path: str) -> None:
    statuses = set()

    @BOUNDED
    @given(api[path]["POST"].as_strategy())
    def send(case: schemathesis.Case) -> None:
        case.body = {**case.body, "file": CLIP.read_bytes(), "model": "whisper-1"}
        statuses.add(check(case))

    send()
    assert {200, 400, 504} <= statuses


def test_nothing_that_is_sent_elsewhere_breaks_the_server(api: Any) -> None:
    operations = [one.ok() for one in api.get_all_operations() if one.ok().path not in AUDIO]
    assert len(operations) >= 5

    @BOUNDED
    @given(st.one_of(operation.as_strategy() for operation in operations))
    def send(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=[not_a_server_error])

    send()


@pytest.mark.parametrize("path", AUDIO)
def test_the_schema_names_all_that_is_there(url: str, path: str) -> None:
    operation = httpx.get(f"{url}/openapi.json").json()["paths"][path]["post"]
    form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["file", "model"]
    assert ("language" in form["properties"]) == path.endswith("transcriptions")
    assert {"prompt", "response_format", "temperature", "stream", "priority", "deadline_s"} <= form[
        "properties"
    ].keys()
    ok = operation["responses"].pop("200")
    assert ok["content"].keys() == {"application/json", "text/plain", "text/vtt", "text/event-stream"}
    assert {int(status) for status in operation["responses"]} == {
        *(400, 401, 403, 404, 408, 409, 413, 429, 500, 503, 504)
    }
    for response in operation["responses"].values():
        assert response["content"]["application/json"]["schema"]["required"] == ["error"]


def test_the_guide_names_every_field_header_and_error(url: str) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
    api = httpx.get(f"{url}/openapi.json").json()["paths"]
    operation = api[AUDIO[0]]["post"]
    form = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    headers = [one["name"] for one in operation["parameters"]]
    paths = [re.sub(r"{\w+(:path)?}", "{id}", path) for path in api]
    codes = [reply.code for kind, reply in _REPLIES.items() if kind not in NEVER_AS_THEY_ARE]
    for name in [*form["properties"], *headers, *operation["responses"]["200"]["headers"], *codes, *paths]:
        assert f"`{name}" in guide or f"{name}`" in guide, f"docs/api.md does not name {name}"
