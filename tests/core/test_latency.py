"""Percentiles, slowdowns and buckets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner import LatencyRecord, summarise
from sooner.core.latency import by_duration_bucket, percentile


def record(audio_s: float, e2e_s: float, size_s: float = 1.0) -> LatencyRecord:
    return LatencyRecord(id="x", audio_s=audio_s, size_s=size_s, arrival_s=5.0, finished_s=5.0 + e2e_s)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 100))
def test_percentile_is_numpys(values: list[float], percent: float) -> None:
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)), rel=1e-9, abs=1e-9)


def test_percentile_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="percent"):
        percentile([1.0], 101)


def test_summary() -> None:
    summary = summarise([record(3, float(n), size_s=2.0) for n in range(1, 102)])
    assert summary.num_requests == 101
    assert (summary.p50_s, summary.p90_s, summary.p95_s, summary.p99_s) == (51, 91, 96, 100)
    assert (summary.max_s, summary.mean_s) == (101, 51)
    assert (summary.mean_slowdown, summary.max_slowdown) == (25.5, 50.5)


def test_what_is_to_be_transcribed_is_the_speech_where_that_was_measured() -> None:
    whole = record(300.0, 1.0)
    assert [replace(whole, speech_s=speech_s).spoken_s for speech_s in (None, 11.0, 0.0)] == [300.0, 11.0, 0.0]


def test_buckets() -> None:
    records = [record(audio_s, 1.0) for audio_s in (0.5, 5.0, 5.1, 29.0, 700.0)]
    sizes = {label: len(inside) for label, inside in by_duration_bucket(records).items()}
    assert sizes == {"0-5 s": 2, "5-15 s": 1, "15-30 s": 1, "> 600 s": 1}
