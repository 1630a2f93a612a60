"""Queue, order and estimates on ``/metrics``.

Nothing is counted twice: each scrape asks the scheduler and the estimator for what they count anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sooner.core.estimator import Estimator
from sooner.core.policy import policies
from sooner.core.scheduler import Scheduler, SchedulerStatistics

__all__ = ["ServiceMetrics"]


class ServiceMetrics(Collector):
    """The metrics of one service, in a registry of their own.

    Args:
        scheduler: whose queue it is.
        estimator: whose predictions they are.
    """

    def __init__(self, scheduler: Scheduler, estimator: Estimator) -> None:
        self._scheduler = scheduler
        self._estimator = estimator
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def exposition(self) -> tuple[bytes, str]:
        """The page and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST

    def collect(self) -> Iterator[Metric]:
        now = self._scheduler.statistics()
        yield from self._queue(now)
        yield from self._order(now)
        yield from self._estimates()

    def _queue(self, now: SchedulerStatistics) -> Iterator[Metric]:
        yield GaugeMetricFamily("sooner_jobs_waiting", "Uploads in the queue", now.num_waiting)
        yield GaugeMetricFamily("sooner_jobs_running", "Uploads on a worker", now.num_running)
        yield GaugeMetricFamily("sooner_backlog_seconds", "Predicted work waiting, a worker", now.backlog_s)
        yield CounterMetricFamily("sooner_jobs_submitted", "Uploads that were queued", now.num_submitted)
        jobs = CounterMetricFamily("sooner_jobs", "Uploads by what became of them", labels=["event"])
        jobs.add_metric(["refused"], now.num_refused)
        jobs.add_metric(["finished"], now.num_finished)
        jobs.add_metric(["cancelled"], now.num_cancelled)
        yield jobs
        yield CounterMetricFamily("sooner_preemptions", "Times a started upload was put off", now.num_preemptions)

    def _order(self, now: SchedulerStatistics) -> Iterator[Metric]:
        order = GaugeMetricFamily("sooner_order", "1 for the order in force, else 0", labels=["policy", "order"])
        for name in dict.fromkeys([now.order, *(policy.name for policy in policies())]):
            order.add_metric([now.policy, name], float(name == now.order))
        yield order
        yield CounterMetricFamily("sooner_order_switches", "Changes of order by adaptive", now.num_switches)
        load = self._scheduler.load
        if load is not None:
            yield GaugeMetricFamily("sooner_offered_load", "Recent arrivals over capacity, in service time", load)

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
