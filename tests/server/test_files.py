"""Any real file, over HTTP: what is sent gets its text, or an error that says what is wrong with it.

All files are sent at once to two servers, as strangers would, each under the same meaningless name: only the bytes
tell what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest

from sooner.audio.decode import decode_blocks
from sooner.bench.accuracy import word_errors
from sooner.engines.whisper import WhisperEngine
from sooner.server.app import make_app
from sooner.server.background import BackgroundServer
from sooner.server.options import ServeOptions
from sooner.workload.recordings import clip_named, clips
from tests.audio import makers

DATA = Path(__file__).parents[1] / "data"
JFK = clip_named("jfk").transcript
CUTTER = "i'm from the cutter lying off the coast"
HALF = "and so my fellow americans ask not"
MAX_ERROR_RATE = 0.3  # of a tiny model; an empty text, another file's and a doubled one are far outside
NUM_THREADS = 6


@dataclass(frozen=True, kw_only=True)
class Case:
    """A file and what is to come of it.

    Attributes:
        make: writes it into a folder, or says where it is.
        said: what is said in it; ``None`` where an error is to come.
        error: status, code and a part of the message.
        warns: whether the reply is to say that the file is damaged.
        language: what is spoken.
        seconds: its length, ``None`` where it does not matter.
    """

    make: Callable[[Path], Path]
    said: str | None = None
    error: tuple[int, str, str] | None = None
    warns: bool = False
    language: str = "english"
    seconds: float | None = None


def shipped(name: str, said: str, seconds: float, *, language: str = "english", warns: bool = False) -> Case:
    return Case(make=lambda _: DATA / name, said=said, seconds=seconds, language=language, warns=warns)


def samples_of(name: str) -> np.ndarray:
    return np.concatenate(list(decode_blocks(clip_named(name).path)))


def made(
    maker: Callable[..., Path], *, said: str = CUTTER, seconds: float | None = 2.1, **options: object
) -> Case:
    """A file made of two seconds of speech."""
    return Case(
        make=lambda folder: maker(folder / "made", samples_of("7902-96591-0000"), **options),
        said=said,
        seconds=seconds,
    )


def cut(maker: Callable[..., Path], keep: float = 0.5, **options: object) -> Case:
    """The first part of a file made of eleven seconds of speech."""

    def make(folder: Path) -> Path:
        return makers.truncate(maker(folder / "whole", samples_of("jfk"), **options), folder / "cut", keep=keep)

    return Case(make=make, said=HALF, warns=True)


def behind(garbage: bytes, maker: Callable[..., Path]) -> Case:
    def make(folder: Path) -> Path:
        whole = maker(folder / "whole", samples_of("7902-96591-0000"))
        return makers.with_leading_garbage(whole, folder / "made", garbage=garbage)

    return Case(make=make, said=CUTTER, seconds=2.1)


def refused(make: Callable[[Path], Path], code: str, message: str, status: int = 400) -> Case:
    return Case(make=make, error=(status, code, message))


def written(content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "made"
        path.write_bytes(content)
        return path

    return make


REAL = {
    **{
        clip.path.name: Case(make=lambda _, clip=clip: clip.path, said=clip.transcript, seconds=clip.audio_s)
        for clip in clips()
    },
    "jfk.m4a": shipped("jfk.m4a", JFK, 11.0),
    "jfk.mp3": shipped("jfk.mp3", JFK, 11.0),
    "jfk 44 kHz stereo 24 bit": shipped("speech/jfk_44k_stereo_24bit.flac", JFK, 11.0),
    "weather.ogg": shipped(
        "weather.ogg", "thunderstorms could produce large hail isolated tornadoes and heavy rain", 7.1
    ),
    "weather.flac": shipped(
        "speech/weather.flac", "thunderstorms could produce large hail isolated tornadoes and heavy rain", 7.1
    ),
    "1221-135766-0002.wav": shipped(
        "speech/1221-135766-0002.wav",
        "yet these thoughts affected hester prynne less with hope than apprehension",
        4.8,
    ),
    "AMI headset": shipped(
        "speech/ES2011a.Headset-0-40s-46s.wav", "i'm abigail claflin you can call me abbie", 6.0
    ),
    "LJ002-0020.wav": shipped("speech/LJ002-0020.wav", "in 1813", 1.5),
    "LJ002-0035.wav": shipped("speech/LJ002-0035.wav", "8 the press yard", 1.6),
    "VADAudio.wav": shipped("speech/VADAudio.wav", JFK, 26.9),
    "32 bit": shipped("speech/audio-mono-32-bit-44100Hz.wav", "one two three", 2.7),
    "8 bit": shipped("speech/audio-mono-8-bit-44100Hz.wav", "one two three", 2.7),
    "16 bit": shipped("speech/english.wav", "one two three", 2.7),
    "Common Voice": shipped("speech/common_voice_en_651325.mp3", "every purchase is a vote", 2.4),
    "FLEURS": shipped("speech/fleurs_en_1.wav", "television reports show white smoke coming from the plant", 5.0),
    "libri-1088": shipped(
        "speech/libri-1088-134315-0000.wav",
        "as you know and as i have given you proof i have the greatest admiration in the world for one whose work "
        "for humanity has won such universal recognition i hope that we shall both forget this unhappy morning "
        "and that you will give me an opportunity of rendering to you in person",
        16.0,
    ),
}
HOSTILE = {
    "declares 2 s, holds 11": shipped("hostile/jfk_declared_2s_but_11s.wav", JFK, 11.0),
    "streaming header": shipped("hostile/jfk_streaming_header_ffffffff.wav", JFK, 11.0),
    "half an mp3": shipped("hostile/jfk_truncated50pct.mp3", HALF + " what", 5.5, warns=True),
    "speech, then silence": shipped(
        "hostile/speech3.5s_then_silence_to_30s.flac", "concord returned to its place amidst the tents", 30.0
    ),
    "silence": shipped("hostile/silence_zero_30s.flac", "", 30.0),
    "100 ms": shipped("hostile/short_100ms.wav", "", 0.1),
    "empty": refused(lambda _: DATA / "hostile" / "empty.flac", "unreadable_audio", "no sample"),
    "text": refused(lambda _: DATA / "hostile" / "not_audio.wav", "unreadable_audio", "not audio"),
    "random": refused(lambda _: DATA / "hostile" / "random_bytes.flac", "unreadable_audio", "not audio"),
}
MADE = {
    **{f"wav {kind}": made(makers.make_wav, kind=kind) for kind in makers.WAV_KINDS},
    **{f"wav {rate} Hz": made(makers.make_wav, rate_hz=rate) for rate in (8_000, 11_025, 44_100, 96_000, 192_000)},
    **{f"wav of {number} channels": made(makers.make_wav, channels=number) for number in (2, 3, 6, 8)},
    "wav into a pipe": made(makers.make_wav, declared_bytes=0xFFFFFFFF),
    "wav that declares nothing": made(makers.make_wav, declared_bytes=0),
    "flac into a pipe": made(makers.make_flac_from_a_pipe),
    "m4a, index last": made(makers.make_m4a_moov_at_end),
    "m4a, index first": made(makers.make_m4a_moov_first),
    "m4a, fragmented": made(makers.make_m4a_fragmented),
    "webm": made(makers.make_webm),
    "webm without duration": made(makers.make_webm_without_duration),
    "mp3 vbr with Xing": made(makers.make_mp3_vbr),
    "mp3 vbr without": made(makers.make_mp3_vbr, xing=False),
    "ogg": made(makers.make_ogg),
    "ogg, huge granules": made(makers.make_ogg_huge_granule),
    "ogg, huge last granule": made(makers.make_ogg_huge_granule, last_only=True),
    "video mp4": made(makers.make_video_with_audio),
    "video webm": made(makers.make_video_with_audio, container="webm"),
    "video mkv": made(makers.make_video_with_audio, container="matroska"),
    "half a wav": cut(makers.make_wav),
    "half a flac": cut(makers.make_flac),
    "half an mp3 with Xing": cut(makers.make_mp3_vbr),
    "half an m4a": cut(makers.make_m4a_moov_first),
    "wav behind an HTTP header": behind(makers.HTTP_HEADER, makers.make_wav),
    "flac behind noise": behind(makers.random_bytes(), makers.make_flac),
    "mp3 behind noise": behind(makers.random_bytes(), makers.make_mp3_vbr),
    "ogg behind noise": behind(makers.random_bytes(), makers.make_ogg),
    "10 ms": Case(
        make=lambda folder: makers.make_wav(folder / "made", samples_of("jfk")[:160]), said="", seconds=0.01
    ),
    "no audio track": refused(
        lambda folder: makers.make_video_with_audio(folder / "made", None), "unreadable_audio", "no audio"
    ),
    "no sample": refused(
        lambda folder: makers.make_zero_samples(folder / "made"), "unreadable_audio", "no sample"
    ),
    "playlist": refused(
        written(b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"), "unreadable_audio", "not audio"
    ),
    "hours in kilobytes": refused(lambda folder: makers.make_bomb(folder / "made"), "audio_too_long", "600", 413),
    "gigabytes in kilobytes": refused(
        lambda folder: makers.make_bomb(folder / "made", audio_s=120.0, rate_hz=655_350, channels=8),
        "decoded_too_large",
        "unpacks",
        413,
    ),
}
SPOKEN = {
    "Spanish": shipped(
        "es_test_clip.wav",
        "esta es una grabación de librivox todas las grabaciones de librivox son del dominio público",
        7.7,
        language="spanish",
    ),
    "French": shipped("french.aiff", "et c'est la dictée numéro 1", 2.5, language="french"),
    "Chinese": shipped("chinese.flac", "砸自己的脚", 1.0, language="chinese"),
}
TINY = {**REAL, **HOSTILE, **MADE}


def send(url: str, case: Case, folder: Path) -> httpx.Response:
    folder.mkdir()
    content = case.make(folder).read_bytes()
    return httpx.post(
        f"{url}/v1/audio/transcriptions",
        data={"model": "whisper-1", "response_format": "verbose_json"},
        files={"file": ("recording.txt", content, "text/plain")},
        timeout=120,
    )


@pytest.fixture(scope="module")
def replies(
    whisper: WhisperEngine, whisper_base: WhisperEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Future[httpx.Response]]]:
    """The reply to each file, as a few clients at once get them."""
    folder = tmp_path_factory.mktemp("files")
    options = ServeOptions(port=0, max_audio_s=600.0, max_decoded_bytes=64 * 2**20)
    with ExitStack() as stack, ThreadPoolExecutor(NUM_THREADS) as pool:
        found = {}
        for engine, cases in ((whisper, TINY), (whisper_base, SPOKEN)):
            app = make_app(options, engine=engine, num_workers=2)
            url = stack.enter_context(BackgroundServer(app, options)).url
            for name, case in cases.items():
                found[name] = pool.submit(send, url, case, folder / name)
        yield found
        for future in found.values():
            future.cancel()  # where one test alone was asked for


@pytest.mark.parametrize("name", [*TINY, *SPOKEN])
def test_file(replies: Mapping[str, Future[httpx.Response]], name: str) -> None:
    case, reply = (TINY | SPOKEN)[name], replies[name].result()
    body = reply.json()
    if case.error is not None:
        status, code, message = case.error
        assert (reply.status_code, body["error"]["code"], body["error"]["param"]) == (status, code, "file")
        assert message in body["error"]["message"]
        return
    assert reply.status_code == 200, body
    assert ("x-sooner-warning" in reply.headers) == ("warnings" in body) == case.warns, body.get("warnings")
    assert case.said is not None
    if not case.said:
        assert body["text"] == ""
    else:
        rate = word_errors(case.said, body["text"]).rate
        assert rate is not None
        assert rate <= MAX_ERROR_RATE, body["text"]
        assert body["language"] == case.language
    if case.seconds is not None:
        assert body["duration"] == pytest.approx(case.seconds, abs=0.15)
