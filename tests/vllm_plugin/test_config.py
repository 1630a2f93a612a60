"""Options and the choice of the policy."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sooner import StaticPolicy, register
from sooner.core import policy as registry
from sooner.core.guard import Guard
from sooner.errors import ConfigurationError, UnknownPolicyError
from sooner.vllm_plugin.config import PluginConfig, our_policies, policy_in_force

OUR_CLASS = "sooner.vllm_plugin.scheduler.SoonerScheduler"


def vllm_config(flag: str = "fcfs", scheduler_cls: object = None, **section: Any) -> Any:
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(policy=flag, scheduler_cls=scheduler_cls),
        additional_config={"sooner": section} if section else {},
    )


def test_options_come_from_additional_config() -> None:
    assert PluginConfig.of(vllm_config()) == PluginConfig()
    assert PluginConfig.of(vllm_config(kappa=3.3, policy="sjf")) == PluginConfig(kappa=3.3, policy="sjf")


def test_paper_faithful_sizes_are_tokens_alone() -> None:
    estimator = PluginConfig(paper_faithful=True, encode_s=5.0).estimator()
    assert estimator.estimate(29.9).size_s == int(29.9 * 3.0)


def test_a_token_of_ones_own_is_in_no_size() -> None:
    estimate = PluginConfig(kappa=3.0, own_token_s=0.5).estimator().estimate(10.0)
    assert estimate == replace(PluginConfig(kappa=3.0, own_token_s=0.0).estimator().estimate(10.0), own_s=15.0)


def test_guards_are_read_as_the_core_reads_them() -> None:
    assert PluginConfig().make_guard() == Guard(scale=5.0, slack_s=120.0)
    assert PluginConfig(guard="fixed:30").make_guard() == Guard(max_wait_s=30.0)
    assert PluginConfig(guard="off").make_guard().is_off


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"kapa": 3}, "sooner.kapa is not an option; known: kappa, encode_s, token_s"),
        ({"kappa": "3"}, "sooner.kappa must be a number, not '3'"),
        ({"kappa": True}, "sooner.kappa must be a number"),
        ({"kappa": -1}, "sooner.kappa must be a finite number of at least 0"),
        ({"encode_s": float("nan")}, "sooner.encode_s must be a finite number"),
        ({"token_s": 0}, "sooner.token_s must be above 0"),
        ({"own_token_s": "1"}, "sooner.own_token_s must be a number, not '1'"),
        ({"own_token_s": -0.1}, "sooner.own_token_s must be a finite number of at least 0"),
        ({"guard": 5}, "sooner.guard must be text"),
        ({"guard": "soon"}, "sooner.guard: 'soon' is no guard; use off, fixed:SECONDS or scaled:E,D"),
        ({"guard": "scaled:1"}, "sooner.guard: 'scaled:1' is no guard"),
        ({"guard": "fixed:-1"}, "sooner.guard: "),
        ({"kappa": 1e308}, "sooner.cannot convert float infinity"),
        ({"kappa": 10**400}, "sooner."),
        ({"kappa": 1e12}, "make sizes without sense"),
        ({"encode_s": 1e308}, "make sizes without sense"),
        ({"journal_path": "/no/such/folder/j.jsonl"}, "'/no/such/folder/j.jsonl' has no folder"),
        ({"paper_faithful": 1}, "sooner.paper_faithful must be true or false"),
        ({"policy": 1}, "sooner.policy must be text"),
        ({"journal_path": ["x"]}, "sooner.journal_path must be text"),
    ],
)
def test_a_wrong_option_is_named(section: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        PluginConfig.of(vllm_config(**section))


def test_the_section_must_be_an_object() -> None:
    config = vllm_config()
    config.additional_config = {"sooner": "hrrn"}
    with pytest.raises(ConfigurationError, match="sooner must be an object"):
        PluginConfig.of(config)


def test_vllms_own_policies_are_none_of_ours() -> None:
    assert our_policies() == ("sjf", "hrrn", "srpt", "fair", "quantile", "boost", "adaptive")
    assert policy_in_force(vllm_config("fcfs")) is None
    assert policy_in_force(vllm_config("priority", scheduler_cls="some.other.Scheduler")) is None


def test_the_policy_is_the_flags_or_with_our_class_the_options() -> None:
    assert policy_in_force(vllm_config("hrrn")) == "hrrn"
    assert policy_in_force(vllm_config("hrrn", policy="hrrn")) == "hrrn"
    assert policy_in_force(vllm_config(scheduler_cls=OUR_CLASS, policy="sjf")) == "sjf"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (vllm_config(scheduler_cls=OUR_CLASS), "needs one policy"),
        (vllm_config("priority", scheduler_cls=OUR_CLASS, policy="sjf"), "needs one policy"),
        (vllm_config("hrrn", policy="sjf"), "says hrrn and sooner.policy says sjf: drop one"),
        (vllm_config("hrrn", scheduler_cls="their.Scheduler"), "their.Scheduler would serve"),
        (vllm_config(policy="sjf"), "vLLM's own scheduler is in use: say --scheduling-policy sjf"),
    ],
)
def test_what_contradicts_itself_is_refused(config: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        policy_in_force(config)


@pytest.mark.parametrize("scheduler_cls", [OUR_CLASS, None])
def test_an_unknown_policy_in_the_options_lists_the_known(scheduler_cls: str | None) -> None:
    with pytest.raises(UnknownPolicyError, match="'best'; known: sjf, hrrn"):
        policy_in_force(vllm_config(scheduler_cls=scheduler_cls, policy="best"))


def test_a_registered_policy_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    register(StaticPolicy(name="mine", summary="x", rank=lambda ticket: ticket.size_s, preemptive=False))
    assert policy_in_force(vllm_config("mine")) == "mine"
