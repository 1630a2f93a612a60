"""Files as they come from the wild, each made of given samples.

Every maker writes one file and returns its path. ``samples`` are mono at 16 kHz, float32 in [-1, 1], shape (n,).
"""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np

RATE_HZ = 16_000

WAV_KINDS = {  # kind: FFmpeg's codec and sample format
    "u8": ("pcm_u8", "u8"),
    "s16": ("pcm_s16le", "s16"),
    "s24": ("pcm_s24le", "s32"),
    "s32": ("pcm_s32le", "s32"),
    "f32": ("pcm_f32le", "flt"),
    "f64": ("pcm_f64le", "dbl"),
    "mulaw": ("pcm_mulaw", "s16"),
    "alaw": ("pcm_alaw", "s16"),
}
LAYOUTS = ("mono", "stereo", "2.1", "quad", "5.0", "5.1", "6.1", "7.1")
"""By number of channels, from one."""


class _Pipe(io.RawIOBase):
    """Takes bytes as a pipe does: no way back to mend a header."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.written += data
        return len(data)


def _frames(
    samples: np.ndarray, sample_format: str, layout: str, rate_hz: int, size: int
) -> Iterator[av.AudioFrame]:
    """The samples in another format, ``size`` at a time."""
    resampler = av.AudioResampler(format=sample_format, layout=layout, rate=rate_hz, frame_size=size)
    source = av.AudioFrame.from_ndarray(samples.astype(np.float32)[np.newaxis, :], format="flt", layout="mono")
    source.sample_rate = RATE_HZ
    for frame in (source, None):
        yield from resampler.resample(frame)


def encode(
    path: Path,
    samples: np.ndarray,
    *,
    codec: str,
    sample_format: str,
    container: str | None = None,
    rate_hz: int = RATE_HZ,
    layout: str = "mono",
    codec_options: dict[str, str] | None = None,
    container_options: dict[str, str] | None = None,
    pipe: bool = False,
) -> Path:
    """Write ``samples`` with any of FFmpeg's encoders; ``pipe``: into something that cannot be rewound."""
    target = _Pipe() if pipe else str(path)
    with av.open(target, "w", format=container, container_options=container_options or {}) as out:
        stream = out.add_stream(codec, rate=rate_hz, layout=layout, format=sample_format)
        stream.codec_context.options = codec_options or {}
        stream.codec_context.open()
        size = stream.codec_context.frame_size or 1024
        for frame in _frames(samples, sample_format, layout, rate_hz, size):
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    if isinstance(target, _Pipe):
        path.write_bytes(bytes(target.written))
    return path


def make_wav(
    path: Path,
    samples: np.ndarray,
    *,
    kind: str = "s16",
    rate_hz: int = RATE_HZ,
    channels: int = 1,
    declared_bytes: int | None = None,
) -> Path:
    """A WAV of one of ``WAV_KINDS``; ``declared_bytes`` is what its data chunk claims instead of the truth.

    0xFFFFFFFF and 0 are what programs write that stream a WAV into a pipe.
    """
    codec, sample_format = WAV_KINDS[kind]
    layout = LAYOUTS[channels - 1]
    encode(
        path, samples, codec=codec, sample_format=sample_format, container="wav", rate_hz=rate_hz, layout=layout
    )
    if declared_bytes is not None:
        content = bytearray(path.read_bytes())
        at = content.index(b"data") + 4
        content[at : at + 4] = struct.pack("<I", declared_bytes)
        content[4:8] = struct.pack("<I", min(0xFFFFFFFF, declared_bytes + at - 4))
        path.write_bytes(content)
    return path


def make_flac(path: Path, samples: np.ndarray, *, rate_hz: int = RATE_HZ, channels: int = 1) -> Path:
    """A FLAC that says how many samples it holds."""
    layout = LAYOUTS[channels - 1]
    return encode(
        path, samples, codec="flac", sample_format="s16", container="flac", rate_hz=rate_hz, layout=layout
    )


def make_flac_from_a_pipe(path: Path, samples: np.ndarray) -> Path:
    """A FLAC whose header leaves the number of samples open."""
    return encode(path, samples, codec="flac", sample_format="s16", container="flac", pipe=True)


def make_m4a_moov_at_end(path: Path, samples: np.ndarray) -> Path:
    """AAC in MP4 whose index comes last, as most recorders write it."""
    return encode(path, samples, codec="aac", sample_format="fltp", container="mp4", rate_hz=44_100)


def make_m4a_moov_first(path: Path, samples: np.ndarray) -> Path:
    """AAC in MP4 whose index comes first ("fast start"), so that the front half of the file can be read."""
    options = {"movflags": "faststart"}
    return encode(
        path,
        samples,
        codec="aac",
        sample_format="fltp",
        container="mp4",
        rate_hz=44_100,
        container_options=options,
    )


def make_m4a_fragmented(path: Path, samples: np.ndarray) -> Path:
    """AAC in MP4 in fragments, as browsers record it."""
    options = {"movflags": "empty_moov+default_base_moof+frag_every_frame"}
    return encode(
        path,
        samples,
        codec="aac",
        sample_format="fltp",
        container="mp4",
        rate_hz=44_100,
        container_options=options,
        pipe=True,
    )


def make_webm(path: Path, samples: np.ndarray) -> Path:
    """Opus in WebM with a duration."""
    return encode(path, samples, codec="libopus", sample_format="flt", container="webm", rate_hz=48_000)


def make_webm_without_duration(path: Path, samples: np.ndarray) -> Path:
    """Opus in WebM without duration and sizes, as browsers record it."""
    return encode(path, samples, codec="libopus", sample_format="flt", container="webm", rate_hz=48_000, pipe=True)


def make_mp3_vbr(path: Path, samples: np.ndarray, *, xing: bool = True) -> Path:
    """MP3 of varying bit rate, with or without the Xing header that tells its length."""
    return encode(
        path,
        samples,
        codec="libmp3lame",
        sample_format="fltp",
        container="mp3",
        rate_hz=44_100,
        codec_options={"flags": "+qscale", "global_quality": "590"},
        container_options={"write_xing": str(int(xing)), "id3v2_version": "3" if xing else "0"},
    )


def make_ogg(path: Path, samples: np.ndarray) -> Path:
    """Opus in Ogg."""
    return encode(path, samples, codec="libopus", sample_format="flt", container="ogg", rate_hz=48_000)


def make_ogg_huge_granule(
    path: Path, samples: np.ndarray, *, offset: int = 2**40, last_only: bool = False
) -> Path:
    """Opus in Ogg whose granule positions are ``offset`` samples too high: all of them, or the last page's."""
    make_ogg(path, samples)
    content = bytearray(path.read_bytes())
    pages = list(_ogg_pages(content))[2:]  # behind the two pages of headers
    for start, stop in pages[-1:] if last_only else pages:
        granule = struct.unpack_from("<q", content, start + 6)[0]
        struct.pack_into("<q", content, start + 6, granule + offset)
        struct.pack_into("<I", content, start + 22, 0)
        struct.pack_into("<I", content, start + 22, _ogg_checksum(content[start:stop]))
    path.write_bytes(content)
    return path


def _ogg_pages(content: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    while content[start : start + 4] == b"OggS":
        num_segments = content[start + 26]
        stop = start + 27 + num_segments + sum(content[start + 27 : start + 27 + num_segments])
        yield start, stop
        start = stop


def _ogg_checksum(page: bytes) -> int:
    """RFC 3533, §6: CRC-32 with polynomial 0x04c11db7, no reflection, initial value 0."""
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1) ^ (0x04C11DB7 if crc & 0x80000000 else 0)
            crc &= 0xFFFFFFFF
    return crc


def make_video_with_audio(path: Path, samples: np.ndarray | None, *, container: str = "mp4") -> Path:
    """A video of a grey square with this sound; ``None``: without an audio track."""
    codec, sample_format, rate_hz = ("libopus", "flt", 48_000) if container == "webm" else ("aac", "fltp", 44_100)
    with av.open(str(path), "w", format=container) as out:
        video = out.add_stream("libvpx" if container == "webm" else "mpeg4", rate=2)
        video.width = video.height = 64
        video.pix_fmt = "yuv420p"
        sound = (
            None if samples is None else out.add_stream(codec, rate=rate_hz, layout="mono", format=sample_format)
        )
        num_pictures = 1 if samples is None else 2 * len(samples) // RATE_HZ + 1
        for _ in range(num_pictures):
            out.mux(video.encode(av.VideoFrame(64, 64, "yuv420p")))  # opens both encoders
        out.mux(video.encode(None))
        if sound is not None and samples is not None:
            for frame in _frames(samples, sample_format, "mono", rate_hz, sound.codec_context.frame_size):
                out.mux(sound.encode(frame))
            out.mux(sound.encode(None))
    return path


def truncate(source: Path, target: Path, *, keep: float = 0.5) -> Path:
    """The first part of ``source``, as an upload that broke off."""
    content = source.read_bytes()
    target.write_bytes(content[: round(len(content) * keep)])
    return target


HTTP_HEADER = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nConnection: close\r\n\r\n"


def random_bytes(num_bytes: int = 700, seed: int = 0) -> bytes:
    """The same noise each time."""
    return np.random.default_rng(seed).bytes(num_bytes)


def with_leading_garbage(source: Path, target: Path, *, garbage: bytes = HTTP_HEADER) -> Path:
    """``source`` behind bytes that do not belong to it."""
    target.write_bytes(garbage + source.read_bytes())
    return target


def make_zero_samples(path: Path) -> Path:
    """A WAV with a header and nothing behind it."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
    return path


def make_not_audio(path: Path) -> Path:
    """Text."""
    path.write_text("Ask not what your country can do for you.\n" * 50)
    return path


def make_bomb(path: Path, *, audio_s: float = 3 * 3600.0, rate_hz: int = RATE_HZ, channels: int = 1) -> Path:
    """Hours of silence in a few kilobytes: FLAC whose every frame says "65,535 zeros" in some 17 bytes (RFC 9639).

    Args:
        audio_s: seconds of silence.
        rate_hz: up to 655,350.
        channels: up to 8.
    """
    block = 65_535
    num_blocks = round(audio_s * rate_hz / block)
    facts = rate_hz << 44 | (channels - 1) << 41 | 15 << 36 | num_blocks * block
    streaminfo = struct.pack(">HH6x", block, block) + facts.to_bytes(8, "big") + bytes(16)
    content = bytearray(b"fLaC\x80\x00\x00\x22" + streaminfo)
    for number in range(num_blocks):
        header = (
            b"\xff\xf8\x70" + bytes([(channels - 1) << 4 | 0x08]) + _utf8(number) + struct.pack(">H", block - 1)
        )
        frame = header + bytes([_crc(header, 8, 0x07)]) + bytes(3 * channels)  # each channel: "constant", value 0
        content += frame + struct.pack(">H", _crc(frame, 16, 0x8005))
    path.write_bytes(content)
    return path


def make_mp4_bomb(path: Path, *, num_samples: int = 50_000_000, table: str = "sizes") -> Path:
    """An MP4 of 2 kB whose index unpacks to ``num_samples`` entries: ``sizes``, ``times`` or ``fragments``."""
    silence = np.zeros(RATE_HZ, dtype=np.float32)
    content = bytearray(
        (make_m4a_fragmented if table == "fragments" else make_m4a_moov_first)(path, silence).read_bytes()
    )
    if table == "fragments":
        at = content.rindex(b"trun") + 4
        struct.pack_into(">II", content, at, 1, num_samples)  # with an offset, and nothing for each sample
    elif table == "sizes":
        struct.pack_into(">II", content, content.index(b"stsz") + 8, 1, num_samples)
        struct.pack_into(">III", content, content.index(b"stsc") + 12, 1, num_samples, 1)
    else:
        struct.pack_into(">II", content, content.index(b"stts") + 12, num_samples, 1024)
    path.write_bytes(content)
    return path


STBL = (b"moov", b"trak", b"mdia", b"minf", b"stbl")
"""Where the tables of an MP4's track are."""


def box(name: bytes, content: bytes = b"") -> bytes:
    """A box of an MP4."""
    return struct.pack(">I4s", 8 + len(content), name) + content


def into_mp4(content: bytes, added: bytes, *, where: tuple[bytes, ...] = STBL) -> bytes:
    """An MP4, whose index comes last, with ``added`` at the end of the first box at this path."""
    result, begin, end, sizes = bytearray(content), 0, len(content), []
    for name in where:
        at = begin
        while result[at + 4 : at + 8] != name:
            at += int.from_bytes(result[at : at + 4], "big")
        sizes.append(at)
        begin, end = at + 8, at + int.from_bytes(result[at : at + 4], "big")
    result[end:end] = added
    for at in sizes:
        struct.pack_into(">I", result, at, int.from_bytes(result[at : at + 4], "big") + len(added))
    return bytes(result)


def make_adts_noise(path: Path, *, num_packets: int, first: bytes = b"") -> Path:
    """AAC's packets of eleven bytes each, of which not one decodes, behind ``first``."""
    size = 11
    header = (0xFFF1 << 40 | 1 << 38 | 8 << 34 | 1 << 30 | size << 13 | 0x7FF << 2).to_bytes(7, "big")
    path.write_bytes(first + (header + b"\xff" * (size - 7)) * num_packets)
    return path


def make_ogg_of_many_channels(path: Path, samples: np.ndarray, *, channels: int) -> Path:
    """Opus in Ogg with any number of channels, which FFmpeg decodes each apart."""
    layout = f"{channels} channels"
    rate_hz = 48_000
    resampled = np.repeat(samples.astype(np.float32), rate_hz // RATE_HZ)
    packed = np.repeat(resampled, channels)[np.newaxis, :]
    source = av.AudioFrame.from_ndarray(packed, format="flt", layout=layout)
    source.sample_rate = rate_hz
    cutter = av.AudioResampler(format="flt", layout=layout, rate=rate_hz, frame_size=960)
    with av.open(str(path), "w", format="ogg") as out:
        stream = out.add_stream("libopus", rate=rate_hz, options={"mapping_family": "255"})
        stream.codec_context.layout = layout
        stream.codec_context.format = "flt"
        for frame in [*cutter.resample(source), *cutter.resample(None)]:
            frame.pts = None
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def _utf8(number: int) -> bytes:
    return chr(number).encode("utf-8", "surrogatepass")


def _crc(data: bytes, num_bits: int, polynomial: int) -> int:
    crc, top, mask = 0, 1 << (num_bits - 1), (1 << num_bits) - 1
    for byte in data:
        crc ^= byte << (num_bits - 8)
        for _ in range(8):
            crc = ((crc << 1) ^ (polynomial if crc & top else 0)) & mask
    return crc
