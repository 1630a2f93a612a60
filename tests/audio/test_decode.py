"""Any format, any rate, any width, any number of channels; and nothing held that need not be."""

from __future__ import annotations

import struct
import tracemalloc
import wave
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.audio.decode import SAMPLE_RATE_HZ, Decoder, PcmStream, decode_all, decode_blocks
from sooner.audio.sniff import Envelope, look_at
from sooner.errors import DecodedTooLargeError, UnreadableAudioError
from sooner.workload.recordings import clip_named, clips

from . import makers

DATA = Path(__file__).parents[1] / "data"
HOSTILE = DATA / "hostile"
JFK = clip_named("jfk")
JFK_SAMPLES = decode_all(JFK.path)
HEADS = [path.read_bytes()[:64] for path in (JFK.path, DATA / "jfk.m4a", DATA / "jfk.mp3", DATA / "weather.ogg")]


def likeness(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of the loudness of two recordings, in steps of 50 ms."""
    steps = min(len(a), len(b)) // 800
    loud = [np.abs(x[: steps * 800]).reshape(steps, 800).mean(axis=1) for x in (a, b)]
    return float(np.corrcoef(*loud)[0, 1])


Maker = Callable[[Path, np.ndarray], Path]

FILES: dict[str, Maker] = {
    **{f"wav {kind}": partial(makers.make_wav, kind=kind) for kind in makers.WAV_KINDS},
    **{
        f"wav {rate_hz} Hz": partial(makers.make_wav, rate_hz=rate_hz)
        for rate_hz in (8_000, 11_025, 22_050, 44_100, 96_000, 192_000)
    },
    **{f"wav {channels} channels": partial(makers.make_wav, channels=channels) for channels in range(2, 9)},
    "wav 24 bit, 44.1 kHz, stereo": partial(makers.make_wav, kind="s24", rate_hz=44_100, channels=2),
    "wav from a pipe": partial(makers.make_wav, declared_bytes=0xFFFFFFFF),
    "wav from a pipe, length 0": partial(makers.make_wav, declared_bytes=0),
    "wav from a pipe, sox's length": partial(makers.make_wav, declared_bytes=0x7FFFF000),
    "wav declared too short": partial(makers.make_wav, declared_bytes=64_000),
    "flac": makers.make_flac,
    "flac 48 kHz, stereo": partial(makers.make_flac, rate_hz=48_000, channels=2),
    "flac from a pipe": makers.make_flac_from_a_pipe,
    "m4a, moov at the end": makers.make_m4a_moov_at_end,
    "m4a, moov first": makers.make_m4a_moov_first,
    "m4a in fragments": makers.make_m4a_fragmented,
    "webm": makers.make_webm,
    "webm without duration": makers.make_webm_without_duration,
    "mp3, vbr": makers.make_mp3_vbr,
    "mp3, vbr without Xing": partial(makers.make_mp3_vbr, xing=False),
    "ogg": makers.make_ogg,
    "ogg, huge granules": makers.make_ogg_huge_granule,
    "ogg, huge last granule": partial(makers.make_ogg_huge_granule, last_only=True),
    "aiff": partial(makers.encode, codec="pcm_s16be", sample_format="s16", container="aiff", rate_hz=11_025),
    **{
        f"video, {container}": partial(makers.make_video_with_audio, container=container)
        for container in ("mp4", "mov", "matroska", "webm", "avi", "mpegts")
    },
}


def measured(path: Path) -> tuple[np.ndarray, str | None]:
    """All samples, and what the client is told of its file."""
    decoder = Decoder(path)
    return np.concatenate(list(decoder.blocks())), decoder.warning()


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path: Path, name: str) -> None:
    """Whatever it is called: decoded in full, and nothing to complain of."""
    samples, warning = measured(FILES[name](tmp_path / "recording.txt", JFK_SAMPLES))
    assert samples.dtype == np.float32
    assert len(samples) / SAMPLE_RATE_HZ == pytest.approx(JFK.audio_s, abs=0.1)
    assert likeness(samples, JFK_SAMPLES) > 0.9
    assert warning is None


@pytest.mark.parametrize("ending", ["wav", "flac", "m3u8", "mp4", "ffconcat"])
def test_the_name_says_nothing(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"jfk.{ending}"
    path.write_bytes((DATA / "jfk.mp3").read_bytes())
    np.testing.assert_array_equal(decode_all(path), decode_all(DATA / "jfk.mp3"))


@pytest.mark.parametrize("garbage", [makers.HTTP_HEADER, makers.random_bytes()], ids=["http", "random"])
@pytest.mark.parametrize(
    "name", ["wav s16", "flac", "mp3, vbr", "mp3, vbr without Xing", "ogg", "m4a, moov at the end", "webm"]
)
def test_garbage_in_front(tmp_path: Path, name: str, garbage: bytes) -> None:
    path = FILES[name](tmp_path / "whole", JFK_SAMPLES)
    samples, warning = measured(makers.with_leading_garbage(path, tmp_path / "late", garbage=garbage))
    assert len(samples) / SAMPLE_RATE_HZ == pytest.approx(JFK.audio_s, abs=0.1)
    assert likeness(samples, JFK_SAMPLES) > 0.9
    assert warning is None


def test_the_bytes_behind_garbage_are_the_file(tmp_path: Path) -> None:
    path = makers.with_leading_garbage(JFK.path, tmp_path / "late", garbage=makers.random_bytes(60_000))
    np.testing.assert_array_equal(decode_all(path), JFK_SAMPLES)


@pytest.mark.parametrize(
    ("name", "is_known"),
    [
        ("wav s16", True),
        ("flac", True),
        ("mp3, vbr", True),
        ("m4a, moov first", True),
        ("m4a in fragments", True),
        ("webm", True),
        ("ogg", True),
        ("aiff", True),
        ("video, avi", True),
        ("wav from a pipe", False),
        ("mp3, vbr without Xing", False),
        ("webm without duration", False),
        ("flac from a pipe", False),
    ],
)
def test_a_file_that_breaks_off(tmp_path: Path, name: str, is_known: bool) -> None:
    """What is there is decoded; and the client is told, where the file shows that there was more."""
    path = makers.truncate(FILES[name](tmp_path / "whole", JFK_SAMPLES), tmp_path / "half")
    samples, warning = measured(path)
    assert 4.5 < len(samples) / SAMPLE_RATE_HZ < 6.0
    assert likeness(samples, JFK_SAMPLES) > 0.9
    assert warning is None or f"{len(samples) / SAMPLE_RATE_HZ:.1f} s" in warning
    assert (warning is not None and "breaks off" in warning) == is_known


def test_a_wav_that_promises_more_breaks_off(tmp_path: Path) -> None:
    path = makers.make_wav(tmp_path / "long.wav", JFK_SAMPLES, declared_bytes=1_000_000)
    samples, warning = measured(path)
    assert len(samples) == len(JFK_SAMPLES)
    assert warning == "the file breaks off after 11.0 s; what is there was transcribed"


def test_an_mp4_that_breaks_off_before_its_index(tmp_path: Path) -> None:
    path = makers.truncate(FILES["m4a, moov at the end"](tmp_path / "whole", JFK_SAMPLES), tmp_path / "half")
    with pytest.raises(UnreadableAudioError, match=r"breaks off .* send the whole file"):
        decode_all(path)


def test_real_files_are_not_complained_of() -> None:
    paths = [
        *(clip.path for clip in clips()),
        *(path for path in DATA.rglob("*.*") if "hostile" not in path.parts),
    ]
    audible = [path for path in paths if path.suffix in {".wav", ".flac", ".mp3", ".m4a", ".ogg", ".aiff"}]
    assert len(audible) >= 15
    assert {path.name: measured(path)[1] for path in audible} == {path.name: None for path in audible}
    assert measured(HOSTILE / "jfk_streaming_header_ffffffff.wav")[1] is None
    assert measured(HOSTILE / "jfk_truncated50pct.mp3")[1] is not None


@pytest.mark.parametrize(("name", "audio_s"), [("jfk.m4a", 11.0), ("jfk.mp3", 11.0), ("weather.ogg", 7.1)])
def test_files_from_the_wild(name: str, audio_s: float) -> None:
    assert len(decode_all(DATA / name)) / SAMPLE_RATE_HZ == pytest.approx(audio_s, abs=0.05)


def test_it_is_what_faster_whisper_decodes() -> None:
    from faster_whisper.audio import decode_audio

    for path in (JFK.path, DATA / "jfk.m4a", DATA / "weather.ogg"):
        np.testing.assert_array_equal(decode_all(path), decode_audio(str(path)))


@pytest.mark.parametrize("name", ["jfk_declared_2s_but_11s.wav", "jfk_streaming_header_ffffffff.wav"])
def test_false_wav_lengths_are_not_believed(name: str) -> None:
    assert len(decode_all(HOSTILE / name)) / SAMPLE_RATE_HZ == pytest.approx(11.0)


def test_chunks_after_the_data_of_a_wav_are_not_audio(tmp_path: Path) -> None:
    path = tmp_path / "tagged.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(32000))
    tags = b"INFOISFT" + struct.pack("<I", 6) + b"Sooner"
    with path.open("ab") as file:
        file.write(b"LIST" + struct.pack("<I", len(tags)) + tags)
    assert len(decode_all(path)) == 16000


@pytest.mark.parametrize("channels", [3, 7, 9, 11, 32, 255])
def test_any_number_of_channels(tmp_path: Path, channels: int) -> None:
    path = tmp_path / "many.wav"
    speech = (decode_all(JFK.path) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(np.repeat(speech[:48_000, np.newaxis], channels, axis=1).tobytes())
    samples = decode_all(path)
    assert len(samples) == 48_000
    assert likeness(samples, decode_all(JFK.path)[:48_000]) > 0.95


def test_a_rate_that_would_expand_a_frame_to_hours_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slow.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(1)
        file.writeframes(bytes(100_000))
    with pytest.raises(UnreadableAudioError, match="sample rate of 1 Hz"):
        decode_all(path)


@pytest.mark.parametrize(
    "script",
    [
        "ffconcat version 1.0\nfile recording\n",
        "#EXTM3U\n#EXTINF:10,\nrecording\n#EXT-X-ENDLIST\n",
        "v=0\nm=audio 5004 RTP/AVP 0\n",
    ],
)
def test_a_script_that_names_files_is_not_followed(tmp_path: Path, script: str) -> None:
    path = tmp_path / "recording"
    path.write_text(script)
    with pytest.raises(UnreadableAudioError):
        decode_all(path)


def test_a_wav_of_countless_chunks_is_not_walked_to_its_end() -> None:
    def wav(num_chunks: int) -> BytesIO:
        return BytesIO(b"RIFF\xff\xff\xff\x7fWAVE" + b"junk\0\0\0\0" * num_chunks + b"data\0\0\0\0" + bytes(1000))

    assert look_at(wav(5)) == Envelope(runs_on=True)
    assert look_at(wav(50_000)) == Envelope()


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"RIFF\0\0\0\0WAVEdata", b"\x1a\x45\xdf\xa3\x81\x42\x82", *HEADS]),
)
def test_any_bytes_can_be_looked_at(rest: bytes, head: bytes) -> None:
    for content in (head + rest, rest + head + rest):
        assert 0 <= look_at(BytesIO(content)).start_bytes <= len(content)


def test_a_damaged_stretch_does_not_spoil_the_rest(tmp_path: Path) -> None:
    damaged = bytearray((DATA / "jfk.m4a").read_bytes())
    damaged[90_000:91_000] = b"\xa5" * 1000
    path = tmp_path / "damaged.m4a"
    path.write_bytes(damaged)
    samples, warning = measured(path)
    assert len(samples) / SAMPLE_RATE_HZ == pytest.approx(11.0, abs=0.5)
    assert warning == "the file is damaged in places; what could be decoded was transcribed"


@pytest.mark.parametrize("name", ["not_audio.wav", "random_bytes.flac"])
def test_what_is_not_audio(name: str) -> None:
    with pytest.raises(UnreadableAudioError, match=r"is not audio.*wav, flac, mp3"):
        decode_all(HOSTILE / name)


def test_what_looks_like_audio_and_is_none(tmp_path: Path) -> None:
    path = makers.make_m4a_moov_first(tmp_path / "noise.m4a", JFK_SAMPLES)
    content = path.read_bytes()
    index = content[: content.index(b"mdat") + 4]
    path.write_bytes(index + b"\xff" * (len(content) - len(index)))
    with pytest.raises(UnreadableAudioError, match=r"nothing in it decodes as aac.*wav, flac, mp3"):
        decode_all(path)


@pytest.mark.parametrize("container", ["mp4", "matroska", "webm"])
def test_a_video_without_sound(tmp_path: Path, container: str) -> None:
    with pytest.raises(UnreadableAudioError, match=r"no audio track \(it holds video\)"):
        decode_all(makers.make_video_with_audio(tmp_path / "mute", None, container=container))


def test_no_sample(tmp_path: Path) -> None:
    for path in (makers.make_zero_samples(tmp_path / "zero.wav"), HOSTILE / "empty.flac"):
        with pytest.raises(UnreadableAudioError, match="no sample of audio"):
            decode_all(path)


@pytest.mark.parametrize("table", ["sizes", "fragments"])
@pytest.mark.parametrize("garbage", [b"", makers.HTTP_HEADER, b"\0\0\0\x08junk", b"\0\0\0\x08trap"])
def test_an_index_that_unpacks_to_gigabytes_is_not_unpacked(tmp_path: Path, table: str, garbage: bytes) -> None:
    path = makers.make_mp4_bomb(tmp_path / "bomb.mp4", table=table)
    path = makers.with_leading_garbage(path, tmp_path / "late.mp4", garbage=garbage)
    with pytest.raises(UnreadableAudioError, match="index names more samples"):
        decode_all(path)


def test_an_index_of_uncompressed_samples_is_no_bomb(tmp_path: Path) -> None:
    """There each sample of sound is one of the index, too: eight million here."""
    samples = np.tile(JFK_SAMPLES, 2)
    path = makers.encode(
        tmp_path / "pcm.mov", samples, codec="pcm_u8", sample_format="u8", container="mov", rate_hz=384_000
    )
    assert path.stat().st_size > 8_000_000
    assert len(decode_all(path)) == len(samples)


def test_what_is_unpacked_is_counted_as_it_comes(tmp_path: Path) -> None:
    path = makers.make_flac(tmp_path / "stereo.flac", JFK_SAMPLES, rate_hz=48_000, channels=2)
    exactly = 11 * 48_000 * 2 * 2
    decoder = Decoder(path, max_decoded_bytes=exactly)
    assert sum(map(len, decoder.blocks())) == 11 * SAMPLE_RATE_HZ
    assert decoder.num_decoded_bytes == exactly
    decoder = Decoder(path, max_decoded_bytes=exactly // 2)
    with pytest.raises(DecodedTooLargeError) as refused:
        list(decoder.blocks())
    assert refused.value.limit_bytes == exactly // 2
    assert decoder.num_decoded_bytes < exactly * 0.6


def test_blocks_are_about_a_second() -> None:
    sizes = [len(block) for block in decode_blocks(JFK.path)]
    assert sum(sizes) == 11 * SAMPLE_RATE_HZ
    assert max(sizes) < 1.5 * SAMPLE_RATE_HZ


def test_stream_reads_forward() -> None:
    whole = decode_all(JFK.path)
    with PcmStream(JFK.path) as stream:
        for start, stop in [(0, 1000), (500, 40_000), (39_000, 39_500), (100_000, 10**9), (150_000, 150_000)]:
            np.testing.assert_array_equal(stream.read(start, stop), whole[start:stop])
        with pytest.raises(ValueError, match="forward only"):
            stream.read(0, 10)


def test_a_closed_stream_has_no_more() -> None:
    stream = PcmStream(JFK.path)
    stream.read(0, 10)
    stream.close()
    stream.close()
    assert len(stream.read(10**6, 10**6 + 10)) == 0


def test_a_long_recording_is_never_in_memory(silent_wav) -> None:
    path = silent_wav(1200.0)
    tracemalloc.start()
    with PcmStream(path) as stream:
        for window in range(40):
            start = window * 30 * SAMPLE_RATE_HZ
            assert len(stream.read(start, start + 30 * SAMPLE_RATE_HZ)) == 30 * SAMPLE_RATE_HZ
            stream.forget_before(start + 28 * SAMPLE_RATE_HZ)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 12 * 2**20  # a window is 1.9 MB; the whole would be 77 MB
