#!/usr/bin/env python3
"""A picture of the page at ``/`` while a real server, with the real model, is busy.

Two workers, policy hrrn. A few recordings come while it is calm, one of them ours; then three long ones, one of
them ours; then crowds of clips that overtake those. The picture is taken when a long one is put off while another
runs.

Usage, from the root of the repository (because the browser is driven by ``tests.browser``)::

    python -m tools.make_page_screenshot docs/page.png --width 1200 [--dark]

Needs Chromium, and Sooner with its bundled model. Takes about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.browser import Browser

from sooner.bench.client import Sending, send_all
from sooner.bench.joined import join_clips
from sooner.engines.models import find_model
from sooner.engines.whisper import WhisperEngine
from sooner.server.app import make_app
from sooner.server.background import BackgroundServer
from sooner.server.options import ServeOptions
from sooner.workload.recordings import clip_named, clips

__all__ = ["main"]

NUM_CALM, CALM_S = 9, 1.0  # recordings, and seconds between them
NUM_CROWDS, CROWD_S = 6, 20.0  # of two dozen clips each
LONG_S, OWN_LONG_S = (60.0, 420.0, 150.0), 200.0
NUM_WORKERS = 2
LIMIT_S = 120.0

IS_CALM_OVER = f"queue?.num_finished > {NUM_CALM}"
DO_LONGS_RUN = f"queue.running.filter(job => job.done_s > 0).length === {NUM_WORKERS}"
IS_WORTH_SEEING = """queue.waiting.some(job => job.status === "preempted")
  && queue.running.some(job => job.done_s > 0) && queue.waiting.length >= 9
  && !isAsking && (clearTimeout(timer), true)"""  # and so it stays
IS_STILL = 'document.getAnimations().every(one => one.playState !== "running")'
HEIGHT = "document.documentElement.scrollHeight"


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the picture. See the module's text."""
    parser = argparse.ArgumentParser(description="A picture of the page of a busy server.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1200, help="of the window, CSS pixels")
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args(arguments)
    logging.getLogger("sooner").setLevel(logging.ERROR)  # what is left of the crowds at the end is refused, loudly
    with tempfile.TemporaryDirectory(prefix="sooner-page-") as folder, _server() as url:
        options.out.write_bytes(_picture(url, Path(folder), width=options.width, dark=options.dark))


@contextmanager
def _server() -> Iterator[str]:
    options = ServeOptions(port=0, policy="hrrn", shutdown_grace_s=0.0)
    engine = WhisperEngine(find_model(None), num_workers=NUM_WORKERS)
    with BackgroundServer(make_app(options, engine=engine, num_workers=NUM_WORKERS), options) as server:
        yield server.url


def _picture(url: str, folder: Path, *, width: int, dark: bool) -> bytes:
    longs = [
        join_clips(folder / f"{index}.wav", at_least_s=long_s, seed=index) for index, long_s in enumerate(LONG_S)
    ]
    own = join_clips(folder / "interview.wav", at_least_s=OWN_LONG_S, seed=33)
    short = folder / "inauguration.flac"
    shutil.copy(clip_named("jfk").path, short)
    shipped = [clip.path for clip in clips()]
    with Browser() as browser, browser.open(url + "/", width=width, dark=dark) as page:
        _send(url, {path: index * CALM_S for index, path in enumerate([longs[0].path, *shipped[1:NUM_CALM]])})
        page.choose_files("#choose", [short])
        page.wait_for(IS_CALM_OVER, within_s=LIMIT_S)
        page.choose_files("#choose", [own.path])
        _send(url, {long.path: 0.0 for long in longs[1:]})
        page.wait_for(DO_LONGS_RUN, within_s=LIMIT_S)
        for index in range(NUM_CROWDS):
            for _ in range(2):
                _send(url, dict.fromkeys(shipped, index * CROWD_S))
        page.wait_for(IS_WORTH_SEEING, within_s=LIMIT_S)
        page.wait_for(IS_STILL)
        page.look(width=width, height=page.evaluate(HEIGHT), dark=dark)
        return page.screenshot()


def _send(url: str, at_s: Mapping[Path, float]) -> None:
    """Send recordings, each so many seconds from now, and wait for nothing."""
    sendings = [Sending(path=path, at_s=when_s, label="file") for path, when_s in at_s.items()]
    threading.Thread(target=lambda: asyncio.run(send_all(url, sendings)), daemon=True).start()


if __name__ == "__main__":
    main()
