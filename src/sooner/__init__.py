"""Sooner: duration-aware scheduling for speech-to-text serving.

These names are the scheduling core, importable without any optional dependency. The server is reached
through the ``sooner`` command or ``sooner.server``; the errors live in ``sooner.errors``.
"""

from sooner.core.adaptive import AdaptivePolicy, Goals, Switch
from sooner.core.boost import BoostPolicy
from sooner.core.estimator import Estimator
from sooner.core.guard import Guard
from sooner.core.job import Estimate, Job, Ticket
from sooner.core.latency import LatencyRecord, LatencySummary, summarise
from sooner.core.policy import FairPolicy, HrrnPolicy, Policy, StaticPolicy, policies, policy_named, register
from sooner.core.quantile import QuantilePolicy
from sooner.core.ready_queue import HeapQueue, ReadyQueue, ResponseRatioQueue
from sooner.core.scheduler import Limits, QueuedJob, Scheduler, SchedulerStatistics
from sooner.core.traffic import Traffic
from sooner.core.waiting_line import WaitingLine
from sooner.errors import SoonerError

__version__ = "0.5.0"

__all__ = [
    "AdaptivePolicy",
    "BoostPolicy",
    "Estimate",
    "Estimator",
    "FairPolicy",
    "Goals",
    "Guard",
    "HeapQueue",
    "HrrnPolicy",
    "Job",
    "LatencyRecord",
    "LatencySummary",
    "Limits",
    "Policy",
    "QuantilePolicy",
    "QueuedJob",
    "ReadyQueue",
    "ResponseRatioQueue",
    "Scheduler",
    "SchedulerStatistics",
    "SoonerError",
    "StaticPolicy",
    "Switch",
    "Ticket",
    "Traffic",
    "WaitingLine",
    "policies",
    "policy_named",
    "register",
    "summarise",
]
