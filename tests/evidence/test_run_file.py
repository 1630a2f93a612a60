"""Run files: what is written is read, and what is not a run is refused with its line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from sooner.errors import RunFileError
from sooner.evidence.run_file import Run, RunWriter, read_runs, write_runs
from tests.evidence.samples import failure, header, make_run, request

HEADER = {
    "kind": "run",
    "source": "bench",
    "policy": "fcfs",
    "workload": "clips",
    "num_requests": 1,
    "engine": "tiny.en",
    "hardware": "two cores",
    "version": "0.2.0",
}
REQUEST = {"kind": "request", "id": "a", "audio_s": 3, "size_s": 0.5, "arrival_s": 1.0, "finished_s": 2.0}
FAILURE = {"kind": "failure", "id": "b", "audio_s": 3.0, "arrival_s": 0.5, "failed_s": 0.5, "error": "HTTP 503"}


def file_of(folder: Path, *lines: Any) -> Path:
    path = folder / "runs.jsonl"
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def test_a_file_named_twice_is_not_counted_twice(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"kind": "run", "source": "bench", "policy": "sjf", "workload": "w", "num_requests": 0, "engine": "e", '
        '"hardware": "h", "version": "0"}\n'
    )
    assert len(read_runs([tmp_path])) == 1
    with pytest.raises(RunFileError, match="it is named twice"):
        read_runs([tmp_path, path])


def test_what_is_written_is_read(tmp_path: Path) -> None:
    whole = make_run("sjf", num_requests=20, notes={"round": 2, "options": ["a"]})
    bare = Run(
        header=header(preempt=None, rate_per_s=None, load=None, seed=None), records=(request(0), request(1))
    )
    failed = Run(header=header(policy="hrrn"), records=(), failures=(failure(0), failure(1, message="")))
    write_runs(tmp_path / "new" / "runs.jsonl", [whole, bare, failed])
    assert read_runs([tmp_path / "new" / "runs.jsonl"]) == [whole, bare, failed]


def test_what_is_not_known_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RunWriter(path) as writer:
        writer.write(request(7))
    assert json.loads(path.read_text()) == {
        "kind": "request",
        "id": "r7",
        "audio_s": 4.0,
        "size_s": 1.0,
        "arrival_s": 7.0,
        "finished_s": 9.0,
    }


def test_speech_is_kept_and_files_without_it_are_read(tmp_path: Path) -> None:
    records = (request(0, audio_s=300.0, speech_s=11.25), request(1, speech_s=0.0), request(2))
    path = tmp_path / "runs.jsonl"
    write_runs(path, [Run(header=header(), records=records)])
    assert ["speech_s" in line for line in path.read_text().splitlines()] == [False, True, True, False]
    assert read_runs([path])[0].records == records
    with pytest.raises(RunFileError, match="speech_s must be a finite number of at least 0, not '-1'"):
        read_runs([file_of(tmp_path, HEADER, REQUEST | {"speech_s": -1})])


def test_a_run_that_is_broken_off_keeps_what_it_had(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with RunWriter(path) as writer:
        writer.write(header())
        writer.write(request(0))
        assert read_runs([path])[0].records == (request(0),)


def test_a_last_line_that_was_not_written_to_its_end_is_passed_over(tmp_path: Path) -> None:
    whole = file_of(tmp_path, HEADER, REQUEST)
    torn = tmp_path / "torn.jsonl"
    torn.write_text(whole.read_text() + json.dumps(REQUEST)[:-1])
    assert read_runs([torn]) == read_runs([whole])
    torn.write_text(whole.read_text() + json.dumps(REQUEST | {"size_s": 0}))
    with pytest.raises(RunFileError, match=r"line 3: .*size_s must be"):
        read_runs([torn])


def test_a_number_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    with RunWriter(tmp_path / "runs.jsonl") as writer, pytest.raises(ValueError, match="not JSON compliant"):
        writer.write(request(0, finished_s=math.inf))


def test_requests_come_in_order_of_arrival_and_belong_to_the_header_above(tmp_path: Path) -> None:
    later = REQUEST | {"id": "c", "arrival_s": 0.0}
    path = file_of(tmp_path, HEADER, REQUEST, FAILURE, later, "", HEADER | {"policy": "sjf"}, REQUEST)
    first, second = read_runs([path])
    assert [one.id for one in first.records] == ["c", "a"]
    assert [one.id for one in first.failures] == ["b"]
    assert (second.header.policy, len(second.records)) == ("sjf", 1)


def test_a_folder_stands_for_its_files_in_order_of_name(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.jsonl"):
        write_runs(tmp_path / name, [Run(header=header(policy=name), records=())])
    (tmp_path / "notes.txt").write_text("not a run")
    assert [run.header.policy for run in read_runs([tmp_path])] == ["a.jsonl", "b.jsonl"]


def test_fields_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    (run,) = read_runs([file_of(tmp_path, HEADER | {"colour": "blue"}, REQUEST | {"mood": {}})])
    assert run.records[0].audio_s == 3


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "it is not a line of a run: Expecting"),
        ("[1]", "it is not a JSON object"),
        ("[" * 100_000, "it is not a line of a run"),
        ({"kind": "meeting"}, "kind must be one of run, request, failure, not 'meeting'"),
        ({"kind": ["run"]}, "kind must be one of"),
        ({"id": "a"}, "kind must be one of run, request, failure, not None"),
        ({"kind": "request", "id": "a"}, "audio_s is missing"),
        (REQUEST | {"size_s": None}, "size_s is missing"),
        (REQUEST | {"audio_s": "3"}, "audio_s must be a finite number of at least 0, not '3'"),
        (REQUEST | {"audio_s": True}, "audio_s must be a finite number of at least 0, not 'True'"),
        (REQUEST | {"audio_s": -1}, "audio_s must be a finite number of at least 0"),
        (REQUEST | {"size_s": 0}, "size_s must be a finite number above 0"),
        (REQUEST | {"arrival_s": math.nan}, "arrival_s must be a finite number, not 'nan'"),
        (REQUEST | {"finished_s": math.inf}, "finished_s must be a finite number, not 'inf'"),
        (REQUEST | {"finished_s": 10**400}, "finished_s must be a finite number"),
        (REQUEST | {"finished_s": 0.5}, "it ends at 0.5 s, before its arrival at 1 s"),
        (FAILURE | {"failed_s": 0.25}, "it ends at 0.25 s, before its arrival at 0.5 s"),
        (REQUEST | {"num_windows": 1.5}, "num_windows must be a whole number of at least 0"),
        (REQUEST | {"wait_s": -0.1}, "wait_s must be a finite number of at least 0"),
        (REQUEST | {"id": 7}, "id must be text, not '7'"),
        (HEADER | {"seed": "1"}, "seed must be a whole number"),
        (HEADER | {"preempt": 1}, "preempt must be true or false"),
        (HEADER | {"notes": []}, "notes must be an object"),
        (HEADER | {"rate_per_s": 0}, "rate_per_s must be a finite number above 0"),
        (HEADER | {"num_requests": -1}, "num_requests must be a whole number of at least 0"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_number(tmp_path: Path, line: Any, reason: str) -> None:
    path = file_of(tmp_path, HEADER, REQUEST, line)
    with pytest.raises(RunFileError) as caught:
        read_runs([path])
    assert (caught.value.line, caught.value.path) == (3, path)
    assert reason in str(caught.value)


def test_files_that_hold_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match=r"there is no \.jsonl file in this folder"):
        read_runs([tmp_path])
    with pytest.raises(RunFileError, match="it holds no run"):
        read_runs([file_of(tmp_path)])
    with pytest.raises(RunFileError, match="line 1: a request before any header"):
        read_runs([file_of(tmp_path, REQUEST)])
    with pytest.raises(RunFileError, match="No such file"):
        read_runs([tmp_path / "missing.jsonl"])
    (tmp_path / "runs.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(RunFileError, match="decode"):
        read_runs([tmp_path / "runs.jsonl"])
