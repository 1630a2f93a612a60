"""vLLM's scheduler in our order: its own code throughout, over other queues.

vLLM has two schedulers, ``Scheduler`` and, for engines that plan a step while the one before still runs,
``AsyncScheduler`` on top of it; its configuration decides. Ours are the same two. Each replaces the two queues
of waiting requests once vLLM has made them, and names the preemption victim through the door that is there:
where the policy is ``PRIORITY``, vLLM evicts the running request with the highest ``priority``.

``--scheduler-cls sooner.vllm_plugin.scheduler.SoonerScheduler`` names the class outright, with or without the
plugin loaded; the policy then comes from ``--additional-config``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from sooner.core.policy import policy_named
from sooner.errors import ConfigurationError, UnsupportedVllmError
from sooner.vllm_plugin import plugin
from sooner.vllm_plugin.chunk import ESTIMATE_KEY, EngineRequest, chunk_of, lone_request, ticket_of
from sooner.vllm_plugin.config import PluginConfig, our_policies, policy_in_force
from sooner.vllm_plugin.journal import Journal
from sooner.vllm_plugin.metrics import pack_totals
from sooner.vllm_plugin.request_queue import PolicyRequestQueue
from sooner.vllm_plugin.seams import check_seams, vllm_version

__all__ = ["SoonerScheduler", "SynchronousSoonerScheduler", "scheduler_class"]

logger = logging.getLogger("vllm.sooner")  # vLLM shows INFO of the loggers below its own name only

_ATTRIBUTES = (
    "cache_config",
    "kv_cache_config",
    "kv_holding_waiting",
    "lora_config",
    "max_num_encoder_input_tokens",
    "max_num_scheduled_tokens",
    "policy",
    "requests",
    "running",
    "waiting",
)
_MANY_WINDOWS = 4  # a step that admits this many leaves little to gain from admitting more


class SynchronousSoonerScheduler(Scheduler):
    """vLLM's ``Scheduler``, its waiting requests in the order of a Sooner policy.

    Raises:
        ConfigurationError: the options or the policy are not what they should be.
        UnsupportedVllmError: this vLLM lacks something that this class relies on.
    """

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        check_seams()
        name = policy_in_force(vllm_config)
        if name is None:
            raise ConfigurationError(f"no policy of ours is asked for; known: {', '.join(our_policies())}")
        options = PluginConfig.of(vllm_config)
        self._order = policy_named(name)
        self._estimator = options.estimator()
        self._guard = options.make_guard()
        # Without the plugin in this process there is none in the API process either, and nobody takes out what
        # clients say of their own size.
        self._read = chunk_of if plugin.is_registered() else lone_request
        self._journal = Journal(Path(options.journal_path)) if options.journal_path else None
        self._init_as_priority(vllm_config, *args, **kwargs)
        for attribute in _ATTRIBUTES:
            if not hasattr(self, attribute):
                raise UnsupportedVllmError(version=vllm_version(), seam=f"Scheduler().{attribute}")
        self.waiting = self._make_queue()
        self.kv_holding_waiting = self._make_queue()
        self._is_in_step = False
        self._victim_ns = 0
        self._num_preemptions = 0
        self._has_warned = False
        blocks_tokens = [group.kv_cache_spec.block_size for group in self.kv_cache_config.kv_cache_groups]
        self._num_groups = len(blocks_tokens)
        self._max_prefill_blocks = sum(ceil(self.max_num_scheduled_tokens / tokens) for tokens in blocks_tokens)
        window_tokens = self._window_tokens()
        self._max_admissions = windows_per_step(self.max_num_encoder_input_tokens, window_tokens)
        logger.info("%s", self._start_up_line(options, window_tokens))
        if self._journal is not None:
            self._journal.engine(self._limits(blocks_tokens[0], window_tokens), now_s=time.time())

    def _init_as_priority(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        """vLLM's own ``__init__`` knows two policies; under this one it asks for the victim's ``priority``."""
        config = vllm_config.scheduler_config
        asked_for = config.policy
        config.policy = "priority"
        try:
            super().__init__(vllm_config, *args, **kwargs)
        finally:
            config.policy = asked_for

    def _make_queue(self) -> PolicyRequestQueue:
        return PolicyRequestQueue(
            self._order, self._estimator, read=self._read, observer=self._journal, guard=self._guard
        )

    def _start_up_line(self, options: PluginConfig, window_tokens: int) -> str:
        size = f"{self._estimator.encode_s:g} s a window + {self._estimator.token_s:g} s a token"
        line = f"{self._order.name}: {self._order.summary}. Size: {size}, κ = {options.kappa:g}."
        line = f"{line} Guard: {options.guard}."
        return f"{line} {admission_advice(self.max_num_encoder_input_tokens, window_tokens)}".rstrip()

    def _limits(self, block_tokens: int, window_tokens: int) -> dict[str, Any]:
        """What bounds a step of this engine, as an engine profile names it; ``None`` for no bound."""
        return {
            "policy": self._order.name,
            "model": self.vllm_config.model_config.model,
            "version": vllm_version(),
            "max_running": self.vllm_config.scheduler_config.max_num_seqs,
            "max_windows_per_step": self._max_admissions,
            "memory_blocks": self.cache_config.num_gpu_blocks - 1,  # vLLM keeps one that holds nothing
            "block_tokens": block_tokens,
            "window_positions": window_tokens,
        }

    def _window_tokens(self) -> int:
        """Encoder positions of one 30 s window; 0 where not every request of the model has just that many."""
        hf_config = self.vllm_config.model_config.hf_config
        return int(hf_config.max_source_positions) if hf_config.model_type == "whisper" else 0

    def add_request(self, request: EngineRequest) -> None:
        extra_args = getattr(request.sampling_params, "extra_args", None) or {}
        is_known = self._read is chunk_of and ESTIMATE_KEY in extra_args
        if self._max_admissions is not None and not is_known and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "A recording came without an estimate and counts as its max_tokens. In a server, `python -m "
                "sooner.vllm_plugin` tells whether uploads are measured; in Python, say "
                "SamplingParams(extra_args={'estimated_output_tokens': ...})."
            )
        request.priority = 0  # the victim's mark is ours alone
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's own step, with the order and the victim of this moment."""
        now_s = time.time()  # the clock of arrival_time
        if self._journal is not None:
            self._journal.now_s = now_s
        self.waiting.begin_step(now_s, self._admission_limit())
        self.kv_holding_waiting.begin_step(now_s)
        if self._may_run_out_of_blocks():
            self._name_victim(now_s)
        self._is_in_step = True
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self._is_in_step = False
            self.waiting.end_step()
        for switch in self.waiting.take_switches():
            logger.info("order %s instead of %s: %s", switch.after, switch.before, switch.reason)
        if self._journal is not None:
            self._journal.planned(output)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's own; the journal gets the step and the requests that end with it."""
        if self._journal is None:
            return super().update_from_output(scheduler_output, *args, **kwargs)
        now_s = time.time()
        ran = [self.requests[one] for one in scheduler_output.num_scheduled_tokens if one in self.requests]
        outputs = super().update_from_output(scheduler_output, *args, **kwargs)
        self._journal.done(scheduler_output, done_s=now_s)
        for request in ran:
            if request.is_finished():
                self._journal.finished(request, self._read(request), now_s=now_s)
        return outputs

    def _admission_limit(self) -> Callable[[], bool] | None:
        """Whether this step has admitted as many windows as its encoder budget holds; ``None`` without a limit.

        Counted by what runs, not by what left the queue: vLLM also takes requests out to put them back.
        """
        if self._max_admissions is None:
            return None
        num_full = len(self.running) + self._max_admissions
        return lambda: len(self.running) >= num_full

    def _may_run_out_of_blocks(self) -> bool:
        """Whether the running requests may want more blocks in this step than are free; errs towards yes."""
        num_wanted = self._num_groups * len(self.running) + self._max_prefill_blocks
        return bool((1 - self.get_kv_cache_usage()) * self.cache_config.num_gpu_blocks <= num_wanted)

    def _name_victim(self, now_s: float) -> None:
        """Give the one running request that the policy would put off the highest ``priority``. O(running)."""
        begin_ns = time.perf_counter_ns()
        tickets = []
        for index, request in enumerate(self.running):
            tickets.append(ticket_of(request, self._read(request), self._estimator, sequence=index))
            request.priority = 0
        victim = self._order.victim(tickets, now_s)
        if victim is not None:
            self.running[victim.sequence].priority = 1
        self._victim_ns += time.perf_counter_ns() - begin_ns

    def _preempt_request(self, request: EngineRequest, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)
        if self._is_in_step:  # else all go at once, for a reset of the cache
            self._num_preemptions += 1
            self._name_victim(self.waiting.now_s)  # more may have to go

    def make_stats(self, *args: Any, **kwargs: Any) -> Any:
        stats = super().make_stats(*args, **kwargs)
        if stats is not None and self.lora_config is None:
            spent_ns = self.waiting.spent_ns + self.kv_holding_waiting.spent_ns + self._victim_ns
            pack_totals(stats, overhead_ns=spent_ns, num_preemptions=self._num_preemptions)
        return stats


class SoonerScheduler(SynchronousSoonerScheduler, AsyncScheduler):
    """The same over ``AsyncScheduler``: planning the next step while the device works on this one stays on."""


def scheduler_class(*, is_async: bool) -> type[SynchronousSoonerScheduler]:
    """The class for an engine with or without asynchronous scheduling."""
    return SoonerScheduler if is_async else SynchronousSoonerScheduler


def windows_per_step(budget_tokens: int, window_tokens: int) -> int | None:
    """How many windows one engine step admits; for the arguments see ``admission_advice``.

    ``None`` where ``window_tokens`` is 0. vLLM always lets one window in, however small the budget.
    """
    return max(1, budget_tokens // window_tokens) if window_tokens else None


def admission_advice(budget_tokens: int, window_tokens: int) -> str:
    """How many windows one engine step admits, and what to do where that is what limits throughput.

    Args:
        budget_tokens: encoder positions that one step may compute, ``max_num_batched_tokens``.
        window_tokens: encoder positions of one window; 0 where the model does not pad audio to windows.
    """
    num_windows = windows_per_step(budget_tokens, window_tokens)
    if num_windows is None:
        return ""
    line = (
        f"An engine step admits {num_windows} window{'s' if num_windows > 1 else ''} of 30 s "
        f"({budget_tokens} encoder positions, {window_tokens} a window)."
    )
    if num_windows >= _MANY_WINDOWS:
        return line
    return (
        f"{line} On a GPU this, not decoding, limits throughput: --max-num-batched-tokens "
        f"{_MANY_WINDOWS * window_tokens} would admit {_MANY_WINDOWS} a step, for longer steps and more memory."
    )
