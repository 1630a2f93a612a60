"""The traffic of ``bench_policies.py``: which engine, what arrives, what is predicted wrong, who plays tricks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from random import Random
from typing import Literal

from sooner.core.latency import LatencyRecord
from sooner.simulator.profile import BatchingProfile, Profile, load_profile
from sooner.simulator.simulate import capacity_per_s, log_uniform_factors
from sooner.workload.arrivals import poisson_arrivals
from sooner.workload.lengths import MIN_FILE_S
from sooner.workload.make import describe, make_trace
from sooner.workload.options import WorkloadOptions
from sooner.workload.trace import TraceRequest

PAPER_SEEDS, SEEDS, TRICK_SEEDS = 24, 12, 6
PAPER_RATES_PER_S = (17, 20, 23, 25)
LOW_LOADS = (0.3, 0.4, 0.45)
MIXED_LOADS = (*LOW_LOADS, 0.5, 0.7, 0.85, 1.0, 1.2, 1.4)
CLIPS_LOADS = (0.3, 0.45, 0.5, 0.85, 1.2)
TOKEN_BOUND = BatchingProfile(
    name="token-bound",
    model="none",
    hardware="none: numbers under which decoding is the limit, not admission",
    step_s=0.005,
    running_step_s=0.0015,
    admission_s=0.001,
    own_token_s=0.035,  # a step below saturation, in which some twenty windows run
    max_windows_per_step=8,
    max_running=64,
)

MOST_WRONG = 4.0
FILES_TAKEN_FOR = 0.25

TRICKSTER = "trickster"
NUM_CLIENTS = 20
OTHERS_LOAD, FLOOD_LOAD, FLOOD_CLIP_S = 0.4, 0.9, 5.0
SPLIT_LOAD, SPLIT_EVERY_S, SPLIT_FILE_S, SPLIT_CLIP_S = 0.8, 300.0, 600.0, 30.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """An engine and a traffic; seeds from 1 on.

    Attributes:
        wrong: sizes that are: of all, or of files; ``None``: sizes are as predicted.
        right: name of the scenario with the same traffic and right sizes, for one with wrong sizes.
        trick: what one client sends beside the others; ``None`` where nobody has a name.
        knows_clients: whether the scheduler is told whose requests they are.
    """

    name: str
    profile: Profile
    options: WorkloadOptions
    rate_per_s: float
    num_seeds: int
    wrong: Literal["all", "files"] | None = None
    right: str | None = None
    trick: Literal["none", "flood", "whole", "split"] | None = None
    knows_clients: bool = False

    @property
    def is_usual(self) -> bool:
        """Whether sizes are right and nobody plays tricks."""
        return self.right is None and self.trick is None

    def trace(self, seed: int) -> list[TraceRequest]:
        """What arrives, with the client of each request where there is a trick."""
        trace = make_trace(self.options, rate_per_s=self.rate_per_s, seed=seed)
        if self.trick is None:
            return trace
        honest = [replace(one, client=f"client {index % NUM_CLIENTS}") for index, one in enumerate(trace)]
        return sorted([*honest, *self._tricks(seed, trace[-1].arrival_s)], key=lambda one: one.arrival_s)

    def _tricks(self, seed: int, until_s: float) -> list[TraceRequest]:
        if self.trick == "flood":
            return flood(self.profile, seed, until_s=until_s)
        if self.trick == "none":
            return []
        return files(clip_s=SPLIT_FILE_S if self.trick == "whole" else SPLIT_CLIP_S, until_s=until_s)

    def size_factors(self, trace: Sequence[TraceRequest], seed: int) -> list[float] | None:
        if self.wrong == "all":
            return log_uniform_factors(len(trace), most=MOST_WRONG, seed=seed)
        if self.wrong == "files":
            return [FILES_TAKEN_FOR if is_file(one) else 1.0 for one in trace]
        return None

    def told(self, trace: Sequence[TraceRequest]) -> list[TraceRequest]:
        """The trace as the scheduler sees it."""
        return [one if self.knows_clients else replace(one, client=None) for one in trace]

    def about(self) -> str:
        words = f"{self.profile.name}; {describe(self.options)}, {self.rate_per_s:.3g} requests a second"
        return f"{words}, {self.options.requests} a run, {self.num_seeds} runs."


def is_file(one: TraceRequest | LatencyRecord) -> bool:
    return one.audio_s >= MIN_FILE_S


def is_clip(one: TraceRequest | LatencyRecord) -> bool:
    return not is_file(one)


def all_scenarios() -> Iterator[Scenario]:
    paper = load_profile("a100-large-v3")
    assert isinstance(paper, BatchingProfile)
    # An admission, and what a token adds to the step that it is in.
    in_seconds = replace(paper, name="a100-large-v3, sizes in seconds", size_encode_s=0.047, size_token_s=0.0003)
    clips = WorkloadOptions(workload="clips", requests=1000)
    mixed = WorkloadOptions(workload="mixed", requests=1000, max_file_s=1800)
    workers = load_profile("embedded-tiny")
    of_paper = list(at_rates("paper", paper, "clips", PAPER_RATES_PER_S))
    yield from of_paper
    yield from at_rates("uniform", paper, "uniform", PAPER_RATES_PER_S)
    yield from at_rates("seconds", in_seconds, "clips", PAPER_RATES_PER_S[:2])
    yield from at_loads("tokens", TOKEN_BOUND, clips, (0.85, 1.2))
    of_mixed = {one.name: one for one in at_loads("mixed", workers, mixed, MIXED_LOADS)}
    yield from of_mixed.values()
    yield from at_loads("bursty", workers, replace(mixed, arrivals="gamma"), (0.85,))
    yield from at_loads("drift", workers, replace(mixed, drift_rate=3.0), (0.85,))
    yield from at_loads("clips", workers, clips, CLIPS_LOADS)
    for right in (of_paper[-1], of_mixed["mixed-0.85"]):
        yield replace(right, name=f"wrong-{right.name}", right=right.name, wrong="all")
    right = of_mixed["mixed-0.85"]
    yield replace(right, name="wrong-files-0.85", right=right.name, wrong="files")
    yield from tricks(workers, mixed)


def at_rates(name: str, profile: Profile, workload: str, rates_per_s: Sequence[int]) -> Iterator[Scenario]:
    for rate_per_s in rates_per_s:
        yield Scenario(
            name=f"{name}-{rate_per_s}",
            profile=profile,
            options=WorkloadOptions(workload=workload, requests=500),
            rate_per_s=rate_per_s,
            num_seeds=PAPER_SEEDS,
        )


def at_loads(name: str, profile: Profile, options: WorkloadOptions, loads: Sequence[float]) -> Iterator[Scenario]:
    """A traffic at shares of what saturates the engine, by the recordings of all seeds."""
    seeds = range(1, SEEDS + 1)
    recordings = [one for seed in seeds for one in make_trace(options, rate_per_s=1.0, seed=seed)]
    capacity = capacity_per_s(profile, recordings)
    for load in loads:
        yield Scenario(
            name=f"{name}-{load:g}",
            profile=profile,
            options=options,
            rate_per_s=load * capacity,
            num_seeds=SEEDS,
        )


# Clients who know the policy


def tricks(profile: Profile, mixed: WorkloadOptions) -> Iterator[Scenario]:
    (others,) = at_loads("flood", profile, mixed, (OTHERS_LOAD,))
    others = replace(others, options=replace(mixed, requests=500), num_seeds=TRICK_SEEDS)
    yield replace(others, name="flood-absent", trick="none")
    yield replace(others, name="flood-unknown", trick="flood")
    yield replace(others, name="flood-known", trick="flood", knows_clients=True)
    (others,) = at_loads("split", profile, mixed, (SPLIT_LOAD,))
    yield replace(others, name="split-whole", trick="whole")
    yield replace(others, name="split-unknown", trick="split")
    yield replace(others, name="split-known", trick="split", knows_clients=True)


def flood(profile: Profile, seed: int, *, until_s: float) -> list[TraceRequest]:
    """Short clips, one after another."""
    clip = TraceRequest(arrival_s=0.0, audio_s=FLOOD_CLIP_S, client=TRICKSTER)
    rate_per_s = FLOOD_LOAD * capacity_per_s(profile, [clip])
    arrivals_s = poisson_arrivals(Random(f"flood {seed}"), rate_per_s=rate_per_s)
    return [replace(clip, arrival_s=at_s) for at_s in takewhile(lambda at_s: at_s < until_s, arrivals_s)]


def files(*, clip_s: float, until_s: float) -> list[TraceRequest]:
    """A file every five minutes, cut into clips of ``clip_s`` that are sent together."""
    num_files = int(until_s / SPLIT_EVERY_S)
    return [
        TraceRequest(arrival_s=SPLIT_EVERY_S * number, audio_s=clip_s, client=TRICKSTER)
        for number in range(1, num_files + 1)
        for _ in range(round(SPLIT_FILE_S / clip_s))
    ]
