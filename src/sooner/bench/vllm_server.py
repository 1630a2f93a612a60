"""A real vLLM server for tests and benchmarks, as a subprocess of its own.

Sooner's plugin is beside it as any plugin is: through the entry points of the installed package.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

__all__ = ["MODEL_NAME", "VllmServer"]

MODEL_NAME = "whisper-1"
START_LIMIT_S = 300.0
STOP_LIMIT_S = 20.0
KILL_LIMIT_S = 10.0
PAUSE_S = 0.2
LOG_TAIL_LINES = 40

# With fewer slots vLLM's own default is smaller than the 1,500 positions of one window, and it refuses to start.
FEWEST_SLOTS_BY_DEFAULT = 4
MAX_BATCHED_TOKENS = 2048

# Without these a CPU computes bfloat16 at less than half the speed of float32.
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",  # by default one core is kept idle: on two cores, half the speed
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}

_LOCAL = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the environment is not asked


@dataclass
class VllmServer:
    """A stock vLLM server on this machine, with Sooner's plugin beside it. A context manager.

    On Linux the server also ends when the thread that entered the context is gone, so that a killed test run
    leaves nothing behind: enter it in the main thread, or in one that lives as long.

    Attributes:
        model: a folder in Hugging Face's layout.
        log: gets what the server prints; is written over.
        policy: value of ``--scheduling-policy``; None leaves the flag out.
        num_slots: windows decoded at once, vLLM's ``--max-num-seqs``.
        arguments: further arguments of vLLM. They come last, so they win over those set here.
        additional_config: value of ``--additional-config``.
        environment: variables that win over those of this process and over ``ENVIRONMENT``.
        url: where it serves, once it has been entered.
    """

    model: Path
    _: KW_ONLY
    log: Path
    policy: str | None = "fcfs"
    num_slots: int = 8
    arguments: Sequence[str] = ()
    additional_config: Mapping[str, Any] | None = None
    environment: Mapping[str, str] | None = None
    url: str = field(default="", init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def command(self, port: int) -> list[str]:
        """The command line."""
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(self.model), "--served-model-name", MODEL_NAME]
        command += ["--dtype", _fastest_dtype(), "--enforce-eager", "--max-num-seqs", str(self.num_slots)]
        if self.num_slots < FEWEST_SLOTS_BY_DEFAULT:
            command += ["--max-num-batched-tokens", str(MAX_BATCHED_TOKENS)]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        if self.policy is not None:
            command += ["--scheduling-policy", self.policy]
        if self.additional_config is not None:
            command += ["--additional-config", json.dumps(self.additional_config)]
        return [*command, *self.arguments]

    def __enter__(self) -> Self:
        """Start it and wait until it serves.

        Raises:
            RuntimeError: it ended, or did not serve in time; the message ends in the log's last lines.
        """
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_bound_to_parent(), *self.command(port)],
                env={**os.environ, **ENVIRONMENT, **(self.environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(self._process)
        except BaseException:  # also an interrupt must not leave three processes behind
            _stop(self._process)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of its processes."""
        if self._process is not None:
            _stop(self._process)

    def metrics(self) -> str:
        """The text of ``/metrics``, in Prometheus's format."""
        with _LOCAL.open(f"{self.url}/metrics", timeout=30) as response:
            text: str = response.read().decode()
        return text

    def log_text(self) -> str:
        """What the server has printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline_s = monotonic() + START_LIMIT_S
        while not self._is_healthy():
            if _ends_within(process, PAUSE_S):
                raise RuntimeError(f"vLLM ended with status {process.returncode}:\n{self._log_tail()}")
            if monotonic() > deadline_s:
                raise RuntimeError(f"vLLM does not serve after {START_LIMIT_S:.0f} s:\n{self._log_tail()}")

    def _is_healthy(self) -> bool:
        try:
            with _LOCAL.open(f"{self.url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:  # refused, too slow, or an answer of 4xx or 5xx
            return False

    def _log_tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-LOG_TAIL_LINES:])


def _fastest_dtype() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except FileNotFoundError:  # not Linux
        return "float32"
    return "float32" if BFLOAT16_FLAGS.isdisjoint(text.split()) else "bfloat16"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _bound_to_parent() -> list[str]:
    """A prefix to a command that lets it get SIGTERM when its parent dies without a word."""
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


def _ends_within(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end; what is left of its group then is killed. Returns when nothing of it runs."""
    try:
        process.terminate()  # the first process tells the others, and may end before them
        _ends_within(process, STOP_LIMIT_S)
        _wait_for_group(process.pid, STOP_LIMIT_S)
    finally:
        with suppress(ProcessLookupError):  # the group is gone, as it should be
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(KILL_LIMIT_S)
        _wait_for_group(process.pid, KILL_LIMIT_S)


def _wait_for_group(group: int, limit_s: float) -> None:
    deadline_s = monotonic() + limit_s
    for pid in _living(group):
        _wait_for_stranger(pid, max(0.0, deadline_s - monotonic()))


def _living(group: int) -> list[int]:
    """The processes of a group that have not ended, as Linux tells (elsewhere: none)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            state, _parent, its_group = path.read_text(encoding="utf-8").rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append(int(path.parent.name))
    return found


def _wait_for_stranger(pid: int, limit_s: float) -> None:
    """Wait for a process that is not our child."""
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            select.select([handle], [], [], limit_s)
        finally:
            os.close(handle)
