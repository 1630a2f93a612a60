"""``sooner demo``: the same files and clips under four policies, on a real server with the real model."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sooner.bench.accuracy import is_right
from sooner.bench.client import Answer, Sending, send_all, wait_until_running
from sooner.bench.joined import JoinedRecording, join_clips
from sooner.bench.timeline import save_timeline
from sooner.core.latency import percentile
from sooner.engines.base import Engine
from sooner.server.app import load_engine, make_app
from sooner.server.background import BackgroundServer
from sooner.server.options import ServeOptions
from sooner.service.dispatcher import WindowRecord
from sooner.workload.arrivals import poisson_arrivals
from sooner.workload.recordings import clip_named, clips

__all__ = ["DemoRun", "run_demo"]

_RUNS = (("fcfs", False), ("sjf", True), ("hrrn", True), ("adaptive", True))
_SEED = 7
_CLIPS_PER_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """Everything seen under one policy.

    Attributes:
        policy: its name.
        long_answers: answers to the long files, one per worker.
        first_clip: answer to the 3 s clip that was sent right behind them.
        clip_answers: answers to all short clips, the first one included.
        windows: what the workers did, window by window.
        num_right: answers whose text is right.
    """

    policy: str
    long_answers: Sequence[Answer]
    first_clip: Answer
    clip_answers: Sequence[Answer]
    windows: Sequence[WindowRecord]
    num_right: int

    @property
    def answers(self) -> list[Answer]:
        """All answers, long files first."""
        return [*self.long_answers, *self.clip_answers]


def run_demo(*, out: Path, long_s: float, num_clips: int) -> list[DemoRun]:
    """Run all policies, print the comparison and save the timeline picture.

    Args:
        out: where the PNG goes.
        long_s: length of each long file, seconds.
        num_clips: short clips a run, the first of them right behind the long files.
    """
    console = Console()
    engine, num_workers = load_engine(ServeOptions())
    with (
        closing(engine),
        tempfile.TemporaryDirectory(prefix="sooner-demo-") as folder,
        _progress(console) as progress,
    ):
        longs = [
            join_clips(Path(folder) / f"long{index}.wav", at_least_s=long_s, seed=index)
            for index in range(num_workers)
        ]
        clip_sendings = _clip_sendings(num_clips)
        runs = []
        for policy, preempt in _RUNS:
            total = len(longs) + len(clip_sendings)
            bar = progress.add_task(policy, total=total)
            options = ServeOptions(policy=policy, preempt=preempt, port=0)
            runs.append(
                _run_policy(options, engine, longs, clip_sendings, lambda _, bar=bar: progress.advance(bar))  # type: ignore[misc]
            )
    console.print(_table(runs, num_workers))
    save_timeline(out, runs)
    console.print(f"Who waited and who ran: {out}")
    return runs


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:5}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} answered"),
        TimeElapsedColumn(),
        console=console,
    )


def _clip_sendings(num_clips: int) -> list[Sending]:
    """A 3 s clip at once, then short clips as a Poisson stream."""
    rng = random.Random(_SEED)
    shorts = [clip for clip in clips() if clip.audio_s <= 8]
    first = Sending(path=clip_named("austen-0880").path, at_s=0.0, label="clip")
    times_s = islice(poisson_arrivals(rng, rate_per_s=_CLIPS_PER_S), num_clips - 1)
    return [first, *(Sending(path=rng.choice(shorts).path, at_s=at_s, label="clip") for at_s in times_s)]


def _run_policy(
    options: ServeOptions,
    engine: Engine,
    longs: Sequence[JoinedRecording],
    clip_sendings: Sequence[Sending],
    on_answer: Callable[[Answer], None],
) -> DemoRun:
    windows: list[WindowRecord] = []
    app = make_app(options, engine=engine, num_workers=len(longs), on_window=windows.append)
    long_sendings = [Sending(path=long.path, at_s=0.0, label="long file") for long in longs]

    async def drive(url: str) -> tuple[list[Answer], list[Answer]]:
        long_task = asyncio.ensure_future(send_all(url, long_sendings, on_answer=on_answer))
        await wait_until_running(url, len(longs))
        clip_answers = await send_all(url, clip_sendings, on_answer=on_answer)
        return await long_task, clip_answers

    with BackgroundServer(app, options) as server:
        long_answers, clip_answers = asyncio.run(drive(server.url))
    said = {long.path: long.transcript for long in longs} | {clip.path: clip.transcript for clip in clips()}
    return DemoRun(
        policy=options.policy,
        long_answers=long_answers,
        first_clip=clip_answers[0],
        clip_answers=clip_answers,
        windows=windows,
        num_right=sum(
            answer.status == 200 and is_right(said[answer.sending.path], answer.text)
            for answer in [*long_answers, *clip_answers]
        ),
    )


def _table(runs: Sequence[DemoRun], num_workers: int) -> Table:
    base = runs[0]
    table = Table(
        title=f"{len(base.long_answers)} long files, {len(base.clip_answers)} clips, {num_workers} workers",
        caption="Seconds from sending to the last byte. first: a 3 s clip right behind the\n"
        "long files. P50, P90, max: all clips. long: mean of the long files, and over fcfs.",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("policy", no_wrap=True)
    for column in ("first", "sooner", "P50", "P90", "max", "long", "/fcfs", "all", "right"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        clip_s = [answer.e2e_s for answer in run.clip_answers]
        long_s = _mean_e2e_s(run.long_answers)
        table.add_row(
            run.policy,
            f"{run.first_clip.e2e_s:.2f}",
            f"{base.first_clip.e2e_s / run.first_clip.e2e_s:.1f}x",
            f"{percentile(clip_s, 50):.2f}",
            f"{percentile(clip_s, 90):.2f}",
            f"{max(clip_s):.2f}",
            f"{long_s:.1f}",
            f"{long_s / _mean_e2e_s(base.long_answers):.2f}",
            f"{_mean_e2e_s(run.answers):.2f}",
            f"{run.num_right}/{len(run.answers)}",
        )
    return table


def _mean_e2e_s(answers: Sequence[Answer]) -> float:
    return sum(answer.e2e_s for answer in answers) / len(answers)
