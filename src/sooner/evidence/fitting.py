"""Straight lines through zero that outliers do not move, and how far they may be off.

What a request (or an engine step) took is the sum of what it is made of, each part times its cost. Three things
shape the fit:

- *Relative errors.* A residual is divided by what is predicted. An hour-long file takes a thousand times as long
  as a command; by seconds it alone would decide.
- *Outliers.* Shared machines stall. Residuals beyond 1.345 standard deviations (those of their median) count in
  proportion to their size only, by iteratively reweighted least squares (P. J. Huber 1964,
  https://doi.org/10.1214/aoms/1177703732).
- *No negative cost.* With three costs at most, every subset of them is tried, and the best without a negative one
  is the constrained optimum.

Such costs say what is typical. Stalls take time all the same: what all rows took over what their costs predict for
all of them is the factor that makes typical costs into mean ones, from which load and capacity follow. A plain fit
in which stalls count in full would need no factor, but divide them among the costs by chance.

Standard errors come from a bootstrap over groups, such as all requests of one recording: the same clip sent ten
times is no ten clips. The held-out part is likewise made of whole groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sooner.errors import ConfigurationError
from sooner.evidence.comparison import Values

__all__ = [
    "SIGMA_PER_MEDIAN",
    "Accuracy",
    "Fitted",
    "Residuals",
    "Rows",
    "accuracy_of",
    "costs",
    "figure_of",
    "fitted_costs",
    "held_out_rows",
    "independence",
    "r_squared",
    "residuals_of",
    "standard_errors",
]

Rows = NDArray[np.intp]

_NUM_RESAMPLES = 200
_NUM_ITERATIONS = 30
_HUBER = 1.345  # 95 % of the efficiency of least squares where errors are normal
SIGMA_PER_MEDIAN = 1.4826
"""Standard deviation of a normal variable over the median of its absolute value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A number and its standard error, in the same unit; ``None`` where a single group gave the number."""

    value: float
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How near predictions came.

    Attributes:
        num: predictions.
        r_squared: share of the variance of the actual times that they explain; below 0, worse than the mean.
        median_error: median of |predicted / actual − 1|.
        p90_error: its 90th percentile.
    """

    num: int
    r_squared: float
    median_error: float
    p90_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """What is left in one part of the data.

    Attributes:
        label: which part.
        num: requests or steps in it.
        bias: median of actual / predicted − 1: positive where it took longer than predicted.
        p90_error: 90th percentile of |predicted / actual − 1|.
    """

    label: str
    num: int
    bias: float
    p90_error: float


def costs(design: Values, actual: Values) -> Values:
    """Non-negative costs by Huber's weights on relative residuals.

    Args:
        design: what each row is made of, none of it negative; one column a cost.
        actual: what each row took; costs scale with it.
    """
    cost = _nonnegative(design / actual[:, None], np.ones(len(actual)))  # a stall counts for little from the start
    for _ in range(_NUM_ITERATIONS):
        # A row whose parts all cost nothing so far predicts 0: it must keep a finite weight.
        predicted = np.maximum(design @ cost, actual / 100)
        residual = np.abs(actual / predicted - 1)
        tolerated = max(_HUBER * SIGMA_PER_MEDIAN * float(np.median(residual)), 1e-12)
        scale = np.sqrt(tolerated / np.maximum(residual, tolerated)) / predicted
        before, cost = cost, _nonnegative(design * scale[:, None], actual * scale)
        if np.allclose(cost, before, rtol=1e-6, atol=0.0):
            break
    return cost


def _nonnegative(design: Values, target: Values) -> Values:
    """Least squares without negative coefficients, by trying every set of columns."""
    gram, moment = design.T @ design, design.T @ target
    num_columns = len(moment)
    best, best_gain = np.zeros(num_columns), 0.0
    for size in range(num_columns, 0, -1):
        for columns in combinations(range(num_columns), size):
            chosen = list(columns)
            part = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], moment[chosen], rcond=None)[0]
            gain = float(part @ moment[chosen])  # by how much it lowers the sum of squares
            if part.min() >= 0 and gain > best_gain:
                best, best_gain = np.zeros(num_columns), gain
                best[chosen] = part
        if size == num_columns and best_gain:
            break  # no set does better than all columns
    return best


def independence(design: Values, actual: Values) -> float:
    """Smallest singular value of the columns at length 1: 0 where one says no more than the others."""
    relative = design / actual[:, None]
    lengths = np.linalg.norm(relative, axis=0)
    return 0.0 if lengths.min() == 0 else float(np.linalg.svd(relative / lengths, compute_uv=False)[-1])


def held_out_rows(groups: Rows, share: float) -> NDArray[np.bool_]:
    """Which rows to hold out: groups spread evenly, so that all lengths are in both parts; one at least.

    Args:
        groups: number of each row's group; at least two groups.
        share: share of the groups, in (0, 0.5].

    Raises:
        ConfigurationError: ``share`` is outside.
    """
    if not 0 < share <= 0.5:
        raise ConfigurationError(f"the held-out share must lie above 0 and at most at 0.5, not {share:g}")
    share = max(share, 1 / (int(groups.max()) + 1))
    # A group is held out where it takes the share of all groups so far past a whole number.
    held: NDArray[np.bool_] = np.floor(share * (groups + 2)) > np.floor(share * (groups + 1))
    return held


def standard_errors(figure: Callable[[Rows], Values], groups: Rows) -> Values:
    """Standard deviation of ``figure`` over samples of whole groups, drawn with replacement; equal each time."""
    members = [np.flatnonzero(groups == group) for group in range(int(groups.max()) + 1)]
    draws = np.random.default_rng(0).integers(len(members), size=(_NUM_RESAMPLES, len(members)))
    figures = [figure(np.concatenate([members[group] for group in draw])) for draw in draws]
    deviations: Values = np.std(figures, axis=0, ddof=1)
    return deviations


def figure_of(figure: Callable[[Rows], float], groups: Rows) -> Fitted:
    """``figure`` of all rows, and its standard error."""
    value = figure(np.arange(len(groups)))
    if not groups.any():
        return Fitted(value=value, standard_error=None)
    return Fitted(value=value, standard_error=float(standard_errors(lambda rows: np.array(figure(rows)), groups)))


def fitted_costs(design: Values, actual: Values, groups: Rows) -> tuple[list[Fitted], Fitted]:
    """The costs, and what all rows took over what these costs predict for all of them."""

    def numbers(rows: Rows) -> Values:
        cost = costs(design[rows], actual[rows])
        return np.append(cost, actual[rows].sum() / (design[rows] @ cost).sum())

    values, errors = numbers(np.arange(len(actual))), standard_errors(numbers, groups)
    *fitted, total_ratio = (
        Fitted(value=float(value), standard_error=float(error))
        for value, error in zip(values, errors, strict=True)
    )
    return fitted, total_ratio


def accuracy_of(predicted: Values, actual: Values) -> Accuracy:
    """How near ``predicted`` came."""
    error = np.abs(predicted / actual - 1)
    return Accuracy(
        num=len(actual),
        r_squared=r_squared(predicted, actual),
        median_error=float(np.median(error)),
        p90_error=float(np.percentile(error, 90)),
    )


def r_squared(predicted: Values, actual: Values) -> float:
    """Share of the variance of ``actual`` that is explained; 0 where there is none."""
    total = float(((actual - actual.mean()) ** 2).sum())
    return 1 - float(((actual - predicted) ** 2).sum()) / total if total else 0.0


def residuals_of(label: str, predicted: Values, actual: Values) -> Residuals:
    """What is left in the part called ``label``."""
    return Residuals(
        label=label,
        num=len(actual),
        bias=float(np.median(actual / predicted - 1)),
        p90_error=float(np.percentile(np.abs(predicted / actual - 1), 90)),
    )
