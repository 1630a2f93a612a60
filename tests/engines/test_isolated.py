"""An engine in a process of its own: it hangs, dies and comes back, and never outlives the server.

Jobs are the script: what an engine does at a window stands in the id of the job.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from sooner import Estimator, Job
from sooner.audio.probe import Audio, Probe
from sooner.engines import isolated
from sooner.engines.base import Decoding, DecodingOptions, Engine, WindowResult
from sooner.engines.fake import FakeEngine
from sooner.engines.isolated import IsolatedEngine
from sooner.engines.models import ModelFiles, find_model
from sooner.engines.whisper import WhisperEngine
from sooner.errors import EngineError, EngineLostError, ModelUnavailableError, SoonerError
from sooner.workload.recordings import clip_named

SIXTY_S = Audio(path=Path("not there.wav"), num_samples=60 * 16_000)
LIMIT_S = 60.0  # of what is waited for: a test that reaches it fails


def act(job: Job, _index: int) -> None:
    """What the engine does at a window, in its process."""
    script, _, argument = job.id.partition(":")
    if script == "exit":
        os._exit(int(argument))
    if script == "print":
        print(argument, flush=True)  # noqa: T201  as a library may
    if script == "fail":
        raise {"engine": EngineError, "value": ValueError, "type": TypeError}[argument](f"no {argument}")
    if script == "wait":
        with socket.create_connection(("127.0.0.1", int(argument))) as gate:
            gate.recv(1)  # until the test closes it


def make_scripted() -> Engine:
    return FakeEngine(act)


def make_or_not(may_start: Path) -> Engine:
    """The scripted engine, as long as a file is there."""
    if not may_start.exists():
        raise ModelUnavailableError("the disk with the model is gone")
    return FakeEngine(act)


def make_and_die() -> Engine:
    os._exit(7)


@pytest.fixture(scope="module")
def engine() -> Iterator[IsolatedEngine]:
    """One for many tests: however a test leaves it, the next one finds it ready or waits for that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolated, "_FIRST_PAUSE_S", 0.0)
        engine = IsolatedEngine(make_scripted, num_workers=2, window_limit_s=LIMIT_S)
        yield engine
        engine.close()


def begin(engine: Engine, script: str = "go") -> Decoding:
    job = Job(id=script, arrival_s=0.0, audio_s=60.0, estimate=Estimator().estimate(60.0))
    return engine.start(job, SIXTY_S, DecodingOptions())


class Windows:
    """Windows that are under way until the test lets them end."""

    def __init__(self, listener: socket.socket, pool: ThreadPoolExecutor) -> None:
        self._listener = listener
        self._pool = pool
        self.gates: list[socket.socket] = []

    def begin(self, engine: Engine) -> Future[WindowResult]:
        """Returns once the window runs."""
        window = self._pool.submit(begin(engine, f"wait:{self._listener.getsockname()[1]}").step)
        self.gates.append(self._listener.accept()[0])
        return window


@contextmanager
def windows() -> Iterator[Windows]:
    with ThreadPoolExecutor(2) as pool, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)
        under_way = Windows(listener, pool)
        try:
            yield under_way
        finally:
            for gate in under_way.gates:
                gate.close()


def test_all_windows_at_once(engine: IsolatedEngine) -> None:
    with windows() as under_way:
        first, second = under_way.begin(engine), under_way.begin(engine)
        for gate in under_way.gates:
            gate.close()
        assert not first.result(LIMIT_S).done
        assert second.result(LIMIT_S).segments[0].text == " window 0 of 2"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_that_dies_fails_what_runs_and_is_replaced(engine: IsolatedEngine, number: int) -> None:
    between = begin(engine)
    between.step()  # which waits until the process is there
    not_begun = begin(engine)
    pid, num_restarts = engine.pid, engine.num_restarts
    assert pid is not None
    with windows() as under_way:
        running = [under_way.begin(engine), under_way.begin(engine)]
        os.kill(pid, number)
        for window in running:
            with pytest.raises(EngineLostError, match=f"its process died of signal {number:d}") as lost:
                window.result(LIMIT_S)
            assert lost.value.is_cause is None
    for _ in range(2):
        with pytest.raises(EngineLostError, match="send the request again") as lost:
            between.step()
        assert lost.value.is_cause is False
    between.close()
    assert not_begun.step().position_s == 30.0  # in the next process
    assert engine.ready
    assert engine.pid != pid
    assert engine.num_restarts == num_restarts + 1
    assert not psutil.pid_exists(pid)  # not as a zombie either


def test_a_process_that_ends_of_itself(engine: IsolatedEngine) -> None:
    with pytest.raises(EngineLostError, match="exit code 3"):
        begin(engine, "exit:3").step()
    with pytest.raises(EngineLostError, match="exit code 4"):  # again before it has done a window
        begin(engine, "exit:4").step()
    assert begin(engine).step().position_s == 30.0


def test_a_window_that_never_ends_is_ended() -> None:
    engine = IsolatedEngine(make_scripted, num_workers=2, window_limit_s=2.0)
    between = begin(engine)
    between.step()
    pid = engine.pid
    with windows() as under_way:
        hanging = [under_way.begin(engine), under_way.begin(engine)]
        errors = [window.exception(LIMIT_S) for window in hanging]
    assert all("a window took more than 2 s" in str(error) for error in errors)
    assert sorted(error.is_cause for error in errors if isinstance(error, EngineLostError)) == [False, True]
    with pytest.raises(EngineLostError):
        between.step()
    engine.close()
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_process_that_does_not_read_blocks_nobody() -> None:
    engine = IsolatedEngine(make_scripted, num_workers=2, window_limit_s=1.0)
    between = begin(engine)
    between.step()
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGSTOP)
    job = Job(id="go", arrival_s=0.0, audio_s=60.0, estimate=Estimator().estimate(60.0))
    large = [engine.start(job, SIXTY_S, DecodingOptions(prompt="x" * 4_000_000)) for _ in range(2)]
    with ThreadPoolExecutor(3) as pool:
        steps = [pool.submit(decoding.step) for decoding in large]  # more than the pipe holds
        pool.submit(between.close).result(LIMIT_S)
        errors = [step.exception(LIMIT_S) for step in steps]
    assert all("a window took more than 1 s" in str(error) for error in errors)
    engine.close()


def test_a_window_that_ends_at_the_last_moment_is_no_hang(engine: IsolatedEngine) -> None:
    begin(engine).step()
    pid = engine.pid
    engine._child.kill("a window took too long", cause=-1)  # of which no step is pending
    assert begin(engine).step().position_s == 30.0
    assert engine.pid == pid


class Unreadable:
    """Travels to the process, and cannot travel back."""

    def __init__(self, sender_pid: int) -> None:
        self.sender_pid = sender_pid

    def __reduce__(self) -> tuple[Callable[[int], Unreadable], tuple[int]]:
        return read_elsewhere, (self.sender_pid,)


def read_elsewhere(sender_pid: int) -> Unreadable:
    if os.getpid() == sender_pid:
        raise MemoryError("no room for it")
    return Unreadable(sender_pid)


def test_a_reply_that_cannot_be_read_is_a_loss(engine: IsolatedEngine) -> None:
    job = Job(id="go", arrival_s=0.0, audio_s=60.0, estimate=Estimator().estimate(60.0))
    job = replace(job, language=Unreadable(os.getpid()))  # type: ignore[arg-type]
    begin(engine).step()
    with pytest.raises(EngineLostError, match=r"cannot be read.*no room for it"):
        engine.start(job, SIXTY_S, DecodingOptions()).step()
    assert begin(engine).step().position_s == 30.0


def test_what_cannot_be_sent_is_a_loss(engine: IsolatedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(engine).step()
    monkeypatch.setattr(engine._child._connection, "send_bytes", lack_memory)
    with pytest.raises(EngineLostError, match=r"nothing can be sent to it.*no memory"):
        begin(engine).step()
    assert begin(engine).step().position_s == 30.0


def test_a_process_that_cannot_be_started_is_tried_again(
    engine: IsolatedEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_child, failures = isolated._Child, [lack_memory]

    def make_or_fail(*args: Any) -> isolated._Child:
        return (failures.pop() if failures else make_child)(*args)

    begin(engine).step()
    monkeypatch.setattr(isolated, "_Child", make_or_fail)
    with pytest.raises(EngineLostError):
        begin(engine, "exit:1").step()
    assert begin(engine).step().position_s == 30.0
    assert "no process can be started: no memory" in caplog.text


def lack_memory(*_args: object) -> NoReturn:
    raise MemoryError("no memory")


@pytest.mark.parametrize(
    ("kind", "message"), [("engine", "no engine"), ("value", "no value"), ("type", "the engine failed: no type")]
)
def test_an_error_is_told_and_the_process_goes_on(engine: IsolatedEngine, kind: str, message: str) -> None:
    begin(engine).step()
    pid = engine.pid
    with pytest.raises(EngineError, match=f"^{message}$") as failed:
        begin(engine, f"fail:{kind}").step()
    assert not isinstance(failed.value, EngineLostError)
    assert begin(engine).step().position_s == 30.0
    assert engine.pid == pid


def test_signals_to_all_are_for_the_server(engine: IsolatedEngine) -> None:
    begin(engine).step()
    pid = engine.pid
    assert pid is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
        assert begin(engine).step().position_s == 30.0
    assert engine.pid == pid


def test_an_engine_that_cannot_start_again_keeps_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(isolated, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(isolated, "_LONGEST_PAUSE_S", 0.03)
    may_start = tmp_path / "may start"
    may_start.touch()
    engine = IsolatedEngine(partial(make_or_not, may_start), num_workers=1, window_limit_s=2.0)
    begin(engine).step()
    may_start.unlink()
    with pytest.raises(EngineLostError):
        begin(engine, "exit:1").step()
    pauses: list[str] = []
    for _ in range(int(LIMIT_S)):  # each step waits two seconds
        with pytest.raises(EngineError, match="could not be started again") as failed:
            begin(engine).step()
        assert not engine.ready
        pauses = re.findall(r"started in (\S+) s", caplog.text)
        if len(pauses) >= 5:
            break
    assert "the disk with the model is gone" in str(failed.value)
    assert pauses[:5] == ["0", "0.01", "0.02", "0.03", "0.03"]
    may_start.touch()
    for _ in range(int(LIMIT_S)):
        with suppress(EngineError):
            begin(engine).step()
            break
    assert engine.ready
    engine.close()


@pytest.mark.parametrize(
    ("make_engine", "message"),
    [
        (partial(make_or_not, Path("nowhere")), "the disk with the model is gone"),
        (make_and_die, "its process died with exit code 7 while it loaded the model"),
        (partial(WhisperEngine, ModelFiles(model_id="x", location="/"), num_workers=1), "could not be loaded"),
    ],
    ids=["error", "death", "model"],
)
def test_an_engine_that_never_starts(make_engine: Callable[[], Engine], message: str) -> None:
    with pytest.raises(ModelUnavailableError, match=message):
        IsolatedEngine(make_engine, num_workers=1, window_limit_s=LIMIT_S)


def test_closing() -> None:
    engine = IsolatedEngine(make_scripted, num_workers=2, window_limit_s=LIMIT_S)
    pid = engine.pid
    assert pid is not None
    decoding = begin(engine)
    with windows() as under_way:
        window = under_way.begin(engine)
        engine.close()
        with pytest.raises(EngineError, match="the engine was closed"):
            window.result(LIMIT_S)
    engine.close()
    assert not engine.ready
    assert not psutil.pid_exists(pid)
    with pytest.raises(EngineError, match="closed"):
        decoding.step()


def test_closing_while_it_is_replaced(tmp_path: Path) -> None:
    may_start = tmp_path / "may start"
    may_start.touch()
    engine = IsolatedEngine(partial(make_or_not, may_start), num_workers=1, window_limit_s=LIMIT_S)
    may_start.unlink()
    with pytest.raises(EngineLostError):
        begin(engine, "exit:1").step()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(begin(engine).step)
        engine.close()
        with pytest.raises(SoonerError, match="closed"):
            waiting.result(LIMIT_S)


def test_what_libraries_print_is_no_output_of_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    engine = IsolatedEngine(make_scripted, num_workers=1, window_limit_s=LIMIT_S)
    begin(engine, "print:a progress bar").step()
    engine.close()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "a progress bar" in captured.err


SERVER = """
import sys
from sooner.engines.fake import FakeEngine
from sooner.engines.isolated import IsolatedEngine

if __name__ == "__main__":
    engine = IsolatedEngine(FakeEngine, num_workers=1, window_limit_s=60)
    print(engine.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("kill", [True, False], ids=["killed", "returns"])
def test_no_process_outlives_its_server(kill: bool) -> None:
    """Also where nobody has closed the engine. Whoever still runs keeps the pipe open, so its end says it all."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as server:
        assert server.stdout is not None
        assert psutil.pid_exists(int(server.stdout.readline()))
        if kill:
            server.kill()
        rest, _ = server.communicate(timeout=LIMIT_S)
        assert rest == b""
        assert server.returncode == (-signal.SIGKILL if kill else 0)


def test_the_real_model_says_the_same(whisper: WhisperEngine) -> None:
    engine = IsolatedEngine(
        partial(WhisperEngine, find_model(None), num_workers=1), num_workers=1, window_limit_s=LIMIT_S
    )
    results = []
    for made in (whisper, engine):
        probe = Probe(clip_named("jfk").path, max_audio_s=60.0, log_mel=made.log_mel)
        while (audio := probe.step()) is None:
            pass
        job = Job(id="jfk", arrival_s=0.0, audio_s=audio.audio_s, estimate=Estimator().estimate(audio.audio_s))
        results.append(made.start(job, audio, DecodingOptions(words=True)).step())
    assert results[0] == results[1]
    assert (engine.model_id, engine.languages) == (whisper.model_id, whisper.languages)
    engine.close()
