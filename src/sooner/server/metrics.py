"""Queue, order, workers and estimates on ``/metrics``, beside what ``Tally`` counts.

Nothing is counted twice: each scrape asks the scheduler, the dispatcher and the estimator for what they count
anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sooner.core.estimator import Estimator
from sooner.core.policy import policies
from sooner.core.scheduler import SchedulerStatistics
from sooner.engines.base import Engine
from sooner.server.requests import OpenRequests
from sooner.service.clock import Clock
from sooner.service.dispatcher import Dispatcher

__all__ = ["ServiceMetrics"]

_UTILISATION_S = 60.0


class ServiceMetrics(Collector):
    """The metrics of one service.

    Args:
        registry: where counts of finished requests are; the rest joins them.
        engine: what recognises.
        dispatcher: whose queue and workers they are.
        estimator: whose predictions they are.
        requests: all requests on their way.
        clock: the time.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        engine: Engine,
        dispatcher: Dispatcher,
        estimator: Estimator,
        requests: OpenRequests,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._scheduler = dispatcher.scheduler
        self._estimator = estimator
        self._requests = requests
        self._clock = clock
        self._busy = deque([(clock.now_s(), 0.0)])  # seconds, and seconds that workers were busy until then
        self._registry = registry
        registry.register(self)
        ProcessCollector(registry=registry)

    def exposition(self) -> tuple[bytes, str]:
        """The page and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        now = self._scheduler.statistics()
        yield from self._queue(now)
        yield from self._order(now)
        yield from self._workers()
        yield from self._estimates()

    def _queue(self, now: SchedulerStatistics) -> Iterator[Metric]:
        yield GaugeMetricFamily("sooner_jobs_waiting", "Uploads in the queue", now.num_waiting)
        yield GaugeMetricFamily("sooner_jobs_running", "Uploads on a worker", now.num_running)
        yield GaugeMetricFamily("sooner_backlog_seconds", "Predicted work waiting, a worker", now.backlog_s)
        yield CounterMetricFamily("sooner_jobs_submitted", "Uploads that were queued", now.num_submitted)
        yield CounterMetricFamily("sooner_preemptions", "Times a started upload was put off", now.num_preemptions)
        phases = GaugeMetricFamily("sooner_requests_open", "Requests on their way", labels=["phase"])
        phases.add_metric(["arriving"], self._requests.num_arriving(now))
        phases.add_metric(["waiting"], now.num_waiting)
        phases.add_metric(["running"], now.num_running)
        yield phases

    def _order(self, now: SchedulerStatistics) -> Iterator[Metric]:
        order = GaugeMetricFamily("sooner_order", "1 for the order in force, else 0", labels=["policy", "order"])
        for name in dict.fromkeys([now.order, *(policy.name for policy in policies())]):
            order.add_metric([now.policy, name], float(name == now.order))
        yield order
        yield CounterMetricFamily("sooner_order_switches", "Changes of order by adaptive", now.num_switches)
        load = self._scheduler.load
        if load is not None:
            yield GaugeMetricFamily("sooner_offered_load", "Recent arrivals over capacity, in service time", load)

    def _workers(self) -> Iterator[Metric]:
        now_s = self._clock.now_s()
        yield GaugeMetricFamily("sooner_engine_ready", "0 while the engine is replaced", float(self._engine.ready))
        yield CounterMetricFamily(
            "sooner_engine_restarts", "Times the engine was replaced", self._engine.num_restarts
        )
        busy_s = self._dispatcher.worker_busy_s(now_s)
        yield GaugeMetricFamily("sooner_workers", "Windows that can run at once", self._dispatcher.num_workers)
        yield CounterMetricFamily("sooner_worker_busy_seconds", "Time that workers were busy, together", busy_s)
        utilisation = self._utilisation(now_s, busy_s)
        if utilisation is not None:
            yield GaugeMetricFamily(
                "sooner_worker_utilisation", "Share of the last minute that workers were busy", utilisation
            )
        if busy_s > 0:
            audio_s = self._estimator.statistics().audio_s
            yield GaugeMetricFamily("sooner_rtfx", "Audio finished a second of a worker", audio_s / busy_s)

    def _utilisation(self, now_s: float, busy_s: float) -> float | None:
        """Since the last look that is a minute old, or since the start; ``None`` at that very moment."""
        while len(self._busy) > 1 and now_s - self._busy[1][0] >= _UTILISATION_S:
            self._busy.popleft()
        then_s, busy_then_s = self._busy[0]
        if now_s - self._busy[-1][0] >= 1.0:  # however often somebody looks
            self._busy.append((now_s, busy_s))
        if now_s == then_s:
            return None
        return (busy_s - busy_then_s) / (now_s - then_s) / self._dispatcher.num_workers

    def _estimates(self) -> Iterator[Metric]:
        estimator, seen = self._estimator, self._estimator.statistics()
        yield GaugeMetricFamily("sooner_kappa", "Tokens expected a second of audio", estimator.kappa)
        costs = GaugeMetricFamily("sooner_cost_seconds", "Predicted seconds by what they are for", labels=["of"])
        costs.add_metric(["window"], estimator.encode_s)
        costs.add_metric(["token"], estimator.token_s)
        costs.add_metric(["context"], estimator.context_s)
        yield costs
        error = GaugeMetricFamily(
            "sooner_prediction_error", "Mean |actual / predicted - 1| of recent uploads", labels=["of"]
        )
        for name, value in (("tokens", seen.token_error), ("service", seen.service_error)):
            if value is not None:
                error.add_metric([name], value)
        yield error
        yield CounterMetricFamily(
            "sooner_predicted_tokens", "Tokens predicted for all uploads", seen.predicted_tokens
        )
        yield CounterMetricFamily("sooner_tokens", "Tokens of the same uploads", seen.actual_tokens)
        yield CounterMetricFamily(
            "sooner_predicted_service_seconds", "Worker time predicted for them", seen.predicted_service_s
        )
        yield CounterMetricFamily("sooner_service_seconds", "Worker time that they took", seen.actual_service_s)
