"""Every option of ``sooner report``, once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
        The same for longer recordings, and for all where slo_short_s is not given.
    """

    out: Path = Path("report")
    title: str | None = None
    baseline: str = "fcfs"
    slo_short_s: float | None = None
    slo_s: float | None = None
