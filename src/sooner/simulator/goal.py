"""Service level objectives for the time from arrival to text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sooner.core.estimator import WINDOW_S
from sooner.core.latency import percentile
from sooner.errors import ConfigurationError

__all__ = ["Goal"]

_GOAL = re.compile(
    r"\s*(p\d{1,2}(?:\.\d+)?|max)\s+(clips|files|all)\s*<=\s*(\d+(?:\.\d+)?)\s*s?\s*", re.IGNORECASE
)
_AMONG: Mapping[str, Callable[[float], bool]] = {
    "clips": lambda audio_s: audio_s <= WINDOW_S,
    "files": lambda audio_s: audio_s > WINDOW_S,
    "all": lambda audio_s: True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A service level objective, such as ``p90 clips <= 2``.

    Attributes:
        percent: the percentile of E2E, 100 for the maximum.
        among: ``clips`` (up to 30 s), ``files`` (longer) or ``all``.
        limit_s: seconds it may take at most.
    """

    percent: float
    among: str
    limit_s: float

    @classmethod
    def parse(cls, text: str) -> Goal:
        """Read ``p90 clips <= 2``. Raises ``ConfigurationError`` where it is something else."""
        found = _GOAL.fullmatch(text)
        if found is None or float(found[3]) <= 0:
            raise ConfigurationError(
                f"--goal must read like 'p90 clips <= 2' or 'max all <= 60' (clips, files or all), not {text!r}"
            )
        percent = 100.0 if found[1].lower() == "max" else float(found[1][1:])
        return cls(percent=percent, among=found[2].lower(), limit_s=float(found[3]))

    def __str__(self) -> str:
        figure = "max" if self.percent == 100 else f"P{self.percent:g}"
        return f"{figure} {self.among} ≤ {self.limit_s:g} s"

    def concerns(self, audio_s: float) -> bool:
        """Whether a recording of this length is one of those it is about."""
        return _AMONG[self.among](audio_s)

    def value_s(self, e2e_s: Sequence[tuple[float, float]]) -> float:
        """The figure over (audio_s, E2E) pairs, seconds; 0 where none is of the kind."""
        among = [seconds for audio_s, seconds in e2e_s if self.concerns(audio_s)]
        return percentile(among, self.percent) if among else 0.0
