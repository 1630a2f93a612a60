"""When requests arrive. The random generator is an argument: equal seeds give equal traffic."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["poisson_arrivals"]


def poisson_arrivals(rng: random.Random, *, rate_per_s: float) -> Iterator[float]:
    """Arrival seconds of a Poisson process from 0 on, without end.

    Raises:
        ValueError: the rate is not positive.
    """
    if rate_per_s <= 0:
        raise ValueError(f"rate_per_s must be positive, not {rate_per_s}")
    now_s = 0.0
    while True:
        now_s += rng.expovariate(rate_per_s)
        yield now_s
