"""The report in plain sentences. Pure: from numbers to text.

Rules: a gain or a loss is claimed only where its interval leaves out 0; where it does not, that is said; where a
policy loses, that is said next to what it gains; and what was not paired is not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sooner.evidence.comparison import Interval
from sooner.evidence.report.paired import Change, Comparison
from sooner.evidence.summary import Goodput

__all__ = [
    "broken_off_sentence",
    "change_words",
    "comparison_sentences",
    "failure_sentence",
    "goodput_sentence",
    "list_words",
    "no_baseline_sentence",
    "number",
    "percent_words",
    "saturation_sentence",
    "simulated_sentence",
    "single_policy_sentence",
    "times",
]


def number(value: float) -> str:
    """A number to about three digits: ``0.52``, ``31.5``, ``1,096``."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 0.0995:
        return f"{value:.2g}" if size >= 1e-3 else f"{value:.1e}"
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def list_words(items: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def percent_words(size: float) -> str:
    """The size of a percentage, with a digit after the point where it is small: ``62 %``, ``3.1 %``."""
    size = abs(size)
    if size < 0.05:
        return "under 0.1 %"
    return f"{size:.1f} %" if size < 9.95 else f"{size:.0f} %"


def times(change: float) -> str:
    """A change in percent as a factor: 140 is ``2.4``."""
    return number(1 + change / 100)


def change_words(change: Change) -> str:
    """What becomes of a figure and its 95 % interval, such as ``62 % shorter (55 % to 70 %)``."""
    interval = change.interval
    if interval is None:
        return f"too few to tell ({change.num_requests:,})"
    if interval.high < 0:
        low, high = percent_words(interval.high), percent_words(interval.low)
        return f"{percent_words(interval.value)} shorter ({low} to {high})"
    if interval.low <= 0:
        return f"no difference shown ({_end_words(interval.low)} to {_end_words(interval.high)})"
    if interval.value < 100:
        low, high = percent_words(interval.low), percent_words(interval.high)
        return f"{percent_words(interval.value)} longer ({low} to {high})"
    return f"{times(interval.value)} times as long ({times(interval.low)} to {times(interval.high)})"


def _end_words(end: float) -> str:
    return f"{percent_words(end)} {'shorter' if end < 0 else 'longer'}"


def comparison_sentences(comparison: Comparison) -> list[str]:
    """One policy against the baseline: all requests, who gains, who pays, who cannot be told."""
    policy, baseline = comparison.policy, comparison.baseline
    if not comparison.runs:
        return [
            f"{policy} and {baseline} were not run with the same traffic (no common seed and request), "
            "so nothing is compared and no gain is claimed."
        ]
    overall = {change.figure: change for change in comparison.overall}
    shown = [f"{name} {change_words(overall[name])}" for name in ("median", "P99", "mean")]
    sentences = [f"All requests, against {baseline}: {'; '.join(shown)}."]
    groups = comparison.by_length
    sentences += _group_sentence("Gains", [one for one in groups if _is_gain(one.interval)])
    sentences += _group_sentence("Pays", [one for one in groups if _is_loss(one.interval)])
    few = [one for one in groups if one.interval is None]
    if groups and not any(_is_loss(one.interval) for one in groups):
        sentences.append(_nobody_sentence(few))
    open_groups = [one.whose for one in groups if one.interval and not _is_told(one.interval)]
    if open_groups:
        sentences.append(f"No difference shown: {list_words(open_groups)}.")
    if few:
        sentences.append(f"Too few requests to tell: {'; '.join(map(_few_words, few))}.")
    if comparison.num_left_out:
        sentences.append(
            f"{comparison.num_left_out:,} requests without a partner, such as failed ones or those of a seed that "
            "one side lacks, are left out of this."
        )
    return sentences


def _nobody_sentence(few: Sequence[Change]) -> str:
    if not few:
        return "No length of recording is shown to pay."
    return "None of the lengths with enough requests is shown to pay; those below may."


def _few_words(change: Change) -> str:
    requests = "1 request" if change.num_requests == 1 else f"{change.num_requests} requests"
    return f"{change.whose} from {number(change.base_s)} to {number(change.other_s)} s on average ({requests})"


def _group_sentence(begin: str, changes: Sequence[Change]) -> list[str]:
    if not changes:
        return []
    parts = [
        f"{one.whose} from {number(one.base_s)} to {number(one.other_s)} s on average, {change_words(one)}"
        for one in changes
    ]
    return [f"{begin}: {'; '.join(parts)}."]


def _is_gain(interval: Interval | None) -> bool:
    return interval is not None and interval.high < 0


def _is_loss(interval: Interval | None) -> bool:
    return interval is not None and interval.low > 0


def _is_told(interval: Interval) -> bool:
    return _is_gain(interval) or _is_loss(interval)


def single_policy_sentence(policy: str) -> str:
    """Where there is nothing to compare."""
    return f"Only {policy} was run, so nothing is compared."


def no_baseline_sentence(baseline: str, policies: Sequence[str]) -> str:
    """Where what others are compared with is missing."""
    return (
        f"{baseline}, the baseline, was not run here, so nothing is compared and no gain is claimed. "
        f"--baseline takes {list_words(policies)}."
    )


def failure_sentence(policy: str, num_sent: int, kinds: Mapping[str, int]) -> str:
    """How many got no text, and why."""
    counted = list_words([f"{kind} {num:,}" for kind, num in kinds.items()])
    num_failed = sum(kinds.values())
    return (
        f"{policy}: {num_failed:,} of {num_sent:,} requests got no text ({counted}). "
        "Times are those of the others only, so they flatter a server that refuses much."
    )


def broken_off_sentence(policy: str, num_sent: int, num_found: int) -> str:
    """A file holds fewer requests than its header announces."""
    return f"{policy}: {num_sent:,} requests were announced, {num_found:,} are in the files: a run was broken off."


def saturation_sentence(offered: str) -> str:
    """A load that no policy can serve."""
    return (
        f"At {offered} more is asked for than can be served: the queue grows for as long as requests come, "
        "and the times tell how long the run was."
    )


def simulated_sentence(engine: str) -> str:
    """What a simulation is worth."""
    return f"Simulated: as true as the profile {engine} is."


def goodput_sentence(policy: str, goodput: Goodput) -> str:
    """What was in time."""
    return f"{policy}: {100 * goodput.share:.1f} % in time, {number(goodput.per_s)} requests/s."
