"""Options of the server that contradict themselves or make no sense are refused before anything is loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sooner.core.adaptive import AdaptivePolicy, Goals
from sooner.core.guard import Guard
from sooner.errors import ConfigurationError, UnknownPolicyError
from sooner.server.options import ServeOptions


def test_the_defaults_are_adaptive_guarded_and_learning() -> None:
    options = ServeOptions()
    assert options.make_policy().name == "adaptive"
    assert Guard.parse(options.guard) == Guard(scale=5.0, slack_s=120.0)
    assert options.make_estimator().learns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"guard": "soon"}, "'soon' is no guard; use off, fixed:SECONDS or scaled:E,D"),
        ({"guard": "fixed:"}, "'fixed:' is no guard"),
        ({"guard": "fixed:-1"}, "no guard"),
        ({"guard": "scaled:5"}, "'scaled:5' is no guard"),
        ({"guard": "scaled:5,nan"}, "no guard"),
        ({"policy": "hrrn", "goal_short_p90_s": 5.0}, "goals are for --policy adaptive, and this is hrrn"),
        ({"policy": "fair:2", "goal_all_p99_s": 60.0}, "goals are for --policy adaptive, and this is fair:2"),
        ({"goal_short_p90_s": 0.0}, "--goal-short-p90-s must be at least 0.001"),
        ({"goal_all_p99_s": float("inf")}, "--goal-all-p99-s must be at least 0.001 and finite"),
        ({"context_s": -0.1}, "context_s must be a finite number of at least 0"),
        ({"learned": Path("l.json"), "learn": False}, "--no-learn learns nothing: drop one"),
        ({"learned": Path("no/such/folder/l.json")}, "--learned no/such/folder/l.json must be a file in a folder"),
        ({"learned": Path()}, "--learned . must be a file"),
        ({"max_client_jobs": 0}, "--max-client-jobs must be at least 1"),
        ({"max_client_audio_s": 0.5}, "--max-client-audio-s must be at least 1"),
        ({"max_wait_s": -1.0}, "--max-wait-s must be at least 0"),
        ({"trusted_proxies": "nginx"}, "--trusted-proxies takes addresses and networks, such as 10.0.0.0/8"),
        ({"trusted_proxies": "10.0.0.1,"}, "--trusted-proxies takes addresses"),
        ({"trusted_proxies": "*"}, "--trusted-proxies takes addresses"),
        ({"trusted_proxies": "10.0.0.1/8"}, "10.0.0.1/8 has host bits set"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        ServeOptions(**options)


@pytest.mark.parametrize("policy", ["best", "fair:", "fair:-1", "fair:much", "sjf:2"])
def test_an_unknown_policy_or_dial_lists_the_known(policy: str) -> None:
    with pytest.raises(UnknownPolicyError, match=f"'{policy}'; known: fcfs, sjf, hrrn"):
        ServeOptions(policy=policy)


def test_goals_reach_the_policy() -> None:
    policy = ServeOptions(goal_short_p90_s=5.0, goal_all_p99_s=60.0).make_policy()
    assert isinstance(policy, AdaptivePolicy)
    assert policy.goals == Goals(short_p90_s=5.0, all_p99_s=60.0)


def test_without_learning_the_estimator_keeps_its_numbers() -> None:
    estimator = ServeOptions(learn=False, kappa=2.0, context_s=0.5).make_estimator()
    assert not estimator.learns
    assert (estimator.kappa, estimator.context_s) == (2.0, 0.5)
