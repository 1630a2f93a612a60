"""Every way of starting vLLM takes our policies, refuses nonsense, and says what to do where it cannot serve."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vllm
from pydantic import ValidationError
from pydantic.dataclasses import rebuild_dataclass
from vllm.config import SchedulerConfig
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.core.sched.scheduler import Scheduler

from sooner import StaticPolicy, register
from sooner.bench.vllm_scheduler import SchedulerSetup, make_request
from sooner.core import policy as registry
from sooner.errors import ConfigurationError, UnsupportedVllmError
from sooner.vllm_plugin import plugin as plugin_module
from sooner.vllm_plugin import seams
from sooner.vllm_plugin.chunk import ESTIMATE_KEY
from sooner.vllm_plugin.request_queue import PolicyRequestQueue
from sooner.vllm_plugin.scheduler import SoonerScheduler
from tests_vllm.scheduling import make_scheduler

OUR_CLASS = "sooner.vllm_plugin.scheduler.SoonerScheduler"
ALL = ["fcfs", "priority", "sjf", "hrrn", "srpt", "fair", "quantile", "boost", "adaptive"]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def configured(model: Path, **arguments: Any) -> Any:
    return EngineArgs(model=str(model), enforce_eager=True, dtype="float32", **arguments).create_engine_config()


def parsed(*arguments: str) -> Any:
    return AsyncEngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(list(arguments))


@pytest.fixture
def unchecked() -> Any:
    """The seams are checked once a process; here each time, and once more when they are whole again."""
    seams.check_seams.cache_clear()
    yield
    seams.check_seams.cache_clear()


def test_the_server_refuses_nonsense_and_lists_the_names(model: Path) -> None:
    result = run("vllm.entrypoints.openai.api_server", "--model", str(model), "--scheduling-policy", "nonsense")
    assert result.returncode == 2
    assert "invalid choice: 'nonsense'" in result.stderr
    for name in ALL:
        assert f"'{name}'" in result.stderr.rpartition("choose from")[2]


def test_without_the_plugin_vllm_refuses_our_names_and_our_command_says_why(model: Path) -> None:
    arguments = ("--model", str(model), "--scheduling-policy", "hrrn")
    result = run("vllm.entrypoints.openai.api_server", *arguments, VLLM_PLUGINS="another")
    assert result.returncode == 2
    assert "invalid choice: 'hrrn'" in result.stderr
    check = run("sooner.vllm_plugin", VLLM_PLUGINS="another")
    assert check.returncode == 1
    assert "VLLM_PLUGINS=another leaves the plugin out: add 'sooner' to it" in check.stderr


def test_the_command_tells_that_all_is_well() -> None:
    result = run("sooner.vllm_plugin")
    assert result.returncode == 0, result.stderr
    assert f"--scheduling-policy takes {', '.join(ALL)}." in result.stdout


@pytest.mark.parametrize("policy", ALL)
def test_flag_and_class_take_every_name(model: Path, policy: str) -> None:
    assert parsed("--scheduling-policy", policy).scheduling_policy == policy
    assert configured(model, scheduling_policy=policy).scheduler_config.policy == policy


def test_the_class_refuses_nonsense_and_lists_the_names(model: Path) -> None:
    names = ", ".join(f"'{name}'" for name in ALL[:-1])
    with pytest.raises(ValidationError, match=f"{names} or 'adaptive'"):
        configured(model, scheduling_policy="nonsense")


def test_a_configuration_file_takes_them(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("scheduling-policy: hrrn\n")
    assert parsed("--config", str(path)).scheduling_policy == "hrrn"


def test_wrong_options_are_refused_before_a_model_is_loaded(model: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"sooner\.kapa is not an option"):
        configured(model, scheduling_policy="hrrn", additional_config={"sooner": {"kapa": 3}})


def test_the_class_route_needs_no_flag(model: Path) -> None:
    config = configured(model, scheduler_cls=OUR_CLASS, additional_config={"sooner": {"policy": "sjf"}})
    assert config.scheduler_config.policy == "fcfs"
    assert config.scheduler_config.get_scheduler_cls() is SoonerScheduler
    with pytest.raises(ConfigurationError, match="needs one policy"):
        configured(model, scheduler_cls=OUR_CLASS)
    with pytest.raises(ConfigurationError, match="no attribute 'Nope'"):
        configured(
            model,
            scheduler_cls="sooner.vllm_plugin.scheduler.Nope",
            additional_config={"sooner": {"policy": "sjf"}},
        )


@pytest.fixture
def narrow_again() -> Iterator[None]:
    """Takes back what a test adds to vLLM's choices."""
    field = SchedulerConfig.__dataclass_fields__["policy"]
    before = field.type
    yield
    field.type = SchedulerConfig.__annotations__["policy"] = before
    rebuild_dataclass(SchedulerConfig, force=True)


@pytest.mark.usefixtures("narrow_again")
def test_a_policy_is_registered_and_asked_for_by_name(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    register(StaticPolicy(name="longest", summary="", rank=lambda ticket: -ticket.size_s, preemptive=False))
    plugin_module.register()
    assert parsed("--scheduling-policy", "longest").scheduling_policy == "longest"
    assert make_scheduler(model, "longest")._order.name == "longest"


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_version_is_refused_by_name_and_fcfs_still_serves(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "__version__", "0.29.1")
    with pytest.raises(UnsupportedVllmError, match=r"vLLM 0\.29\.1 is not one that it knows.*Install vllm==0\.32"):
        configured(model, scheduling_policy="hrrn")
    assert configured(model, scheduling_policy="fcfs").scheduler_config.policy == "fcfs"


@pytest.mark.usefixtures("unchecked")
def test_a_missing_seam_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Scheduler, "_preempt_request")
    with pytest.raises(UnsupportedVllmError, match=r"lacks vllm\.v1\.core\.sched\.scheduler\.Scheduler\._preempt"):
        configured(model, scheduling_policy="sjf")
    with pytest.raises(UnsupportedVllmError, match="_preempt_request"):
        make_scheduler(model, "sjf")


def test_where_the_flag_cannot_be_widened_vllm_starts_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("vllm.engine.arg_utils._compute_kwargs")
    monkeypatch.setattr(plugin_module.logger, "propagate", True)
    plugin_module.register()
    assert "Sooner's policies are not available: vLLM" in caplog.text
    assert "_compute_kwargs" in caplog.text


def test_a_front_end_that_cannot_measure_is_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_RUST_FRONTEND", "1")
    with pytest.raises(ConfigurationError, match="VLLM_USE_RUST_FRONTEND is set"):
        configured(model, scheduling_policy="hrrn")
    assert configured(model, scheduling_policy="fcfs").scheduler_config.policy == "fcfs"


def test_without_the_plugin_the_class_believes_nobody(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plugin_module._state, "registered", False)
    setup = SchedulerSetup(model=model, policy="fcfs", scheduler_cls=OUR_CLASS, options={"policy": "sjf"})
    scheduler = setup.make()
    for tokens, said in ((50, 1), (40, 400)):
        scheduler.add_request(
            make_request(f"r{tokens}", arrival_s=0.0, max_tokens=tokens, extra_args={ESTIMATE_KEY: said})
        )
    assert scheduler.waiting.peek_request().request_id == "r40"


def test_the_queue_has_all_that_vllm_asks_of_one() -> None:
    for name in RequestQueue.__abstractmethods__:
        assert callable(getattr(PolicyRequestQueue, name))
