"""``sooner calibrate`` on records of real engines, and what it makes of files that are not what they should be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sooner.core.latency import LatencyRecord
from sooner.errors import ConfigurationError, RunFileError
from sooner.evidence.calibration import Spoken, Step
from sooner.evidence.run_file import read_runs, write_runs
from sooner.simulator.calibrate import read_journal, run_calibrate
from sooner.simulator.options import CalibrateOptions
from sooner.simulator.profile import BatchingProfile, WorkersProfile, load_profile

DATA = Path(__file__).parents[1] / "data" / "calibration"
EMBEDDED = DATA / "embedded.jsonl"  # tiny.en in this repository's server, two workers
VLLM = DATA / "vllm-base.jsonl"  # Whisper base in vLLM on the same two cores, 8 slots


def options(folder: Path, **others: Any) -> CalibrateOptions:
    return CalibrateOptions(out=folder / "mine.json", **others)


def journal(path: Path, *lines: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def step(now_s: float, done_s: float, num_running: int, num_admitted: int = 0) -> dict[str, Any]:
    return {
        "event": "step",
        "now_s": now_s,
        "done_s": done_s,
        "num_running": num_running,
        "num_admitted": num_admitted,
    }


def finished(
    upload_id: str, number: int, num_chunks: int, *, tokens: int, audio_s: float | None
) -> dict[str, Any]:
    return {
        "event": "finished",
        "now_s": 0.0,
        "upload_id": upload_id,
        "number": number,
        "num_chunks": num_chunks,
        "audio_s": audio_s,
        "num_output_tokens": tokens,
    }


def changed_run(path: Path, change: Callable[[LatencyRecord], LatencyRecord], **header: Any) -> Path:
    (run,) = read_runs([EMBEDDED])
    records = tuple(change(record) for record in run.records)
    write_runs(path, [replace(run, records=records, header=replace(run.header, **header))])
    return path


def test_the_embedded_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = run_calibrate([EMBEDDED], options(tmp_path))
    assert isinstance(profile, WorkersProfile)
    assert (profile.name, profile.num_workers) == ("mine", 2)
    assert (profile.model, profile.hardware) == (
        "whisper-tiny.en, int8, beam 5",
        "2 cores of a shared virtual machine",
    )
    assert 0.2 < profile.encode_s < 1.0
    assert 0.003 < profile.token_s < 0.03
    assert 2.5 < profile.kappa < 4.5
    assert 20 < profile.window_s <= 30
    assert 0 < profile.overhead_s < 0.1
    assert 0 < profile.spread < 0.5
    assert load_profile(str(tmp_path / "mine.json")) == profile
    assert "fitted to 72 requests in embedded.jsonl, standard error 0." in profile.origins["encode_s"]
    said = capsys.readouterr().out
    assert "72 requests of 48 lengths in embedded.jsonl" in said
    assert f"Wrote {tmp_path / 'mine.json'}" in said


def test_a_real_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = run_calibrate([VLLM], options(tmp_path, name="cpu", hardware="2 cores"))
    assert isinstance(profile, BatchingProfile)
    assert (profile.name, profile.model, profile.hardware) == ("cpu", "whisper-base", "2 cores")
    assert 0.2 < profile.admission_s < 1.5
    assert 0.005 < profile.step_s + profile.running_step_s < 0.05
    assert 2.5 < profile.kappa < 4.5
    assert (profile.max_running, profile.max_windows_per_step) == (8, 1)
    assert (profile.memory_blocks, profile.block_tokens, profile.window_positions) == (681, 128, 1500)
    assert profile.size_encode_s == profile.admission_s
    assert profile.running_step_s < profile.size_token_s < profile.running_step_s + profile.step_s
    assert load_profile(str(tmp_path / "mine.json")) == profile
    assert "556 steps in vllm-base.jsonl" in capsys.readouterr().out


def held_out_error(said: str) -> float:
    """The median error of the first held-out part that a report tells, as a fraction."""
    line = next(line for line in said.splitlines() if "held out" in line)
    return float(line.split()[3].rstrip("%")) / 100


@pytest.mark.parametrize(("path", "limit"), [(EMBEDDED, 0.2), (VLLM, 0.3)])
def test_what_a_fit_has_not_seen_it_predicts(
    path: Path, limit: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_calibrate([path], options(tmp_path))
    assert held_out_error(capsys.readouterr().out) < limit


def test_the_profile_predicts_what_all_requests_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One in ten stalls. What is typical stays typical, and the load is that of all."""
    path = changed_run(
        tmp_path / "run.jsonl",
        lambda record: replace(record, service_s=(record.service_s or 0) * (8 if record.id[-1] == "0" else 1)),
    )
    profile = run_calibrate([path], options(tmp_path))
    assert isinstance(profile, WorkersProfile)
    records = read_runs([path])[0].records
    predicted_s = sum(
        profile.encode_s * (one.num_windows or 0) + profile.token_s * (one.num_tokens or 0) for one in records
    )
    assert predicted_s == pytest.approx(sum(one.service_s or 0 for one in records), rel=1e-3)
    origin = re.match(r"(\S+), fitted to 72 requests .* times (\S+), what all took", profile.origins["encode_s"])
    assert origin is not None
    typical_s, ratio = map(float, origin.groups())
    assert profile.encode_s == pytest.approx(typical_s * ratio, rel=1e-3)
    assert ratio > 1.5
    assert f"All service together took {ratio:.3f} times" in capsys.readouterr().out


def test_the_profile_predicts_what_all_steps_took(tmp_path: Path) -> None:
    profile = run_calibrate([VLLM], options(tmp_path))
    assert isinstance(profile, BatchingProfile)
    steps = read_journal(VLLM).steps
    predicted_s = sum(
        profile.step_s + profile.running_step_s * one.num_running + profile.admission_s * one.num_admitted
        for one in steps
    )
    assert predicted_s == pytest.approx(sum(one.duration_s for one in steps), rel=1e-3)


def test_a_run_that_speaks_of_an_event_is_no_journal(tmp_path: Path) -> None:
    path = changed_run(tmp_path / "run.jsonl", lambda record: record, notes={"event": "a fair"})
    assert isinstance(run_calibrate([path], options(tmp_path)), WorkersProfile)


def test_a_folder_stands_for_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    changed_run(folder / "a.jsonl", lambda record: record)
    changed_run(folder / "b.jsonl", lambda record: replace(record, id=f"b{record.id}"))
    profile = run_calibrate([folder], options(tmp_path))
    assert "144 requests in a.jsonl, b.jsonl" in profile.origins["encode_s"]


def test_what_the_runs_do_not_tell_is_left_out_of_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed_run(
        tmp_path / "run.jsonl",
        lambda record: replace(record, wait_s=None, audio_s=min(record.audio_s, 30.0)),
        num_workers=None,
    )
    profile = run_calibrate([path], options(tmp_path))
    assert not {"overhead_s", "window_s", "num_workers"} & profile.origins.keys()
    said = capsys.readouterr().out
    assert "window_s stays 30" in said
    assert "overhead_s stays 0" in said
    assert "num_workers stays 1" in said


def test_a_step_lasts_from_the_end_of_the_one_before_unless_the_engine_was_idle(tmp_path: Path) -> None:
    path = journal(
        tmp_path / "j.jsonl",
        {"event": "engine", "now_s": 0.0, "max_running": 8},
        {"event": "added", "now_s": 0.0, "request_id": "r"},
        step(1.0, 1.5, 1, 1),  # the first: from its plan
        step(1.6, 1.75, 2, 1),  # one ran on: the planning counts
        step(9.0, 9.5, 1, 1),  # all are new: the engine was idle
        step(9.25, 10.0, 2, 2),  # all are new, and planned while the one before ran
        step(9.5, 10.25, 2),  # planned while the one before ran
    )
    read = read_journal(path)
    assert read.limits["max_running"] == 8
    durations_s = [0.5, 0.25, 0.5, 0.5, 0.25]
    counts = [(1, 1), (2, 1), (1, 1), (2, 2), (2, 0)]
    assert read.steps == tuple(
        Step(duration_s=duration_s, num_running=running, num_admitted=admitted)
        for duration_s, (running, admitted) in zip(durations_s, counts, strict=True)
    )


def test_only_whole_uploads_of_known_length_tell_kappa(tmp_path: Path) -> None:
    path = journal(
        tmp_path / "j.jsonl",
        finished("file", 1, 2, tokens=20, audio_s=40.0),
        finished("left", 0, 2, tokens=90, audio_s=55.0),
        finished("language", 0, 1, tokens=1, audio_s=None),
        finished("file", 0, 2, tokens=90, audio_s=40.0),
        finished("clip", 0, 1, tokens=9, audio_s=3.0),
    )
    assert read_journal(path).spoken == (Spoken(audio_s=40.0, num_tokens=110), Spoken(audio_s=3.0, num_tokens=9))


def without(event: str) -> Sequence[Mapping[str, Any]]:
    lines = [json.loads(line) for line in VLLM.read_text().splitlines()]
    return [line for line in lines if line["event"] != event]


def test_kappa_comes_from_the_runs_where_the_journal_has_too_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = journal(tmp_path / "steps.jsonl", *without("finished"))
    alone = run_calibrate([path], options(tmp_path))
    assert "kappa" not in alone.origins
    assert "kappa stays 3" in capsys.readouterr().out
    beside = run_calibrate([path, EMBEDDED], options(tmp_path))
    assert "72 requests in embedded.jsonl" in beside.origins["kappa"]


def test_without_limits_the_most_that_was_seen_counts(tmp_path: Path) -> None:
    profile = run_calibrate([journal(tmp_path / "steps.jsonl", *without("engine"))], options(tmp_path))
    assert isinstance(profile, BatchingProfile)
    assert (profile.max_running, profile.max_windows_per_step, profile.memory_blocks) == (8, 1, None)
    assert profile.origins["max_running"] == "most seen in steps.jsonl"
    assert profile.model == "not named"


def test_files_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in VLLM.read_text().splitlines()]
    other = journal(tmp_path / "other.jsonl", {**lines[0], "max_running": 16}, *lines[1:])
    three = changed_run(tmp_path / "three.jsonl", lambda record: record, num_workers=3)
    refused: list[tuple[list[Path], dict[str, Any], str]] = [
        ([VLLM, other], {}, "different limits"),
        ([EMBEDDED, three], {}, "differ in num_workers, 2 and 3"),
        ([VLLM, EMBEDDED], {"engine": "workers"}, "is a journal of vLLM"),
        ([EMBEDDED], {"engine": "batching"}, "from a journal of the vLLM plugin"),
        ([], {}, "name at least one file"),
    ]
    for paths, others, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            run_calibrate(paths, options(tmp_path, **others))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    text = tmp_path / "notes.jsonl"
    text.write_text("hello\n")
    torn = tmp_path / "torn.jsonl"
    torn.write_text('{"event": "engine"}\n{"event": "step", "now_s": 1.0}\n')
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFileError, match=r"notes\.jsonl, line 1"):
        run_calibrate([text], options(tmp_path))
    with pytest.raises(ConfigurationError, match=r"torn\.jsonl, line 2: KeyError"):
        run_calibrate([torn], options(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no \.jsonl file"):
        run_calibrate([tmp_path / "empty"], options(tmp_path))
    with pytest.raises(ConfigurationError, match=r"gone\.jsonl: .*No such file"):
        run_calibrate([tmp_path / "gone.jsonl"], options(tmp_path))
    with pytest.raises(ConfigurationError, match="in one that is not there"):
        run_calibrate([EMBEDDED], CalibrateOptions(out=tmp_path / "no" / "folder.json"))
