"""Engine profiles: the few numbers that describe an engine to the simulator, and where each comes from.

A profile is a JSON file; those that ship are in ``profiles/``, ``sooner calibrate`` writes one of your own. Every
number stands beside its origin, because a simulation is worth what its numbers are worth:

    {"name": "my-gpu", "engine": "batching", "model": "whisper-large-v3", "hardware": "1 x L4",
     "values": {"step_s": {"value": 0.021, "origin": "fitted to 18,211 steps, residual 1.3 ms"}, ...}}

There are two kinds of engine.

``batching``: continuous batching as in vLLM. An engine step takes
``step_s + running_step_s · running + admission_s · admitted`` seconds and gives every running window one token;
``admitted`` windows join at its start, at most ``max_windows_per_step`` (the encoder budget), while there are
slots (``max_running``) and memory (``memory_blocks``).

``workers``: ``num_workers`` workers, each serves one window at a time, as in ``sooner serve``. A window takes
``encode_s + token_s · tokens`` seconds, and ``context_s`` more where it goes on from another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from sooner.core.estimator import WINDOW_S, Estimator
from sooner.core.job import Estimate
from sooner.errors import ProfileError

__all__ = ["BatchingProfile", "Profile", "WorkersProfile", "load_profile", "profile_names", "save_profile"]

_SHIPPED = Path(__file__).parent / "profiles"


@dataclass(frozen=True, kw_only=True)
class _Described:
    """What both kinds of profile say beside their numbers.

    Attributes:
        name: how reports call it.
        model: the model that was measured.
        hardware: what it ran on.
        origins: for each number, where it comes from.
    """

    name: str
    model: str
    hardware: str
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BatchingProfile(_Described):
    """An engine that batches continuously.

    Attributes:
        step_s: t0, what an engine step takes at least, seconds.
        running_step_s: t1, what each running window adds to a step, seconds.
        admission_s: te, what each window admitted in a step adds to it, seconds: its encoding and prefill.
        kappa: κ, tokens per second of audio, for what the trace does not tell.
        size_encode_s: what a window weighs in the size that policies order by, seconds.
        size_token_s: what a token weighs in it, seconds. 0 and 1 are the paper's order, n̂ alone.
        own_token_s: seconds from token to token in a window that runs; policies may look at a job's own decoding.
        max_windows_per_step: windows admitted in one step.
        max_running: windows that run at once.
        memory_blocks: blocks of KV memory, ``None`` for no bound.
        block_tokens: positions that a block holds.
        window_positions: encoder positions of a window, kept for cross-attention.
        prompt_tokens: positions that a window's prompt takes.
    """

    engine: ClassVar[str] = "batching"
    step_s: float
    running_step_s: float
    admission_s: float
    kappa: float = 3.0
    size_encode_s: float = 0.0
    size_token_s: float = 1.0
    own_token_s: float = 0.0
    max_windows_per_step: int = 1
    max_running: int = 256
    memory_blocks: int | None = None
    block_tokens: int = 16
    window_positions: int = 1500
    prompt_tokens: int = 4

    def __post_init__(self) -> None:
        _check_whole(self, "max_windows_per_step", "max_running", "block_tokens")
        if self.memory_blocks is not None:
            _check_whole(self, "memory_blocks")
        if self.step_s + self.running_step_s == 0:
            raise ValueError("step_s and running_step_s are both 0, so that decoding takes no time")
        self.estimator()

    def estimator(self) -> Estimator:
        """What the scheduler orders by."""
        return Estimator(
            kappa=self.kappa,
            encode_s=self.size_encode_s,
            token_s=self.size_token_s,
            own_token_s=self.own_token_s,
        )

    def alone_s(self, estimate: Estimate) -> float:
        """Predicted seconds on an idle engine whose steps admit one window: what slowdown is relative to.

        The windows join one a step and then run together, each for its tokens and the one that ends it.
        """
        windows, tokens = estimate.windows, estimate.estimated_output_tokens
        num_steps = windows + math.ceil(tokens / windows)
        return self.step_s * num_steps + self.running_step_s * (tokens + windows) + self.admission_s * windows

    def num_windows(self, audio_s: float) -> int:
        """Windows that a recording takes."""
        return max(1, math.ceil(audio_s / WINDOW_S))

    def capacity_per_s(self, *, num_windows: float, num_tokens: float) -> float:
        """Requests a second that saturate it, for a mean number of windows and of tokens a request.

        With ``a`` windows admitted a step, each for ``n`` steps, ``a · n`` run. Memory is not looked at.
        """
        steps = num_tokens / num_windows + 1
        admitted = min(self.max_windows_per_step, self.max_running / steps)
        step_s = self.step_s + self.running_step_s * admitted * steps + self.admission_s * admitted
        return admitted / step_s / num_windows

    def blocks(self, num_tokens: int) -> int:
        """Blocks that a window holds which has decoded ``num_tokens`` tokens."""
        cross = math.ceil(self.window_positions / self.block_tokens)
        return cross + math.ceil((self.prompt_tokens + num_tokens) / self.block_tokens)


@dataclass(frozen=True, kw_only=True)
class WorkersProfile(_Described):
    """An engine of workers, each with one window at a time.

    Attributes:
        encode_s: what encoding a window takes, seconds.
        token_s: what decoding a token takes, seconds.
        context_s: what a window takes more that goes on from another, seconds: the model reads the text so far.
        overhead_s: what a request takes before it is queued and after it is served, seconds, without a worker.
        kappa: κ, tokens per second of audio (of speech where the trace tells it), where the trace has no tokens.
        num_workers: windows served at once.
        window_s: audio that a window carries a long recording forward, at most 30 s: Whisper goes on where the
            last whole segment ended.
        spread: standard deviation of the logarithm of a window's true over its predicted time; 0: exact.
    """

    engine: ClassVar[str] = "workers"
    encode_s: float
    token_s: float
    context_s: float = 0.0
    overhead_s: float = 0.0
    kappa: float = 3.0
    num_workers: int = 1
    window_s: float = WINDOW_S
    spread: float = 0.0

    def __post_init__(self) -> None:
        _check_whole(self, "num_workers")
        if not 0 < self.window_s <= WINDOW_S:
            raise ValueError(f"window_s must be above 0 and at most {WINDOW_S:g}, not {self.window_s:g}")
        self.estimator()

    def estimator(self) -> Estimator:
        """What the scheduler orders by."""
        return Estimator(kappa=self.kappa, encode_s=self.encode_s, token_s=self.token_s, context_s=self.context_s)

    def alone_s(self, estimate: Estimate) -> float:
        """Predicted seconds on an idle engine: what slowdown is relative to."""
        return self.overhead_s + estimate.size_s

    def num_windows(self, audio_s: float) -> int:
        """Windows that a recording takes: the last may reach over 30 s, each before it goes on by ``window_s``."""
        return 1 + max(0, math.ceil((audio_s - WINDOW_S) / self.window_s))

    def capacity_per_s(self, *, num_windows: float, num_tokens: float) -> float:
        """Requests a second that saturate it, for a mean number of windows and of tokens a request."""
        context_s = self.context_s * (num_windows - 1)
        return self.num_workers / (self.encode_s * num_windows + context_s + self.token_s * num_tokens)


def _check_whole(profile: object, *names: str) -> None:
    for name in names:
        value = getattr(profile, name)
        if value != int(value) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value:g}")


Profile = BatchingProfile | WorkersProfile
_CLASSES: dict[str, type[BatchingProfile] | type[WorkersProfile]] = {
    cls.engine: cls for cls in (BatchingProfile, WorkersProfile)
}
_DESCRIPTIONS = {one.name for one in fields(_Described)}


def profile_names() -> list[str]:
    """The profiles that ship."""
    return sorted(path.stem for path in _SHIPPED.glob("*.json"))


def load_profile(name: str) -> Profile:
    """The profile that ships under this name, or the one in this file.

    Raises:
        ProfileError: there is none, or it is not a profile.
    """
    path = _SHIPPED / f"{name}.json" if name in profile_names() else Path(name)
    try:
        return _profile(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        known = ", ".join(profile_names())
        raise ProfileError(path=name, reason=f"there is no such file, and none ships; known: {known}") from error
    except OSError as error:
        raise ProfileError(path=path, reason=error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise ProfileError(path=path, reason="it is not text in UTF-8") from error
    except (json.JSONDecodeError, RecursionError) as error:
        reason = "it is not one JSON object; sooner calibrate makes a profile from records"
        raise ProfileError(path=path, reason=reason) from error
    except (ValueError, TypeError) as error:
        raise ProfileError(path=path, reason=str(error)) from error


def _profile(body: Any) -> Profile:
    for name, kind in (("name", str), ("engine", str), ("model", str), ("hardware", str), ("values", dict)):
        if not isinstance(body, dict) or not isinstance(body.get(name), kind):
            raise ValueError(f"it needs {name!r}, {'an object' if kind is dict else 'a text'}")
    engine = body["engine"]
    if engine not in _CLASSES:
        raise ValueError(f"engine must be one of {', '.join(_CLASSES)}, not {engine!r}")
    cls = _CLASSES[engine]
    known = {one.name for one in fields(cls)} - _DESCRIPTIONS
    values = {name: _value(name, one) for name, one in body["values"].items()}
    if unknown := values.keys() - known:
        raise ValueError(f"unknown numbers: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    return cls(
        name=body["name"],
        model=body["model"],
        hardware=body["hardware"],
        origins={name: one["origin"] for name, one in body["values"].items()},
        **values,
    )


def _value(name: str, one: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(one.get("origin"), str) or "value" not in one:
        raise ValueError(f"{name} must be an object with a value and an origin")
    value = one["value"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, not {value!r}")
    return value


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile: the numbers that have an origin."""
    body = {
        "name": profile.name,
        "engine": profile.engine,
        "model": profile.model,
        "hardware": profile.hardware,
        "values": {
            name: {"value": getattr(profile, name), "origin": origin} for name, origin in profile.origins.items()
        },
    }
    path.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
