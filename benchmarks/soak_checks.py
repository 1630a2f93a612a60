"""What the soak test asks of the requests that it sent and of the server that it watched; nothing here waits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from sooner.bench.accuracy import is_right, word_errors
from sooner.core.latency import percentile

DONE, LEFT = "done", "left"
"""Codes of a request with a text, and of one whose client went away as planned."""
TIMEOUT, BROKEN = "timeout", "broken"
"""Codes of a request that never ended, and of one that ended without a reply or with one that makes no sense."""

REFUSALS = frozenset({"queue_full", "client_limit", "spool_full", "backlog_too_large"})
LOSSES = frozenset({"engine_lost", "engine_failed"})
WARM_UP_SHARE = 1 / 3
"""Of the time watched, that in which memory may still grow."""
LOWEST_OF_S = 30.0
MIN_JUDGED_S = 120.0
"""Shortest stretch of samples whose slope tells anything."""

_LOSS_IS_SEEN_S = 40.0  # a hang is seen after the server's limit for a window, and the next process has to load


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one request ended.

    Attributes:
        kind: what the client meant to do.
        label: the recording or form that it sent.
        allowed: codes that are right for it, beside refusals and losses.
        sent_s: monotonic second at which it was sent.
        ended_s: monotonic second of the last byte.
        status: HTTP status, 0 for none.
        code: the error's, or one of the four above.
        text: the transcript, or what tells of the error.
        has_retry_after: whether the reply says when to come again.
    """

    kind: str
    label: str
    allowed: frozenset[str]
    sent_s: float
    ended_s: float
    status: int
    code: str
    text: str = ""
    has_retry_after: bool = False

    def fault(self, losses_s: Sequence[float]) -> str | None:
        """What is wrong with this end, ``None`` for nothing.

        Args:
            losses_s: monotonic seconds at which the engine was killed or stopped.
        """
        if self.code in LOSSES:
            near = any(self.sent_s - _LOSS_IS_SEEN_S <= loss_s <= self.ended_s for loss_s in losses_s)
            return None if near else f"{self.code} though no engine was killed"
        if self.code in REFUSALS:
            if self.status not in (429, 503):
                return f"{self.code} with status {self.status}"
            return None if self.has_retry_after else f"{self.code} without Retry-After"
        if self.status >= 500 and self.status not in (503, 504):
            return f"status {self.status}, {self.code}: {self.text[:200]}"
        return None if self.code in self.allowed else f"status {self.status}, {self.code}: {self.text[:200]}"


def text_fault(outcome: Outcome, said: Mapping[str, str], clips: Iterable[str]) -> str | None:
    """What is wrong with the text of a request, ``None`` for nothing, or where nothing is known of it.

    Args:
        outcome: the request.
        said: what is said in each recording whose text is known.
        clips: labels of the recordings that no text may be mistaken for.
    """
    if outcome.code != DONE or outcome.label not in said:
        return None
    if not said[outcome.label]:
        return f"text where nobody speaks: {outcome.text[:200]!r}" if outcome.text.strip() else None
    if not is_right(said[outcome.label], outcome.text):
        nearest = min(clips, key=lambda label: word_errors(said[label], outcome.text).num_errors)
        return f"not what is said in {outcome.label} (nearest: {nearest}): {outcome.text[:200]!r}"
    if outcome.label in clips and closest(outcome.text, {label: said[label] for label in clips}) != outcome.label:
        return f"nearer to another recording than to {outcome.label}: {outcome.text[:200]!r}"
    return None


def closest(text: str, said: Mapping[str, str]) -> str:
    """The label of the recording whose words differ least from ``text``, by errors per word."""

    def rate(label: str) -> float:
        found = word_errors(said[label], text)
        return found.num_errors / max(1, found.num_words)

    return min(said, key=rate)


@dataclass(frozen=True, slots=True)
class Slope:
    """How a figure grew.

    Attributes:
        per_min: growth a minute, by a straight line of least squares; ``None`` where too little was seen.
        highest: the most that was seen.
    """

    per_min: float | None
    highest: float


def slope_of(samples: Sequence[tuple[float, float]]) -> Slope:
    """The slope of ``(second, figure)`` after the first third of the time, and the highest figure of all.

    It is that of the lowest figure of each half minute. What a long recording takes and gives back is no growth,
    and a straight line through such steps has a slope by where they happen to stand.
    """
    highest = max((figure for _, figure in samples), default=0.0)
    if not samples:
        return Slope(None, highest)
    first_s, last_s = samples[0][0], samples[-1][0]
    later = [(at_s, figure) for at_s, figure in samples if at_s >= first_s + WARM_UP_SHARE * (last_s - first_s)]
    if later[-1][0] - later[0][0] < MIN_JUDGED_S:
        return Slope(None, highest)
    lowest: dict[int, tuple[float, float]] = {}
    for at_s, figure in later:
        part = int((at_s - later[0][0]) // LOWEST_OF_S)
        lowest[part] = min(lowest.get(part, (at_s, figure)), (at_s, figure), key=lambda one: one[1])
    mean_s = fmean(at_s for at_s, _ in lowest.values())
    mean = fmean(figure for _, figure in lowest.values())
    covariance = sum((at_s - mean_s) * (figure - mean) for at_s, figure in lowest.values())
    variance = sum((at_s - mean_s) ** 2 for at_s, _ in lowest.values())
    return Slope(60 * covariance / variance, highest)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold.

    Attributes:
        name: what.
        passed: whether it did; ``None`` where the run was too short to tell.
        figures: what was seen.
    """

    name: str
    passed: bool | None
    figures: str

    @property
    def word(self) -> str:
        """``PASS``, ``FAIL`` or ``----``."""
        return "----" if self.passed is None else "PASS" if self.passed else "FAIL"


def flat(name: str, samples: Sequence[tuple[float, float]], *, most_per_min: float, most: float) -> Check:
    """Memory that neither grows nor was ever too large; ``samples`` are ``(second, MB)``."""
    slope = slope_of(samples)
    if slope.per_min is None:
        return Check(name, None if slope.highest <= most else False, f"highest {slope.highest:.0f} MB")
    return Check(
        name,
        slope.per_min <= most_per_min and slope.highest <= most,
        f"{slope.per_min:+.2f} MB a minute (at most {most_per_min:g}), "
        f"highest {slope.highest:.0f} MB (at most {most:g})",
    )


def none_waits_for_ever(outcomes: Sequence[Outcome], *, most_s: float) -> Check:
    """Whoever got a text got it within bounds, however much of the load was shorter."""
    served = [one.ended_s - one.sent_s for one in outcomes if one.code == DONE]
    figures = ", ".join(f"P{percent} {percentile(served, percent):.1f}" for percent in (50, 90, 99, 100) if served)
    passed = bool(served) and max(served) <= most_s
    return Check("nobody waits for ever", passed, f"{figures} s (at most {most_s:g})")


def quick(name: str, latencies_s: Sequence[float], num_failed: int, *, most_p99_s: float) -> Check:
    """Every answer came, and 99 in 100 quickly."""
    if not latencies_s:
        return Check(name, False, "no answer at all")
    p50_s, p99_s, max_s = (percentile(latencies_s, percent) for percent in (50, 99, 100))
    return Check(
        name,
        num_failed == 0 and p99_s <= most_p99_s,
        f"{len(latencies_s)} answers, {num_failed} failed; P50 {1e3 * p50_s:.1f}, P99 {1e3 * p99_s:.1f} "
        f"(at most {1e3 * most_p99_s:g}), max {1e3 * max_s:.0f} ms",
    )
