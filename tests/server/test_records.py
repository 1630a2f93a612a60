"""The server's own log of requests: what is in it, and that it never gets in the way."""

from __future__ import annotations

import errno
import logging
import sys
import threading
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sooner import Job, __version__
from sooner.audio.decode import Decoder
from sooner.core.latency import LatencyRecord
from sooner.engines.fake import FakeEngine
from sooner.engines.whisper import WhisperEngine
from sooner.errors import ConfigurationError, EngineError
from sooner.evidence.run_file import Run, RunHeader, read_runs, write_runs
from sooner.server import records
from sooner.server.app import Server, make_app
from sooner.server.options import ServeOptions
from sooner.server.records import RecordLog
from sooner.simulator.profile import load_profile
from sooner.simulator.simulate import simulate
from sooner.workload.recordings import clip_named
from sooner.workload.trace import read_trace

from .conftest import Running, Serve

JFK = clip_named("jfk").path
HEADER = RunHeader(
    source="server", policy="hrrn", workload="by hand", num_requests=0, engine="fake", hardware="", version="0"
)


def record(number: int) -> LatencyRecord:
    return LatencyRecord(id=str(number), audio_s=1.0, size_s=1.0, arrival_s=float(number), finished_s=number + 1.0)


def stop(server: Running) -> None:
    """Shut it down; its log is then complete."""
    server.background.stop()
    server.background.join()


def test_requests_are_recorded_as_they_end(
    serve: Serve, tmp_path: Path, silent_wav: Callable[[float], Path]
) -> None:
    path = tmp_path / "records.jsonl"

    def fail_long_ones(job: Job, _index: int) -> None:
        if job.audio_s > 60:
            raise EngineError("too long for me")

    server = serve(FakeEngine(fail_long_ones), num_workers=2, policy="sjf", records=path)
    first = server.post(JFK, language="en")
    second = server.post(silent_wav(45.0))
    assert server.post(silent_wav(90.0)).status_code == 500
    stop(server)

    (run,) = read_runs([path])
    header = run.header
    assert (header.source, header.policy, header.preempt, header.num_workers) == ("server", "sjf", True, 2)
    assert (header.engine, header.version, header.notes["kappa"]) == ("fake", __version__, 3.0)
    assert header.started_at is not None
    assert [one.id for one in run.records] == [reply.headers["x-request-id"] for reply in (first, second)]
    assert [(one.audio_s, one.num_windows, one.num_tokens) for one in run.records] == [
        (pytest.approx(11.0), 1, 90),
        (pytest.approx(45.0), 2, 180),
    ]
    for one, reply in zip(run.records, (first, second), strict=True):
        assert one.language == "en"
        assert one.service_s == pytest.approx(float(reply.headers["x-sooner-service-s"]), abs=1e-3)
        assert one.wait_s == pytest.approx(float(reply.headers["x-sooner-wait-s"]), abs=1e-3)
        assert one.size_s == pytest.approx(float(reply.headers["x-sooner-size-s"]), abs=1e-3)
        assert one.e2e_s == pytest.approx((one.wait_s or 0) + (one.service_s or 0))
    (failure,) = run.failures
    assert (failure.audio_s, failure.error) == (pytest.approx(90.0), "EngineError")
    assert "too long for me" in failure.message


def test_speech_is_recorded_and_played_again(
    serve: Serve, whisper: WhisperEngine, tmp_path: Path, silent_wav: Callable[[float], Path]
) -> None:
    """Eleven seconds of speech in two minutes, and two minutes of nothing: what runs again is what ran."""
    path, padded = tmp_path / "records.jsonl", tmp_path / "padded.wav"
    rate_hz = 16_000
    samples = np.zeros(120 * rate_hz, dtype=np.float32)
    jfk = np.concatenate(list(Decoder(JFK).blocks()))
    samples[60 * rate_hz : 60 * rate_hz + len(jfk)] = jfk
    with wave.open(str(padded), "wb") as file:
        file.setparams((1, 2, rate_hz, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    server = serve(whisper, records=path)
    assert "country" in server.post(padded).text
    assert server.post(silent_wav(120.0)).json()["text"] == ""
    stop(server)

    (run,) = read_runs([path])
    spoken, silent = run.records
    assert (spoken.audio_s, spoken.speech_s) == (pytest.approx(120.0), pytest.approx(11.0, abs=1.0))
    assert (silent.audio_s, silent.speech_s, silent.num_windows) == (pytest.approx(120.0), 0.0, 0)
    played = simulate(load_profile("embedded-tiny"), read_trace(path), policy="hrrn").records
    for one, again in zip(run.records, played, strict=True):
        assert (again.speech_s, again.num_windows, again.num_tokens) == (
            one.speech_s,
            one.num_windows,
            one.num_tokens,
        )


def test_clients_that_leave_are_failures(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    server = serve(gated=True, records=path)
    with server.send(JFK):
        server.gate.wait_for_windows(1)  # before it is queued, nobody would know how long it is
    server.wait_for_queue(lambda queue: queue["num_cancelled"] == 1)
    server.gate.open()
    assert server.post(JFK).status_code == 200
    stop(server)
    (run,) = read_runs([path])
    assert [(one.error, one.audio_s) for one in run.failures] == [("ClientLeft", pytest.approx(11.0))]
    assert len(run.records) == 1


def test_a_second_server_goes_on_with_the_file(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    for policy in ("fcfs", "hrrn"):
        server = serve(policy=policy, records=path)
        assert server.post(JFK).status_code == 200
        stop(server)
    assert [(run.header.policy, len(run.records)) for run in read_runs([path])] == [("fcfs", 1), ("hrrn", 1)]


def test_a_server_that_starts_in_vain_leaves_no_header(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    port = serve().background.server.address[1]
    options = ServeOptions(port=port, policy="fcfs", records=path)
    with pytest.raises(SystemExit):
        Server(make_app(options, engine=FakeEngine(), num_workers=1), options).run()
    assert path.read_text() == ""
    RecordLog(path, HEADER).close()  # and the file is free again


@pytest.mark.skipif(sys.platform == "win32", reason="needs a lock that Windows has not")
def test_a_file_that_a_running_server_writes_to_is_refused(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    server = serve(policy="hrrn", records=path)
    assert server.post(JFK).status_code == 200
    with pytest.raises(ConfigurationError, match=f"--records {path}: another server"):
        make_app(ServeOptions(policy="fcfs", records=path), engine=FakeEngine(), num_workers=1)
    assert server.post(JFK).status_code == 200
    stop(server)
    (run,) = read_runs([path])
    assert (run.header.policy, len(run.records)) == ("hrrn", 2)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such lock")
def test_a_drive_without_locks_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    log = RecordLog(tmp_path / "records.jsonl", HEADER)
    log.put(record(0))
    log.close()
    assert read_runs([tmp_path])[0].records == (record(0),)
    assert "cannot be locked" in caplog.text


@pytest.mark.parametrize("num_bytes_left", [1, 40])
@pytest.mark.parametrize("num_whole", [0, 1, 3])
def test_what_a_killed_server_left_of_a_line_is_cut_off(
    num_whole: int, num_bytes_left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_BLOCK_BYTES", 7)  # so that lines are longer than what is read at once
    path = tmp_path / "records.jsonl"
    write_runs(path, [Run(header=HEADER, records=tuple(record(number) for number in range(3)))])
    lines = path.read_bytes().splitlines(keepends=True)
    whole = b"".join(lines[:num_whole])
    path.write_bytes(whole + lines[num_whole][:num_bytes_left])

    log = RecordLog(path, HEADER)
    assert path.read_bytes() == whole
    log.put(record(7))
    log.close()
    assert read_runs([path])[-1] == Run(header=HEADER, records=(record(7),))


def test_a_last_line_that_is_whole_is_kept_and_ended(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    write_runs(path, [Run(header=HEADER, records=(record(1),))])
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    log = RecordLog(path, HEADER)
    log.put(record(2))
    log.close()
    assert [run.records for run in read_runs([path])] == [(record(1),), (record(2),)]


@pytest.mark.parametrize(
    "text",
    ['{"name": "settings"}', "a note\nand no newline", "arrival_s,audio_s\n0,5\n", '{"event": "engine"}\n'],
)
def test_a_file_of_something_else_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="something else than records"):
        RecordLog(path, HEADER)
    assert path.read_text() == text


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"--records .*File name too long"):
        RecordLog(tmp_path / ("x" * 1000), HEADER)


def test_a_disk_that_fails_costs_the_log_and_nothing_else(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("only Linux has a disk that is always full")
    server = serve(records=full)
    assert [server.post(JFK).status_code for _ in range(3)] == [200, 200, 200]
    stop(server)
    told = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert len(told) == 1
    assert "no more requests are recorded in /dev/full" in told[0].getMessage()


def test_a_disk_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on = threading.Event()

    class HangingWriter(records.RunWriter):
        def write(self, line: object) -> None:
            goes_on.wait(30)

    monkeypatch.setattr(records, "_ContinuingWriter", HangingWriter)
    monkeypatch.setattr(records, "_MAX_QUEUED", 4)
    log = RecordLog(tmp_path / "records.jsonl", HEADER)
    for number in range(20):
        log.put(record(number))  # returns at once, or this test would take 30 s a line
    assert not goes_on.is_set()
    assert [one.getMessage() for one in caplog.records if "4 lines behind" in one.getMessage()] != []
    assert len(caplog.records) == 1
    goes_on.set()
    log.close()


def test_close_writes_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    log = RecordLog(path, HEADER)
    for number in range(500):
        log.put(record(number))
    log.close()
    (run,) = read_runs([path])
    assert run.records == tuple(record(number) for number in range(500))


def test_a_place_that_cannot_be_a_file_is_refused_at_once(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no-folder" / "records.jsonl"):
        with pytest.raises(ConfigurationError, match="--records"):
            ServeOptions(records=path)
