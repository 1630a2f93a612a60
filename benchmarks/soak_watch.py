"""Watches a server from a process of its own, so that the load generator's pauses do not count as the server's.

It asks ``/health`` five times a second, and once a second looks at the memory, files and threads of the server and
of its engine's process. Each sample is a line of JSON on standard output, with the monotonic second. It ends when
its standard input closes.

    python benchmarks/soak_watch.py HOST PORT PID
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
import time
from contextlib import suppress

import psutil

HEALTH_EVERY_S = 0.2
LOOK_EVERY_S = 1.0
LONGEST_S = 4 * 3600.0
ANSWER_LIMIT_S = 10.0


def engines_of(server: psutil.Process) -> list[psutil.Process]:
    """The processes that the server runs its model in: its children but for multiprocessing's own helper."""
    engines = []
    for child in server.children():
        with suppress(psutil.Error):  # gone in the meantime
            if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in " ".join(child.cmdline()):
                engines.append(child)
    return engines


def look(process: psutil.Process) -> dict[str, float]:
    with process.oneshot():
        return {
            "pid": process.pid,
            "rss_bytes": process.memory_info().rss,
            "num_files": process.num_fds(),
            "num_threads": process.num_threads(),
        }


def ask(host: str, port: int) -> dict[str, object]:
    """One answer of ``/health``, on a connection of its own."""
    begin_s = time.monotonic()
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_LIMIT_S)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()
        failure = None if response.status == 200 else f"status {response.status}"
    except (OSError, http.client.HTTPException) as error:
        failure = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return {"at_s": begin_s, "health_s": time.monotonic() - begin_s, "failure": failure}


def _until_closed(over: threading.Event) -> None:
    os.read(0, 1)
    over.set()


def main() -> None:
    host, port, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    server = psutil.Process(pid)
    over = threading.Event()
    threading.Thread(target=_until_closed, args=(over,), daemon=True).start()
    begin_s = time.monotonic()
    next_look_s = begin_s
    due_s = begin_s
    while due_s - begin_s < LONGEST_S and not over.wait(max(0.0, due_s - time.monotonic())):
        print(json.dumps(ask(host, port)), flush=True)
        if due_s >= next_look_s:
            next_look_s += LOOK_EVERY_S
            sample: dict[str, object] = {"at_s": time.monotonic(), "engines": []}
            with suppress(psutil.Error):  # it ends, or an engine does
                sample["server"] = look(server)
                sample["engines"] = [look(engine) for engine in engines_of(server)]
            print(json.dumps(sample), flush=True)
        due_s = max(due_s + HEALTH_EVERY_S, time.monotonic())


if __name__ == "__main__":
    main()
