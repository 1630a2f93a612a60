"""What a window, a token and a window's context cost on this machine with this model, as it is learnt.

A job's service is taken to be ``encode_s · windows + token_s · tokens + context_s · (windows - 1)``. The three
numbers are found by recursive least squares with exponential forgetting (L. Ljung, System Identification, 2nd ed.,
§11.2; S. Haykin, Adaptive Filter Theory, on the RLS algorithm): the sums of products of the last jobs are kept,
older ones forgotten step by step, and the three equations solved at each job. What differs from the textbook:

- The textbook keeps the inverse, which grows without bound in a direction that no job excites: a service that has
  clips alone never sees context_s. Here the sums are kept, and a fixed pull of ``PRIOR_JOBS`` is added when they
  are solved. It pulls to the configured costs times how much slower all jobs are than those say, so that on a
  slower machine what no job has shown slows down with the rest.
- Jobs are divided by their configured size, or else one long file would outweigh all clips. Divided by what is
  expected now, the jobs before a slowdown would outweigh those after it.
- A job whose deviation is over ``OUTLIER_SCALES`` times the usual one counts as if it were just that (Huber 1964,
  https://doi.org/10.1214/aoms/1177703732). The usual deviation is itself learnt: after a true change it grows,
  and the change is followed.
- No cost is negative: of the solutions with some costs at 0, the best is taken.

Published costs stand still until one has moved by ``PUBLISH_STEP``: the queue keeps one heap per distinct size
(``sooner.core.ready_queue.ResponseRatioQueue``), and costs that moved at every job would give every job its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations
from typing import Any

from sooner.core.kappa import number_within
from sooner.errors import LearntStateError

__all__ = ["CostModel", "Costs"]

MEMORY_JOBS = 70
"""Jobs after which all but 1/e is forgotten: a change is followed to 95 % in about 250 jobs."""

PRIOR_JOBS = 0.3
"""Jobs that the configured costs count for, always. In theory (deviation of a job / deviation of a cost)²: jobs
are off by some 20 %, a machine's costs by some 40 % of what was configured, the general slowness apart."""

OUTLIER_SCALES = 2.5
"""How many usual deviations one job may pull."""

LOWEST_SCALE = 0.05
"""Usual relative deviation that is assumed at least. Without it, an engine without noise would hide any change."""

SCALE_MEMORY_JOBS = 30
"""Jobs over which the usual deviation is averaged. Less than ``MEMORY_JOBS``: it grows first, costs follow."""

PUBLISH_STEP = 0.05
"""Share by which a cost moves before new ones are published."""

LIMIT_FACTOR = 1000.0
"""How far from what was configured costs may go, up and down."""

TOKENS_PER_WINDOW = 90
"""Tokens of a full window at 3 a second, to compare a cost that is configured as 0 with one that is not."""

MOST_SQUARES = 1e9
"""Largest sum of squares that a saved state may have, in units of the configured costs; jobs give under 100."""

_Vector = tuple[float, float, float]
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))  # of a symmetric matrix, the part that is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What serving costs.

    Attributes:
        encode_s: seconds to encode one window.
        token_s: seconds to decode one token.
        context_s: seconds that a window takes more which goes on from another: the model reads the text so far.
    """

    encode_s: float
    token_s: float
    context_s: float = 0.0

    def size_s(self, *, windows: int, tokens: int, contexts: int) -> float:
        """Service of ``windows`` windows with ``tokens`` tokens, ``contexts`` of which go on, seconds."""
        return self.encode_s * windows + self.token_s * tokens + self.context_s * contexts


class CostModel:
    """Costs learnt job by job, and published in steps.

    Args:
        prior: what is expected before anything is seen; ``encode_s`` and ``token_s`` are not both 0.
    """

    def __init__(self, *, prior: Costs) -> None:
        self._prior = prior
        # What to measure costs by: as configured, or where that is 0, what the others suggest.
        window_s = prior.encode_s or TOKENS_PER_WINDOW * prior.token_s
        self._units: _Vector = (
            window_s,
            prior.token_s or prior.encode_s / TOKENS_PER_WINDOW,
            prior.context_s or window_s,
        )
        self._gram: dict[tuple[int, int], float] = dict.fromkeys(_PAIRS, 0.0)
        self._moment: _Vector = (0.0, 0.0, 0.0)
        self._scale = 4 * LOWEST_SCALE  # the first jobs may well differ from what was configured
        self._fitted = prior
        self._published = prior

    @property
    def costs(self) -> Costs:
        """The published costs."""
        return self._published

    def observe(self, *, windows: int, tokens: int, service_s: float) -> None:
        """Learn from one finished job: windows run, tokens emitted, seconds on a worker. O(1).

        Raises:
            ValueError: there is no window, or a number is negative or not finite; nothing is learnt.
        """
        if windows < 1 or tokens < 0 or not math.isfinite(service_s) or service_s < 0:
            raise ValueError(
                f"a finished job has at least one window and finite numbers of at least 0, not {windows} windows, "
                f"{tokens} tokens, {service_s} s"
            )
        # A size is never 0: a window that gave no token is compared with one that gave one.
        counts = (windows, max(1, tokens), windows - 1)
        expected_s, typical_s = _dot(astuple(self._fitted), counts), _dot(self._units, counts)
        seen_s = min(max(service_s, typical_s / LIMIT_FACTOR), typical_s * LIMIT_FACTOR)
        deviation = seen_s / expected_s - 1
        most = OUTLIER_SCALES * self._scale
        taken_s = expected_s * (1 + min(max(deviation, -most), most))
        self._learn([count / typical_s for count in counts], taken_s / typical_s)
        step = (min(abs(deviation), 3 * self._scale) - self._scale) / SCALE_MEMORY_JOBS
        self._scale = max(self._scale + step, LOWEST_SCALE)

    def _learn(self, features: Sequence[float], ratio: float) -> None:
        kept = math.exp(-1 / MEMORY_JOBS)
        self._gram = {(j, k): kept * old + features[j] * features[k] for (j, k), old in self._gram.items()}
        first, second, third = (kept * old + one * ratio for old, one in zip(self._moment, features, strict=True))
        self._moment = (first, second, third)
        self._update()

    def _update(self) -> None:
        self._fitted, slowness = self._fit()
        if self._has_moved(slowness):
            self._published = self._fitted

    def _fit(self) -> tuple[Costs, float]:
        """The costs that the sums give, and how much slower jobs are than was configured."""
        units = self._units
        gram = [[units[j] * units[k] * self._gram[min(j, k), max(j, k)] for k in range(3)] for j in range(3)]
        moment = [unit * one for unit, one in zip(units, self._moment, strict=True)]
        target = [one / unit for one, unit in zip(astuple(self._prior), units, strict=True)]
        along = sum(target[j] * gram[j][k] * target[k] for j in range(3) for k in range(3))
        slowness = (PRIOR_JOBS + _dot(target, moment)) / (PRIOR_JOBS + along)
        for j in range(3):
            gram[j][j] += PRIOR_JOBS
            moment[j] += PRIOR_JOBS * slowness * target[j]
        solution = _least_squares(gram, moment)
        encode_s, token_s, context_s = (
            min(max(one * unit, configured / LIMIT_FACTOR), unit * LIMIT_FACTOR)
            for one, unit, configured in zip(solution, units, astuple(self._prior), strict=True)
        )
        return Costs(encode_s=encode_s, token_s=token_s, context_s=context_s), slowness

    def _has_moved(self, slowness: float) -> bool:
        # A cost near 0 is measured by its unit, or noise around 0 would be news at every job.
        both = zip(astuple(self._published), astuple(self._fitted), self._units, strict=True)
        return any(abs(new - old) > PUBLISH_STEP * max(old, slowness * unit) for old, new, unit in both)

    def state(self) -> dict[str, Any]:
        """All that was learnt, for JSON. It is of use even if other costs are configured."""
        return {
            "gram": list(self._gram.values()),
            "moment": list(self._moment),
            "scale": self._scale,
            "published": list(astuple(self._published)),
        }

    @classmethod
    def from_state(cls, state: object, *, prior: Costs) -> CostModel:
        """A model that knows what the one knew whose ``state`` this is.

        Raises:
            LearntStateError: ``state`` is not one of ``state()``.
        """
        if not isinstance(state, dict):
            raise LearntStateError(reason="costs are not an object")
        model = cls(prior=prior)
        model._gram = dict(zip(_PAIRS, _numbers(state, "gram", 6), strict=True))
        largest = max(model._units[j] ** 2 * model._gram[j, j] for j in range(3))
        if largest > MOST_SQUARES or not _is_of_squares(model._gram):
            raise LearntStateError(reason="gram does not hold sums of squares and of products, or not of jobs")
        first, second, third = _numbers(state, "moment", 3)
        model._moment = (first, second, third)
        model._scale = number_within(state.get("scale"), LOWEST_SCALE, LIMIT_FACTOR**2, name="scale")
        encode_s, token_s, context_s = _numbers(state, "published", 3)
        model._published = Costs(encode_s=encode_s, token_s=token_s, context_s=context_s)
        model._update()  # publishes anew only where these are not what the sums give, with this prior
        return model

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold; for tests."""
        for costs in (self._fitted, self._published):
            assert all(math.isfinite(one) and one >= 0 for one in astuple(costs)), "a cost that none can be"
            assert costs.encode_s + costs.token_s > 0, "jobs without size"
        assert all(math.isfinite(one) and one >= 0 for one in (*self._gram.values(), *self._moment)), "sums"
        assert LOWEST_SCALE <= self._scale <= LIMIT_FACTOR**2, "scale out of bounds"


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _least_squares(gram: Sequence[Sequence[float]], moment: Sequence[float]) -> list[float]:
    """The best solution without negative numbers, three unknowns: of all that have some at 0, at most 7."""
    best, best_gain = [0.0, 0.0, 0.0], 0.0
    for num_free in (3, 2, 1):
        for free in combinations(range(3), num_free):
            found = _solve([[gram[j][k] for k in free] for j in free], [moment[j] for j in free])
            solution = [found[free.index(j)] if j in free else 0.0 for j in range(3)]
            gain = _dot(solution, moment)  # twice what the squares lose
            if min(found) >= 0 and gain > best_gain:
                best, best_gain = solution, gain
        if num_free == 3 and best_gain > 0:
            break
    return best


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gauss's elimination. Without pivots: the matrix is positive definite, thanks to the pull to the prior."""
    size = len(vector)
    for j in range(size):
        for row in range(j + 1, size):
            factor = matrix[row][j] / matrix[j][j]
            matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[j], strict=True)]
            vector[row] -= factor * vector[j]
    for j in reversed(range(size)):
        rest = _dot(matrix[j][j + 1 :], vector[j + 1 :])
        vector[j] = (vector[j] - rest) / matrix[j][j]
    return vector


def _numbers(state: dict[str, Any], name: str, count: int) -> list[float]:
    values = state.get(name)
    if not isinstance(values, list) or len(values) != count:
        raise LearntStateError(reason=f"{name} must be a list of {count} numbers")
    return [number_within(value, 0.0, 1e30, name=name) for value in values]


def _is_of_squares(gram: Mapping[tuple[int, int], float]) -> bool:
    """Whether the matrix is positive semidefinite, but for rounding."""
    (a, b, c, d, e, f), rounding = gram.values(), 1e-6
    if any(off * off > one * other * (1 + rounding) for off, one, other in ((b, a, d), (c, a, f), (e, d, f))):
        return False
    return a * (d * f - e * e) - b * (b * f - c * e) + c * (b * e - c * d) >= -rounding * a * d * f
