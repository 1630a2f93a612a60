"""Profiles as files: those that ship, and what is said of those that are wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sooner.errors import ProfileError
from sooner.simulator.profile import (
    BatchingProfile,
    WorkersProfile,
    load_profile,
    profile_names,
    save_profile,
)

WORKERS = {
    "name": "mine",
    "engine": "workers",
    "model": "tiny",
    "hardware": "a laptop",
    "values": {
        "encode_s": {"value": 0.5, "origin": "measured"},
        "token_s": {"value": 0.01, "origin": "measured"},
    },
}


@pytest.mark.parametrize("name", profile_names())
def test_what_ships_tells_the_origin_of_each_number(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert all(len(origin) > 5 for origin in profile.origins.values())
    needed = {"step_s", "running_step_s", "admission_s"} if isinstance(profile, BatchingProfile) else {"encode_s"}
    assert needed <= profile.origins.keys()


def test_the_names() -> None:
    assert {"a100-large-v3", "a100-medium", "embedded-tiny"} <= set(profile_names())


def test_round_trip(tmp_path: Path) -> None:
    for name in profile_names():
        profile = load_profile(name)
        save_profile(profile, tmp_path / "copy.json")
        assert load_profile(str(tmp_path / "copy.json")) == profile


def test_defaults_fill_in(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(WORKERS))
    profile = load_profile(str(path))
    assert isinstance(profile, WorkersProfile)
    assert (profile.encode_s, profile.num_workers, profile.spread) == (0.5, 1, 0.0)


def values(**changes: Any) -> dict[str, Any]:
    return WORKERS | {
        "values": WORKERS["values"] | {name: {"value": v, "origin": ""} for name, v in changes.items()}
    }  # type: ignore[operator]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "it needs 'name', a text"),
        (WORKERS | {"values": []}, "it needs 'values', an object"),
        (WORKERS | {"engine": "quantum"}, "engine must be one of batching, workers"),
        (WORKERS | {"values": {}}, "encode_s"),
        (WORKERS | {"values": {"encode_s": 1.0}}, "encode_s must be an object with a value and an origin"),
        (values(encode_s=-1), "encode_s must be a finite number of at least 0"),
        (values(encode_s="fast"), "encode_s must be a finite number of at least 0"),
        (values(encode_s=float("nan")), "encode_s must be a finite number of at least 0"),
        (values(num_workers=0), "num_workers must be a whole number of at least 1"),
        (values(num_workers=1.5), "num_workers must be a whole number of at least 1"),
        (values(window_s=0), "window_s must be above 0 and at most 30"),
        (values(window_s=31), "window_s must be above 0 and at most 30"),
        (values(colour=3), "unknown numbers: colour"),
        (values(encode_s=0, token_s=0), "encode_s and token_s are both 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, body: dict[str, Any], reason: str) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(body))
    with pytest.raises(ProfileError, match=reason.replace("(", r"\(")) as caught:
        load_profile(str(path))
    assert str(path) in str(caught.value)


def test_an_engine_that_takes_no_time_is_refused(tmp_path: Path) -> None:
    numbers = {name: {"value": 0, "origin": ""} for name in ("step_s", "running_step_s", "admission_s")}
    path = tmp_path / "free.json"
    path.write_text(json.dumps(WORKERS | {"engine": "batching", "values": numbers}))
    with pytest.raises(ProfileError, match="step_s and running_step_s are both 0"):
        load_profile(str(path))


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b"\xff\xfe\x00", b"[" * 100_000, b"{}\n{}\n"])
def test_what_is_no_profile(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError):
        load_profile(str(path))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(ProfileError, match="known: a100-large-v3, a100-medium, embedded-tiny"):
        load_profile("h100")
