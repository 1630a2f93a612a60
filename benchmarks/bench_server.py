"""What the server costs and what it guarantees, with the real model.

Two experiments, each with the server in a process of its own so that its memory is its own:

1. *An hour behind clips.* A one-hour file (joined clips) is sent to N workers, then 200 short clips at once.
   Recorded: how long a worker was kept between two scheduling decisions, against the median window of the
   hour; the peak memory of the server process, against its memory with the model loaded and nothing to do;
   the latency of ``GET /health``, asked 20 times a second all the while.
2. *Throughput.* The same files through the server and through faster-whisper itself
   (``WhisperModel.transcribe`` in N threads, same model, same options), in alternating rounds within one run.
   Recorded: audio seconds per second of each, and the ratio of each pair.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from faster_whisper import WhisperModel
from rich.console import Console
from rich.table import Table

from sooner import LatencyRecord, summarise
from sooner.bench.accuracy import is_right
from sooner.bench.client import Answer, Sending, send_all, wait_until_running
from sooner.bench.joined import join_clips
from sooner.core.latency import percentile
from sooner.engines.models import find_model
from sooner.server.app import load_engine, make_app
from sooner.server.background import BackgroundServer
from sooner.server.options import ServeOptions
from sooner.service.dispatcher import WindowRecord
from sooner.workload.recordings import Clip, clips

RESULTS = Path(__file__).parent / "results" / "server.json"
NUM_CLIPS = 200
NUM_PAIRS = 3
HEALTH_EVERY_S = 0.05


# The server process: serves until its standard input closes, then prints what it saw.


def serve_and_record() -> None:
    options = ServeOptions(port=0)
    engine, num_workers = load_engine(options)
    windows: list[WindowRecord] = []
    app = make_app(options, engine=engine, num_workers=num_workers, on_window=windows.append)
    me = psutil.Process()
    with closing(engine), BackgroundServer(app, options) as server:
        hello = {
            "url": server.url,
            "num_workers": num_workers,
            "idle_bytes": sum(process.memory_info().rss for process in (me, *me.children())),
        }
        print(json.dumps(hello), flush=True)
        sys.stdin.read()
    peaks_kib = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    peak_bytes = sum(peaks_kib) * 1024  # of the server and of its largest child, the engine
    print(json.dumps({"peak_bytes": peak_bytes, "windows": [asdict(window) for window in windows]}), flush=True)


@contextmanager
def server_process(seen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run the server; yields its greeting, and fills ``seen`` with what it recorded once it is down."""
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.stdin.close()
        seen.update(json.loads(process.stdout.readline()))


# Experiment 1


async def ask_health(url: str, until: asyncio.Event) -> list[float]:
    """Latencies of ``GET /health`` in seconds, until told to stop."""
    latencies_s = []
    async with aiohttp.ClientSession() as session:
        while not until.is_set():
            begin_s = time.monotonic()
            async with session.get(f"{url}/health") as response:
                await response.read()
            latencies_s.append(time.monotonic() - begin_s)
            await asyncio.sleep(HEALTH_EVERY_S)
    return latencies_s


async def hour_and_clips(url: str, hour: Path) -> tuple[Answer, list[Answer], list[float]]:
    over = asyncio.Event()
    health = asyncio.ensure_future(ask_health(url, over))
    hour_task = asyncio.ensure_future(send_all(url, [Sending(path=hour, at_s=0.0, label="hour")]))
    await wait_until_running(url, 1)
    waiting = [Sending(path=clips()[n % len(clips())].path, at_s=0.0, label="clip") for n in range(NUM_CLIPS)]
    clip_answers = await send_all(url, waiting)
    (hour_answer,) = await hour_task
    over.set()
    return hour_answer, clip_answers, await health


def measure_hour(folder: Path) -> dict[str, Any]:
    hour = join_clips(folder / "hour.wav", at_least_s=3600.0, seed=1)
    seen: dict[str, Any] = {}
    with server_process(seen) as greeting:
        hour_answer, clip_answers, health_s = asyncio.run(hour_and_clips(greeting["url"], hour.path))
    held_s = {True: [], False: []}  # type: dict[bool, list[float]]
    for window in seen["windows"]:
        held_s[window["job_id"] == hour_answer.request_id].append(window["ended_s"] - window["started_s"])
    median_s = statistics.median(held_s[True])
    longest_s = max(held_s[True] + held_s[False])
    said = {clip.path: clip.transcript for clip in clips()} | {hour.path: hour.transcript}
    answers = [hour_answer, *clip_answers]
    return {
        "num_workers": greeting["num_workers"],
        "hour_audio_s": hour.audio_s,
        "num_windows_of_the_hour": len(held_s[True]),
        "median_window_s": median_s,
        "longest_between_decisions_s": longest_s,
        "longest_over_median": longest_s / median_s,
        "idle_bytes": greeting["idle_bytes"],
        "peak_bytes": seen["peak_bytes"],
        "health_num": len(health_s),
        "health_p50_s": percentile(health_s, 50),
        "health_p99_s": percentile(health_s, 99),
        "health_max_s": max(health_s),
        "hour_e2e_s": hour_answer.e2e_s,
        "clips": asdict(summarise([record_of(answer) for answer in clip_answers])),
        "num_right": sum(is_right(said[a.sending.path], a.text) for a in answers),
        "num_answers": len(answers),
        "windows_of_the_hour_s": held_s[True],
        "windows_of_clips_s": held_s[False],
    }


def record_of(answer: Answer) -> LatencyRecord:
    clip = next(clip for clip in clips() if clip.path == answer.sending.path)
    return LatencyRecord(
        id=answer.request_id,
        audio_s=clip.audio_s,
        size_s=answer.size_s,
        arrival_s=answer.sent_s,
        finished_s=answer.answered_s,
    )


# Experiment 2


def throughput_files(folder: Path) -> list[tuple[Path, float]]:
    """Clips of 2 to 17 s and files of a minute, in random order: paths and seconds of audio.

    No file is long: the last one would leave all workers but one idle, and the ratio would tell of that.
    """
    short: Sequence[Clip] = clips() * 2
    long = [join_clips(folder / f"file{n}.wav", at_least_s=55.0, seed=n) for n in range(8)]
    files = [(one.path, one.audio_s) for one in (*long, *short)]
    random.Random(0).shuffle(files)
    return files


def serve_all(url: str, files: Sequence[tuple[Path, float]]) -> float:
    begin_s = time.monotonic()
    answers = asyncio.run(send_all(url, [Sending(path=path, at_s=0.0, label="file") for path, _ in files]))
    assert all(answer.status == 200 for answer in answers)
    return time.monotonic() - begin_s


def transcribe_all(model: Any, num_workers: int, files: Sequence[tuple[Path, float]]) -> float:
    """faster-whisper on its own: one thread a worker, each takes the next file."""

    def one(path: Path) -> int:
        segments, _ = model.transcribe(str(path), language="en")
        return len(list(segments))

    begin_s = time.monotonic()
    with ThreadPoolExecutor(num_workers) as pool:
        assert all(pool.map(one, [path for path, _ in files]))
    return time.monotonic() - begin_s


def measure_throughput(folder: Path) -> dict[str, Any]:
    files = throughput_files(folder)
    audio_s = sum(seconds for _, seconds in files)
    rounds = []
    with server_process({}) as greeting:
        num_workers = greeting["num_workers"]
        model = WhisperModel(
            find_model(None).location,
            device="cpu",
            compute_type="int8",
            cpu_threads=1,
            num_workers=num_workers,
        )
        serve_all(greeting["url"], files[-4:])  # warm up both
        transcribe_all(model, num_workers, files[-4:])
        for _ in range(NUM_PAIRS):
            bare_s = transcribe_all(model, num_workers, files)
            server_s = serve_all(greeting["url"], files)
            rounds.append({"bare_s": bare_s, "server_s": server_s, "ratio": bare_s / server_s})
    return {
        "num_workers": num_workers,
        "num_files": len(files),
        "audio_s": audio_s,
        "rounds": rounds,
        "median_bare_audio_s_per_s": audio_s / statistics.median(r["bare_s"] for r in rounds),
        "median_server_audio_s_per_s": audio_s / statistics.median(r["server_s"] for r in rounds),
        "median_ratio": statistics.median(r["ratio"] for r in rounds),
    }


def show(hour: dict[str, Any], throughput: dict[str, Any]) -> None:
    table = Table(title=f"Server, {hour['num_workers']} workers", show_header=False)
    rows = [
        ("median window of the hour", f"{hour['median_window_s']:.2f} s"),
        ("longest a worker was kept between decisions", f"{hour['longest_between_decisions_s']:.2f} s"),
        ("  over the median", f"{hour['longest_over_median']:.2f}"),
        ("memory: model loaded, idle", f"{hour['idle_bytes'] / 2**20:,.0f} MiB"),
        (f"memory: peak with the hour and {NUM_CLIPS} clips", f"{hour['peak_bytes'] / 2**20:,.0f} MiB"),
        ("/health P50", f"{hour['health_p50_s'] * 1e3:.1f} ms"),
        ("/health P99", f"{hour['health_p99_s'] * 1e3:.1f} ms"),
        ("/health max", f"{hour['health_max_s'] * 1e3:.1f} ms"),
        ("the hour's E2E", f"{hour['hour_e2e_s']:.0f} s"),
        ("clips' E2E P50, P99", f"{hour['clips']['p50_s']:.1f} s, {hour['clips']['p99_s']:.1f} s"),
        ("texts right", f"{hour['num_right']} of {hour['num_answers']}"),
        ("throughput, faster-whisper", f"{throughput['median_bare_audio_s_per_s']:.1f} s of audio per s"),
        ("throughput, server", f"{throughput['median_server_audio_s_per_s']:.1f} s of audio per s"),
        ("  ratio, median of pairs", f"{throughput['median_ratio']:.3f}"),
    ]
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help="be the server process")
    if parser.parse_args().serve:
        serve_and_record()
        return
    with tempfile.TemporaryDirectory(prefix="sooner-bench-") as folder:
        throughput = measure_throughput(Path(folder))
        hour = measure_hour(Path(folder))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"method": __doc__, "cores": os.cpu_count(), "hour": hour, "throughput": throughput}, indent=1)
        + "\n"
    )
    show(hour, throughput)


if __name__ == "__main__":
    main()
