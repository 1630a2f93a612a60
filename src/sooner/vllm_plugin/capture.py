"""In the API process: how long a recording is, told to the scheduler before anything is computed from it.

vLLM's speech endpoints decode an upload, cut it into chunks, make features of all of them and submit them with
one shared ``SamplingParams``. We listen at two of their methods (the beginning of an upload, the cut) and at
the engine client's ``generate``, through which every request of every endpoint goes:

- what a client put under one of our keys is taken out, whatever endpoint it used, so nobody sets their own size;
- a chunk of an upload gets a copy of its parameters with its size and its place in the upload, and the
  upload's arrival time: vLLM's own begins after decoding, language detection and features;
- the request that detects the language is sized as what it is: one window, one token.

Only objects of a server that runs under one of our policies are touched; no class of vLLM is.
"""

from __future__ import annotations

import copy
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from sooner.core.estimator import Estimator
from sooner.errors import UnsupportedVllmError
from sooner.vllm_plugin.chunk import ESTIMATE_KEY, RESERVED_KEYS, Chunk, chunks_of_upload
from sooner.vllm_plugin.config import PluginConfig, policy_in_force
from sooner.vllm_plugin.metrics import RequestTable, SoonerStatLogger
from sooner.vllm_plugin.seams import vllm_version

__all__ = ["Upload", "capture_engine_client", "capture_speech", "sized"]

logger = logging.getLogger("vllm.sooner")


@dataclass(slots=True, kw_only=True)
class Upload:
    """One call of a speech endpoint.

    Attributes:
        request_id: vLLM's id of it; those of its engine requests begin with it.
        arrival_s: wall-clock second at which the endpoint got it.
        chunks: its chunks, empty until they are known.
    """

    request_id: str
    arrival_s: float
    chunks: tuple[Chunk, ...] = field(default=())

    def cut(self, chunks_s: Sequence[float], estimator: Estimator) -> None:
        """Note the lengths of its chunks, seconds. Its id in the engine is ours, so no client can choose it."""
        self.chunks = chunks_of_upload(secrets.token_hex(8), chunks_s, estimator)

    def engine_request_id(self, chunk: Chunk) -> str:
        """vLLM's id of the request for a chunk, where no beams are searched."""
        return self.request_id if len(self.chunks) == 1 else f"{self.request_id}-{chunk.number}"

    def is_language_detection(self, request_id: str) -> bool:
        """Whether an engine request detects this upload's language."""
        return request_id == f"{self.request_id}-lang_detect"

    def chunk_named(self, request_id: str) -> Chunk | None:
        """The chunk that an engine request serves; ``None`` for language detection and strangers.

        vLLM appends ``-lang_detect``, or ``-<index>`` where there is more than one chunk, and to either
        of the latter what it likes for beam search.
        """
        if not self.chunks or not request_id.startswith(self.request_id) or self.is_language_detection(request_id):
            return None
        if len(self.chunks) == 1:
            return self.chunks[0]
        index = request_id.removeprefix(self.request_id).removeprefix("-").partition("-")[0]
        return self.chunks[int(index)] if index.isdecimal() and int(index) < len(self.chunks) else None


_current_upload: ContextVar[Upload | None] = ContextVar("sooner_upload", default=None)


def capture_engine_client(engine_client: Any) -> None:
    """Have every request of this client's pass by us, if its engine serves a policy of ours. Idempotent.

    Raises:
        ConfigurationError: the options are not what they should be.
        UnsupportedVllmError: the client lacks what we rely on.
    """
    policy = policy_in_force(engine_client.vllm_config)
    if policy is None or hasattr(engine_client.generate, "sooner_requests"):
        return
    requests = None
    manager = getattr(engine_client, "logger_manager", None)
    if manager is not None:  # None under --disable-log-stats
        _require(manager, "stat_loggers", "StatLoggerManager")
        requests = RequestTable()
        manager.stat_loggers.append(SoonerStatLogger(policy, requests))
    engine_client.generate = _sizing(engine_client.generate, requests)


def _sizing(
    generate: Callable[..., Any], requests: RequestTable | None
) -> Callable[..., AsyncGenerator[Any, None]]:
    """``generate`` of an engine client, its requests sized.

    A plain function that returns vLLM's own generator: it runs at once, in the endpoint's own task.
    """

    def sized_generate(
        prompt: Any, sampling_params: Any, request_id: str, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        upload = _current_upload.get()
        chunk = None if upload is None else upload.chunk_named(request_id)
        is_detection = upload is not None and upload.is_language_detection(request_id)
        sampling_params = sized(sampling_params, chunk, is_detection=is_detection)
        if upload is not None and chunk is not None:
            if requests is not None and request_id == upload.engine_request_id(chunk):  # else one token of a beam
                requests.put(request_id, chunk)
            if isinstance(prompt, dict) and "type" in prompt:  # beams come without a time of their own
                prompt = {**prompt, "arrival_time": upload.arrival_s}
        generator: AsyncGenerator[Any, None] = generate(prompt, sampling_params, request_id, *args, **kwargs)
        return generator

    sized_generate.sooner_requests = requests  # type: ignore[attr-defined]
    return sized_generate


def sized(sampling_params: Any, chunk: Chunk | None, *, is_detection: bool = False) -> Any:
    """A copy of ``sampling_params`` that says how big the request is, and nothing that a client said of that.

    vLLM shares one object, and one ``extra_args`` in it, among all chunks: neither is changed.
    """
    before = sampling_params.extra_args or {}
    extra_args = {name: value for name, value in before.items() if name not in RESERVED_KEYS}
    if is_detection:
        extra_args[ESTIMATE_KEY] = 1
    elif chunk is not None:
        extra_args |= chunk.extra_args()
    if extra_args == before:
        return sampling_params
    sampling_params = copy.copy(sampling_params)
    sampling_params.extra_args = extra_args
    return sampling_params


def capture_speech(serving: Any) -> None:
    """Listen to a serving object of vLLM's speech endpoints, if its engine serves a policy of ours.

    Raises:
        ConfigurationError: the options are not what they should be.
        UnsupportedVllmError: the object lacks what we rely on.
    """
    vllm_config = serving.engine_client.vllm_config
    if policy_in_force(vllm_config) is None:
        return
    for name in ("_preprocess_speech_to_text", "_decode_and_chunk_speech_async", "asr_config"):
        _require(serving, name, type(serving).__name__)
    estimator = PluginConfig.of(vllm_config).estimator()
    preprocess, decode = serving._preprocess_speech_to_text, serving._decode_and_chunk_speech_async
    rate_hz = serving.asr_config.sample_rate

    async def preprocess_upload(request: Any, audio_data: bytes, request_id: str) -> Any:
        # Each request is a task of its own, with a context of its own: no need to put the variable back.
        _current_upload.set(Upload(request_id=request_id, arrival_s=time.time()))
        return await preprocess(request=request, audio_data=audio_data, request_id=request_id)

    async def decode_and_cut(audio_data: bytes) -> Any:
        chunks, duration_s = await decode(audio_data)
        upload = _current_upload.get()
        if upload is not None:
            upload.cut([chunk.shape[-1] / rate_hz for chunk in chunks], estimator)
        return chunks, duration_s

    serving._preprocess_speech_to_text = preprocess_upload
    serving._decode_and_chunk_speech_async = decode_and_cut
    logger.info("Recordings sent to %s are scheduled by their length.", type(serving).__name__)


def _require(holder: object, name: str, holder_name: str) -> None:
    if not hasattr(holder, name):
        raise UnsupportedVllmError(version=vllm_version(), seam=f"{holder_name}().{name}")
