"""Every option of ``sooner serve``, once: the command line is generated from this class."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from sooner.core.adaptive import AdaptivePolicy, Goals
from sooner.core.estimator import Estimator
from sooner.core.guard import Guard
from sooner.core.policy import Policy, policy_named
from sooner.errors import ConfigurationError
from sooner.evidence.machine import num_cores
from sooner.server.access import Priority

__all__ = ["ServeOptions", "check_at_least"]

_MOST = 1e6  # of any number that sizes are made of


def check_at_least(ranges: Mapping[str, tuple[float | None, float]]) -> None:
    """Raise ``ConfigurationError`` for an option, by field name, that is below its least value, or not finite."""
    for name, (value, least) in ranges.items():
        if value is not None and not least <= value < math.inf:
            option = f"--{name.replace('_', '-')}"
            raise ConfigurationError(f"{option} must be at least {least} and finite, not {value}")


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options of the server.

    Parameters
    ----------
    model
        A folder in CTranslate2's format, a size such as small, or a repository on the model hub. Default:
        the bundled tiny.en.
    policy
        Scheduling policy; `sooner policies` lists them.
    guard
        How long an upload may be put off whatever the policy: off, fixed:SECONDS, or scaled:E,D for at most 1 + E
        times as long as first come first served would take, and D seconds.
    goal_short_p90_s
        For the policy adaptive: what nine in ten of the shorter half should have from arrival to text, seconds.
        Default: no such goal.
    goal_all_p99_s
        For the policy adaptive: what 99 in 100 of all should have, seconds. Default: no such goal.
    max_wait_s
        Who has waited this long is served next, whatever policy, share or priority, seconds. Default: no
        such limit.
    preempt
        Let shorter jobs overtake at each 30-second window. Default: as the policy has it (no for fcfs, yes for
        all others); --no-preempt runs every job to its end.
    workers
        Windows decoded at once, one thread each. Default: the number of cores; 1 on a GPU.
    kappa
        Output tokens expected per second of speech, where that is measured, else of audio.
    encode_s
        Seconds to encode one window, for size estimates.
    token_s
        Seconds to decode one token, for size estimates.
    context_s
        Seconds that a window takes more which goes on from another, for size estimates.
    learn
        Follow what jobs really take: kappa by language, and the three costs. --no-learn keeps the numbers given.
    learned
        A file that keeps what was learnt of this model over a restart. Default: it is forgotten.
    vad
        Listen for voices first: silence is skipped, costs nothing and gives no text. --no-vad leaves that to
        the model.
    window_limit_s
        An engine that takes longer than this over one window hangs, and is replaced, seconds.
    host
        Address to listen on.
    port
        Port to listen on; 0 picks a free one.
    max_queue
        Uploads that may wait or be on their way in; more are refused with 503.
    max_audio_s
        Longest recording accepted, seconds.
    max_upload_bytes
        Largest request body accepted.
    max_decoded_bytes
        Most bytes of samples that one upload may unpack to.
    max_spool_bytes
        Most bytes that all uploads together may take on disk.
    max_client_jobs
        Requests that one client may have on their way, those being served included; more are refused with 429.
        Default: nine tenths of --max-queue, and one a worker; no such limit where --max-queue is below 10.
    max_client_audio_s
        Seconds of audio that one client may have on their way; a lone upload may be longer. Default: no such
        limit.
    api_keys
        A file of keys, one a line: KEY [NAME [PRIORITY]]. Then nobody is served without one. The variable
        SOONER_API_KEY may hold one more such line; there is no option for that, because everybody on the
        machine can read a command line.
    highest_priority
        The highest class that a request may ask for where its key names none.
    trusted_proxies
        Addresses or networks whose X-Forwarded-For is believed, separated by commas. Default: nobody's is.
    max_backlog_s
        Refuse when this much predicted work waits per worker, seconds. Default: no such limit.
    upload_idle_s
        Give up on an upload that sends nothing for this long, seconds.
    max_upload_s
        Give up on an upload that is not complete after this long, seconds.
    shutdown_grace_s
        How long accepted jobs are served after a stop signal, seconds; those that cannot be done by then are
        refused at once, and so are those that are not done when it ends.
    spool_dir
        Folder for uploads that wait. Default: the system's temporary folder.
    records
        A file that gets a line for each request that was queued, as it ends: what sooner report, calibrate and
        plan read. A file that is there is continued.
    device
        Where the model runs.
    compute_type
        CTranslate2 compute type. auto: int8 on a CPU, float16 on a GPU.
    beam_size
        Beams searched at temperature 0.
    """

    model: str | None = None
    policy: str = "adaptive"
    guard: str = "scaled:5,120"
    goal_short_p90_s: float | None = None
    goal_all_p99_s: float | None = None
    max_wait_s: float | None = None
    preempt: bool | None = None
    workers: int | None = None
    kappa: float = 3.0
    encode_s: float = 0.4
    token_s: float = 0.0065
    context_s: float = 0.35
    learn: bool = True
    learned: Path | None = None
    vad: bool = True
    window_limit_s: float = 300.0
    host: str = "127.0.0.1"
    port: int = 8000
    max_queue: int = 1000
    max_audio_s: float = 4 * 3600.0
    max_upload_bytes: int = 512 * 2**20
    max_decoded_bytes: int = 16 * 2**30
    max_spool_bytes: int = 8 * 2**30
    max_client_jobs: int | None = None
    max_client_audio_s: float | None = None
    api_keys: Path | None = None
    highest_priority: Priority = "standard"
    trusted_proxies: str | None = None
    max_backlog_s: float | None = None
    upload_idle_s: float = 30.0
    max_upload_s: float = 600.0
    shutdown_grace_s: float = 30.0
    spool_dir: Path | None = None
    records: Path | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compute_type: str = "auto"
    beam_size: int = 5

    def __post_init__(self) -> None:
        self.make_policy()
        Guard.parse(self.guard)
        at_least: dict[str, tuple[float | None, float]] = {
            "workers": (self.workers, 1),
            "goal_short_p90_s": (self.goal_short_p90_s, 0.001),
            "goal_all_p99_s": (self.goal_all_p99_s, 0.001),
            "port": (self.port, 0),
            "max_wait_s": (self.max_wait_s, 0),
            "window_limit_s": (self.window_limit_s, 1),
            "max_queue": (self.max_queue, 1),
            "max_client_jobs": (self.max_client_jobs, 1),
            "max_client_audio_s": (self.max_client_audio_s, 1),
            "max_decoded_bytes": (self.max_decoded_bytes, 1),
            "max_audio_s": (self.max_audio_s, 1),
            "max_upload_bytes": (self.max_upload_bytes, 1),
            "max_spool_bytes": (self.max_spool_bytes, 1),
            "max_backlog_s": (self.max_backlog_s, 0),
            "upload_idle_s": (self.upload_idle_s, 1),
            "max_upload_s": (self.max_upload_s, 1),
            "shutdown_grace_s": (self.shutdown_grace_s, 0),
            "beam_size": (self.beam_size, 1),
        }
        check_at_least(at_least)
        if self.port > 65535:
            raise ConfigurationError(f"--port must be at most 65535, not {self.port}")
        if self.spool_dir is not None and not self.spool_dir.is_dir():
            raise ConfigurationError(f"--spool-dir {self.spool_dir} is not a folder")
        for name, path in (("--records", self.records), ("--learned", self.learned)):
            if path is not None and (path.is_dir() or not path.parent.is_dir()):
                raise ConfigurationError(f"{name} {path} must be a file in a folder that is there")
        if self.learned is not None and not self.learn:
            raise ConfigurationError("--learned keeps what is learnt, and --no-learn learns nothing: drop one")
        self._check_proxies()
        self.make_estimator()

    def _check_proxies(self) -> None:
        for proxy in [] if self.trusted_proxies is None else self.trusted_proxies.split(","):
            try:
                ipaddress.ip_network(proxy.strip())
            except ValueError as error:
                raise ConfigurationError(
                    f"--trusted-proxies takes addresses and networks, such as 10.0.0.0/8: {error}"
                ) from error

    def client_jobs_on(self, num_workers: int) -> int | None:
        """Requests that one client may have on their way; ``None`` for no limit.

        By default a tenth of the queue is left to others. The workers come on top, because ``max_queue`` does not
        count what they have. Of a queue with fewer than ten places no tenth can be set aside.
        """
        if self.max_client_jobs is not None or self.max_queue < 10:
            return self.max_client_jobs
        return math.ceil(0.9 * self.max_queue) + num_workers

    def make_policy(self) -> Policy:
        """The policy, with the goals where it has any.

        Raises:
            UnknownPolicyError: there is no such policy.
            ConfigurationError: goals are given for another policy than adaptive.
        """
        policy = policy_named(self.policy)
        goals = Goals(short_p90_s=self.goal_short_p90_s, all_p99_s=self.goal_all_p99_s)
        if goals == Goals():
            return policy
        if not isinstance(policy, AdaptivePolicy):
            raise ConfigurationError(f"goals are for --policy adaptive, and this is {policy.name}: drop one")
        return replace(policy, goals=goals)

    def make_estimator(self) -> Estimator:
        """The estimator with these costs. Raises ``ConfigurationError`` where they make no sense."""
        if max(self.kappa, self.encode_s, self.token_s, self.context_s) > _MOST:
            raise ConfigurationError(f"kappa, encode_s, token_s and context_s must be at most {_MOST:g}")
        try:
            return Estimator(
                kappa=self.kappa,
                encode_s=self.encode_s,
                token_s=self.token_s,
                context_s=self.context_s,
                learns=self.learn,
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    def num_workers_on(self, device: str) -> int:
        """The number of workers to run on ``device``."""
        if self.workers is not None:
            return self.workers
        return 1 if device == "cuda" else num_cores()
