"""What the order in force is under load, and where it shows: ``/metrics``, ``/v1/queue``, the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sooner.service.clock import ManualClock
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve
from .until import until

CLIP = clip_named("austen-0880").path
NAMES = {
    "sooner_jobs_waiting": "gauge",
    "sooner_jobs_running": "gauge",
    "sooner_backlog_seconds": "gauge",
    "sooner_jobs": "counter",
    "sooner_jobs_submitted": "counter",
    "sooner_preemptions": "counter",
    "sooner_order": "gauge",
    "sooner_order_switches": "counter",
    "sooner_kappa": "gauge",
    "sooner_cost_seconds": "gauge",
    "sooner_prediction_error": "gauge",
    "sooner_predicted_tokens": "counter",
    "sooner_tokens": "counter",
    "sooner_predicted_service_seconds": "counter",
    "sooner_service_seconds": "counter",
    "sooner_audio_seconds": "counter",
    "sooner_e2e_seconds": "histogram",
    "sooner_engine_ready": "gauge",
    "sooner_engine_restarts": "counter",
    "sooner_refusals": "counter",
    "sooner_requests": "counter",
    "sooner_requests_open": "gauge",
    "sooner_restarts": "counter",
    "sooner_service_over_predicted": "histogram",
    "sooner_size_seconds": "histogram",
    "sooner_slowdown": "histogram",
    "sooner_ttft_seconds": "histogram",
    "sooner_wait_seconds": "histogram",
    "sooner_worker_busy_seconds": "counter",
    "sooner_worker_utilisation": "gauge",
    "sooner_workers": "gauge",
}


def test_metrics_before_the_first_job(serve: Serve) -> None:
    server = serve(kappa=2.0, encode_s=0.5, token_s=0.01, context_s=0.25)
    reply = server.client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    families = list(text_string_to_metric_families(reply.text))
    ours = [family for family in families if family.name.startswith("sooner_")]  # beside those of the process
    assert {family.name: family.type for family in ours} == NAMES
    assert all(family.documentation for family in families)
    metrics = server.metrics()
    assert metrics["sooner_order", "fcfs", "adaptive"] == 1
    assert metrics["sooner_kappa",] == 2.0
    assert [metrics["sooner_cost_seconds", of] for of in ("window", "token", "context")] == [0.5, 0.01, 0.25]
    assert not any(name == "sooner_prediction_error" for name, *_ in metrics)


def test_metrics_tell_how_wrong_predictions_were(serve: Serve) -> None:
    clock = ManualClock()
    server = serve(gated=True, clock=clock, kappa=3.0, encode_s=0.4, token_s=0.0125, learn=False)
    server.gate.open()
    assert server.post(CLIP).status_code == 200  # 2.99 s: 8 tokens, 0.5 s; they turn out 90 and 1 s
    metrics = server.metrics()
    assert metrics["sooner_prediction_error", "tokens"] == pytest.approx(90 / 8 - 1)
    assert metrics["sooner_prediction_error", "service"] == pytest.approx(1 / 0.5 - 1)
    assert (metrics["sooner_predicted_tokens_total",], metrics["sooner_tokens_total",]) == (8, 90)
    assert metrics["sooner_predicted_service_seconds_total",] == pytest.approx(0.5)
    assert metrics["sooner_service_seconds_total",] == pytest.approx(1.0)
    assert metrics["sooner_kappa",] == 3.0
    assert "sooner_offered_load" not in {name for name, *_ in metrics}  # one arrival makes no rate


def start_wave(server: Running, pool: ThreadPoolExecutor, paths: list[Path]) -> list[Callable[[], httpx.Response]]:
    """Send recordings at once to a server whose windows are held; returns once all but one wait."""
    before = server.queue()["num_submitted"]
    futures = [pool.submit(server.post, path) for path in paths]
    server.wait_for_queue(
        lambda q: q["num_submitted"] == before + len(paths) and q["num_waiting"] == len(paths) - 1
    )
    return [future.result for future in futures]


def test_metrics_and_queue_agree_and_a_rush_changes_the_order(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="sooner")
    server = serve(gated=True, clock=ManualClock())
    with ThreadPoolExecutor(8) as pool:
        results = start_wave(server, pool, [CLIP] * 8)
        queue, metrics = server.queue(), server.metrics()
        assert (queue["policy"], queue["num_running"], queue["num_waiting"]) == ("adaptive", 1, 7)
        assert (queue["order"], queue["num_switches"]) == ("boost", 1)  # sizes are alike
        assert metrics["sooner_order", "boost", "adaptive"] == 1
        assert metrics["sooner_order_switches_total",] == 1
        assert metrics["sooner_jobs_waiting",] == 7
        assert metrics["sooner_jobs_running",] == 1
        assert metrics["sooner_backlog_seconds",] == queue["backlog_s"] > 0
        assert metrics["sooner_jobs_submitted_total",] == queue["num_submitted"] == 8
        assert "sooner_offered_load" in {name for name, *_ in metrics}
        server.gate.open()
        assert [result().status_code for result in results] == [200] * 8
    metrics = server.metrics()
    assert metrics["sooner_jobs_total", "finished"] == 8
    assert metrics["sooner_jobs_waiting",] == metrics["sooner_jobs_running",] == 0
    (told,) = [one.getMessage() for one in caplog.records if one.getMessage().startswith("order ")]
    assert told.startswith("order boost instead of fcfs: 4 wait, ")
    assert "sizes are alike" in told


def test_an_upload_whose_client_left_is_counted_as_such(serve: Serve) -> None:
    server = serve(gated=True)
    with ThreadPoolExecutor(1) as pool:
        (result,) = start_wave(server, pool, [CLIP])
        with server.send(CLIP):
            server.wait_for_queue(lambda q: q["num_waiting"] == 1)
        server.wait_for_queue(lambda q: q["num_cancelled"] == 1)
        server.gate.open()
        assert result().status_code == 200
    metrics = until(server.metrics, lambda m: m["sooner_jobs_total", "cancelled"] == 1)
    events = ("refused", "finished", "cancelled", "failed")
    assert [metrics["sooner_jobs_total", event] for event in events] == [0, 1, 1, 0]
    assert metrics["sooner_requests_total", "client_left"] == 1
    assert metrics["sooner_jobs_submitted_total",] == 2


def test_no_job_is_lost_while_the_order_changes_to_and_fro(
    serve: Serve, silent_wav: Callable[[float], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Each wave is a rush, and long after it a lone clip finds everything calm."""
    caplog.set_level(logging.INFO, logger="sooner")
    clock = ManualClock()
    server = serve(gated=True, clock=clock)
    windows = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 1, 1, 1, 1, 12, 1, 1] * 2
    files = {number: silent_wav(30.0 * number - 1.0) for number in set(windows)}
    for wave in range(1, 4):
        with ThreadPoolExecutor(len(windows)) as pool:
            results = start_wave(server, pool, [files[number] for number in windows])
            assert server.queue()["num_switches"] >= 2 * wave - 1
            server.gate.open(sum(windows))
            for number, result in zip(windows, results, strict=True):
                assert result().json()["text"] == " ".join(f"window {i} of {number}" for i in range(number))
        clock.advance(1e6)
        server.gate.open(1)
        assert server.post(CLIP).json()["text"] == "window 0 of 1"
        assert server.queue()["order"] == "fcfs"
    queue = server.queue()
    assert queue["num_finished"] == queue["num_submitted"] == 3 * (len(windows) + 1)
    switches = [one.getMessage().split() for one in caplog.records if one.getMessage().startswith("order ")]
    assert len(switches) == queue["num_switches"]
    assert [before.rstrip(":") for _, _, _, _, before, *_ in switches] == ["fcfs", *(w[1] for w in switches[:-1])]
