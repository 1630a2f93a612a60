"""The entry point that vLLM calls in each of its processes, and the few names of vLLM that it changes.

Nothing is changed on disk. In memory, the choices of ``--scheduling-policy`` grow by our policies, the function
that picks the scheduler class picks ours for them, and the one that makes the configuration looks whether
one of them is asked for. If so it checks everything there and then, before a model is loaded, and has the
functions that set up a server's endpoints show us its objects. Under ``fcfs`` and ``priority`` vLLM's own code
runs as before.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Literal, get_args

from sooner.errors import ConfigurationError, UnsupportedVllmError
from sooner.vllm_plugin.config import our_policies, policy_in_force
from sooner.vllm_plugin.seams import check_seams, vllm_version

__all__ = ["is_registered", "register"]

logger = logging.getLogger("vllm.sooner")

_state = {"registered": False}


def register() -> None:
    """Make vLLM know our policies. Called by vLLM; again after registering a policy of your own. Idempotent.

    Never raises: vLLM would not start, for those either who use it without us. Where this vLLM has no place for
    our policies it says so, and vLLM refuses their names as unknown.
    """
    _state["registered"] = True
    try:
        _wrap("vllm.config.scheduler", "SchedulerConfig.get_scheduler_cls", _choosing_ours)
        _wrap("vllm.engine.arg_utils", "EngineArgs.create_engine_config", _making_ready)
        _widen_choices(our_policies())
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep others from starting
        logger.error("%s", UnsupportedVllmError(version=vllm_version(), seam=f"{type(error).__name__}: {error}"))


def is_registered() -> bool:
    """Whether vLLM has loaded the plugin in this process."""
    return _state["registered"]


def _widen_choices(names: tuple[str, ...]) -> None:
    """Let the configuration and the command line accept ``names``; whatever else they refuse as before.

    The choices are a ``Literal``, kept in three places: the module, the dataclass field that the command line
    reads (through a cache), and the validator that pydantic built from it.
    """
    from pydantic.dataclasses import rebuild_dataclass  # noqa: PLC0415

    module = importlib.import_module("vllm.config.scheduler")
    arg_utils = importlib.import_module("vllm.engine.arg_utils")
    clear_cache = arg_utils._compute_kwargs.cache_clear
    config = module.SchedulerConfig
    field = config.__dataclass_fields__["policy"]
    known = get_args(field.type)
    if "fcfs" not in known:
        raise TypeError(f"SchedulerConfig.policy is {field.type}")
    policy = Literal[tuple(dict.fromkeys((*known, *names)))]  # type: ignore[valid-type]
    module.SchedulerPolicy = policy  # type: ignore[attr-defined]
    config.__annotations__["policy"] = policy
    field.type = policy
    rebuild_dataclass(config, force=True)
    clear_cache()


def _wrap(module_name: str, path: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace a function of vLLM's by ``wrapper(function)``, once."""
    holder: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        holder = getattr(holder, parent)
    function = getattr(holder, name)
    if not hasattr(function, "sooner_wraps"):
        wrapped = wrapper(function)
        wrapped.sooner_wraps = function  # type: ignore[attr-defined]
        setattr(holder, name, wrapped)


def _choosing_ours(get_scheduler_cls: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(get_scheduler_cls)
    def choose(self: Any) -> Any:
        if self.policy in our_policies() and self.scheduler_cls is None:
            from sooner.vllm_plugin.scheduler import scheduler_class  # noqa: PLC0415

            return scheduler_class(is_async=self.async_scheduling)
        return get_scheduler_cls(self)

    return choose


def _making_ready(create_engine_config: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(create_engine_config)
    def create_and_make_ready(self: Any, *args: Any, **kwargs: Any) -> Any:
        vllm_config = create_engine_config(self, *args, **kwargs)
        if policy_in_force(vllm_config) is not None:
            check_seams()
            _refuse_rust_front_end()
            _resolve_scheduler(vllm_config.scheduler_config)
            _wrap("vllm.entrypoints.generate.api_router", "init_generate_state", _capturing_client)
            _wrap("vllm.entrypoints.speech_to_text.factories", "init_speech_to_text_state", _capturing_speech)
        return vllm_config

    return create_and_make_ready


def _refuse_rust_front_end() -> None:
    if importlib.import_module("vllm.envs").VLLM_USE_RUST_FRONTEND:
        raise ConfigurationError(
            "VLLM_USE_RUST_FRONTEND is set: that front end has no place to measure recordings, and its clients "
            "could set their own size. Unset it, or serve with --scheduling-policy fcfs"
        )


def _resolve_scheduler(scheduler_config: Any) -> None:
    try:
        scheduler_config.get_scheduler_cls()
    except (AttributeError, ImportError) as error:
        raise ConfigurationError(f"--scheduler-cls {scheduler_config.scheduler_cls}: {error}") from error


def _capturing_client(init_generate_state: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(init_generate_state)
    async def init_and_capture(engine_client: Any, *args: Any, **kwargs: Any) -> Any:
        from sooner.vllm_plugin.capture import capture_engine_client  # noqa: PLC0415

        capture_engine_client(engine_client)
        return await init_generate_state(engine_client, *args, **kwargs)

    return init_and_capture


def _capturing_speech(init_speech_to_text_state: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(init_speech_to_text_state)
    def init_and_capture(engine_client: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        from sooner.vllm_plugin.capture import capture_engine_client, capture_speech  # noqa: PLC0415

        capture_engine_client(engine_client)
        result = init_speech_to_text_state(engine_client, state, *args, **kwargs)
        for name in ("openai_serving_transcription", "openai_serving_translation"):
            serving = getattr(state, name, None)
            if serving is not None:
                capture_speech(serving)
        return result

    return init_and_capture
