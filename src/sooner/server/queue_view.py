"""The queue as JSON: who runs, who waits, until when, and what the last minutes were like.

A forecast is O(n log n) and runs on the event loop. Where many wait it is kept for half a second, so that any
number of pages that watch the queue cost no more than two forecasts a second.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from time import monotonic

from sooner.core.scheduler import QueuedJob
from sooner.engines.base import Engine
from sooner.server.access import PRIORITIES
from sooner.server.recent import Recent
from sooner.server.requests import OpenRequest, OpenRequests
from sooner.service.clock import Clock
from sooner.service.dispatcher import Dispatcher

__all__ = ["QueueView"]

Row = dict[str, object]

_KEPT_FOR_S = 0.5
_KEPT_FROM = 100  # waiting jobs; below, a forecast is a matter of a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forecast:
    """The rows of all jobs by id, in the order of service, as they were at ``made_s`` of the real clock."""

    made_s: float
    rows: dict[str, Row]


class QueueView:
    """What ``GET /v1/queue`` and ``GET /v1/queue/{id}`` say.

    Args:
        dispatcher: whose queue it is.
        requests: all requests on their way.
        recent: the last ones that finished.
        engine: what recognises.
        clock: the time.
    """

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        requests: OpenRequests,
        recent: Recent,
        engine: Engine,
        clock: Clock,
    ) -> None:
        self._dispatcher = dispatcher
        self._requests = requests
        self._recent = recent
        self._engine = engine
        self._clock = clock
        self._forecast = _Forecast(made_s=float("-inf"), rows={})

    def state(self) -> str:
        """``ok``, or why an upload would not be served now: ``draining`` or ``engine_restarting``."""
        if self._dispatcher.closing:
            return "draining"
        return "ok" if self._engine.ready else "engine_restarting"

    def queue(self, *, limit: int | None = None) -> dict[str, object]:
        """The whole queue.

        Args:
            limit: most rows, the first in the order of service; ``None`` for all.
        """
        now_s = self._clock.now_s()
        statistics = self._dispatcher.scheduler.statistics()
        rows = list(self._rows().values())[:limit]
        return {
            "state": self.state(),
            **asdict(statistics),
            "load": _finite(self._dispatcher.scheduler.load),
            "num_arriving": self._requests.num_arriving(statistics),
            "recent": self._recent.body(now_s),
            "switches": [
                {
                    "ago_s": round(now_s - switch.at_s, 1),
                    "before": switch.before,
                    "after": switch.after,
                    "reason": switch.reason,
                }
                for switch in self._dispatcher.recent_switches
            ],
            "running": [row for row in rows if row["status"] == "running"],
            "waiting": [row for row in rows if row["status"] != "running"],
        }

    def request(self, entry: OpenRequest) -> Row:
        """One request on its way."""
        row = self._rows().get(entry.id) or _arriving(entry)
        progress = self._dispatcher.progress(entry.id)
        audio_s = entry.audio.audio_s if entry.audio is not None else None
        return row | {
            "progress": round(min(1.0, progress.done_s / audio_s), 4) if audio_s else 0.0,
            "num_windows": progress.num_windows,
            "num_restarts": progress.num_restarts,
        }

    def _rows(self) -> dict[str, Row]:
        """By id, in the order of service. What this costs is real time, whatever clock the service runs by."""
        now_s = monotonic()
        scheduler = self._dispatcher.scheduler
        if scheduler.num_waiting <= _KEPT_FROM or now_s - self._forecast.made_s >= _KEPT_FOR_S:
            jobs = scheduler.forecast(self._clock.now_s())
            self._forecast = _Forecast(made_s=now_s, rows={one.job.id: self._row(one) for one in jobs})
        return self._forecast.rows

    def _row(self, row: QueuedJob) -> Row:
        job = row.job
        progress = self._dispatcher.progress(job.id)
        waiting = "preempted" if progress.num_windows else "waiting"
        return {
            "id": job.id,
            "status": "running" if row.running else waiting,
            "priority": PRIORITIES[job.priority],
            "audio_s": round(job.audio_s, 3),
            "speech_s": None if job.speech_s is None else round(job.speech_s, 3),
            "size_s": round(job.size_s, 3),
            "remaining_s": round(row.remaining_s, 3),
            "done_s": round(progress.done_s, 3),
            "wait_s": round(row.wait_s, 3),
            "position": row.position,
            "predicted_start_s": round(row.predicted_start_s, 3),
            "predicted_end_s": round(row.predicted_start_s + row.remaining_s, 3),
            "num_preemptions": row.num_preemptions,
        }


def _finite(load: float | None) -> float | None:
    """JSON has no infinity, and that is what arrivals at one instant come to."""
    return load if load is not None and math.isfinite(load) else None


def _arriving(entry: OpenRequest) -> Row:
    """A request whose upload is being received or measured; what is not known yet is ``None``."""
    audio = entry.audio
    return {
        "id": entry.id,
        "status": "arriving",
        "priority": PRIORITIES[entry.priority],
        "audio_s": None if audio is None else round(audio.audio_s, 3),
        "speech_s": None if audio is None or audio.speech_s is None else round(audio.speech_s, 3),
        "size_s": None,
        "remaining_s": None,
        "done_s": 0.0,
        "wait_s": 0.0,
        "position": None,
        "predicted_start_s": None,
        "predicted_end_s": None,
        "num_preemptions": 0,
    }
