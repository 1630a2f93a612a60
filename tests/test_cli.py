"""The command as users run it: in a process of its own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from sooner import __version__, policies
from sooner.bench.accuracy import is_right
from sooner.bench.joined import join_to_length
from sooner.workload.recordings import clip_named

from .server.until import until

SOONER = Path(sys.executable).with_name("sooner")
JFK = clip_named("jfk")


def sooner(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SOONER, *arguments], capture_output=True, text=True, timeout=120, check=False)


def post(url: str, path: Path, **headers: str) -> httpx.Response:
    return httpx.post(
        f"{url}/v1/audio/transcriptions",
        data={"model": "whisper-1"},
        files={"file": path.read_bytes()},
        headers=headers,
        timeout=60,
    )


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``sooner serve`` on a free port; yields its address once it listens."""
    with subprocess.Popen(
        [SOONER, "serve", "--port", "0", *arguments], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"listening on (http://\S+?),", line):
                    break
            else:
                raise AssertionError("the server ended before it listened")
            yield found[1], process
        finally:
            process.terminate()
            process.wait(timeout=60)


def test_version() -> None:
    assert sooner("--version").stdout.strip() == __version__


def test_policies() -> None:
    lines = sooner("policies").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [policy.name for policy in policies()]
    assert all(len(line.split()) > 4 for line in lines)


def test_profiles() -> None:
    lines = sooner("profiles").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["a100-large-v3", "a100-medium", "embedded-tiny"]


def test_help_names_every_command() -> None:
    text = sooner("--help").stdout
    for command in ("serve", "demo", "bench", "simulate", "plan", "calibrate", "report", "policies", "profiles"):
        assert re.search(rf"^│ {command} ", text, flags=re.MULTILINE), command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "--profile", "h100"], "engine profile h100: there is no such file"),
        (["simulate", "--workload", "gone.csv"], "trace gone.csv: No such file or directory"),
        (["simulate", "--policies", "lifo"], "unknown scheduling policy 'lifo'"),
        (["plan", "--goal", "fast"], "--goal must read like"),
        (["plan", "--workload", "clips"], "need a rate"),
        (["report", "gone"], "run gone: "),
        (["calibrate", "gone.jsonl"], "gone.jsonl"),
        (["bench", "--seeds", "a"], "--seeds must be different whole numbers"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments: list[str], message: str) -> None:
    result = sooner(*arguments)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_environment_is_the_servers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """SOONER_WORKERS is meant for the server; a simulation must not change with it."""
    monkeypatch.setenv("SOONER_WORKERS", "many")
    assert sooner("simulate", "--requests", "20", "--seeds", "1").returncode == 0


def test_help_names_every_option() -> None:
    text = sooner("serve", "--help").stdout
    for option in (
        "model",
        "policy",
        "no-preempt",
        "workers",
        "kappa",
        "host",
        "port",
        "max-queue",
        "max-audio-s",
        "api-keys",
        "trusted-proxies",
        "max-client-jobs",
    ):
        assert f"--{option}" in text
    assert "--api-key " not in text  # everybody on the machine could read it


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "lifo"], "unknown scheduling policy 'lifo'; known: fcfs, sjf, hrrn"),
        (["--workers", "0"], "--workers must be at least 1 and finite, not 0"),
        (["--shutdown-grace-s", "inf"], "--shutdown-grace-s must be at least 0 and finite"),
        (["--kappa", "-1"], "kappa must be a finite number"),
        (["--model", "/no/such/model"], "there is no folder /no/such/model"),
        (["--spool-dir", "/no/such/folder"], "--spool-dir"),
        (["--api-keys", "/no/such/file"], "--api-keys /no/such/file: "),
        (["--highest-priority", "urgent"], "--highest-priority"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_wrong_options_are_refused_at_once(arguments: list[str], message: str) -> None:
    result = sooner("serve", *arguments)
    assert result.returncode != 0
    assert message in re.sub(r"[│\s]+", " ", result.stdout + result.stderr)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_and_stops_on_a_signal(stop: signal.Signals) -> None:
    with serving("--workers", "1", "--policy", "sjf") as (url, process):
        response = post(url, JFK.path)
        assert is_right(JFK.transcript, response.json()["text"])
        assert httpx.get(f"{url}/v1/queue").json()["policy"] == "sjf"
        process.send_signal(stop)
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_port_that_is_taken_is_named_in_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = sooner("serve", "--port", str(port))
    assert result.returncode == 1
    assert result.stderr == f"sooner: port {port} is in use on 127.0.0.1; choose another with --port\n"


def test_a_key_from_the_environment_and_a_second_signal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The key is asked for. And a long file that is being served holds nobody up who wants to end it all now."""
    key = "from-the-environment"
    monkeypatch.setenv("SOONER_API_KEY", f"{key} env interactive")
    with serving("--workers", "1", "--shutdown-grace-s", "3600", "--spool-dir", str(tmp_path)) as (url, process):
        assert post(url, JFK.path).status_code == 401
        assert is_right(JFK.transcript, post(url, JFK.path, Authorization=f"Bearer {key}").json()["text"])
        with ThreadPoolExecutor(1) as pool:
            long = join_to_length(tmp_path / "long.flac", audio_s=240.0, seed=1)
            sent = pool.submit(post, url, long.path, Authorization=f"Bearer {key}")
            asked = {"Authorization": f"Bearer {key}"}
            until(
                lambda: httpx.get(f"{url}/v1/queue", headers=asked).json()["num_running"],
                lambda number: number == 1,
            )
            process.send_signal(signal.SIGTERM)
            until(lambda: httpx.get(f"{url}/ready").json()["status"], lambda status: status == "draining")
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
            assert sent.result().json()["error"]["code"] == "shutting_down"
        assert process.stderr is not None
        said = process.stderr.read()
        assert "outcome=shutting_down status=503" in said
        assert "Traceback" not in said
        assert key not in said
    assert [path.name for path in tmp_path.iterdir()] == ["long.flac"]


@pytest.mark.parametrize("value", ["", "short"])
def test_a_key_that_is_none_does_not_open_the_server(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOONER_API_KEY", value)
    result = sooner("serve", "--port", "0")
    assert result.returncode == 1
    assert result.stderr.startswith("sooner: SOONER_API_KEY: a key has 16 to 512 ")
    assert len(result.stderr.splitlines()) == 1


def test_options_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOONER_POLICY", "lifo")
    assert "unknown scheduling policy 'lifo'" in sooner("serve").stderr
