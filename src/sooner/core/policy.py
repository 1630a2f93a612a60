"""Scheduling policies and the registry that names them.

A policy is two decisions: the order in which waiting jobs are served (it makes the queue that keeps that
order) and the victim among running jobs when one must go. It keeps no state of its own, so one instance
may serve any number of schedulers; what a queue needs to know of the traffic is handed to it.

- fcfs: arrival order; the baseline, and what every ASR server does today.
- sjf: least remaining service time first. With preemption this is shortest-remaining-processing-time,
  which minimises the mean response time on one worker (Schrage 1968, https://doi.org/10.1287/opre.16.3.687).
- srpt: the same order under its own name, which gives way between windows by definition.
- hrrn: highest response ratio next (Brinch Hansen 1971), R = (wait + size) / size: near SJF for what has just
  arrived, but waiting raises R, so that a job is overtaken for so many times its size and not for ever, unless the
  overload lasts: then the ratio of what is served rises, too. Wait counts time *not in service*, so a
  long file that has a worker to itself keeps R = 1 and any clip that has waited at all overtakes it at the
  next window. Counting service as waiting, or dividing by what remains, both let a file near its end hold
  clips back; ``docs/design.md`` has the figures.
- fair: arrival + c · size, a dial from fcfs (c = 0) to sjf (c without bound).
- quantile, boost, adaptive: see their modules.

Another static order is a ``StaticPolicy`` with another rank; anything else brings a queue of its own. Adding
a policy is one ``register`` call, and every driver, flag and listing knows it. ``docs/policies/`` has a page each.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from sooner.core.adaptive import AdaptivePolicy
from sooner.core.boost import BoostPolicy
from sooner.core.job import Ticket
from sooner.core.quantile import QuantilePolicy
from sooner.core.ready_queue import HeapQueue, Rank, ReadyQueue, ResponseRatioQueue
from sooner.core.traffic import Traffic
from sooner.errors import UnknownPolicyError

__all__ = ["FairPolicy", "HrrnPolicy", "Policy", "StaticPolicy", "policies", "policy_named", "register"]


class Policy(Protocol):
    """Orders waiting jobs and names the victim among running ones."""

    @property
    def name(self) -> str:
        """What ``--policy`` calls it."""

    @property
    def summary(self) -> str:
        """What it does and for whom, in one line."""

    @property
    def preemptive(self) -> bool:
        """Whether a job that has done a window competes again with those that wait, by default."""

    def make_queue(self, traffic: Traffic) -> ReadyQueue:
        """A new, empty queue in this policy's order, which may look at ``traffic`` for its decisions."""

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        """The running job to put off when one must go; ``None`` where nothing runs. O(running)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPolicy:
    """A policy whose rank does not change while a job waits; the victim is whoever ranks last.

    Attributes:
        name: see ``Policy``.
        summary: see ``Policy``.
        rank: lower is served sooner.
        preemptive: see ``Policy``.
    """

    name: str
    summary: str
    rank: Rank
    preemptive: bool

    def make_queue(self, traffic: Traffic) -> ReadyQueue:
        return HeapQueue(self.rank)

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return max(running, key=lambda t: (self.rank(t), t.arrival_s, t.sequence), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HrrnPolicy:
    """Highest response ratio next; the victim is the running job with the lowest ratio."""

    name: str = "hrrn"
    summary: str = "highest response ratio next: short before long, but waiting counts"
    preemptive: bool = True

    def make_queue(self, traffic: Traffic) -> ReadyQueue:
        return ResponseRatioQueue()

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return max(running, key=lambda t: (-t.response_ratio(now_s), t.arrival_s, t.sequence), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FairPolicy:
    """``arrival + c · size``: a job may be overtaken for c times as long as it takes.

    The size is in seconds of a worker as measured (``Traffic.speed``), and taken for seconds until there is a
    measure. The key is taken when a job is queued, so a plain heap serves it. Only jobs that arrive within
    ``c · (size − theirs)`` seconds after a job can overtake it, so nothing starves.

    Attributes:
        name: see ``Policy``; with another dial it is ``fair:<c>``.
        summary: see ``Policy``.
        preemptive: see ``Policy``.
        dial: c, 0 for fcfs; from about 30 on the order of sizes, where they differ.
    """

    name: str = "fair"
    summary: str = "arrival plus ten times the size: short before long within bounds; fair:C for another dial"
    preemptive: bool = True
    dial: float = 10.0

    def dialled(self, text: str) -> FairPolicy:
        """The policy with another dial. Raises ``UnknownPolicyError`` where the text is no number from 0."""
        try:
            dial = float(text)
        except ValueError:
            dial = math.nan
        if not 0 <= dial < math.inf:
            raise UnknownPolicyError(name=f"{self.name}:{text}", known=(*_REGISTRY, "fair:C with C from 0"))
        return replace(self, name=f"{self.name}:{dial:g}", dial=dial)

    def make_queue(self, traffic: Traffic) -> ReadyQueue:
        return HeapQueue(lambda ticket: ticket.arrival_s + self.dial * ticket.size_s / traffic.speed)

    def victim(self, running: Collection[Ticket], now_s: float) -> Ticket | None:
        return max(
            running, key=lambda t: (t.arrival_s + self.dial * t.size_s, t.arrival_s, t.sequence), default=None
        )


_REGISTRY: dict[str, Policy] = {}


def register(policy: Policy) -> None:
    """Make ``policy`` known by its name. Raises ``ValueError`` where the name is taken."""
    if policy.name in _REGISTRY:
        raise ValueError(f"a scheduling policy named {policy.name!r} is already registered")
    _REGISTRY[policy.name] = policy


def policy_named(name: str) -> Policy:
    """The policy registered under ``name``; ``fair:2`` is ``fair`` with a dial of 2.

    Raises:
        UnknownPolicyError: there is none; lists the known names.
    """
    base, colon, dial = name.partition(":")
    policy = _REGISTRY.get(base)
    if policy is None or (colon and not isinstance(policy, FairPolicy)):
        raise UnknownPolicyError(name=name, known=_REGISTRY)
    return policy.dialled(dial) if colon and isinstance(policy, FairPolicy) else policy


def policies() -> Iterable[Policy]:
    """All registered policies, in order of registration."""
    return _REGISTRY.values()


def _remaining_s(ticket: Ticket) -> float:
    return ticket.remaining_s


register(
    StaticPolicy(
        name="fcfs",
        summary="first come, first served, each job to its end: no surprises, and clips wait behind files",
        rank=lambda ticket: ticket.arrival_s,
        preemptive=False,
    )
)
register(
    StaticPolicy(
        name="sjf",
        summary="shortest remaining job first: the lowest mean and the fastest clips; long files pay",
        rank=_remaining_s,
        preemptive=True,
    )
)
register(HrrnPolicy())
register(
    StaticPolicy(
        name="srpt",
        summary="shortest remaining first, by windows: sjf's order by the name it has where jobs give way",
        rank=_remaining_s,
        preemptive=True,
    )
)
register(FairPolicy())
register(QuantilePolicy())
register(BoostPolicy())
register(AdaptivePolicy())
