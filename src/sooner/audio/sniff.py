"""Where in an upload the recording begins, and whether it is all there: read from its bytes alone.

A name or a content type says nothing. What begins with no known signature, such as a recording saved together
with the HTTP header it came with, is searched for one. Lengths that a container declares are held against the
size of the file: a header that promises more bytes than there are tells of an upload that broke off. Programs
that stream into a pipe cannot know the length and write a placeholder instead; that promises nothing.

Layouts: RIFF (https://learn.microsoft.com/windows/win32/xaudio2/resource-interchange-file-format--riff-), AIFF
(its chunks, big-endian), RFC 9639 §8.2 (FLAC), RFC 3533 §6 (Ogg), RFC 8794 §4 (Matroska), and the Xing header as
LAME writes it (http://gabriel.mp3-tech.org/mp3infotag.html). MP4: ``sooner.audio.mp4``.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import BinaryIO

from sooner.audio import mp4

__all__ = ["Envelope", "look_at"]

_SEARCHED_BYTES = 64 * 1024
_SIGNATURE = re.compile(
    rb"(?:RIFF|RIFX|RF64)....(?:WAVE|AVI )|FORM....AIF[FC]|fLaC[\x00\x80]\x00\x00\x22|OggS\x00\x02"
    rb"|\x1a\x45\xdf\xa3[\x01-\xff]{1,8}?\x42[\x82\x86\xf2\xf7]|\x00\x00\x00[\x08-\x60]ftyp|#!AMR(?:-WB)?\n",
    re.DOTALL,
)
"""At least five bytes that noise does not make. An MPEG stream needs none: FFmpeg finds its first frame itself."""
_MAX_CHUNKS = 10_000
_PLACEHOLDER_BYTES = 0x7FFF0000  # this and above: a length left open, as by arecord, sox and ffmpeg in a pipe
_MAX_OGG_PAGE_BYTES = 27 + 255 + 255 * 255
_MAX_XING_OFFSET = 40  # MPEG-1 stereo: header 4, checksum 2, side information 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What the bytes around the samples tell.

    Attributes:
        start_bytes: where the recording begins.
        is_cut: the file ends before the place that its own headers name.
        runs_on: a WAV that holds samples behind the end of its data chunk.
        is_mp4: an MP4 or QuickTime file.
        is_inflated: an MP4 whose index takes far more memory than any recording's does.
        declared_s: seconds that the header declares; ``None`` where it does not, or is not to be relied on.
    """

    start_bytes: int = 0
    is_cut: bool = False
    runs_on: bool = False
    is_mp4: bool = False
    is_inflated: bool = False
    declared_s: float | None = None


def look_at(file: BinaryIO) -> Envelope:
    """Read an upload's envelope. Reads at most 64 KiB in one piece, and then hops from header to header.

    Args:
        file: the upload, opened for reading; its position is changed.
    """
    size_bytes = file.seek(0, 2)
    file.seek(0)
    head = file.read(_SEARCHED_BYTES)
    found = None if head[:3] == b"ID3" else _SIGNATURE.search(head)  # a tag may hold a picture in a container
    start = 0 if found is None else found.start()
    magic = head[start : start + 12]
    if magic[:4] == b"RIFF":
        is_wav = magic[8:] == b"WAVE"
        is_cut, runs_on = _walk_chunks(file, start + 12, size_bytes, "<4sI", b"data" if is_wav else b"LIST")
        return Envelope(start_bytes=start, is_cut=is_cut, runs_on=runs_on and is_wav)
    if magic[:4] == b"fLaC":
        return Envelope(start_bytes=start, declared_s=_flac_length_s(head[start : start + 26]))
    if magic[4:8] in mp4.TOP_BOXES:
        is_inflated = mp4.is_index_inflated(file, start, size_bytes)
        is_cut = not is_inflated and mp4.is_cut(file, start, size_bytes)
        return Envelope(start_bytes=start, is_cut=is_cut, is_mp4=True, is_inflated=is_inflated)
    return Envelope(start_bytes=start, is_cut=_is_cut(file, start, size_bytes, magic))


def _is_cut(file: BinaryIO, start: int, size_bytes: int, magic: bytes) -> bool:
    if magic[:4] == b"FORM":
        return _walk_chunks(file, start + 12, size_bytes, ">4sI", b"SSND")[0]
    if magic[:4] == b"OggS":
        return _is_ogg_cut(file, size_bytes)
    if magic[:4] == b"\x1a\x45\xdf\xa3":
        return _is_matroska_cut(file, start, size_bytes)
    return _is_mp3_cut(file, start, size_bytes)


def _walk_chunks(file: BinaryIO, position: int, size_bytes: int, layout: str, samples: bytes) -> tuple[bool, bool]:
    """Whether the chunk of samples reaches beyond the file's end, and whether it ends before the samples do."""
    seen_samples = False
    for _ in range(_MAX_CHUNKS):
        if position + 8 > size_bytes:
            break
        file.seek(position)
        name, num_bytes = struct.unpack(layout, file.read(8))
        if not all(0x20 <= byte < 0x7F for byte in name):  # samples where the next chunk should begin
            return False, seen_samples
        seen_samples = seen_samples or name == samples
        position += 8 + num_bytes
        if position > size_bytes:
            return name == samples and num_bytes < _PLACEHOLDER_BYTES, False
        position += num_bytes % 2
    return False, False


def _flac_length_s(head: bytes) -> float | None:
    """Of the first 26 bytes: sample rate in the upper 20 bits of the last eight, their number in the lower 36."""
    if len(head) < 26:
        return None
    facts = int.from_bytes(head[18:26], "big")
    rate_hz, num_samples = facts >> 44, facts & (2**36 - 1)
    return num_samples / rate_hz if rate_hz and num_samples else None


def _is_ogg_cut(file: BinaryIO, size_bytes: int) -> bool:
    """Whether the last page is incomplete."""
    file.seek(max(0, size_bytes - _MAX_OGG_PAGE_BYTES))
    tail = file.read(_MAX_OGG_PAGE_BYTES)
    page = tail[tail.rfind(b"OggS\x00") :]
    if len(page) < 27:
        return True
    lengths = page[27 : 27 + page[26]]
    return len(page) < 27 + page[26] + sum(lengths)


def _is_matroska_cut(file: BinaryIO, start: int, size_bytes: int) -> bool:
    """Whether the segment, which holds all the rest, reaches beyond the end of the file."""
    file.seek(start + 4)
    header_bytes = _read_vint(file)
    if header_bytes is None:
        return False
    file.seek(header_bytes, 1)
    if file.read(4) != b"\x18\x53\x80\x67":
        return False
    segment_bytes = _read_vint(file)
    return segment_bytes is not None and file.tell() + segment_bytes > size_bytes


def _read_vint(file: BinaryIO) -> int | None:
    """A length of 1 to 8 bytes, the first of which tells how many; ``None`` where it is left open or is none."""
    first = file.read(1)
    if not first or not first[0]:
        return None
    num_bytes = 9 - first[0].bit_length()
    rest = file.read(num_bytes - 1)
    mask = (1 << 7 * num_bytes) - 1
    value = int.from_bytes(first + rest, "big") & mask
    return None if value == mask or len(rest) < num_bytes - 1 else value


def _is_mp3_cut(file: BinaryIO, position: int, size_bytes: int) -> bool:
    """Whether there are fewer bytes than the Xing or Info header in the first frame counts."""
    file.seek(position)
    tag = file.read(10)
    if tag[:3] == b"ID3" and len(tag) == 10:
        position += 10 + sum((byte & 0x7F) << 7 * (3 - place) for place, byte in enumerate(tag[6:10]))
        position += 10 if tag[5] & 0x10 else 0  # the tag has a footer
    file.seek(position)
    frame = file.read(_MAX_XING_OFFSET + 16)
    if len(frame) < 4 or frame[0] != 0xFF or frame[1] < 0xE0:
        return False
    at = max(frame.find(b"Xing", 4), frame.find(b"Info", 4))
    if at < 0 or len(frame) < at + 16:
        return False
    flags, num_frames, num_bytes = struct.unpack_from(">III", frame, at + 4)
    if not flags & 1:  # no number of frames: the number of bytes takes its place
        num_bytes = num_frames
    return bool(flags & 2) and position + num_bytes > size_bytes
