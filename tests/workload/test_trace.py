"""Trace files: read and written in three forms, and told precisely what is wrong with them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sooner.errors import TraceError
from sooner.workload.recordings import clip_named
from sooner.workload.trace import MAX_AUDIO_S, TraceRequest, read_arrivals, read_trace, write_trace

SUFFIXES = ("jsonl", "csv", "tsv")
FULL = TraceRequest(
    arrival_s=0.25,
    audio_s=4.5,
    speech_s=3.25,
    num_tokens=13,
    language="en",
    path=Path("/recordings/a b.flac"),
    transcript='he said "well, then"\tand\nleft',
)


def error_from(path: Path) -> TraceError:
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    return caught.value


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read(tmp_path: Path, suffix: str) -> None:
    trace = [TraceRequest(arrival_s=0.0, audio_s=611.0), FULL]
    path = tmp_path / "new" / f"trace.{suffix}"
    write_trace(path, trace)
    assert read_trace(path) == trace


texts = st.none() | st.text(min_size=1)
requests = st.builds(
    TraceRequest,
    arrival_s=st.floats(0, 1e9),
    audio_s=st.floats(0, MAX_AUDIO_S, exclude_min=True),
    speech_s=st.none() | st.just(0.0),
    num_tokens=st.none() | st.integers(0, 10**6),
    language=texts,
    path=st.none() | st.just(Path("/recordings/ä b.flac")),
    transcript=texts,
)


@settings(deadline=None)  # writes files: its time says nothing
@given(st.lists(requests, max_size=20), st.sampled_from(SUFFIXES))
def test_any_trace_survives_the_round_trip(rest: list[TraceRequest], suffix: str) -> None:
    trace = [TraceRequest(arrival_s=0.0, audio_s=1.0), *sorted(rest, key=lambda request: request.arrival_s)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"trace.{suffix}"
        write_trace(path, trace)
        assert read_trace(path) == trace
        assert read_arrivals(path) == [request.arrival_s for request in trace]


def test_a_query_of_a_log_is_a_trace(tmp_path: Path) -> None:
    """Seconds on any clock, in any order, with a byte order mark and columns that mean nothing to us."""
    log = "\ufeffarrival_s,status,audio_s\r\n1767225601.5,200,611\r\n1767225600.0,200,4.2\r\n"
    assert read_trace(written(tmp_path, "log.csv", log)) == [
        TraceRequest(arrival_s=0.0, audio_s=4.2),
        TraceRequest(arrival_s=1.5, audio_s=611.0),
    ]


def test_a_json_log_is_a_trace(tmp_path: Path) -> None:
    log = '\ufeff{"at_s": 7, "audio_s": "4.2", "tokens": 12.0, "level": null}\n\n{"arrival": 8, "audio_s": 5}\n'
    assert read_trace(written(tmp_path, "log.jsonl", log)) == [
        TraceRequest(arrival_s=0.0, audio_s=4.2, num_tokens=12),
        TraceRequest(arrival_s=1.0, audio_s=5.0),
    ]


RUN = """\
{"kind": "run", "source": "server", "policy": "hrrn"}
{"kind": "request", "id": "a", "audio_s": 4.0, "arrival_s": 70.5, "finished_s": 72.0, "num_tokens": 12}
{"kind": "failure", "id": "b", "audio_s": 9.0, "arrival_s": 70.0, "failed_s": 71.0, "error": "HTTP 503"}
"""


def test_a_run_file_is_a_trace_of_what_was_sent(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, "run.jsonl", RUN)) == [
        TraceRequest(arrival_s=0.0, audio_s=9.0),
        TraceRequest(arrival_s=0.5, audio_s=4.0, num_tokens=12),
    ]


def test_speech_comes_from_run_files_and_logs(tmp_path: Path) -> None:
    run = RUN.replace('"num_tokens": 12', '"num_tokens": 12, "speech_s": 1.5')
    assert [one.speech_s for one in read_trace(written(tmp_path, "run.jsonl", run))] == [None, 1.5]
    table = "arrival_s,audio_s,speech_s\n0,300,11\n1,300,0\n2,4,\n"
    trace = read_trace(written(tmp_path, "log.csv", table))
    assert [(one.speech_s, one.spoken_s) for one in trace] == [(11.0, 11.0), (0.0, 0.0), (None, 4.0)]


def test_a_table_has_a_column_of_speech_only_where_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    bare = TraceRequest(arrival_s=0.0, audio_s=1.0)
    write_trace(path, [bare])
    assert path.read_bytes() == b"arrival_s,audio_s,num_tokens,language,client,path,transcript\r\n0.0,1.0,,,,,\r\n"
    write_trace(path, [bare, replace(bare, speech_s=0.5)])
    assert path.read_text().startswith("arrival_s,audio_s,speech_s,num_tokens,")


def test_half_a_line_at_the_end_is_passed_over(tmp_path: Path) -> None:
    """What a server that was killed leaves; anywhere else it is an error."""
    assert len(read_trace(written(tmp_path, "run.jsonl", RUN + '{"kind": "request", "audio'))) == 2
    assert error_from(written(tmp_path, "run.jsonl", '{"kind": "requ\n' + RUN)).line == 1


def test_two_runs_are_not_one_trace(tmp_path: Path) -> None:
    error = error_from(written(tmp_path, "runs.jsonl", RUN + RUN))
    assert error.line == 4
    assert "a second run begins here" in str(error)


def test_a_relative_path_is_taken_from_the_folder_of_the_trace(tmp_path: Path) -> None:
    recording = clip_named("jfk").path
    rows = f"arrival_s\taudio_s\tpath\n0\t11\tnear/a.flac\n1\t11\t{recording}\n"
    near, far = read_trace(written(tmp_path, "trace.tsv", rows))
    assert near.path == tmp_path / "near" / "a.flac"
    assert far.path == recording


def test_a_relative_path_is_still_right_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("traces") / "trace.jsonl"
    write_trace(path, [TraceRequest(arrival_s=0.0, audio_s=1.0, path=Path("a.flac"))])
    assert read_trace(path)[0].path == tmp_path / "a.flac"


def test_arrivals_alone_need_no_length(tmp_path: Path) -> None:
    assert read_arrivals(written(tmp_path, "a.csv", "arrival_s\n12.5\n10\n")) == [0.0, 2.5]
    with pytest.raises(TraceError, match=r"a\.jsonl, line 1: it needs arrival_s, and has audio_s"):
        read_arrivals(written(tmp_path, "a.jsonl", '{"audio_s": 1}'))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"audio_s": 1}, "it needs arrival_s, and has audio_s"),
        ({"arrival_s": 1}, "it needs audio_s, and has arrival_s"),
        ({"arrival_s": 1, "audio_s": ""}, "it needs audio_s, and has arrival_s"),
        ({}, "it needs audio_s, and has nothing"),
        ({"x" * 50 + str(n): 1 for n in range(9)}, "[...]"),
        ({"arrival_s": "2026-01-01T00:00:00Z", "audio_s": 1}, "arrival_s must be a finite number, not '2026-01"),
        ({"arrival_s": 1767225600000, "audio_s": 1}, "arrival_s must be in seconds"),
        ({"arrival_s": 0, "audio_s": math.nan}, "audio_s must be a finite number, not nan"),
        ({"arrival_s": math.inf, "audio_s": 1}, "arrival_s must be a finite number, not inf"),
        ({"arrival_s": 0, "audio_s": -1}, "audio_s must be more than 0"),
        ({"arrival_s": 0, "audio_s": 0}, "audio_s must be more than 0"),
        ({"arrival_s": 0, "audio_s": 6e5 + 5e3}, "at most a week, in seconds, not 605000"),
        ({"arrival_s": 0, "audio_s": True}, "audio_s must be a finite number, not True"),
        ({"arrival_s": 0, "audio_s": [1]}, "audio_s must be a finite number, not [1]"),
        ({"arrival_s": 0, "audio_s": 10**400}, "audio_s must be a finite number, not 1000"),
        (
            {"arrival_s": 0, "audio_s": 1, "speech_s": 1.5},
            "speech_s must be at least 0 and at most audio_s, 1, not",
        ),
        (
            {"arrival_s": 0, "audio_s": 1, "speech_s": -1},
            "speech_s must be at least 0 and at most audio_s, 1, not",
        ),
        ({"arrival_s": 0, "audio_s": 1, "num_tokens": -1}, "num_tokens must be at least 0, not -1"),
        ({"arrival_s": 0, "audio_s": 1, "num_tokens": "many"}, "num_tokens must be a finite number, not 'many'"),
        ({"arrival_s": 0, "audio_s": 1, "path": 5}, "path must be text, not 5"),
        ({"arrival_s": 0, "audio_s": 1, "transcript": ["a"]}, "transcript must be text, not ['a']"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    good = '{"arrival_s": 0, "audio_s": 1}\n'
    error = error_from(written(tmp_path, "trace.jsonl", f"{good}\n{json.dumps(row)}\n{good}"))
    assert error.line == 3
    assert reason in str(error)
    assert len(str(error)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("arrival_s audio_s", "it is not JSON (Expecting value"),
        ("[0, 4.2]", "it is not a JSON object"),
        ('{"arrival_s": 0,', "it is not JSON"),
        ('{"arrival_s": ' + "1" * 5000 + "}", "it is not JSON (Exceeds the limit"),
        ("[" * 200_000, "it is not JSON"),
    ],
)
def test_what_is_not_json_is_named(tmp_path: Path, line: str, reason: str) -> None:
    error = error_from(written(tmp_path, "trace.jsonl", f'{{"arrival_s": 0, "audio_s": 1}}\n{line}\n'))
    assert error.line == 2
    assert reason in str(error)


@pytest.mark.parametrize(
    ("name", "content", "line", "reason"),
    [
        ("empty.jsonl", b"", None, "it holds no request"),
        ("empty.csv", b"", None, "it holds no request"),
        ("blank.jsonl", b"\n \n", None, "it holds no request"),
        ("header.tsv", b"arrival_s\taudio_s\n", None, "it holds no request"),
        ("columns.csv", b"begin,length\n0,4\n", 2, "it needs audio_s, and has begin, length"),
        ("semicolons.csv", b"arrival_s;audio_s\n0;4\n", 2, "it needs audio_s, and has arrival_s;audio_s"),
        ("short.csv", b"arrival_s,audio_s\n0,4\n\n1\n", 4, "it needs audio_s, and has arrival_s"),
        ("word.tsv", b"arrival_s\taudio_s\n0\tfour\n", 2, "audio_s must be a finite number, not 'four'"),
        ("long.csv", b"arrival_s,audio_s\n0," + b"4" * 200_000, 2, "field larger than field limit"),
        ("latin1.csv", "arrival_s,audio_s,transcript\n0,4,é\n".encode("latin-1"), None, "it is not text in UTF-8"),
    ],
)
def test_files_that_are_no_traces(
    tmp_path: Path, name: str, content: bytes, line: int | None, reason: str
) -> None:
    error = error_from(written(tmp_path, name, content))
    assert (error.line, error.path) == (line, tmp_path / name)
    assert reason in str(error)


def test_a_recording_is_no_trace() -> None:
    assert "it is not text in UTF-8" in str(error_from(clip_named("jfk").path))


def test_a_folder_and_nothing_at_all_are_no_traces(tmp_path: Path) -> None:
    assert str(error_from(tmp_path)) == f"trace {tmp_path}: Is a directory"
    assert str(error_from(tmp_path / "none.csv")) == f"trace {tmp_path / 'none.csv'}: No such file or directory"


def test_where_nothing_can_be_written_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="it cannot be written: Is a directory"):
        write_trace(tmp_path, [FULL])
