"""Memory pressure in the real engine with the real model: requests are evicted, and their tokens are the same.

Where it must occur: a window takes ceil(1500 / 32) = 47 blocks for cross-attention and one for its first 32 tokens
when it is admitted, and one more every 32 tokens, 54 blocks for 200 tokens and the prompt. Of 149 usable
blocks three requests take 144 at once, and the fifteen more that they need before they end are not there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import soundfile
from vllm import LLM, SamplingParams

from sooner.vllm_plugin.chunk import ESTIMATE_KEY
from sooner.workload.recordings import clips
from tests_vllm.journal import read_journal

NUM_TOKENS = (150, 210, 170, 190)
PROMPT = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"
OUR_CLASS = "sooner.vllm_plugin.scheduler.SoonerScheduler"


def decode(model: Path, num_blocks: int, **arguments: Any) -> list[tuple[int, ...]]:
    """Tokens of four clips, so many of each, decoded at once."""
    llm = LLM(
        model=str(model),
        dtype="float32",
        enforce_eager=True,
        block_size=32,
        num_gpu_blocks_override=num_blocks,
        max_num_seqs=4,
        max_num_batched_tokens=2048,
        **arguments,
    )
    try:
        prompts = [
            {
                "encoder_prompt": {
                    "prompt": "",
                    "multi_modal_data": {"audio": (soundfile.read(clip.path, dtype="float32")[0], 16_000)},
                },
                "decoder_prompt": PROMPT,
            }
            for clip in clips()[: len(NUM_TOKENS)]
        ]
        params = [
            SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, extra_args={ESTIMATE_KEY: n})
            for n in NUM_TOKENS
        ]
        return [tuple(output.outputs[0].token_ids) for output in llm.generate(prompts, params, use_tqdm=False)]
    finally:
        llm.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module")
def unpressed_tokens(model: Path) -> list[tuple[int, ...]]:
    tokens = decode(model, 400, scheduling_policy="fcfs")
    assert [len(of_one) for of_one in tokens] == list(NUM_TOKENS)
    return tokens


@pytest.mark.parametrize("route", ["flag", "class"])
def test_evicted_requests_end_with_the_tokens_they_would_have_had(
    model: Path, unpressed_tokens: list[tuple[int, ...]], tmp_path: Path, route: str
) -> None:
    journal = tmp_path / "journal.jsonl"
    options = {"journal_path": str(journal)}
    if route == "flag":
        tokens = decode(model, 150, scheduling_policy="sjf", additional_config={"sooner": options})
    else:
        options["policy"] = "hrrn"
        tokens = decode(model, 150, scheduler_cls=OUR_CLASS, additional_config={"sooner": options})
    assert tokens == unpressed_tokens
    lines = read_journal(journal)
    first_back = next(
        (n for n, line in enumerate(lines) if line["num_output_tokens"] and line["event"] == "added"), 0
    )
    assert first_back, "the cache was not too small"
    # All came at once and decode at one pace: the largest has most left, and the lowest response ratio.
    running = [line["estimated_output_tokens"] for line in lines[:first_back] if line["event"] == "taken"]
    assert len(running) == 3
    assert lines[first_back]["estimated_output_tokens"] == max(running)
