"""A soak test: everything at once, for ten minutes, against the real server with the real model.

1. *Before.* ``sooner serve`` with two workers, tiny.en, a queue of 60, API keys and small limits, in a process of
   its own. Every shipped clip is sent alone and its text kept; then a burst of clips and two longer files, from
   whose times in service the capacity follows.
2. *Load.* Poisson arrivals at 1.3 times that capacity, counting only requests that are served to their end, and on
   top of it those who are not: clients that leave in the middle of their upload or while they wait, that drop a
   stream after its first event, that cancel their request with DELETE, that ask for the impossible by a deadline;
   hostile files; malformed, oversized and unauthorised forms; twice a client that sends 80 requests at once. In
   the first half of the time the engine's process is killed three times and once stopped, so that it hangs.
3. *Afterwards.* When the last request is over: what is left on disk, in the queue and in memory; all clips once
   more, whose texts must be the same to the letter; a stop signal.

``soak_watch.py``, in a process of its own, asks ``/health`` five times a second and reads memory, files and
threads every second throughout. Each check is printed as PASS or FAIL, and all raw numbers are kept in
``results/soak.json``; where a check fails, the server's log is kept beside them. Nothing but this machine is
contacted. Every request has a limit of seven minutes, far above any wait that the queue allows, so the whole ends
by itself.

    python benchmarks/bench_soak.py                # ten minutes of load
    python benchmarks/bench_soak.py --minutes 1    # a look whether all works; too short to judge memory by
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from soak_report import QUEUE_COUNTS, SHARES, Seen, checks_of, results_of
from soak_server import NUM_WORKERS, SoakServer, watched
from soak_traffic import (
    CLIENTS,
    FLOOD,
    FORMS,
    HOSTILE,
    LIMIT_S,
    LONG_S,
    STREAMED_S,
    Planned,
    Recordings,
    Reply,
    Traffic,
    long_label,
    read_recordings,
)

RESULTS = Path(__file__).parent / "results" / "soak.json"
LOAD = 1.3
FLOODS_AT = (0.3, 0.75)  # shares of the load's time
FLOOD_SIZE = 80
LOSSES_AT = ((0.1, signal.SIGKILL), (0.2, signal.SIGKILL), (0.3, signal.SIGSTOP), (0.45, signal.SIGKILL))
ALL_LOSSES_MINUTES = 4.5  # in less they would come before the engine is back from the one before
MOST_MINUTES = 60.0
IDLE_LIMIT_S = 60.0
NICE = 10  # of the load generator: it shares the cores with the server that it measures

SERVED = ("clip", "long", "stream")
"""Kinds that are served to their end and so count as offered load."""


# Before


async def all_clips(traffic: Traffic) -> dict[str, str]:
    """The text of each clip, sent one after another. Raises ``RuntimeError`` where one has none."""
    texts = {}
    for label in traffic.recordings.clips:
        reply = await traffic.post(label, CLIENTS[0])
        if reply.status != 200:
            raise RuntimeError(f"{label}: {reply}")
        texts[label] = reply.text
    return texts


async def measure_capacity(traffic: Traffic, seen: Seen) -> None:
    """Seconds in service of a clip and of a second of a long file, both with all workers busy."""
    labels = [*traffic.recordings.clips * 2, *(long_label(length_s) for length_s in LONG_S[:2])]
    replies = await asyncio.gather(*(traffic.post(label, CLIENTS[0]) for label in labels))
    took = {label: _service_s(reply) for label, reply in zip(labels, replies, strict=True)}
    clips_s = [took[label] for label in traffic.recordings.clips]
    seen.clip_service_s = sum(clips_s) / len(clips_s)
    longs = [long_label(length_s) for length_s in LONG_S[:2]]
    audio_s = sum(traffic.recordings.audio_s[label] for label in longs)
    seen.audio_service = sum(took[label] for label in longs) / audio_s


def _service_s(reply: Reply) -> float:
    if reply.service_s is None:
        raise RuntimeError(f"no time in service: {reply}")
    return reply.service_s


# Load


def plan_load(seen: Seen, recordings: Recordings, *, load_s: float, rng: random.Random) -> list[Planned]:
    """All requests of the load, and the rate that makes them ``LOAD`` times the capacity."""
    long_s = sum(LONG_S) / len(LONG_S) * seen.audio_service
    streamed_s = (seen.clip_service_s + STREAMED_S * seen.audio_service) / 2
    work_s = dict(zip(SERVED, (seen.clip_service_s, long_s, streamed_s), strict=True))
    seen.rate_per_s = LOAD * NUM_WORKERS / sum(SHARES[kind] * work_s[kind] for kind in SERVED)
    planned = []
    kinds = list(SHARES)  # each once, so that none is left out by chance
    at_s = rng.expovariate(seen.rate_per_s)
    while at_s < load_s:
        kind = kinds.pop() if kinds else rng.choices(list(SHARES), weights=list(SHARES.values()))[0]
        planned.append(_draw(kind, at_s, recordings, rng))
        at_s += rng.expovariate(seen.rate_per_s)
    for share in FLOODS_AT:
        labels = rng.choices(recordings.clips, k=FLOOD_SIZE)
        planned += [Planned(at_s=share * load_s, kind="flood", label=label, client=FLOOD) for label in labels]
    return sorted(planned, key=lambda one: one.at_s)


def _draw(kind: str, at_s: float, recordings: Recordings, rng: random.Random) -> Planned:
    clip, long = rng.choice(recordings.clips), long_label(rng.choice(LONG_S))
    label = {
        "long": long,
        "stream": rng.choice((clip, long_label(STREAMED_S))),
        "hostile": rng.choice(sorted(path.name for path in HOSTILE.iterdir())),
        "form": rng.choice(FORMS),
        "drops its stream": long_label(STREAMED_S),
        "deletes": rng.choice((clip, long)),
        "hurries": long,
    }.get(kind, clip)
    return Planned(
        at_s=at_s, kind=kind, label=label, client=rng.choice(CLIENTS), patience_s=rng.uniform(0.05, 3.0)
    )


async def run_load(traffic: Traffic, planned: Sequence[Planned], server: SoakServer, seen: Seen) -> None:
    """Send all at their times, lose engines on the way, and wait until each request is over."""
    seen.load_from_s = time.monotonic()
    load_s = planned[-1].at_s
    losses = LOSSES_AT if load_s >= 60 * ALL_LOSSES_MINUTES else LOSSES_AT[:1]
    seen.num_losses = len(losses)

    async def send(one: Planned) -> None:
        await asyncio.sleep(max(0.0, seen.load_from_s + one.at_s - time.monotonic()))
        outcome = await traffic.send(one)
        seen.outcomes.append(outcome)
        if fault := outcome.fault(seen.losses_s):
            print(f"{one.kind}, {one.label}: {fault}", flush=True)

    async def lose(share: float, how: int) -> None:
        await asyncio.sleep(share * load_s)
        if server.lose_engine(how):
            seen.losses_s.append(time.monotonic())

    telling = asyncio.ensure_future(_tell(seen))
    try:
        await asyncio.gather(*map(send, planned), *(lose(share, how) for share, how in losses))
    finally:
        telling.cancel()
    seen.load_until_s = time.monotonic()


async def _tell(seen: Seen) -> None:
    while True:
        await asyncio.sleep(10.0)
        codes = Counter(one.code for one in seen.outcomes)
        print(f"{time.monotonic() - seen.load_from_s:5.0f} s:", dict(codes.most_common()), flush=True)


# Afterwards


async def until_idle(traffic: Traffic, seen: Seen) -> None:
    """Wait until the server has nothing under way, or for ``IDLE_LIMIT_S``."""
    limit_s = time.monotonic() + IDLE_LIMIT_S
    while True:
        async with traffic.request("GET", "/v1/queue", CLIENTS[0]) as response:
            found = await response.json()
        seen.queue = {name: found[name] for name in QUEUE_COUNTS}
        if not any(seen.queue.values()) or time.monotonic() > limit_s:
            return
        await asyncio.sleep(0.5)


async def soak(server: SoakServer, recordings: Recordings, *, minutes: float, seed: int) -> Seen:
    """The whole run against a server that listens; it is stopped at the end."""
    seen = Seen()
    limit = aiohttp.ClientTimeout(total=LIMIT_S)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=limit, connector=connector) as session:
        traffic = Traffic(server.host, server.port, recordings, session)
        seen.alone = await all_clips(traffic)
        await measure_capacity(traffic, seen)
        with watched(server) as samples:
            await asyncio.sleep(3.0)  # the figures before the load
            planned = plan_load(seen, recordings, load_s=60 * minutes, rng=random.Random(seed))
            print(f"{len(planned)} requests in {minutes:g} minutes, {seen.rate_per_s:.2f} a second", flush=True)
            await run_load(traffic, planned, server, seen)
            await until_idle(traffic, seen)
            seen.left_idle = server.files_left()
            seen.again = await all_clips(traffic)
            await asyncio.sleep(3.0)  # the figures after it
        seen.samples = samples
    seen.stopped = server.stop()
    seen.left_stopped = [str(path.relative_to(server.spool)) for path in server.spool.rglob("*")]
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the load lasts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not 0.2 <= options.minutes <= MOST_MINUTES:
        parser.error(f"--minutes must be between 0.2 and {MOST_MINUTES:g}")
    with tempfile.TemporaryDirectory(prefix="sooner-soak-") as folder:
        server = SoakServer(Path(folder))
        recordings = read_recordings(server.folder)
        server.start()
        os.nice(NICE)
        try:
            seen = asyncio.run(soak(server, recordings, minutes=options.minutes, seed=options.seed))
        finally:
            server.kill()
        log = server.log.read_bytes()
    checks = checks_of(seen, recordings, log.decode(errors="replace"))
    results = {"method": __doc__, "minutes": options.minutes, **results_of(seen, checks)}
    options.out.write_text(json.dumps(results) + "\n")
    for check in checks:
        print(f"{check.word}  {check.name}: {check.figures}")
    if any(check.passed is False for check in checks):
        options.out.with_suffix(".log").write_bytes(log)
        sys.exit(1)


if __name__ == "__main__":
    main()
