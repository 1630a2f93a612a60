"""What can be set: ``--additional-config '{"sooner": {"kappa": 3.3}}'``.

``additional_config`` is vLLM's own place for such things: it reaches every process of a server, whichever
way it was started, and shows in vLLM's log of its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any

from sooner.core.estimator import Estimator
from sooner.core.guard import Guard
from sooner.core.policy import policies
from sooner.errors import ConfigurationError, UnknownPolicyError

__all__ = ["PluginConfig", "our_policies", "policy_in_force"]

_SECTION = "sooner"
_MAX_TOKENS = 2**31  # of a day of audio
_VLLM_POLICIES = frozenset({"fcfs", "priority"})


def our_policies() -> tuple[str, ...]:
    """Names of all registered policies that vLLM does not have itself, in order of registration."""
    return tuple(policy.name for policy in policies() if policy.name not in _VLLM_POLICIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """Options of the plugin.

    Attributes:
        kappa: κ, output tokens per second of audio.
        encode_s: cost of encoding one window, seconds; with ``token_s`` this makes sizes. Only the ratio of
            the two matters for the order. Default: 33 ms, as in a step model of whisper-large-v3 on an A100.
        token_s: cost of decoding one token, seconds. Default, same model: 14 ms a step shared by 16
            sequences, plus 0.3 ms for each.
        own_token_s: seconds from token to token of a running request, which hold nobody up: some policies let a
            long text begin earlier for it. Default, same model: a step that ten requests share.
        paper_faithful: sizes are n̂ alone, as in the paper, whatever ``encode_s`` and ``token_s`` say.
        guard: how long an upload may be put off whatever the policy, as ``Guard.parse`` reads it.
        policy: the policy, for ``--scheduler-cls``, where ``--scheduling-policy`` cannot name it.
        journal_path: where the scheduler writes what its queue did, one JSON object a line; off by default.

    Raises:
        ConfigurationError: a value is of the wrong kind or out of range.
    """

    kappa: float = 3.0
    encode_s: float = 0.033
    token_s: float = 0.0012
    own_token_s: float = 0.017
    paper_faithful: bool = False
    guard: str = "scaled:5,120"
    policy: str | None = None
    journal_path: str | None = None

    def __post_init__(self) -> None:
        for name in ("kappa", "encode_s", "token_s", "own_token_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigurationError(f"additional_config: sooner.{name} must be a number, not {value!r}")
        if not isinstance(self.paper_faithful, bool):
            raise ConfigurationError("additional_config: sooner.paper_faithful must be true or false")
        if not isinstance(self.guard, str):
            raise ConfigurationError("additional_config: sooner.guard must be text")
        for name in ("policy", "journal_path"):
            if not isinstance(getattr(self, name), str | None):
                raise ConfigurationError(f"additional_config: sooner.{name} must be text")
        if self.token_s <= 0:
            raise ConfigurationError(f"additional_config: sooner.token_s must be above 0, not {self.token_s}")
        if self.journal_path is not None and not Path(self.journal_path).parent.is_dir():
            raise ConfigurationError(f"additional_config: sooner.journal_path {self.journal_path!r} has no folder")
        self.estimator()
        self.make_guard()

    @classmethod
    def of(cls, vllm_config: Any) -> PluginConfig:
        """The options in ``vllm_config.additional_config``. Raises ``ConfigurationError``."""
        additional = vllm_config.additional_config
        section = additional.get(_SECTION, {}) if isinstance(additional, Mapping) else {}
        if not isinstance(section, Mapping):
            raise ConfigurationError(f"additional_config: {_SECTION} must be an object, not {section!r}")
        known = [field.name for field in fields(cls)]
        for name in section:
            if name not in known:
                raise ConfigurationError(
                    f"additional_config: {_SECTION}.{name} is not an option; known: {', '.join(known)}"
                )
        return cls(**section)

    def estimator(self) -> Estimator:
        """What turns audio into sizes. Raises ``ConfigurationError`` where the numbers make none."""
        encode_s, token_s = (0.0, 1.0) if self.paper_faithful else (self.encode_s, self.token_s)
        try:
            estimator = Estimator(
                kappa=self.kappa, encode_s=encode_s, token_s=token_s, own_token_s=self.own_token_s
            )
            a_day = estimator.estimate(86_400.0)
        except (OverflowError, ValueError) as error:
            raise ConfigurationError(f"additional_config: sooner.{error}") from error
        if a_day.estimated_output_tokens > _MAX_TOKENS or not isfinite(a_day.size_s):
            raise ConfigurationError(
                "additional_config: sooner.kappa, encode_s and token_s make sizes without sense"
            )
        return estimator

    def make_guard(self) -> Guard:
        """The guard. Raises ``ConfigurationError`` where the text names none."""
        try:
            return Guard.parse(self.guard)
        except ConfigurationError as error:
            raise ConfigurationError(f"additional_config: sooner.guard: {error}") from error


def policy_in_force(vllm_config: Any) -> str | None:
    """Name of the policy of ours that an engine with this configuration schedules by.

    Returns:
        The name, or ``None`` where vLLM's own scheduler serves.

    Raises:
        ConfigurationError: what is asked for contradicts itself, or cannot be had.
    """
    config = vllm_config.scheduler_config
    flag, option = str(config.policy), PluginConfig.of(vllm_config).policy
    ours = our_policies()
    if option is not None and option not in ours:
        raise UnknownPolicyError(name=option, known=ours)
    if flag in ours:
        if option not in (None, flag):
            raise ConfigurationError(f"--scheduling-policy says {flag} and sooner.policy says {option}: drop one")
        if config.scheduler_cls is not None and not _is_our_class(config.scheduler_cls):
            raise ConfigurationError(
                f"--scheduler-cls {config.scheduler_cls} would serve, and it is not Sooner's: "
                f"drop it, or drop --scheduling-policy {flag}"
            )
        return flag
    if not _is_our_class(config.scheduler_cls):
        if option is not None:
            raise ConfigurationError(
                f"sooner.policy says {option}, but vLLM's own scheduler is in use: "
                f"say --scheduling-policy {option} instead"
            )
        return None
    if option is None or flag != "fcfs":
        raise ConfigurationError(
            f"--scheduler-cls {config.scheduler_cls} needs one policy, and --scheduling-policy says {flag}: "
            f'leave that out and add --additional-config \'{{"sooner": {{"policy": "{ours[-1]}"}}}}\'; '
            f"known: {', '.join(ours)}"
        )
    return option


def _is_our_class(scheduler_cls: object) -> bool:
    module = scheduler_cls if isinstance(scheduler_cls, str) else getattr(scheduler_cls, "__module__", "")
    return module.startswith(f"{__package__}.")
