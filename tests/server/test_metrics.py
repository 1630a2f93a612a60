"""What is counted and logged of each request: every end has its name, and no client can forge a line."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sooner import Job
from sooner.engines.fake import FakeEngine
from sooner.errors import EngineError, SoonerError
from sooner.server.errors import code_of
from sooner.server.journal import logfmt
from sooner.server.outcome import outcome_of
from sooner.server.tally import Tally
from sooner.service.clock import ManualClock
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve
from .until import until

CLIP = clip_named("austen-0880").path


def post(server: Running, path: Path = CLIP, **fields: str) -> httpx.Response:
    return server.client.post(
        "/v1/audio/transcriptions",
        data={"model": "whisper-1", **fields},
        files={"file": path.read_bytes()},
        headers={"x-request-id": "mine"},
    )


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith("request ")]


def test_a_finished_request_is_counted_by_length_and_class(
    serve: Serve, silent_wav: Callable[[float], Path]
) -> None:
    clock = ManualClock()
    server = serve(gated=True, clock=clock, encode_s=0.5, token_s=0.0, context_s=0.0, learn=False)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, server, silent_wav(60.0))
        server.gate.wait_for_windows(1)
        second = pool.submit(server.post, CLIP, priority="batch")
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        server.gate.open()
        assert (first.result().status_code, second.result().status_code) == (200, 200)
    metrics = server.metrics()
    for name, long, short in (
        ("wait_seconds", 0.0, 2.0),
        ("size_seconds", 1.0, 0.5),
        ("e2e_seconds", 2.0, 3.0),
        ("ttft_seconds", 1.0, 3.0),
        ("slowdown", 2.0, 6.0),
    ):
        labels = (f"sooner_{name}_sum", "30-120 s", "standard"), (f"sooner_{name}_sum", "0-5 s", "batch")
        assert (metrics[labels[0]], metrics[labels[1]]) == pytest.approx((long, short)), name
        assert metrics[f"sooner_{name}_count", "0-5 s", "batch"] == 1
    assert metrics["sooner_service_over_predicted_bucket", "2.0"] == 2
    assert metrics["sooner_service_over_predicted_bucket", "1.5"] == 0
    assert metrics["sooner_audio_seconds_total",] == pytest.approx(62.99)
    assert metrics["sooner_requests_total", "done"] == 2
    assert metrics["sooner_worker_busy_seconds_total",] == 3.0
    assert metrics["sooner_rtfx",] == pytest.approx(62.99 / 3.0)


def test_workers_are_as_busy_as_they_were_in_the_last_minute(serve: Serve) -> None:
    clock = ManualClock()
    server = serve(gated=True, clock=clock, num_workers=2)
    server.gate.open()
    assert ("sooner_worker_utilisation",) not in server.metrics()  # of no time at all
    for _ in range(6):
        assert server.post(CLIP).status_code == 200  # a second of one of the two
    clock.advance(6.0)
    metrics = server.metrics()
    assert (metrics["sooner_workers",], metrics["sooner_worker_utilisation",]) == (2, pytest.approx(6 / 12 / 2))
    clock.advance(60.0)
    assert server.metrics()["sooner_worker_utilisation",] == 0
    assert server.metrics()["sooner_worker_busy_seconds_total",] == 6.0


def test_open_requests_are_counted_by_phase(serve: Serve) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(server.post, CLIP) for _ in range(2)]
        server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        metrics = server.metrics()
        phases = [metrics["sooner_requests_open", phase] for phase in ("arriving", "waiting", "running")]
        assert phases == [0, 1, 1]
        server.gate.open()
        assert [future.result().status_code for future in futures] == [200, 200]


def test_every_end_has_its_name(
    serve: Serve, caplog: pytest.LogCaptureFixture, silent_wav: Callable[[float], Path]
) -> None:
    caplog.set_level(logging.INFO, logger="sooner.server.journal")

    def fail_long_ones(job: Job, _index: int) -> None:
        if job.audio_s > 30:
            raise EngineError("too long for me")

    server = serve(FakeEngine(fail_long_ones), max_audio_s=60.0)
    assert post(server, response_format="text", language="en").status_code == 200
    assert post(server, silent_wav(45.0)).status_code == 500
    assert post(server, silent_wav(90.0)).status_code == 413
    assert post(server, Path(__file__)).status_code == 400
    assert post(server, temperature="hot").status_code == 400
    metrics = server.metrics()
    outcomes = {key[1]: value for key, value in metrics.items() if key[0] == "sooner_requests_total"}
    assert outcomes == {
        "done": 1,
        "engine_failed": 1,
        "audio_too_long": 1,
        "unreadable_audio": 1,
        "invalid_parameter": 1,
    }
    events = ("finished", "failed", "cancelled", "refused")
    assert [metrics["sooner_jobs_total", event] for event in events] == [1, 1, 0, 1]
    assert metrics["sooner_refusals_total", "audio_too_long"] == 1
    lines = log_lines(caplog)
    assert [re.findall(r"outcome=(\S+) status=(\d+)", line)[0] for line in lines] == [
        ("done", "200"),
        ("engine_failed", "500"),
        ("audio_too_long", "413"),
        ("unreadable_audio", "400"),
        ("invalid_parameter", "400"),
    ]
    known = [set(re.findall(r"(\w+)=", line)) for line in lines]
    always = {"id", "client", "outcome", "status", "priority"}
    measured = always | {"upload_s", "audio_s"}
    served = {"size_s", "wait_s", "service_s", "e2e_s", "ttft_s", "windows", "preemptions", "restarts", "tokens"}
    assert known == [measured | served | {"language"}, measured, always, always, always]
    assert lines[0].startswith("request id=mine client=addr:127.0.0.1 outcome=done status=200 priority=standard ")
    assert lines[0].endswith(" windows=1 preemptions=0 restarts=0 tokens=90 language=en")
    assert "window 0" not in caplog.text, "the text of the speech is in the log"


def test_a_client_that_left_is_no_failure(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="sooner.server.journal")
    server = serve(gated=True)
    with server.send(CLIP):
        server.gate.wait_for_windows(1)
    metrics = until(server.metrics, lambda m: ("sooner_requests_total", "client_left") in m)
    assert (metrics["sooner_jobs_total", "cancelled"], metrics["sooner_jobs_total", "failed"]) == (1, 0)
    assert " outcome=client_left status=499 " in log_lines(caplog)[0]
    server.gate.open()


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain-1.2/3:x", "a=plain-1.2/3:x"),
        ("", 'a=""'),
        ("two words", 'a="two words"'),
        ('quo"te', r'a="quo\"te"'),
        ("a=b", 'a="a=b"'),
        ("new\nrequest id=forged\r", r'a="new\nrequest id=forged\r"'),
        ("\u2028\x1b[31m\x7f", r'a="\u2028\u001b[31m\u007f"'),
        ("caf\u00e9", r'a="caf\u00e9"'),
        (1.23456, "a=1.235"),
        (7, "a=7"),
        (None, ""),
    ],
)
def test_a_value_is_one_word_whatever_is_in_it(value: object, written: str) -> None:
    assert logfmt({"a": value}) == written


def every_kind_of_error() -> list[type[SoonerError]]:
    kinds = [SoonerError]
    for kind in kinds:  # grows as it goes
        kinds += kind.__subclasses__()
    return kinds


def test_labels_are_few_whatever_happens() -> None:
    """No label comes from a client: one value for each error code, duration bucket and class."""
    codes = {code_of(kind.__new__(kind)) for kind in every_kind_of_error()}
    assert len(codes) < 40
    assert code_of(ZeroDivisionError()) == "internal_error"
    assert outcome_of(ZeroDivisionError()).status == 500
    tally = Tally()
    for code in codes:
        tally.refused(code)
    families = [family for family in tally.registry.collect() if family.name == "sooner_refusals"]
    assert {sample.labels["reason"] for sample in families[0].samples} == codes


def test_the_page_of_metrics_is_well_formed_after_every_kind_of_request(serve: Serve) -> None:
    server = serve()
    assert server.post(CLIP).status_code == 200
    assert server.post(Path(__file__)).status_code == 400
    names = [family.name for family in text_string_to_metric_families(server.client.get("/metrics").text)]
    assert len(names) == len(set(names))
    assert not [name for name in names if name.endswith("_created")]
