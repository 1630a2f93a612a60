"""``sooner bench`` as users run it: processes of its own, the real model, real speech."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sooner import __version__
from sooner.evidence.run_file import read_runs

SOONER = Path(sys.executable).with_name("sooner")
TRAFFIC = ["--workload", "clips", "--rate", "3", "--requests", "6", "--workers", "2"]


def bench(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SOONER, "bench", *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_two_policies_are_measured_with_the_same_traffic(tmp_path: Path) -> None:
    result = bench("--policies", "fcfs,hrrn", *TRAFFIC, "--slo-s", "60", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    runs = {run.header.policy: run for run in read_runs([tmp_path])}
    assert {path.name for path in tmp_path.iterdir()} == {
        *("fcfs-rate3-seed1-round1.jsonl", "hrrn-rate3-seed1-round1.jsonl"),
        *("server.log", "summary.json"),
    }
    for policy, preempt in (("fcfs", False), ("hrrn", True)):
        run = runs[policy]
        header = run.header
        assert (header.preempt, header.num_workers, header.engine) == (preempt, 2, "tiny.en")
        assert (header.source, header.version, header.rate_per_s, header.seed) == ("bench", __version__, 3.0, 1)
        assert header.workload == "clips: test-clean utterances, Poisson arrivals"
        assert "cores" in header.hardware
        assert header.started_at is not None
        assert len(run.records) == header.num_requests == 6
        assert header.notes["num_word_errors"] < 0.15 * header.notes["num_words"]
        for record in run.records:
            assert record.service_s is not None
            assert record.wait_s is not None
            assert record.num_tokens
            assert 0 < record.service_s <= record.e2e_s
            assert record.num_windows == 1 + (record.audio_s > 30)
    assert [record.audio_s for record in runs["fcfs"].records] == [one.audio_s for one in runs["hrrn"].records]

    (rate,) = json.loads((tmp_path / "summary.json").read_text())["rates"]
    assert [one["policy"] for one in rate["figures"]] == ["fcfs", "hrrn"]
    assert rate["figures"][0]["goodput"]["share"] == 1.0
    assert rate["change_percent"]["against"] == "fcfs"
    assert rate["change_percent"]["hrrn"] == {}  # six requests tell nothing
    for title in ("End to end, seconds, 3 requests/s offered", "Throughput and text", "change against fcfs"):
        assert title in result.stdout

    again = bench("--policies", "fcfs", *TRAFFIC, "--out", tmp_path)
    assert again.returncode != 0
    assert "holds runs already" in again.stderr


def test_streams_tell_when_the_first_text_came(tmp_path: Path) -> None:
    traffic = ["--requests", "2", "--file-share", "0.5", "--max-file-s", "65", "--rate", "2", "--workers", "2"]
    result = bench("--policies", "hrrn", "--stream", "--seeds", "2", *traffic, "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    (run,) = read_runs([tmp_path])
    assert run.header.notes["stream"] is True
    assert run.header.notes["num_word_errors"] < 0.15 * run.header.notes["num_words"]
    _, file = sorted(run.records, key=lambda record: record.audio_s)
    assert file.audio_s > 60
    assert file.ttft_s is not None
    assert 0 < file.ttft_s < 0.9 * file.e2e_s  # a window's text came before the next was done
    assert "To the first text" in result.stdout


@pytest.fixture
def heeded_interrupt() -> Iterator[None]:
    """What a shell starts in the background ignores interrupts, and so would every process that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupt")
def test_an_interrupt_keeps_what_was_measured_and_stops_the_server(tmp_path: Path) -> None:
    traffic = ["--workload", "clips", "--rate", "1", "--requests", "500", "--out", tmp_path]
    command = [SOONER, "bench", "--policies", "hrrn", "--workers", "1", *traffic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            wait_for_lines(tmp_path / "hrrn-rate1-seed1-round1.jsonl", 2)
            (server,) = psutil.Process(process.pid).children()
            process.send_signal(signal.SIGINT)
            output, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert not server.is_running()
    assert "Traceback" not in output
    assert "Stopped" in output
    (run,) = read_runs([tmp_path])
    assert run.records


def wait_for_lines(path: Path, number: int) -> None:
    give_up_s = time.monotonic() + 60
    while not path.exists() or path.read_text().count("\n") < number:
        assert time.monotonic() < give_up_s, "no request was ever answered"
        time.sleep(0.02)  # between two looks, not in place of one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policies", "lifo"], "unknown scheduling policy 'lifo'"),
        (["--policies", "fcfs"], "poisson arrivals need a rate"),
        (["--policies", "fcfs", "--rate", "1", "--model", "/no/such/model"], "there is no folder /no/such/model"),
        (["--server", "gone=http://127.0.0.1:1", "--rate", "1"], "answers no request: ClientConnectorError"),
    ],
)
def test_what_cannot_be_measured_is_said(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = bench(*arguments, "--workload", "clips", "--requests", "2", "--out", tmp_path / "out")
    assert result.returncode == 1
    assert message in re.sub(r"\s+", " ", result.stderr)
    assert "Traceback" not in result.stderr
