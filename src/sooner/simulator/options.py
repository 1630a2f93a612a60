"""Every option of ``sooner simulate``, ``plan`` and ``calibrate`` beside the workload's, once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from sooner.core.guard import Guard
from sooner.core.policy import policies, policy_named
from sooner.errors import ConfigurationError
from sooner.simulator.goal import Goal
from sooner.simulator.profile import Profile, WorkersProfile, load_profile
from sooner.workload.options import TRACE_SUFFIXES

__all__ = [
    "CalibrateOptions",
    "EngineOptions",
    "PlanOptions",
    "SimulateOptions",
    "check_file",
    "check_run_folder",
    "number_list",
    "policy_list",
]

T = TypeVar("T", int, float)


def number_list(option: str, text: str, kind: Callable[[str], T]) -> list[T]:
    """The numbers of an option such as ``--seeds 1,2,3``, each more than 0.

    Raises:
        ConfigurationError: there is none, or one is not a finite number above 0, or is there twice.
    """
    try:
        numbers = [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or not all(0 < number < math.inf for number in numbers) or len(set(numbers)) < len(numbers):
        whole = "whole " if kind is int else ""
        raise ConfigurationError(
            f"{option} must be different {whole}numbers above 0, with commas between them, not {text!r}"
        )
    return numbers


def check_file(option: str, path: Path) -> None:
    """Raise ``ConfigurationError`` where no file can be made at ``path``, before there is work to lose."""
    if path.is_dir() or not path.parent.is_dir():
        raise ConfigurationError(f"{option} {path} is a folder, or would be in one that is not there")


def check_run_folder(out: Path) -> None:
    """Raise ``ConfigurationError`` where the folder for new runs is a file, or holds runs."""
    if out.exists() and (not out.is_dir() or any(out.glob("*.jsonl"))):
        raise ConfigurationError(f"--out {out} is a file or holds runs already; name another folder")


def policy_list(text: str | None) -> list[str]:
    """The policies of an option such as ``--policies fcfs,sjf``; ``None`` stands for all.

    Raises:
        UnknownPolicyError: there is no such policy.
        ConfigurationError: none is named, or one twice.
    """
    if text is None:
        return [policy.name for policy in policies()]
    names = [policy_named(part.strip()).name for part in text.split(",") if part.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(f"--policies must be different policies with commas between them, not {text!r}")
    return names


def _check_new_trace(path: Path) -> None:
    check_file("--save-trace", path)
    if path.exists():
        raise ConfigurationError(f"--save-trace {path} is there already; name another file")
    if path.suffix.lower() not in TRACE_SUFFIXES:
        raise ConfigurationError(f"--save-trace {path} must end in one of {', '.join(TRACE_SUFFIXES)}")


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What serves, in which order.

    Parameters
    ----------
    profile
        An engine profile: the name of one that ships (`sooner profiles` lists them) or a file that `sooner
        calibrate` wrote.
    policies
        Policies, with commas between them; fair:C is fair with another dial. Default: all.
    preempt
        Let shorter jobs overtake at each 30-second window of an engine of workers. Default: as each policy has it.
    workers
        Windows served at once by an engine of workers. Default: the profile's.
    max_queue
        Uploads that may wait at one server; more are refused. Default: any number.
    guard
        Bound how long a request waits, whatever the policy: off, fixed:SECONDS or scaled:E,D. Default:
        off, which compares the orders themselves; sooner serve guards unless told otherwise.
    """

    profile: str = "embedded-tiny"
    policies: str | None = None
    preempt: bool | None = None
    workers: int | None = None
    max_queue: int | None = None
    guard: str = "off"

    def __post_init__(self) -> None:
        for name, value in (("--workers", self.workers), ("--max-queue", self.max_queue)):
            if value is not None and value < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {value}")
        policy_list(self.policies)
        Guard.parse(self.guard)

    @property
    def policy_names(self) -> list[str]:
        """The policies."""
        return policy_list(self.policies)

    @property
    def queue_guard(self) -> Guard:
        """What bounds the waits."""
        return Guard.parse(self.guard)

    def load_profile(self) -> Profile:
        """The profile, with ``workers`` workers where they are given.

        Raises:
            ProfileError: there is no such profile.
            ConfigurationError: an engine that batches has no workers.
        """
        profile = load_profile(self.profile)
        if self.workers is None:
            return profile
        if not isinstance(profile, WorkersProfile):
            raise ConfigurationError(f"--workers: {profile.name} is an engine that batches; it has no workers")
        return replace(profile, num_workers=self.workers)


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """At which loads, how often, and where to.

    Parameters
    ----------
    loads
        Offered loads, with commas between them; 1 is what saturates the engine. Default, without --rates:
        0.5,0.85; a trace file keeps its own arrivals.
    rates
        Requests a second instead.
    seeds
        Seeds of the traffic, with commas between them. A trace file is played once.
    out
        Folder for the runs, one file each, for `sooner report`. Default: only the table is shown.
    save_trace
        File for the first trace that was played, for `sooner bench --workload` and others.
    """

    loads: str | None = None
    rates: str | None = None
    seeds: str = "1,2,3"
    out: Path | None = None
    save_trace: Path | None = None

    def __post_init__(self) -> None:
        if self.loads is not None and self.rates is not None:
            raise ConfigurationError("--loads and --rates say the same thing twice; give one of them")
        if self.out is not None:
            check_run_folder(self.out)
        if self.save_trace is not None:
            _check_new_trace(self.save_trace)
        number_list("--seeds", self.seeds, int)
        for option, text in (("--loads", self.loads), ("--rates", self.rates)):
            if text is not None:
                number_list(option, text, float)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The goals and the traffic's amount.

    Parameters
    ----------
    goal
        A goal, such as 'p90 clips <= 2' or 'p99 all <= 60': a percentile of the seconds from arrival to text or
        max, over clips (up to 30 s), files (longer) or all. May be given several times.
    rate
        Requests a second, all replicas together. A trace file keeps its own arrivals where none is given.
    seeds
        Seeds of the traffic, with commas between them; of a trace file, seeds of how long its windows take.
    max_replicas
        The most to try.
    out
        File for the advice as JSON.
    """

    goal: tuple[str, ...] = ("p90 clips <= 2", "p99 all <= 60")
    rate: float | None = None
    seeds: str = "1,2,3"
    max_replicas: int = 64
    out: Path | None = None

    def __post_init__(self) -> None:
        if not self.goals:
            raise ConfigurationError("there is nothing to plan for: give a --goal")
        if self.max_replicas < 1:
            raise ConfigurationError(f"--max-replicas must be at least 1, not {self.max_replicas}")
        if self.out is not None:
            check_file("--out", self.out)
        number_list("--seeds", self.seeds, int)

    @property
    def goals(self) -> list[Goal]:
        """The goals. Raises ``ConfigurationError`` where one cannot be read."""
        return [Goal.parse(text) for text in self.goal]


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """What to make of the records.

    Parameters
    ----------
    out
        Where to write the profile.
    name
        How reports call it; by default the file's name.
    engine
        workers or batching; by default what the files tell.
    model
        The model, in words; by default what the files name.
    hardware
        What it ran on, in words; by default what the files name.
    held_out
        Share of the recordings that is kept from a second fit, to see how it predicts them.
    """

    out: Path = Path("profile.json")
    name: str | None = None
    engine: Literal["workers", "batching"] | None = None
    model: str | None = None
    hardware: str | None = None
    held_out: float = 0.25

    def __post_init__(self) -> None:
        check_file("--out", self.out)
