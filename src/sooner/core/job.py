"""The facts about one upload that scheduling decides on.

``Job`` and ``Estimate`` never change once made. What changes while a job moves through the system (how
much is left, how long it was served) lives in a ``Ticket``, which is replaced, not mutated: the queues
and policies see tickets alone, so they work for any driver that can make one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Estimate", "Job", "Ticket", "largest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What serving an amount of audio is predicted to take.

    Attributes:
        estimated_output_tokens: n̂, predicted output tokens, at least 1.
        windows: number of ≤ 30 s windows the model encodes, at least 1.
        size_s: predicted service time on one worker, seconds.
        own_s: predicted seconds from the moment when the last of this service is given until the text is there, in
            which the job holds nobody up: decoding in an engine that batches. 0 where a worker serves one job.
    """

    estimated_output_tokens: int
    windows: int
    size_s: float
    own_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One upload, as admitted.

    Attributes:
        id: unique among the jobs a scheduler knows.
        arrival_s: monotonic second of admission.
        audio_s: seconds of decoded audio; measured, never a header's claim.
        estimate: predicted cost of the whole upload.
        speech_s: seconds in which someone speaks, ``None`` where not measured.
        language: language code the client gave, ``None`` where it gave none.
        client: whose job it is, as the driver knows it, never as the client says; ``None``: nobody's.
        priority: class of the job; a lower one is served first.
    """

    id: str
    arrival_s: float
    audio_s: float
    estimate: Estimate
    speech_s: float | None = None
    language: str | None = None
    client: str | None = None
    priority: int = 0

    @property
    def size_s(self) -> float:
        """Predicted service time of the whole upload, seconds."""
        return self.estimate.size_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """A job's standing in the queue: all that a policy may look at.

    Attributes:
        id: the job's id.
        arrival_s: monotonic second of admission; unchanged by preemption.
        size_s: predicted service time of the whole job, seconds; more than 0.
        remaining_s: predicted service time still to come, seconds; ``size_s`` until the first window is done.
        served_s: seconds of service received so far.
        sequence: admission number; breaks every remaining tie, so that order never depends on ids.
        window_s: predicted service until the job can next be put off, seconds: one window, or all that remains.
        own_s: see ``Estimate``.
        client: see ``Job``.
        priority: see ``Job``.
        allowance_s: predicted service, all workers together, that a guard still lets jobs have which came later;
            ``None`` before a guard has promised anything. Where clients are told apart: jobs of the same client.
        turn_allowance_s: the same of other clients' jobs, once the job has stood for its client (see
            ``sooner.core.groups``).
    """

    id: str
    arrival_s: float
    size_s: float
    remaining_s: float
    sequence: int
    served_s: float = 0.0
    window_s: float = math.inf
    own_s: float = 0.0
    client: str | None = None
    priority: int = 0
    allowance_s: float | None = None
    turn_allowance_s: float | None = None

    def with_allowance(self, allowance_s: float | None) -> Ticket:
        """The ticket with another allowance. Much faster than ``replace``, for a hot path."""
        return self._with(allowance_s, self.turn_allowance_s)

    def with_turn_allowance(self, turn_allowance_s: float | None) -> Ticket:
        """The ticket with another allowance against other clients, as fast."""
        return self._with(self.allowance_s, turn_allowance_s)

    def _with(self, allowance_s: float | None, turn_allowance_s: float | None) -> Ticket:
        return Ticket(
            id=self.id,
            arrival_s=self.arrival_s,
            size_s=self.size_s,
            remaining_s=self.remaining_s,
            sequence=self.sequence,
            served_s=self.served_s,
            window_s=self.window_s,
            own_s=self.own_s,
            client=self.client,
            priority=self.priority,
            allowance_s=allowance_s,
            turn_allowance_s=turn_allowance_s,
        )

    def __deepcopy__(self, memo: object) -> Ticket:
        """Itself: it never changes, and a copy of a queue of a thousand should not take long."""
        return self

    @property
    def next_service_s(self) -> float:
        """Predicted service that the job gets if it is taken now, seconds."""
        return min(self.window_s, self.remaining_s)

    @property
    def waiting_since_s(self) -> float:
        """The second since which the job would have waited had all its waiting been in one piece.

        ``now - waiting_since_s`` is the time not spent in service: the wait of the response ratio.
        """
        return self.arrival_s + self.served_s

    def is_overdue(self, now_s: float, max_wait_s: float) -> bool:
        """Whether the job has gone without service for ``max_wait_s`` or more."""
        return now_s - self.waiting_since_s >= max_wait_s

    def response_ratio(self, now_s: float) -> float:
        """R = (wait + size) / size at ``now_s``; 1 for a job that never waited."""
        return (now_s - self.waiting_since_s + self.size_s) / self.size_s


def largest(tickets: Iterable[Ticket]) -> Ticket | None:
    """The ticket of the largest job, of equal ones the latest; ``None`` where there is none. O(n)."""
    return max(tickets, key=lambda t: (t.size_s, t.arrival_s, t.sequence), default=None)
