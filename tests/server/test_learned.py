"""What was learnt, kept in a file: over restarts, and beside whatever may be wrong with the file."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sooner import Estimator, Job
from sooner.engines.fake import FakeEngine
from sooner.server import learned
from sooner.server.learned import LearnedFile
from sooner.service.clock import ManualClock
from sooner.workload.recordings import clip_named

from .conftest import Serve

JFK = clip_named("jfk").path  # 11 s, for which the fake engine gives 90 tokens: κ is 8.2


def teach(estimator: Estimator, *, tokens: int = 90) -> None:
    job = Job(id="j", arrival_s=0.0, audio_s=11.0, estimate=estimator.estimate(11.0))
    estimator.observe(job, tokens=tokens, service_s=1.0)


def saved(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def left_beside(path: Path) -> list[str]:
    """Files that a save has left in the folder, other than the one."""
    return [one.name for one in path.parent.iterdir() if path.name in one.name and one != path]


def test_a_second_server_predicts_as_the_first_did_at_its_end(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    clock = ManualClock()
    engine = FakeEngine(lambda _job, _index: clock.advance(2.5))
    first = serve(engine, clock=clock, learned=path)
    unlearnt = float(first.post(JFK).headers["x-sooner-size-s"])
    for _ in range(20):
        assert first.post(JFK).status_code == 200
    kappa = first.metrics()["sooner_kappa",]
    learnt = float(first.post(JFK).headers["x-sooner-size-s"])
    first.stop()
    assert kappa > 4.0
    assert abs(learnt - 2.5) < abs(unlearnt - 2.5)

    state = saved(path)["state"]
    second = serve(engine, clock=clock, learned=path)
    second_kappa = second.metrics()["sooner_kappa",]
    size_s = float(second.post(JFK).headers["x-sooner-size-s"])
    estimator = Estimator(context_s=0.35, learns=True)
    estimator.load_state(state)
    assert second_kappa == estimator.kappa >= kappa  # the last job taught a little more
    assert size_s == pytest.approx(estimator.estimate(11.0, client="addr:127.0.0.1").size_s, abs=1e-3)
    assert left_beside(path) == []


def test_it_is_saved_at_the_end_also_where_nothing_happened(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    serve(learned=path).stop()
    assert saved(path) == {"model": "fake", "state": Estimator(context_s=0.35).state()}


def state_with(**changes: Any) -> str:
    return json.dumps({"model": "fake", "state": Estimator(learns=True).state() | changes})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be used, and is not written to"),
        (b"\xff\xfe\x00", "cannot be used, and is not written to"),
        (b"[" * 100_000, "cannot be used, and is not written to"),
        (b'{"model": "fake", "sta', "cannot be used, and is not written to"),
        (b'["a", "list"]', "it is no such file"),
        (b'{"model": "fake"}', "it is no such file"),
        (b'{"model": "fake", "state": null}', "not a state of version 1"),
        (state_with(version=99).encode(), "not a state of version 1"),
        (
            state_with(kappa={"levels": [[None, None, 1e999, 1.0]]}).encode(),
            "cannot be used, and is not written to",
        ),
        (state_with(costs={"gram": [10**400] * 6}).encode(), "cannot be used, and is not written to"),
        (b'{"model": "large-v3", "state": {}}', "it was learnt with large-v3, and this is fake"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_and_left_alone(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, said: str
) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(content)
    server = serve(learned=path)
    assert f"{path} " in caplog.text
    assert said in caplog.text
    assert server.metrics()["sooner_kappa",] == 3.0
    assert server.post(JFK).status_code == 200
    server.stop()
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_written_is_told_and_the_server_serves(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    server = serve(learned=folder / "learned.json")
    folder.rmdir()
    assert server.post(JFK).status_code == 200
    server.stop()
    assert f"what was learnt cannot be saved in {folder / 'learned.json'}" in caplog.text
    assert not folder.exists()


def test_the_file_is_the_old_one_or_the_new_one_at_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "learned.json"
    estimator = Estimator(learns=True)
    learned._replace(path, {"model": "fake", "state": estimator.state()})
    before = path.read_bytes()
    seen: list[bytes] = []

    def fail_to_sync(_handle: int) -> None:
        seen.append(path.read_bytes())  # all of the new one is written, and the old one stands
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(learned.os, "fsync", fail_to_sync)
    file = LearnedFile(path, estimator, model_id="fake")
    teach(estimator)
    asyncio.run(cancelled_at_once(file))
    assert seen == [before]
    assert path.read_bytes() == before
    assert left_beside(path) == []
    assert "no space left" in caplog.text


async def cancelled_at_once(file: LearnedFile) -> None:
    saving = asyncio.create_task(file.save_often())
    await asyncio.sleep(0)  # it has begun
    await stopped(saving)


async def stopped(saving: asyncio.Task[None]) -> None:
    saving.cancel()
    await asyncio.wait((saving,))
    assert saving.cancelled()


def within_limit(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_it_is_saved_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "_SAVE_EVERY_S", 0.0)
    path = tmp_path / "learned.json"
    estimator = Estimator(learns=True)
    replace = learned._replace

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        states: asyncio.Queue[Any] = asyncio.Queue()

        def replace_and_tell(path: Path, body: dict[str, Any]) -> None:
            replace(path, body)
            loop.call_soon_threadsafe(states.put_nowait, saved(path)["state"])

        monkeypatch.setattr(learned, "_replace", replace_and_tell)
        saving = asyncio.create_task(LearnedFile(path, estimator, model_id="fake").save_often())
        assert await states.get() == estimator.state()
        teach(estimator)
        while await states.get() != estimator.state():
            assert not saving.done()
        await stopped(saving)

    within_limit(scenario)


def test_the_last_save_waits_for_one_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "_SAVE_EVERY_S", 0.0)
    path = tmp_path / "learned.json"
    estimator = Estimator(learns=True)
    replace, begun, may_go_on = learned._replace, threading.Event(), threading.Event()

    def replace_when_told(path: Path, body: dict[str, Any]) -> None:
        begun.set()
        assert may_go_on.wait(20)
        replace(path, body)

    monkeypatch.setattr(learned, "_replace", replace_when_told)

    async def scenario() -> None:
        saving = asyncio.create_task(LearnedFile(path, estimator, model_id="fake").save_often())
        await asyncio.to_thread(begun.wait, 20)
        teach(estimator)
        saving.cancel()
        await asyncio.sleep(0)
        monkeypatch.setattr(learned, "_replace", replace)  # the last one need not be told
        await asyncio.sleep(0)
        assert not path.exists()
        may_go_on.set()
        await asyncio.wait((saving,))

    within_limit(scenario)
    assert saved(path)["state"] == estimator.state()


def test_what_is_no_file_is_left_alone_and_holds_nobody_up(tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    big = tmp_path / "big"
    big.write_bytes(b" " * (learned._MAX_BYTES + 1))
    for path in (pipe, loop, big):
        estimator = Estimator(learns=True)
        assert not LearnedFile(path, estimator, model_id="fake")._may_replace
        assert estimator.state() == Estimator(learns=True).state()
