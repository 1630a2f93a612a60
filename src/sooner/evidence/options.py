"""Every option of ``sooner report``, once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from sooner.errors import ConfigurationError

__all__ = ["ReportOptions"]


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What the report is about.

    Parameters
    ----------
    out
        Folder that receives report.html, figures/ and tables/.
    title
        Headline of the page.
    baseline
        Policy that the others are compared with.
    slo_short_s
        Limit on the E2E time of recordings of at most 30 s, seconds; goodput counts what keeps it.
    slo_s
        The same for longer recordings, and for all where --slo-short-s is not given.
    """

    out: Path = Path("report")
    title: str | None = None
    baseline: str = "fcfs"
    slo_short_s: float | None = None
    slo_s: float | None = None

    def __post_init__(self) -> None:
        for option, limit_s in (("--slo-short-s", self.slo_short_s), ("--slo-s", self.slo_s)):
            if limit_s is not None and not 0 < limit_s < math.inf:
                raise ConfigurationError(f"{option} must be a finite number of seconds above 0, not {limit_s}")
