"""Sooner: duration-aware scheduling for speech-to-text serving.

These names are the scheduling core, importable without any optional dependency. The server is reached
through the ``sooner`` command or ``sooner.server``; the errors live in ``sooner.errors``.
"""

from sooner.core.estimator import Estimator
from sooner.core.job import Estimate, Job, Ticket
from sooner.core.latency import LatencyRecord, LatencySummary, summarise
from sooner.core.policy import HrrnPolicy, Policy, StaticPolicy, policies, policy_named, register
from sooner.core.ready_queue import HeapQueue, ReadyQueue, ResponseRatioQueue
from sooner.core.scheduler import Limits, QueuedJob, Scheduler, SchedulerStatistics
from sooner.errors import SoonerError

__version__ = "0.3.0"

__all__ = [
    "Estimate",
    "Estimator",
    "HeapQueue",
    "HrrnPolicy",
    "Job",
    "LatencyRecord",
    "LatencySummary",
    "Limits",
    "Policy",
    "QueuedJob",
    "ReadyQueue",
    "ResponseRatioQueue",
    "Scheduler",
    "SchedulerStatistics",
    "SoonerError",
    "StaticPolicy",
    "Ticket",
    "policies",
    "policy_named",
    "register",
    "summarise",
]
