"""Any format, any rate, any width, any number of channels; and nothing held that need not be."""

from __future__ import annotations

import struct
import tracemalloc
import wave
from pathlib import Path

import av
import numpy as np
import pytest

from sooner.audio.decode import SAMPLE_RATE_HZ, PcmStream, _wav_options, decode_all, decode_blocks
from sooner.errors import UnreadableAudioError
from sooner.workload.recordings import clip_named

DATA = Path(__file__).parents[1] / "data"
HOSTILE = DATA / "hostile"
JFK = clip_named("jfk")


def encode(source: Path, target: Path, *, codec: str, rate_hz: int, layout: str, sample_format: str) -> None:
    """Write ``source`` in another format."""
    with av.open(str(source)) as inp, av.open(str(target), "w") as out:
        stream = out.add_stream(codec, rate=rate_hz, layout=layout, format=sample_format)
        resampler = av.AudioResampler(
            format=sample_format,
            layout=layout,
            rate=rate_hz,
            frame_size=stream.codec_context.frame_size or 1024,
        )
        for frame in [*inp.decode(audio=0), None]:
            for piece in resampler.resample(frame):
                out.mux(stream.encode(piece))
        out.mux(stream.encode(None))


def likeness(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of the loudness of two recordings, in steps of 50 ms."""
    steps = min(len(a), len(b)) // 800
    loud = [np.abs(x[: steps * 800]).reshape(steps, 800).mean(axis=1) for x in (a, b)]
    return float(np.corrcoef(*loud)[0, 1])


@pytest.mark.parametrize(
    ("ending", "codec", "rate_hz", "layout", "sample_format"),
    [
        ("wav", "pcm_u8", 8000, "mono", "u8"),
        ("wav", "pcm_s24le", 44100, "stereo", "s32"),
        ("wav", "pcm_f32le", 96000, "mono", "flt"),
        ("wav", "pcm_s16le", 22050, "5.1", "s16"),
        ("wav", "pcm_s16le", 16000, "octagonal", "s16"),
        ("wav", "pcm_mulaw", 8000, "mono", "s16"),
        ("flac", "flac", 48000, "stereo", "s16"),
        ("mp3", "libmp3lame", 44100, "stereo", "fltp"),
        ("m4a", "aac", 44100, "mono", "fltp"),
        ("mp4", "aac", 48000, "stereo", "fltp"),
        ("ogg", "libopus", 48000, "mono", "flt"),
        ("webm", "libopus", 48000, "stereo", "flt"),
        ("aiff", "pcm_s16be", 11025, "mono", "s16"),
    ],
)
def test_formats(tmp_path: Path, ending: str, codec: str, rate_hz: int, layout: str, sample_format: str) -> None:
    path = tmp_path / f"jfk.{ending}"
    encode(JFK.path, path, codec=codec, rate_hz=rate_hz, layout=layout, sample_format=sample_format)
    samples = decode_all(path)
    assert samples.dtype == np.float32
    assert len(samples) / SAMPLE_RATE_HZ == pytest.approx(JFK.audio_s, abs=0.1)
    assert likeness(samples, decode_all(JFK.path)) > 0.95


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


def test_a_wav_of_countless_chunks_is_not_walked_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "chunks.wav"
    path.write_bytes(b"RIFF\xff\xff\xff\x7fWAVE" + b"junk\0\0\0\0" * 5000 + b"data\0\0\0\0" + bytes(1000))
    assert _wav_options(path) == {}
    path.write_bytes(b"RIFF\xff\xff\xff\x7fWAVE" + b"junk\0\0\0\0" * 5 + b"data\0\0\0\0" + bytes(1000))
    assert _wav_options(path) == {"ignore_length": "1"}


def test_a_damaged_stretch_does_not_spoil_the_rest(tmp_path: Path) -> None:
    damaged = bytearray((DATA / "jfk.mp3").read_bytes())
    damaged[30_000:31_000] = b"\xa5" * 1000
    path = tmp_path / "damaged.mp3"
    path.write_bytes(damaged)
    assert len(decode_all(path)) / SAMPLE_RATE_HZ == pytest.approx(11.0, abs=0.5)


@pytest.mark.parametrize("name", ["not_audio.wav", "random_bytes.flac"])
def test_what_is_not_audio(name: str) -> None:
    with pytest.raises(UnreadableAudioError, match="wav, flac, mp3"):
        decode_all(HOSTILE / name)


def test_a_video_without_sound(tmp_path: Path) -> None:
    path = tmp_path / "mute.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        out.mux(stream.encode(av.VideoFrame(64, 64, "yuv420p")))
        out.mux(stream.encode(None))
    with pytest.raises(UnreadableAudioError):
        decode_all(path)


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


def test_an_hour_is_never_in_memory(silent_wav) -> None:
    path = silent_wav(3600.0)
    tracemalloc.start()
    with PcmStream(path) as stream:
        for window in range(120):
            start = window * 30 * SAMPLE_RATE_HZ
            assert len(stream.read(start, start + 30 * SAMPLE_RATE_HZ)) == 30 * SAMPLE_RATE_HZ
            stream.forget_before(start + 28 * SAMPLE_RATE_HZ)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 12 * 2**20  # a window is 1.9 MB; the whole hour would be 230 MB
