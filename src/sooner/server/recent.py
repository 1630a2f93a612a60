"""What the last minutes were like, for whoever looks at the queue."""

from __future__ import annotations

from collections import deque

from sooner.core.latency import LatencyRecord, by_duration_bucket, percentile

__all__ = ["Recent"]

_WINDOW_S = 300.0
_MAX_RECORDS = 1000


class Recent:
    """Finished requests of at most the last five minutes, and at most a thousand of them.

    Args:
        started_s: second since which requests are noted.
    """

    def __init__(self, *, started_s: float) -> None:
        self._started_s = started_s
        self._records: deque[LatencyRecord] = deque(maxlen=_MAX_RECORDS)

    def note(self, record: LatencyRecord) -> None:
        """Take note of a finished request. O(1)."""
        self._records.append(record)

    def body(self, now_s: float) -> dict[str, object]:
        """Throughput and waits by duration bucket, as JSON. O(records)."""
        since_s = self._since_s(now_s)
        window_s = max(1.0, now_s - since_s)
        records = [record for record in self._records if record.finished_s >= since_s]
        audio_s = sum(record.audio_s for record in records)
        return {
            "window_s": round(window_s, 1),
            "num_finished": len(records),
            "audio_s": round(audio_s, 1),
            "rtfx": round(audio_s / window_s, 3),
            "by_bucket": [_bucket_row(name, some) for name, some in by_duration_bucket(records).items()],
        }

    def _since_s(self, now_s: float) -> float:
        since_s = max(self._started_s, now_s - _WINDOW_S)
        if len(self._records) == _MAX_RECORDS:  # what came before the first of them is not known any more
            since_s = max(since_s, self._records[0].finished_s)
        return since_s


def _bucket_row(name: str, records: list[LatencyRecord]) -> dict[str, object]:
    wait_s = [record.wait_s or 0.0 for record in records]
    e2e_s = [record.e2e_s for record in records]
    return {
        "bucket": name,
        "num": len(records),
        "wait_p50_s": round(percentile(wait_s, 50), 3),
        "wait_p90_s": round(percentile(wait_s, 90), 3),
        "e2e_p50_s": round(percentile(e2e_s, 50), 3),
        "e2e_p90_s": round(percentile(e2e_s, 90), 3),
    }
