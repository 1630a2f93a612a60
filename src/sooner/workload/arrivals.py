"""When requests arrive. The random generator is an argument: equal seeds give equal traffic.

Every process is endless and has ``rate_per_s`` as its mean rate, so that only the shape differs. Bursty ones need
long runs for their mean to show.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from pathlib import Path
from types import MappingProxyType

__all__ = [
    "SHIPPED_ARRIVALS",
    "burst_arrivals",
    "drifting",
    "gamma_arrivals",
    "on_off_arrivals",
    "poisson_arrivals",
    "recorded_arrivals",
]

_HERE = Path(__file__).parent

SHIPPED_ARRIVALS: Mapping[str, Path] = MappingProxyType(
    {"azure-code": _HERE / "azure_code.tsv", "azure-conv": _HERE / "azure_conv.tsv"}
)
"""Recorded arrivals at two real inference services, an hour each, for ``recorded_arrivals``; see ``NOTICE``."""


def poisson_arrivals(rng: random.Random, *, rate_per_s: float) -> Iterator[float]:
    """Arrival seconds of a Poisson process from 0 on, without end.

    Raises:
        ValueError: the rate is not positive.
    """
    _check_positive("rate_per_s", rate_per_s)
    now_s = 0.0
    while True:
        now_s += rng.expovariate(rate_per_s)
        yield now_s


def gamma_arrivals(rng: random.Random, *, rate_per_s: float, cv: float) -> Iterator[float]:
    """Arrival seconds with independent gamma gaps: clusters and long pauses where ``cv`` is above 1.

    Args:
        rng: draws.
        rate_per_s: mean rate.
        cv: coefficient of variation of the gaps; 1 is Poisson, towards 0 it becomes a clock.

    Raises:
        ValueError: the rate or ``cv`` is not positive.
    """
    _check_positive("rate_per_s", rate_per_s)
    _check_positive("cv", cv)
    now_s = 0.0
    while True:
        now_s += rng.gammavariate(1 / cv**2, cv**2 / rate_per_s)
        yield now_s


def on_off_arrivals(rng: random.Random, *, rate_per_s: float, on_s: float, off_s: float) -> Iterator[float]:
    """Arrival seconds of a source that is busy, then silent: Poisson while busy, exponential phases.

    It begins in either phase with the chance of finding it there, so the mean rate holds from the start.

    Args:
        rng: draws.
        rate_per_s: mean rate over both phases; while busy it is ``(on_s + off_s) / on_s`` times that.
        on_s: mean length of a busy phase, seconds.
        off_s: mean length of a silent phase, seconds.

    Raises:
        ValueError: the rate or a phase is not positive.
    """
    for name, value in (("rate_per_s", rate_per_s), ("on_s", on_s), ("off_s", off_s)):
        _check_positive(name, value)
    busy_share = on_s / (on_s + off_s)
    now_s = 0.0 if rng.random() < busy_share else rng.expovariate(1 / off_s)
    while True:
        end_s = now_s + rng.expovariate(1 / on_s)
        while (now_s := now_s + rng.expovariate(rate_per_s / busy_share)) < end_s:
            yield now_s
        now_s = end_s + rng.expovariate(1 / off_s)


def burst_arrivals() -> Iterator[float]:
    """All at once, at second 0."""
    return repeat(0.0)


def recorded_arrivals(arrivals_s: Sequence[float], *, rate_per_s: float) -> Iterator[float]:
    """A recorded sequence from 0 on, stretched or squeezed in time to a mean rate; it begins anew when it ends.

    Args:
        arrivals_s: seconds on any clock, in rising order. A mean gap passes between the last and its repetition.
        rate_per_s: mean rate.

    Raises:
        ValueError: the rate is not positive, or there are not two arrivals at different times.
    """
    _check_positive("rate_per_s", rate_per_s)
    if len(arrivals_s) < 2 or arrivals_s[0] == arrivals_s[-1]:
        raise ValueError("a recorded sequence needs two arrivals or more, not all at the same time")
    first_s = arrivals_s[0]
    scale = (len(arrivals_s) - 1) / (rate_per_s * (arrivals_s[-1] - first_s))
    begin_s = 0.0
    while True:
        yield from (begin_s + (arrival_s - first_s) * scale for arrival_s in arrivals_s)
        begin_s += len(arrivals_s) / rate_per_s


def drifting(arrivals_s: Sequence[float], *, drift_rate: float) -> list[float]:
    """Warp time so that the rate moves evenly, whatever the process: first and last arrival stay where they are.

    Over the span T of the run the rate r becomes ``r(t) = 2r/(1+d) · (1 + (d−1)·t/T)``: from 2r/(1+d) to d times
    that, with mean r. Its integral says how many requests have come by t; an arrival that was at the share u of
    the span goes to where that integral is u of the whole, at the share s:

        s + (d−1)·s²/2 = u·(1+d)/2,  so  s = u·(1+d) / (1 + √(1 + (d²−1)·u)).

    Args:
        arrivals_s: in rising order, the first at 0.
        drift_rate: d, the rate at the end over the one at the start; positive.

    Raises:
        ValueError: ``drift_rate`` is not positive, or all arrivals are at 0 while the rate should move.
    """
    _check_positive("drift_rate", drift_rate)
    if drift_rate == 1 or len(arrivals_s) < 2:
        return list(arrivals_s)
    span_s = arrivals_s[-1]
    if span_s <= 0:
        raise ValueError("arrivals that are all at the same time have no rate that could drift")
    warped_s = (span_s * _warped(arrival_s / span_s, drift_rate) for arrival_s in arrivals_s)
    return list(accumulate(warped_s, max))  # rounding could let two close ones change places


def _warped(share: float, drift: float) -> float:
    return share * (1 + drift) / (1 + math.sqrt(max(0.0, 1 + (drift**2 - 1) * share)))


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, not {value}")
