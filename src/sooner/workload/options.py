"""Every option of a workload, once: ``simulate``, ``bench`` and ``plan`` share them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["WorkloadOptions"]


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """What arrives, and how.

    Parameters
    ----------
    workload
        clips (lengths of LibriSpeech test-clean), uniform (5, 10, 15, 20, 25 and 30 s), mixed (clips and files of
        1 to 60 minutes), or a trace: a .jsonl, .csv or .tsv file with arrival_s and audio_s.
    arrivals
        poisson, gamma (bursty), on-off, burst (all at once), or a file whose arrival_s are scaled to the rate. A
        trace brings its own.
    requests
        Number of requests; a trace is cut to it.
    file_share
        Share of files in the mixed workload.
    max_file_s
        Longer files are cut to this, seconds.
    cv
        Coefficient of variation of the gaps between gamma arrivals; 1 is Poisson.
    on_s
        Mean length of a busy phase of on-off arrivals, seconds.
    off_s
        Mean length of a silent phase, seconds.
    drift_rate
        The rate at the end of the run over the one at its start; it moves evenly.
    drift_file_share
        Share of files at the end of the run, where it drifts.
    """

    workload: str = "mixed"
    arrivals: str = "poisson"
    requests: int = 500
    file_share: float = 0.03
    max_file_s: float = 3600.0
    cv: float = 4.0
    on_s: float = 10.0
    off_s: float = 30.0
    drift_rate: float = 1.0
    drift_file_share: float | None = None
