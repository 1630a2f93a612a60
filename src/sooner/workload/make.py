"""From the options of a workload to its trace.

Lengths and arrivals are drawn by generators of their own, so equal seeds give equal recordings at any rate and
under any arrival process: such runs can be compared request by request.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from sooner.errors import ConfigurationError
from sooner.workload.arrivals import (
    SHIPPED_ARRIVALS,
    burst_arrivals,
    drifting,
    gamma_arrivals,
    on_off_arrivals,
    poisson_arrivals,
    recorded_arrivals,
)
from sooner.workload.lengths import Recording, clip_lengths, mixed_lengths, uniform_lengths
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest, read_arrivals, read_trace

__all__ = ["describe", "make_trace"]

_FEWEST_RECORDED = 100  # a handful of arrivals may come at one moment, which has no rate


def make_trace(options: WorkloadOptions, *, rate_per_s: float | None, seed: int) -> list[TraceRequest]:
    """The requests of a workload in order of arrival, the first at second 0. O(requests).

    Args:
        options: what arrives, and how.
        rate_per_s: mean requests a second. A burst has none and passes it over. ``None`` keeps the arrivals of a
            trace as they are, and is an error for all else.
        seed: equal seeds, equal traces.

    Raises:
        ConfigurationError: a rate is missing or not a positive number, or the arrivals cannot be had.
        TraceError: a file cannot be read, or is not a trace.
    """
    _check_rate(options, rate_per_s)
    requests = _requests(options, random.Random(f"lengths {seed}"))
    own_s = [request.arrival_s for request in requests] if options.trace_path else None
    rng = random.Random(f"arrivals {seed}")
    try:
        arrivals_s = list(islice(_arrivals(options, own_s, rate_per_s, rng), len(requests)))
        begin_s = arrivals_s[0]
        arrivals_s = drifting([arrival_s - begin_s for arrival_s in arrivals_s], drift_rate=options.drift_rate)
    except ValueError as error:
        raise ConfigurationError(f"{describe(options)}: {error}") from error
    return [replace(one, arrival_s=at_s) for one, at_s in zip(requests, arrivals_s, strict=True)]


def _check_rate(options: WorkloadOptions, rate_per_s: float | None) -> None:
    if rate_per_s is None:
        if options.trace_path is None and options.arrivals != "burst":
            raise ConfigurationError(
                f"{options.arrivals} arrivals need a rate; give one, or take --arrivals burst or a trace"
            )
    elif not 0 < rate_per_s < math.inf:
        raise ConfigurationError(f"the rate must be a number of requests a second above 0, not {rate_per_s}")


def _requests(options: WorkloadOptions, rng: random.Random) -> list[TraceRequest]:
    """A trace's own, with its arrivals, or made ones, which have yet to get theirs."""
    if options.trace_path is not None:
        return read_trace(options.trace_path)[: options.requests]
    recordings = islice(_recordings(options, rng), options.num_made)
    return [
        TraceRequest(arrival_s=0.0, audio_s=one.audio_s, num_tokens=one.num_tokens, transcript=one.transcript)
        for one in recordings
    ]


def _recordings(options: WorkloadOptions, rng: random.Random) -> Iterator[Recording]:
    if options.workload == "clips":
        return clip_lengths(rng)
    if options.workload == "uniform":
        return uniform_lengths(rng)
    begin = options.file_share
    end = begin if options.drift_file_share is None else options.drift_file_share
    last = max(1, options.num_made - 1)
    shares = (begin + (end - begin) * number / last for number in range(options.num_made))
    return mixed_lengths(rng, file_shares=shares, max_file_s=options.max_file_s)


def _arrivals(
    options: WorkloadOptions, own_s: list[float] | None, rate_per_s: float | None, rng: random.Random
) -> Iterator[float]:
    """At least as many arrivals as there are requests, of which the first need not be at 0."""
    if own_s is not None:
        return iter(own_s) if rate_per_s is None else recorded_arrivals(own_s, rate_per_s=rate_per_s)
    if options.arrivals == "burst":
        return burst_arrivals()
    assert rate_per_s is not None, "checked before"
    if options.arrivals == "poisson":
        return poisson_arrivals(rng, rate_per_s=rate_per_s)
    if options.arrivals == "gamma":
        return gamma_arrivals(rng, rate_per_s=rate_per_s, cv=options.cv)
    if options.arrivals == "on-off":
        return on_off_arrivals(rng, rate_per_s=rate_per_s, on_s=options.on_s, off_s=options.off_s)
    recorded_s = read_arrivals(SHIPPED_ARRIVALS.get(options.arrivals, Path(options.arrivals)))
    return recorded_arrivals(_section(recorded_s, options.num_made, rng), rate_per_s=rate_per_s)


def _section(recorded_s: Sequence[float], num_requests: int, rng: random.Random) -> Sequence[float]:
    """As many consecutive arrivals as are needed, from anywhere: else all seeds would see the same minutes.

    It is the section that is scaled, not the recording, whose busy minutes would make a run of another rate.
    """
    num_taken = max(_FEWEST_RECORDED, num_requests)
    begin = rng.randrange(max(1, len(recorded_s) - num_taken + 1))
    return recorded_s[begin : begin + num_taken]


def describe(options: WorkloadOptions) -> str:
    """The workload in words, on one line: ``mixed: test-clean clips and 3 % files of up to 60 min, gamma ...``."""
    if options.trace_path is not None:
        words = f"trace {options.trace_path.name}"
    else:
        words = f"{_lengths_words(options)}, {_arrivals_words(options)}"
    if options.drift_rate == 1:
        return words
    return f"{words}, rate drifting to {options.drift_rate:g} times its start"


def _lengths_words(options: WorkloadOptions) -> str:
    if options.workload == "clips":
        return "clips: test-clean utterances"
    if options.workload == "uniform":
        return "uniform: 5, 10, 15, 20, 25 and 30 s"
    shares = f"{100 * options.file_share:g} %"
    if options.drift_file_share is not None:
        shares = f"{shares} drifting to {100 * options.drift_file_share:g} %"
    return f"mixed: test-clean clips and {shares} files of up to {options.max_file_s / 60:g} min"


def _arrivals_words(options: WorkloadOptions) -> str:
    if options.arrivals == "burst":
        return "all at once"
    if options.arrivals == "poisson":
        return "Poisson arrivals"
    if options.arrivals == "gamma":
        return f"gamma arrivals (cv {options.cv:g})"
    if options.arrivals == "on-off":
        return f"on-off arrivals ({options.on_s:g} s on, {options.off_s:g} s off)"
    return f"arrivals of {Path(options.arrivals).name}"
