"""Shapes of the reply: subtitles that parsers agree with, words and segments as OpenAI gives them, warnings."""

from __future__ import annotations

import html
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pysubs2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.audio.probe import Audio
from sooner.bench.joined import join_clips
from sooner.core.job import Estimate, Job
from sooner.engines.base import DecodingOptions, Segment
from sooner.engines.fake import FakeEngine
from sooner.engines.whisper import WhisperEngine
from sooner.server.languages import language_name
from sooner.server.parameters import Parameters, ResponseFormat
from sooner.server.responses import done_event, transcript_response, warning_header
from sooner.server.subtitles import srt, vtt
from sooner.service.dispatcher import Transcript
from sooner.workload.recordings import clip_named

from .conftest import Running, Serve

JFK = clip_named("jfk").path
MakeWav = Callable[[float], Path]

TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\n\r \u2028<>&-0123456789"), max_size=30)
SECONDS = st.floats(0, 99 * 3600, allow_nan=False)


def cue_text(text: str) -> str:
    """What a segment's text is in a cue: no line without text, no space around one."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def parsed(subtitles: str, format_: str) -> list[tuple[int, int, str]]:
    cues = pysubs2.SSAFile.from_string(subtitles, format_=format_, keep_html_tags=True)
    return [(cue.start, cue.end, html.unescape(cue.text.replace("\\N", "\n"))) for cue in cues]


def test_subtitles_exactly() -> None:
    segments = (
        Segment(start_s=0.0, end_s=1.2345, text=" And so,\n\n my fellow\tAmericans "),
        Segment(start_s=1.5, end_s=1.5, text=" \n "),
        Segment(start_s=3599.9996, end_s=3599.9997, text="a --> b & <i>c</i>"),
    )
    assert srt(segments) == (
        "1\n00:00:00,000 --> 00:00:01,234\nAnd so,\nmy fellow\tAmericans\n\n"
        "2\n01:00:00,000 --> 01:00:00,001\na -> b & <i>c</i>\n\n"
    )
    assert vtt(segments) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.234\nAnd so,\nmy fellow\tAmericans\n\n"
        "01:00:00.000 --> 01:00:00.001\na --&gt; b &amp; &lt;i&gt;c&lt;/i&gt;\n\n"
    )
    assert (srt(()), vtt(())) == ("", "WEBVTT\n\n")


@given(st.lists(st.tuples(SECONDS, st.floats(0, 30), TEXT), max_size=5))
def test_no_text_breaks_out_of_its_cue(rows: list[tuple[float, float, str]]) -> None:
    """Whatever is said, each cue is one block: number and times, then its text, then an empty line."""
    segments = [Segment(start_s=start, end_s=start + length, text=text) for start, length, text in rows]
    texts = [text for text in (cue_text(text) for *_, text in rows) if text]
    blocks = srt(segments).split("\n\n")
    assert blocks.pop() == ""
    assert [block.split("\n", 2)[2] for block in blocks] == [text.replace("-->", "->") for text in texts]
    assert [block.split("\n", 2)[0] for block in blocks] == [str(n) for n in range(1, len(texts) + 1)]
    head, *blocks = vtt(segments).removesuffix("\n\n").split("\n\n")
    assert head == "WEBVTT"
    assert [html.unescape(block.split("\n", 1)[1]) for block in blocks] == texts
    assert all(block.count("-->") == 1 for block in blocks)


def test_real_subtitles_are_the_segments(serve: Serve, whisper: WhisperEngine, tmp_path: Path) -> None:
    """Parsed back by another program: the times and texts of ``verbose_json``."""
    path = join_clips(tmp_path / "joined.wav", at_least_s=35.0, seed=3).path
    server = serve(whisper, num_workers=2)
    with ThreadPoolExecutor(3) as pool:
        formats = ("verbose_json", "srt", "vtt")
        verbose, *replies = pool.map(lambda format_: server.post(path, response_format=format_), formats)
    segments = verbose.json()["segments"]
    assert len(segments) > 3
    assert segments[-1]["seek"] > 0
    for reply, format_, media_type in zip(replies, ("srt", "vtt"), ("text/plain", "text/vtt"), strict=True):
        assert reply.headers["content-type"] == f"{media_type}; charset=utf-8"
        cues = parsed(reply.text, format_)
        assert [text for *_, text in cues] == [segment["text"].strip() for segment in segments]
        for (start, end, _), segment in zip(cues, segments, strict=True):
            assert abs(start - 1000 * segment["start"]) <= 1
            assert abs(end - 1000 * segment["end"]) <= 1


GRANULARITIES = "timestamp_granularities[]"


@pytest.mark.parametrize(
    ("fields", "given_keys"),
    [
        ({}, {"segments"}),
        ({GRANULARITIES: "segment"}, {"segments"}),
        ({GRANULARITIES: "word"}, {"words"}),
        ({GRANULARITIES: ["word", "segment"]}, {"words", "segments"}),
        ({GRANULARITIES: "segment,word"}, {"words", "segments"}),
        ({"timestamp_granularities": "word"}, {"words"}),
    ],
)
def test_granularities(serve: Serve, fields: dict[str, str], given_keys: set[str]) -> None:
    body = serve().post(JFK, response_format="verbose_json", **fields).json()
    assert body.keys() & {"words", "segments"} == given_keys
    if "words" in given_keys:
        assert body["words"] == [
            {"word": "window", "start": 0.0, "end": 2.75},
            {"word": "0", "start": 2.75, "end": 5.5},
            {"word": "of", "start": 5.5, "end": 8.25},
            {"word": "1", "start": 8.25, "end": 11.0},
        ]


def translate(server: Running, path: Path, **fields: str) -> dict[str, object]:
    reply = server.client.post(
        "/v1/audio/translations", data={"model": "whisper-1", **fields}, files={"file": path.read_bytes()}
    )
    body: dict[str, object] = reply.json()
    return body


def test_translations(serve: Serve, whisper: WhisperEngine) -> None:
    server = serve()
    plain = translate(server, JFK)
    assert plain == {"text": "translated window 0 of 1", "usage": {"type": "duration", "seconds": 11}}
    # OpenAI's endpoint has no language, so one that is sent is not looked at
    verbose = translate(server, JFK, language="tlh", response_format="verbose_json")
    assert (verbose["task"], verbose["language"]) == ("translate", "english")
    refused = translate(serve(whisper), JFK)["error"]
    assert isinstance(refused, dict)
    assert (refused["param"], refused["code"]) == ("model", "invalid_parameter")
    assert "multilingual" in refused["message"]


def test_languages_have_their_english_names() -> None:
    assert [language_name(code) for code in ("en", "es", "zh", "ht", "jw")] == [
        "english",
        "spanish",
        "chinese",
        "haitian creole",
        "javanese",
    ]
    assert language_name("tlh") == "tlh"


def transcript_of(*segments: Segment) -> Transcript:
    job = Job(
        id="a",
        arrival_s=0.0,
        audio_s=5.5,
        estimate=Estimate(estimated_output_tokens=1, windows=1, size_s=1.0),
    )
    return Transcript(
        job=job,
        segments=segments,
        language="en",
        num_tokens=1,
        num_windows=1,
        started_s=0.0,
        finished_s=1.0,
        service_s=1.0,
    )


def parameters(response_format: ResponseFormat) -> Parameters:
    return Parameters(
        language=None,
        response_format=response_format,
        granularities=frozenset({"segment"}),
        stream=False,
        decoding=DecodingOptions(),
        priority=1,
        deadline_s=None,
    )


@pytest.mark.parametrize("response_format", ["json", "verbose_json"])
def test_warnings(response_format: ResponseFormat) -> None:
    warning = "the file breaks off after 5.5 s — what is there\r\nwas transcribed"
    audio = Audio(path=Path("a"), num_samples=88_000, warning=warning)
    reply = transcript_response(transcript_of(), audio, parameters(response_format))
    shown = "the file breaks off after 5.5 s ? what is there was transcribed"
    assert reply.headers["x-sooner-warning"] == shown
    assert b'"warnings":["the file breaks off' in reply.body
    assert b'"seconds":6' in reply.body
    assert done_event(transcript_of(), audio)["warnings"] == [warning]


def test_no_warning() -> None:
    audio = Audio(path=Path("a"), num_samples=88_000)
    assert warning_header(audio) == {}
    assert b"warnings" not in transcript_response(transcript_of(), audio, parameters("json")).body


def test_a_damaged_file_is_transcribed_and_the_reply_says_so(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "cut.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(2 * 16_000 * 10))
    path.write_bytes(path.read_bytes()[:160_044])  # 5 s of 10
    reply = serve(FakeEngine()).post(path)
    assert reply.json()["text"] == "window 0 of 1"
    assert reply.json()["warnings"][0].isascii()
    assert reply.headers["x-sooner-warning"] == reply.json()["warnings"][0]
