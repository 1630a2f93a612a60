"""An MP4's boxes, read before FFmpeg does.

The index of an MP4 says "ten million samples of one byte each" in twelve bytes, and a demultiplexer writes every
one of them down: a file of 2 kB takes 2 GB. So what the index unpacks to is counted first. Boxes: ISO/IEC 14496-12
§4.2 (all), §8.6 (times), §8.7.3 (sizes), §8.8.8 (fragments).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

__all__ = ["TOP_BOXES", "is_cut", "is_index_inflated"]

TOP_BOXES = frozenset(
    (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip", b"styp", b"moof", b"uuid", b"pnot", b"udta", b"junk")
)
"""What a file begins with that is to be read as MP4 or QuickTime."""
_NEEDED = frozenset((b"moov", b"mdat", b"moof"))  # what follows them may be anything, and be missing
_PARENTS = frozenset(
    (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"moof", b"traf", b"mvex", b"udta", b"edts", b"dinf", b"tref")
)
_MAX_DEPTH = 10
_MAX_ENTRIES = 8_000_000  # some 200 MB for FFmpeg; ten hours of video and sound have 6 million
_MAX_BOXES = 4_000_000  # a few seconds of reading; ten hours in fragments of a second have 400,000
_SIZED = 0xF00  # flags of a fragment's table whose entries take up bytes of their own

_Box = tuple[bytes, int, int]
"""Name, first byte of what is in it, and the byte behind it, which may lie behind the end of the file."""


def is_cut(file: BinaryIO, start: int, size_bytes: int) -> bool:
    """Whether a box that is needed reaches beyond the end of the file. ``start``: the first box."""
    last: _Box = (b"", 0, 0)
    for box in _boxes(file, start, size_bytes):
        last = box
    return last[0] in _NEEDED and last[2] > size_bytes


def is_index_inflated(file: BinaryIO, start: int, size_bytes: int) -> bool:
    """Whether the index unpacks to more entries than any recording has, or more samples than the file has bytes.

    An index that is itself compressed ("cmov", of the nineties) is taken for one. O(boxes), and a pass over the
    tables of times.

    Args:
        file: the file, whose position is changed.
        start: the first box.
        size_bytes: of the whole file.
    """
    index = _Index(file)
    stack = [_boxes(file, start, size_bytes)]
    while stack:
        box = next(stack[-1], None)
        if box is None:
            stack.pop()
            continue
        name, begin, end = box[0], box[1], min(box[2], size_bytes)
        index.count(name, begin, end)
        if name in _PARENTS:
            stack.append(_boxes(file, begin, end))
        is_inflated = index.num_entries > _MAX_ENTRIES or index.num_pcm > size_bytes
        if is_inflated or index.num_boxes > _MAX_BOXES or len(stack) > _MAX_DEPTH or name == b"cmov":
            return True
    return False


def _boxes(file: BinaryIO, position: int, end: int) -> Iterator[_Box]:
    while position + 8 <= end:
        file.seek(position)
        header = file.read(16)
        num_bytes, header_bytes = int.from_bytes(header[:4], "big"), 8
        if num_bytes == 1 and len(header) == 16:  # 64 bits of length follow the name
            num_bytes, header_bytes = int.from_bytes(header[8:], "big"), 16
        if num_bytes < header_bytes:  # zero: to the end of the file
            num_bytes = end - position
        yield header[4:8], position + header_bytes, position + num_bytes
        position += num_bytes


class _Index:
    """Counts what an index unpacks to, box by box in the order of the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.num_boxes = 0
        self.num_entries = 0
        self.num_pcm = 0  # uncompressed samples, of which FFmpeg keeps a chunk at a time
        self._is_sound = False
        self._is_pcm = False  # of the track at hand

    def count(self, name: bytes, begin: int, end: int) -> None:
        """Take the next box, whose content are the bytes ``begin`` to ``end`` (exclusive)."""
        self.num_boxes += 1
        if name == b"trak":
            self._is_sound = self._is_pcm = False
        elif name in {b"hdlr", b"stsz", b"trun", b"stts", b"ctts"}:
            self._file.seek(begin)
            fields = self._file.read(12).ljust(12, b"\0")
            first, second, third = struct.unpack(">III", fields)
            if name == b"hdlr":  # QuickTime has a second one, of the data, that does not tell the kind of track
                self._is_sound = fields[8:] == b"soun" if fields[4:8] != b"dhlr" else self._is_sound
            elif name == b"stsz":
                self._add(third if second else 0)  # all of one size, so that none is written down
            elif name == b"trun":
                self.num_entries += 0 if first & _SIZED else second
            else:
                self._count_runs(name, begin + 8, min(second, (end - begin) // 8))

    def _count_runs(self, name: bytes, begin: int, num_runs: int) -> None:
        """Runs of samples: how many, and how long each lasts."""
        self._file.seek(begin)
        runs = np.frombuffer(self._file.read(8 * min(num_runs, _MAX_ENTRIES)), dtype=">u4")
        if name == b"stts":
            self._is_pcm = self._is_sound and len(runs) == 2 and int(runs[1]) == 1
        self._add(int(runs[::2].sum(dtype=np.uint64)))

    def _add(self, num: int) -> None:
        if self._is_pcm:
            self.num_pcm = max(self.num_pcm, num)
        else:
            self.num_entries += num
