"""vLLM's real scheduler in this process, without an engine, weights or a device: for tests and benchmarks.

It is built as vLLM's engine builds it, for a Whisper model; its memory is vLLM's own bookkeeping with nothing
behind it. The plugin must be loaded before (``vllm.plugins.load_general_plugins``). Takes a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import CrossAttentionSpec, FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

__all__ = ["END_OF_TEXT", "SchedulerSetup", "make_request"]

END_OF_TEXT = 50257
_PROMPT = (50258, 50259, 50359, 50363)  # start of transcript, English, transcribe, no timestamps
_WINDOW_TOKENS = 1500


@dataclass(frozen=True, kw_only=True)
class SchedulerSetup:
    """What a scheduler is made of.

    Attributes:
        model: a folder in Hugging Face's layout; only its configuration is read.
        policy: ``--scheduling-policy``.
        num_slots: sequences decoded at once.
        step_tokens: ``max_num_batched_tokens``; 1,500 admit one window a step.
        num_blocks: blocks of memory.
        block_tokens: tokens a block holds.
        is_async: whether the engine plans a step while the one before runs.
        scheduler_cls: ``--scheduler-cls``.
        options: the plugin's section of ``additional_config``.
    """

    model: Path
    policy: str
    num_slots: int = 8
    step_tokens: int = 2048
    num_blocks: int = 4000
    block_tokens: int = 32
    is_async: bool = False
    scheduler_cls: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> Any:
        """vLLM's configuration of it."""
        model_config = ModelConfig(model=str(self.model), dtype="float32", enforce_eager=True)
        config = VllmConfig(
            model_config=model_config,
            scheduler_config=SchedulerConfig(
                policy=self.policy,
                scheduler_cls=self.scheduler_cls,
                max_num_seqs=self.num_slots,
                max_num_batched_tokens=self.step_tokens,
                max_model_len=model_config.max_model_len,
                is_encoder_decoder=True,
                is_multimodal_model=True,
            ),
            cache_config=CacheConfig(block_size=self.block_tokens, enable_prefix_caching=False),
            additional_config={"sooner": dict(self.options)},
        )
        config.scheduler_config.async_scheduling = self.is_async  # on a CPU vLLM has just switched it off
        config.cache_config.num_gpu_blocks = self.num_blocks
        return config

    def make(self) -> Any:
        """The scheduler, of the class that its configuration asks for."""
        config = self.config()
        kv_cache_config = self._kv_cache_config(config.model_config.hf_config)
        block_size, hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, config)
        return config.scheduler_config.get_scheduler_cls()(
            vllm_config=config,
            kv_cache_config=kv_cache_config,
            structured_output_manager=StructuredOutputManager(config),
            block_size=block_size,
            hash_block_size=hash_block_size,
            log_stats=True,
        )

    def _kv_cache_config(self, hf_config: Any) -> Any:
        """The decoder's attention to itself and to the encoder, out of one pool of blocks."""
        num_heads = hf_config.decoder_attention_heads
        shape = {
            "block_size": self.block_tokens,
            "num_kv_heads": num_heads,
            "head_size": hf_config.d_model // num_heads,
            "dtype": torch.float32,
        }
        return KVCacheConfig(
            num_blocks=self.num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[
                KVCacheGroupSpec(["self"], FullAttentionSpec(**shape)),
                KVCacheGroupSpec(["cross"], CrossAttentionSpec(**shape)),
            ],
        )


def make_request(
    name: str, *, arrival_s: float, max_tokens: int, extra_args: Mapping[str, Any] | None = None
) -> Any:
    """A request as the speech endpoint sends it: four prompt tokens, one window, ``max_tokens`` forced.

    ``arrival_s`` is a wall-clock second.
    """
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=0,
        ignore_eos=True,
        extra_args=None if extra_args is None else dict(extra_args),
    )
    params.update_from_generation_config({}, END_OF_TEXT)
    window = MultiModalFeatureSpec(
        data=None,
        modality="audio",
        identifier=name,
        mm_position=PlaceholderRange(offset=0, length=_WINDOW_TOKENS),
    )
    return Request(
        request_id=name,
        prompt_token_ids=list(_PROMPT),
        sampling_params=params,
        pooling_params=None,
        mm_features=[window],
        arrival_time=arrival_s,
    )
