"""Every place where we hold on to vLLM, and the check that it is still there.

vLLM calls its scheduler interface private, so another version may move anything. What we rely on is listed
here once; where something of it is missing we refuse to serve, naming it, rather than serve in another order than
the one asked for.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

from sooner.errors import MissingVllmError, UnsupportedVllmError
from sooner.vllm_plugin.request_queue import PolicyRequestQueue

__all__ = ["SEAMS", "SUPPORTED_VERSIONS", "Seam", "check_seams", "check_version", "vllm_version"]

SUPPORTED_VERSIONS = ("0.32", "0.33")
"""0.32 is what the tests serve with; 0.33's own scheduler was run with its queues, not served."""


@dataclass(frozen=True, slots=True)
class Seam:
    """One name in vLLM.

    Attributes:
        module: where it is.
        path: attributes from there, with dots.
        parameters: names that it must accept, where it is called.
    """

    module: str
    path: str
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        parameters = f"({', '.join(self.parameters)})" if self.parameters else ""
        return f"{self.module}.{self.path}{parameters}"

    def holds(self) -> bool:
        """Whether it is there. Imports the module."""
        try:
            found: Any = importlib.import_module(self.module)
        except ImportError:
            return False
        for name in self.path.split("."):
            if not hasattr(found, name):
                return False
            found = getattr(found, name)
        return not self.parameters or set(self.parameters) <= inspect.signature(found).parameters.keys()


_SCHEDULER = "vllm.v1.core.sched.scheduler"
_SERVING = "vllm.entrypoints.speech_to_text.base.serving"

SEAMS = (
    Seam("vllm.config.scheduler", "SchedulerConfig.get_scheduler_cls", ("self",)),
    Seam("vllm.config.scheduler", "SchedulerConfig.__dataclass_fields__"),
    Seam("vllm.engine.arg_utils", "EngineArgs.create_engine_config", ("self",)),
    Seam("vllm.engine.arg_utils", "_compute_kwargs.cache_clear"),
    Seam(_SCHEDULER, "Scheduler.__init__", ("self", "vllm_config")),
    Seam(_SCHEDULER, "Scheduler.add_request", ("self", "request")),
    Seam(_SCHEDULER, "Scheduler.schedule", ("self",)),
    Seam(_SCHEDULER, "Scheduler.get_kv_cache_usage", ("self",)),
    Seam(_SCHEDULER, "Scheduler.update_from_output", ("self", "scheduler_output")),
    Seam(_SCHEDULER, "Scheduler.make_stats", ("self",)),
    Seam(_SCHEDULER, "Scheduler._preempt_request", ("self", "request")),
    Seam("vllm.v1.core.sched.async_scheduler", "AsyncScheduler"),
    Seam("vllm.v1.core.sched.request_queue", "SchedulingPolicy.PRIORITY"),
    Seam("vllm.v1.request", "Request.num_output_tokens"),
    Seam("vllm.v1.metrics.stats", "SchedulerStats", ("waiting_lora_adapters",)),
    Seam("vllm.v1.metrics.loggers", "AggregateStatLoggerBase.record", ("scheduler_stats", "iteration_stats")),
    Seam("vllm.v1.metrics.loggers", "StatLoggerManager"),
    Seam("vllm.v1.engine.async_llm", "AsyncLLM.generate", ("prompt", "sampling_params", "request_id")),
    Seam("vllm.envs", "VLLM_USE_RUST_FRONTEND"),
    Seam("vllm.sampling_params", "SamplingParams.extra_args"),
    Seam("vllm.entrypoints.generate.api_router", "init_generate_state", ("engine_client",)),
    Seam("vllm.entrypoints.speech_to_text.factories", "init_speech_to_text_state", ("engine_client", "state")),
    Seam(
        _SERVING,
        "SpeechToTextBaseServing._preprocess_speech_to_text",
        ("request", "audio_data", "request_id"),
    ),
    Seam(_SERVING, "SpeechToTextBaseServing._decode_and_chunk_speech", ("audio_data",)),
)


def vllm_version() -> str:
    """vLLM's version. Raises ``MissingVllmError`` where it is not installed."""
    try:
        version: str = importlib.import_module("vllm").__version__
    except ImportError as error:
        raise MissingVllmError from error
    return version


def check_version() -> None:
    """Raise ``UnsupportedVllmError`` unless this vLLM is one that we know."""
    version = vllm_version()
    if ".".join(version.split(".")[:2]) not in SUPPORTED_VERSIONS:
        raise UnsupportedVllmError(version=version, supported=SUPPORTED_VERSIONS)


@cache
def check_seams() -> None:
    """Raise ``UnsupportedVllmError`` unless this vLLM is one that we know and all of ``SEAMS`` hold.

    Imports what they name, so it is for processes that serve one of our policies, and done once in each.
    """
    check_version()
    for seam in SEAMS:
        if not seam.holds():
            raise UnsupportedVllmError(version=vllm_version(), seam=str(seam))
    queue = importlib.import_module("vllm.v1.core.sched.request_queue").RequestQueue
    for name in sorted(queue.__abstractmethods__):
        if not hasattr(PolicyRequestQueue, name):
            raise UnsupportedVllmError(version=vllm_version(), seam=f"RequestQueue.{name}")
