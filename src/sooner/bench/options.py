"""Every option of ``sooner bench`` beside the workload's, once: the command line is generated from this class."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sooner.bench.visits import Target
from sooner.errors import ConfigurationError
from sooner.server.options import check_at_least
from sooner.simulator.options import check_run_folder, number_list, policy_list

__all__ = ["BenchOptions"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What is measured, and how.

    Parameters
    ----------
    server
        A running server as NAME=URL, such as mine=http://127.0.0.1:8000; may be given more than once.
    policies
        Policies, with commas between them. For each, sooner serve is started here, one at a time. Default: all,
        where no --server is given.
    rate
        Requests a second; several, with commas between them, are measured one after the other. A burst has none,
        and without one a trace keeps its own arrivals.
    seeds
        Seeds of the traffic, with commas between them: one run each.
    rounds
        How often everything is measured. Each round visits all servers in turn, every second one backwards.
    warm_up
        Requests that are sent before each run and not counted.
    stream
        Ask for the text as it is decoded, which gives a time to the first text.
    model
        Model to ask a --server for (default: whisper-1), and the one that sooner serve loads (default: its own).
    language
        Language to ask for, where the trace names none. Default: let the server detect it.
    api_key
        Key to send to a --server.
    timeout_s
        A request that has no whole answer after this long counts as failed, seconds.
    slo_short_s
        For the goodput: longest end-to-end time that is good for recordings of at most 30 s, seconds. Default: as
        --slo-s.
    slo_s
        The same for all other recordings.
    workers
        Workers of sooner serve. Default: its own.
    out
        Folder for the runs, one file each, and the summary. It must not hold runs.
    hardware
        What the servers run on, in words. Default: this machine.
    """

    server: tuple[str, ...] = ()
    policies: str | None = None
    rate: str | None = None
    seeds: str = "1"
    rounds: int = 1
    warm_up: int = 2
    stream: bool = False
    model: str | None = None
    language: str | None = None
    api_key: str | None = None
    timeout_s: float = 600.0
    slo_short_s: float | None = None
    slo_s: float | None = None
    workers: int | None = None
    out: Path = Path("sooner-bench")
    hardware: str | None = None

    def __post_init__(self) -> None:
        self._check_ranges()
        names = [target.name for target in self.targets]
        if len(set(names)) < len(names):
            raise ConfigurationError(f"each server needs a name of its own, not {', '.join(names)}")
        number_list("--seeds", self.seeds, int)
        if self.rate is not None:
            number_list("--rate", self.rate, float)
        check_run_folder(self.out)

    def _check_ranges(self) -> None:
        ranges: dict[str, tuple[float | None, float]] = {
            "rounds": (self.rounds, 1),
            "warm_up": (self.warm_up, 0),
            "timeout_s": (self.timeout_s, 0.001),
            "slo_short_s": (self.slo_short_s, 0.001),
            "slo_s": (self.slo_s, 0.001),
            "workers": (self.workers, 1),
        }
        check_at_least(ranges)

    @property
    def targets(self) -> list[Target]:
        """What is measured: the named servers, then the policies. The first is what others are compared with."""
        named = [_target(one) for one in self.server]
        if named and self.policies is None:
            return named
        return named + [Target(name=name) for name in policy_list(self.policies)]

    @property
    def rates_per_s(self) -> list[float | None]:
        """Requests a second, one number for each pass; a ``None`` where the workload brings its own."""
        return [None] if self.rate is None else [*number_list("--rate", self.rate, float)]

    @property
    def seed_numbers(self) -> list[int]:
        """The seeds."""
        return number_list("--seeds", self.seeds, int)


def _target(text: str) -> Target:
    name, _, url = text.partition("=")
    parts = urlsplit(url)
    if not _NAME.fullmatch(name) or parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(
            f"--server must be NAME=URL, such as mine=http://127.0.0.1:8000, with a name of letters, digits, "
            f"dots, dashes and underscores; not {text!r}"
        )
    return Target(name=name, url=url.rstrip("/").removesuffix("/v1"))
