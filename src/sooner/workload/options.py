"""Every option of a workload, once: ``simulate``, ``bench`` and ``plan`` share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sooner.errors import ConfigurationError
from sooner.workload.arrivals import SHIPPED_ARRIVALS
from sooner.workload.lengths import MIN_FILE_S
from sooner.workload.trace import MAX_AUDIO_S

__all__ = ["ARRIVALS", "TRACE_SUFFIXES", "WORKLOADS", "WorkloadOptions"]

WORKLOADS = ("clips", "uniform", "mixed")
ARRIVALS = ("poisson", "gamma", "on-off", "burst", *SHIPPED_ARRIVALS)
_NUM_MADE = 500
TRACE_SUFFIXES = (".jsonl", ".csv", ".tsv")


@dataclass(frozen=True, kw_only=True)
class WorkloadOptions:
    """What arrives, and how.

    Parameters
    ----------
    workload
        clips (lengths of LibriSpeech test-clean), uniform (5, 10, 15, 20, 25 and 30 s), mixed (clips and files of
        1 to 60 minutes), or a trace: a .jsonl, .csv or .tsv file with arrival_s and audio_s.
    arrivals
        poisson, gamma (bursty), on-off, burst (all at once), azure-code or azure-conv (recorded at a real service,
        very bursty and nearly Poisson), or a .jsonl, .csv or .tsv file with arrival_s. Of a recorded sequence,
        each seed plays another section, scaled to the rate. A trace brings its own.
    requests
        Number of requests, 500 by default; a trace is cut to it, and played whole by default.
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
        The rate at the end of the run over the one at its start; it moves evenly, and the mean over the run stays.
    drift_file_share
        Share of files at the end of the run, where it drifts; it moves evenly from --file-share.
    """

    workload: str = "mixed"
    arrivals: str = "poisson"
    requests: int | None = None
    file_share: float = 0.03
    max_file_s: float = 3600.0
    cv: float = 4.0
    on_s: float = 10.0
    off_s: float = 30.0
    drift_rate: float = 1.0
    drift_file_share: float | None = None

    def __post_init__(self) -> None:
        _check_name("--workload", self.workload, WORKLOADS)
        _check_name("--arrivals", self.arrivals, ARRIVALS)
        self._check_ranges()
        if self.trace_path is not None and self.arrivals != "poisson":
            raise ConfigurationError("a trace brings its own arrivals: leave --arrivals out, or name a workload")
        if self.drift_file_share is not None and self.workload != "mixed":
            raise ConfigurationError("--drift-file-share needs --workload mixed: no other has a share of files")
        if self.drift_rate != 1 and self.arrivals == "burst":
            raise ConfigurationError("--drift-rate needs other arrivals than burst: one moment has no rate")

    @property
    def trace_path(self) -> Path | None:
        """The trace that is the workload, ``None`` where it is made."""
        return None if self.workload in WORKLOADS else Path(self.workload)

    def different_seeds(self, seeds: Sequence[int]) -> Sequence[int]:
        """The seeds that make a traffic of their own: of a trace file, which is the same under all, the first.

        More of them would look like more evidence.
        """
        return seeds if self.trace_path is None else seeds[:1]

    def refuse_rate(self, option: str) -> None:
        """Raise ``ConfigurationError`` where a rate or load that ``option`` gives means nothing: for a burst."""
        if self.trace_path is None and self.arrivals == "burst":
            raise ConfigurationError(f"a burst has no rate: leave {option} out")

    @property
    def num_made(self) -> int:
        """Requests to make where the workload is no trace."""
        return _NUM_MADE if self.requests is None else self.requests

    def _check_ranges(self) -> None:
        ranges = {
            "requests": (self.requests, 1, 10_000_000),
            "file_share": (self.file_share, 0, 1),
            "max_file_s": (self.max_file_s, MIN_FILE_S, MAX_AUDIO_S),
            "cv": (self.cv, 0.01, 100),
            "on_s": (self.on_s, 0.01, 1e6),
            "off_s": (self.off_s, 0.01, 1e6),
            "drift_rate": (self.drift_rate, 0.01, 100),
            "drift_file_share": (self.drift_file_share, 0, 1),
        }
        for name, (value, least, most) in ranges.items():
            if value is not None and not least <= value <= most:
                option = f"--{name.replace('_', '-')}"
                raise ConfigurationError(f"{option} must be from {least:.8g} to {most:.8g}, not {value:.8g}")


def _check_name(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known and Path(value).suffix.lower() not in TRACE_SUFFIXES:
        suffixes = ", ".join(TRACE_SUFFIXES)
        raise ConfigurationError(
            f"{option} must be one of {', '.join(known)}, or a file that ends in one of {suffixes}; not {value!r}"
        )
