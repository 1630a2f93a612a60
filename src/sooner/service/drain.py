"""Who can still be served before the server stops."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from sooner.core.scheduler import QueuedJob

__all__ = ["beyond_grace"]


def beyond_grace(rows: Sequence[QueuedJob], *, num_workers: int, grace_s: float) -> list[str]:
    """Ids of the jobs that cannot be done within ``grace_s`` seconds by prediction.

    Those that run go on first, then each in the order of service gets the worker that is free first. A job whose
    end would lie beyond the grace takes up no time: what comes after it is served instead. O(n log workers).

    Args:
        rows: running jobs, then waiting ones in the order of service; see ``Scheduler.forecast``.
        num_workers: workers that serve them.
        grace_s: seconds from now.
    """
    beyond = []
    running = [row for row in rows if row.running]
    free_at_s = [0.0] * (num_workers - len(running))
    for row in running:
        if row.remaining_s > grace_s:
            beyond.append(row.job.id)
            # Its window goes on to the end, though nobody waits for it.
            free_at_s.append(min(row.remaining_s, row.job.estimate.size_s / row.job.estimate.windows))
        else:
            free_at_s.append(row.remaining_s)
    heapq.heapify(free_at_s)
    for row in rows:
        if row.running:
            continue
        end_s = free_at_s[0] + row.remaining_s
        if end_s > grace_s:
            beyond.append(row.job.id)
        else:
            heapq.heapreplace(free_at_s, end_s)
    return beyond
