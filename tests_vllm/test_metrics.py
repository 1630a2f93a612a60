"""The stat logger: what vLLM tells its loggers, turned into numbers on the metrics page."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from sooner import Estimator
from sooner.vllm_plugin.chunk import chunks_of_upload
from sooner.vllm_plugin.metrics import RequestTable, SoonerStatLogger, pack_totals

(SHORT,) = chunks_of_upload("u", [10.0], Estimator(kappa=3.0))


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def engine_stats(*, waiting: int = 0, skipped: int = 0, running: int = 0, totals: Any = None) -> Any:
    stats = SimpleNamespace(
        num_waiting_reqs=waiting,
        num_skipped_waiting_reqs=skipped,
        num_running_reqs=running,
        waiting_lora_adapters={},
    )
    if totals is not None:
        pack_totals(stats, overhead_ns=totals[0], num_preemptions=totals[1])
    return stats


def finished(request_id: str | None, *, tokens: int, queued_s: float = 0.5) -> Any:
    return SimpleNamespace(request_id=request_id, num_generation_tokens=tokens, queued_time=queued_s)


@pytest.fixture
def logger(request: pytest.FixtureRequest) -> tuple[str, SoonerStatLogger, RequestTable]:
    """A logger with a policy name, and so with series, of its own."""
    policy, table = request.node.name, RequestTable()
    return policy, SoonerStatLogger(policy, table), table


Logger = tuple[str, SoonerStatLogger, RequestTable]


def test_waiting_counts_what_was_skipped_too(logger: Logger) -> None:
    policy, stat_logger, _ = logger
    stat_logger.record(engine_stats(waiting=3, skipped=2, running=8), None)
    assert value("sooner_requests_waiting", policy=policy) == 5
    assert value("sooner_requests_running", policy=policy) == 8


def test_engines_are_counted_together(logger: Logger) -> None:
    policy, stat_logger, _ = logger
    stat_logger.record(engine_stats(waiting=3, running=8), None, engine_idx=0)
    stat_logger.record(engine_stats(waiting=1, running=2), None, engine_idx=1)
    stat_logger.record(engine_stats(waiting=2, running=8), None, engine_idx=0)
    assert value("sooner_requests_waiting", policy=policy) == 3
    assert value("sooner_requests_running", policy=policy) == 10


def test_a_finished_chunk_is_held_against_its_estimate(logger: Logger) -> None:
    policy, stat_logger, table = logger
    table.put("r", SHORT)
    stat_logger.record(None, SimpleNamespace(finished_requests=[finished("r", tokens=45, queued_s=7.0)]))
    labels = {"policy": policy, "audio": "5-15 s"}
    assert value("sooner_predicted_output_tokens_total", **labels) == 30
    assert value("sooner_output_tokens_total", **labels) == 45
    assert value("sooner_output_tokens_ratio_sum", **labels) == 1.5
    assert value("sooner_queue_wait_seconds_sum", **labels) == 7.0
    assert len(table) == 0


def test_a_request_without_audio_waits_all_the_same(logger: Logger) -> None:
    policy, stat_logger, _ = logger
    stat_logger.record(
        None, SimpleNamespace(finished_requests=[finished(None, tokens=9), finished("x", tokens=9)])
    )
    assert value("sooner_queue_wait_seconds_count", policy=policy, audio="none") == 2
    assert value("sooner_output_tokens_total", policy=policy, audio="none") == 0


def test_totals_of_several_engines_add_up_and_one_may_begin_again(logger: Logger) -> None:
    policy, stat_logger, _ = logger
    for engine, totals in [
        (0, (1_000_000, 1)),
        (1, (500_000, 0)),
        (0, (3_000_000, 2)),
        (1, (0, 0)),
        (1, (250_000, 0)),
    ]:
        stat_logger.record(engine_stats(totals=totals), None, engine_idx=engine)
    assert value("sooner_scheduling_overhead_seconds_total", policy=policy) == pytest.approx(0.00375)
    assert value("sooner_preemptions_total", policy=policy) == 2


def test_statistics_without_totals_are_taken_as_they_are(logger: Logger) -> None:
    policy, stat_logger, _ = logger
    stat_logger.record(engine_stats(waiting=1), None)
    assert value("sooner_scheduling_overhead_seconds_total", policy=policy) == 0
