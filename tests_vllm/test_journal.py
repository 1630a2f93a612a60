"""What vLLM's real scheduler writes to the journal about its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner import Estimator
from sooner.vllm_plugin.chunk import ESTIMATE_KEY, chunks_of_upload
from tests_vllm.journal import read_all
from tests_vllm.scheduling import Engine, abort, make_request, make_scheduler

both_loops = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@both_loops
def test_every_step_and_every_finished_request_has_its_line(model: Path, tmp_path: Path, is_async: bool) -> None:
    path = tmp_path / "j.jsonl"
    scheduler = make_scheduler(model, "sjf", num_slots=3, is_async=is_async, options={"journal_path": str(path)})
    engine = Engine(scheduler, is_async=is_async)
    lengths = {f"r{n}": 4 + n for n in range(5)}
    for name, tokens in lengths.items():
        extra_args = {ESTIMATE_KEY: tokens}
        scheduler.add_request(make_request(name, arrival_s=1.0, max_tokens=tokens, extra_args=extra_args))
    engine.run()
    first, *lines = read_all(path)
    assert first["event"] == "engine"
    assert (first["policy"], first["max_running"], first["max_windows_per_step"]) == ("sjf", 3, 1)
    assert (first["memory_blocks"], first["block_tokens"], first["window_positions"]) == (3999, 32, 1500)
    steps = [line for line in lines if line["event"] == "step"]
    assert sum(step["num_running"] for step in steps) == sum(lengths.values())  # each gives one token
    assert sum(step["num_admitted"] for step in steps) == len(lengths)
    assert max(step["num_admitted"] for step in steps) == 1
    assert max(step["num_running"] for step in steps) == 3
    assert all(step["now_s"] <= step["done_s"] for step in steps)
    finished = {line["request_id"]: line["num_output_tokens"] for line in lines if line["event"] == "finished"}
    assert finished == lengths


@both_loops
def test_evicted_windows_are_admitted_again(model: Path, tmp_path: Path, is_async: bool) -> None:
    path = tmp_path / "j.jsonl"
    options = {"journal_path": str(path)}
    scheduler = make_scheduler(model, "sjf", num_slots=4, num_blocks=150, is_async=is_async, options=options)
    engine = Engine(scheduler, is_async=is_async)
    for name, tokens in {"a": 220, "b": 190, "c": 150}.items():
        scheduler.add_request(
            make_request(name, arrival_s=1.0, max_tokens=tokens, extra_args={ESTIMATE_KEY: tokens})
        )
    engine.run()
    steps = [line for line in read_all(path) if line["event"] == "step"]
    assert sum(step["num_admitted"] for step in steps) == len(engine.started) > 3


def test_what_was_aborted_is_not_finished(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    scheduler = make_scheduler(model, "hrrn", options={"journal_path": str(path)})
    engine = Engine(scheduler)
    for chunk in chunks_of_upload("file", [30.0, 2.0], Estimator()):
        scheduler.add_request(
            make_request(f"file-{chunk.number}", arrival_s=1.0, max_tokens=9, extra_args=chunk.extra_args())
        )
    engine.step()
    abort(scheduler, "file-0")
    engine.run()
    (line,) = [line for line in read_all(path) if line["event"] == "finished"]
    assert (line["upload_id"], line["number"], line["num_chunks"], line["audio_s"]) == ("file", 1, 2, 32.0)
