"""One run against a real server with the scripted engine: what is written, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sooner import Job
from sooner.bench.audio_pool import AudioPool, Speech
from sooner.bench.client import Answer, Caller, Sending
from sooner.bench.load import Load, Watcher, line_of, measure, plan_load, warm_up
from sooner.core.latency import LatencyRecord
from sooner.engines.fake import FakeEngine
from sooner.errors import ConfigurationError, EngineError
from sooner.evidence.run_file import Failure, Run, RunHeader, read_runs
from sooner.server.app import make_app
from sooner.server.background import BackgroundServer
from sooner.server.options import ServeOptions
from sooner.workload.recordings import clip_named
from sooner.workload.trace import TraceRequest

HEADER = RunHeader(
    source="bench",
    policy="hrrn",
    workload="by hand",
    num_requests=3,
    engine="fake",
    hardware="none",
    version="0",
    notes={"round": 1},
)
FORM = {"model": "whisper-1", "response_format": "json"}
SPEECH = Speech(path=clip_named("jfk").path, audio_s=11.0, transcript="window 0 of two")


def fail_long_ones(job: Job, _index: int) -> None:
    if job.audio_s > 30:
        raise EngineError("too long for me")


@pytest.fixture
def url() -> Iterator[str]:
    options = ServeOptions(port=0)
    with BackgroundServer(make_app(options, engine=FakeEngine(fail_long_ones), num_workers=1), options) as server:
        yield server.url


def requests() -> list[TraceRequest]:
    own = clip_named("jfk").path
    return [
        TraceRequest(arrival_s=0.0, audio_s=11.0, path=own, transcript="window 0 of two"),
        TraceRequest(arrival_s=0.05, audio_s=40.0),
        TraceRequest(arrival_s=0.1, audio_s=3.0, language="en"),
    ]


def load_in(folder: Path) -> Load:
    pool = AudioPool(folder)
    pool.prepare(requests())
    return plan_load(requests(), pool, form=FORM)


def test_a_load_is_what_the_trace_says(tmp_path: Path) -> None:
    load = load_in(tmp_path)
    assert [(one.at_s, one.label) for one in load.sendings] == [(0.0, "0"), (0.05, "1"), (0.1, "2")]
    assert [dict(one.form) for one in load.sendings] == [FORM, FORM, {**FORM, "language": "en"}]
    assert load.languages == [None, None, "en"]
    assert [round(speech.audio_s) for speech in load.speeches] == [11, 40, 3]


def test_a_run_is_written_line_by_line_and_completed(url: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    sent: list[None] = []
    seen: list[Run] = []

    def look(_line: LatencyRecord | Failure) -> None:
        seen.extend(read_runs([path]))

    watcher = Watcher(on_sent=lambda: sent.append(None), on_line=look)
    load = load_in(tmp_path)
    run = measure(url, load, header=HEADER, path=path, caller=Caller(timeout_s=30), watcher=watcher)

    assert len(sent) == 3
    assert [len(one.records) + len(one.failures) for one in seen] == [1, 2, 3]
    assert seen[0].header == HEADER
    assert read_runs([path]) == [run]
    assert {file.name for file in tmp_path.iterdir()} == {"run.jsonl", "joined-40.flac"}

    first, second = run.records
    assert (first.id, first.audio_s, first.language) == ("0", 11.0, None)
    assert (second.id, second.audio_s, second.language) == ("2", pytest.approx(2.99, abs=0.01), "en")
    assert (first.num_windows, first.num_tokens, first.first_text_s) == (1, 90, None)
    assert first.word_error_rate == 0.25  # "window 0 of 1", of four words
    assert 0.1 <= second.arrival_s <= second.finished_s
    assert first.wait_s is not None
    assert first.service_s is not None
    assert first.size_s == pytest.approx(0.4 + 33 * 0.0065)

    (failure,) = run.failures
    assert (failure.id, failure.error) == ("1", "HTTP 500")
    assert "the engine failed on this recording" in failure.message
    assert 0.05 <= failure.arrival_s <= failure.failed_s

    notes = run.header.notes
    num_said = 4 + len(clip_named("austen-0880").transcript.split())
    assert (notes["round"], notes["num_words"]) == (1, num_said)
    assert 0 <= notes["lag_p99_s"] <= notes["lag_max_s"]


def answer(**changes: object) -> Answer:
    known: dict[str, object] = {
        "sending": Sending(path=SPEECH.path, at_s=2.0, label="0"),
        "request_id": "",
        "status": 200,
        "text": "",
        "error": None,
        "due_s": 102.0,
        "sent_s": 102.5,
        "first_s": 103.0,
        "answered_s": 104.0,
        "is_streamed": True,
        **dict.fromkeys(("wait_s", "service_s", "size_s", "num_tokens", "num_windows")),
        **changes,
    }
    return Answer(**known)  # type: ignore[arg-type]


def test_times_are_seconds_since_the_run_began_and_of_the_real_sending() -> None:
    load = Load(sendings=[answer().sending], speeches=[SPEECH], languages=[None])
    line = line_of(answer(), load)
    assert isinstance(line, LatencyRecord)
    assert (line.arrival_s, line.first_text_s, line.finished_s) == (2.5, 3.0, 4.0)
    assert (line.e2e_s, line.ttft_s, line.wait_s, line.word_error_rate) == (1.5, 0.5, None, None)
    whole = line_of(answer(is_streamed=False), load)
    assert isinstance(whole, LatencyRecord)
    assert whole.first_text_s is None
    failure = line_of(answer(error="timeout", text="x" * 10_000), load)
    assert isinstance(failure, Failure)
    assert (failure.arrival_s, failure.failed_s, failure.error, len(failure.message)) == (2.5, 4.0, "timeout", 500)


def test_a_transcript_without_words_has_no_word_error_rate(url: str, tmp_path: Path) -> None:
    speech = Speech(path=SPEECH.path, audio_s=11.0, transcript="…!")
    load = Load(sendings=[Sending(path=SPEECH.path, at_s=0.0, label="0")], speeches=[speech], languages=[None])
    watcher = Watcher(on_sent=lambda: None, on_line=lambda _: None)
    run = measure(url, load, header=HEADER, path=tmp_path / "run.jsonl", caller=Caller(), watcher=watcher)
    assert [one.word_error_rate for one in run.records] == [None]
    assert (run.header.notes["num_words"], run.header.notes["num_word_errors"]) == (0, 0)


def test_a_warm_up_that_gets_no_text_ends_the_measurement(url: str, tmp_path: Path) -> None:
    load = load_in(tmp_path)
    warm_up(url, load, number=2, caller=Caller())
    wrong = plan_load(requests()[:1], pooled(tmp_path), form={"model": "no-such-model"})
    with pytest.raises(ConfigurationError, match=r"answers no request: HTTP 404: .*no-such-model"):
        warm_up(url, wrong, number=2, caller=Caller())
    with pytest.raises(ConfigurationError, match="ClientConnectorError"):
        warm_up("http://127.0.0.1:1", load, number=1, caller=Caller())
    warm_up("http://127.0.0.1:1", load, number=0, caller=Caller())


def pooled(folder: Path) -> AudioPool:
    pool = AudioPool(folder)
    pool.prepare(requests()[:1])
    return pool


def test_a_run_that_is_broken_off_keeps_what_it_had(url: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    def interrupt(_line: LatencyRecord | Failure) -> None:
        raise KeyboardInterrupt

    watcher = Watcher(on_sent=lambda: None, on_line=interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(url, load_in(tmp_path), header=HEADER, path=path, caller=Caller(), watcher=watcher)
    (run,) = read_runs([path])
    assert run.header == HEADER
    assert len(run.records) + len(run.failures) == 1
