"""Metrics of the policy on vLLM's own ``/metrics``.

A stat logger of vLLM's kind, added to the API process's loggers when, and only when, one of our policies
serves. What the engine alone knows (time spent on the order, preemptions) comes over in
``SchedulerStats.waiting_lora_adapters``, a field of plain integers that stays empty without LoRA adapters: an
engine's statistics cross to this process in a fixed format, which has no place for anything new.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any

from prometheus_client import Counter, Gauge, Histogram
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from sooner.core.latency import duration_bucket
from sooner.vllm_plugin.chunk import Chunk

__all__ = ["RequestTable", "SoonerStatLogger", "pack_totals"]

_OVERHEAD_NS = "sooner_overhead_ns"
_PREEMPTIONS = "sooner_preemptions"
_NO_AUDIO = "none"
_WAIT_BUCKETS_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.25, 1.5, 2, 4, 10)


def pack_totals(scheduler_stats: Any, *, overhead_ns: int, num_preemptions: int) -> None:
    """Write one engine's running totals into the statistics that it sends; without LoRA only."""
    scheduler_stats.waiting_lora_adapters = {_OVERHEAD_NS: overhead_ns, _PREEMPTIONS: num_preemptions}


class RequestTable:
    """What was said of each request on its way to the engine, until it is asked for when the request ends.

    Aborted requests are never asked for, so the oldest go once there are more than ``max_requests``.
    """

    def __init__(self, max_requests: int = 65_536) -> None:
        self._max_requests = max_requests
        self._chunks: OrderedDict[str, Chunk] = OrderedDict()

    def put(self, request_id: str, chunk: Chunk) -> None:
        """Remember ``chunk``. O(1)."""
        self._chunks[request_id] = chunk
        if len(self._chunks) > self._max_requests:
            self._chunks.popitem(last=False)

    def take(self, request_id: str | None) -> Chunk | None:
        """What was put under this id, which is then forgotten; ``None`` where nothing was. O(1)."""
        return None if request_id is None else self._chunks.pop(request_id, None)

    def __len__(self) -> int:
        return len(self._chunks)


class _Metrics:
    """The collectors. Their names are not vLLM's: it unregisters all of its own at start."""

    def __init__(self) -> None:
        policy, bucket = ["policy"], ["policy", "audio"]
        self.waiting = Gauge(
            "sooner_requests_waiting", "Requests that wait for the engine", policy, multiprocess_mode="mostrecent"
        )
        self.running = Gauge(
            "sooner_requests_running", "Requests in the engine's batch", policy, multiprocess_mode="mostrecent"
        )
        self.wait_s = Histogram(
            "sooner_queue_wait_seconds",
            "From reaching the engine to first being scheduled, by length of the whole recording",
            bucket,
            buckets=_WAIT_BUCKETS_S,
        )
        self.predicted = Counter(
            "sooner_predicted_output_tokens", "Output tokens predicted for finished requests", bucket
        )
        self.actual = Counter("sooner_output_tokens", "Output tokens of the same requests", bucket)
        self.ratio = Histogram(
            "sooner_output_tokens_ratio",
            "Actual over predicted output tokens of a request",
            bucket,
            buckets=_RATIO_BUCKETS,
        )
        self.preemptions = Counter("sooner_preemptions", "Running requests put off for want of memory", policy)
        self.overhead_s = Counter(
            "sooner_scheduling_overhead_seconds", "Time the engine spent on the order", policy
        )


@cache
def _metrics() -> _Metrics:
    """Made once a process: a registry refuses a second collector of the same name."""
    return _Metrics()


class SoonerStatLogger(AggregateStatLoggerBase):  # type: ignore[misc,unused-ignore]
    """Feeds the metrics from what vLLM tells its loggers after each step.

    Args:
        policy: name of the policy in force.
        requests: what the capture noted of each request.
    """

    def __init__(self, policy: str, requests: RequestTable) -> None:
        self._policy = policy
        self._requests = requests
        self._metrics = _metrics()
        self._totals: dict[tuple[int, str], int] = {}  # by engine and name
        self._counts: dict[int, tuple[int, int]] = {}  # waiting and running, by engine
        self._metrics.waiting.labels(policy).set(0)
        self._metrics.running.labels(policy).set(0)

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        if scheduler_stats is not None:
            self._record_engine(scheduler_stats, engine_idx)
        if iteration_stats is not None:
            for finished in iteration_stats.finished_requests:
                self._record_finished(finished)

    def _record_engine(self, stats: Any, engine_idx: int) -> None:
        waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
        self._counts[engine_idx] = (waiting, stats.num_running_reqs)
        self._metrics.waiting.labels(self._policy).set(sum(waiting for waiting, _ in self._counts.values()))
        self._metrics.running.labels(self._policy).set(sum(running for _, running in self._counts.values()))
        totals = stats.waiting_lora_adapters
        if _OVERHEAD_NS in totals:
            overhead_ns = self._increase(engine_idx, _OVERHEAD_NS, totals)
            self._metrics.overhead_s.labels(self._policy).inc(overhead_ns / 1e9)
            self._metrics.preemptions.labels(self._policy).inc(self._increase(engine_idx, _PREEMPTIONS, totals))

    def _increase(self, engine_idx: int, name: str, totals: dict[str, int]) -> int:
        before = self._totals.get((engine_idx, name), 0)
        self._totals[engine_idx, name] = totals[name]
        return max(0, totals[name] - before)  # an engine that was replaced begins at 0

    def _record_finished(self, finished: Any) -> None:
        chunk = self._requests.take(finished.request_id)
        audio = _NO_AUDIO if chunk is None or chunk.audio_s is None else duration_bucket(chunk.audio_s)
        labels = (self._policy, audio)
        self._metrics.wait_s.labels(*labels).observe(finished.queued_time)
        if chunk is not None:
            self._metrics.predicted.labels(*labels).inc(chunk.tokens)
            self._metrics.actual.labels(*labels).inc(finished.num_generation_tokens)
            self._metrics.ratio.labels(*labels).observe(finished.num_generation_tokens / chunk.tokens)

    def log_engine_initialized(self) -> None:
        """Nothing to add to what vLLM logs."""
