"""An MP4's boxes, read before FFmpeg does.

The index of an MP4 says "ten million samples of one byte each" in twelve bytes, and a demultiplexer writes every
one of them down: a file of 2 kB takes 2 GB. So what the index unpacks to is counted first. FFmpeg looks for a
table in more boxes than the standard puts it in, such as one of encryption or behind a sample entry: levels that
are known are walked as FFmpeg walks them (``mov_read_default``), in others tables are found by their names.

Boxes: ISO/IEC 14496-12 §4.2 (all), §8.6 (times, edits), §8.7 (sizes, chunks), §8.8.8 (fragments), §8.9 (groups),
§8.11.6 (items), §8.16.3 (segments); ISO/IEC 23001-7 §7 (encryption). What FFmpeg 8 keeps of each:
https://github.com/FFmpeg/FFmpeg/blob/master/libavformat/mov.c. It has no limit of its own for it: an index of
this format ignores ``max_index_size``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

__all__ = ["TOP_BOXES", "is_cut", "is_index_inflated"]

TOP_BOXES = frozenset(
    (b"ftyp", b"moov", b"mdat", b"free", b"wide", b"skip", b"styp", b"moof", b"uuid", b"pnot", b"udta", b"junk")
)
"""What a file begins with that is to be read as MP4 or QuickTime."""
_NEEDED = frozenset((b"moov", b"mdat", b"moof"))  # what follows them may be anything, and be missing
_PARENTS = frozenset(  # boxes in boxes
    b"moov trak mdia minf stbl moof traf mvex udta edts dinf tref ilst sinf schi wave hoov".split()
)
_LEAVES = frozenset(  # no boxes in them, and much that may look like one
    b"mdat free skip wide uuid stsz stz2 stts ctts stsc stco co64 stss stps sdtp sbgp sgpd trun senc saiz saio "
    b"sidx elst hdlr keys iinf".split()
)
_STRANGERS_HOLD_NONE = frozenset(
    (b"", b"udta", b"ilst", b"meta")
)  # pictures, texts: FFmpeg looks for no box there
_HOLD_BOXES_SOMEWHERE = frozenset((b"stsd", b"meta", b"iref", b"iprp"))
_TABLES = re.compile(rb"st(?:sz|z2|ts|sc|co|sd)|co64|trun|senc|saiz|sgpd|sidx|elst|hdlr|keys|iinf|cmov")
_PIECE_BYTES = 2**20
_PICTURE_OR_TEXT = frozenset((b"vide", b"subp", b"clcp"))
_PCM = frozenset(
    (b"raw ", b"NONE", b"twos", b"sowt", b"in24", b"in32", b"fl32", b"fl64", b"lpcm", b"ipcm", b"fpcm")
)

_MAX_DEPTH = 10  # as FFmpeg
_MAX_ENTRIES = 8_000_000  # some 250 MB for FFmpeg; ten hours of video and sound have 4 million
_MAX_BOXES = 1_000_000  # a second of reading; ten hours in fragments of a second have 400,000
_MAX_SEARCHED_BYTES = 16 * 2**20  # of boxes whose layout is not known: less than a second
_MIN_PCM_SAMPLES = 160  # that FFmpeg puts into one entry
_COUNT_AT = {  # where a table tells its number of entries
    b"stsz": 8, b"stz2": 8, b"trun": 4, b"elst": 4, b"stsc": 4, b"stco": 4, b"co64": 4, b"senc": 4, b"keys": 4,
}  # fmt: skip
_WEIGHTS = {  # cost of an entry in those of the index
    b"trun": 1, b"keys": 1, b"iinf": 1, b"sgpd": 1,
    b"senc": 8, b"saiz": 8,  # some 200 bytes each
    b"sidx": 50,  # sorted in one by one, in quadratic time: 160,000 take three seconds
}  # fmt: skip

_Box = tuple[bytes, int, int]
"""Name, first byte of what is in it, and the byte behind it, which may lie behind the end of the file."""


def is_cut(file: BinaryIO, start: int, size_bytes: int) -> bool:
    """Whether a box that is needed reaches beyond the end of the file. ``start``: the first box."""
    last: _Box = (b"", 0, 0)
    for box in _boxes(file, start, size_bytes):
        last = box
    return last[0] in _NEEDED and last[2] > size_bytes


def is_index_inflated(file: BinaryIO, start: int, size_bytes: int) -> bool:
    """Whether the index unpacks to more entries than any recording has.

    An index that is itself compressed ("cmov", of the nineties) is taken for one, and so is a million boxes.
    O(boxes), and a pass over the tables of chunks and 16 MiB at most of what has no known layout.

    Args:
        file: the file, whose position is changed.
        start: the first box.
        size_bytes: of the whole file.
    """
    index = _Index(file, size_bytes)
    levels = [(b"", size_bytes, _boxes(file, start, size_bytes))]
    while levels:
        parent, level_end, boxes = levels[-1]
        box = next(boxes, None)
        if box is None:
            levels.pop()
            continue
        name, begin, end = box[0], box[1], min(box[2], level_end)
        index.count(name, begin)
        children = _first_child(file, name, begin, end)
        if children is not None:
            levels.append((name, end, _boxes(file, children, end)))
        elif _may_hold_tables(parent, name):
            index.search(begin, end)
        if index.is_too_much or index.num_boxes > _MAX_BOXES or len(levels) > _MAX_DEPTH:
            return True
    index.end_track()
    return index.is_too_much


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


def _first_child(file: BinaryIO, name: bytes, begin: int, end: int) -> int | None:
    """Where the boxes in a box begin; ``None`` where there are none, or it is not known."""
    if name in _PARENTS:
        return begin
    if name == b"free":  # FFmpeg looks for an index that was thrown away
        file.seek(begin)
        return begin if file.read(8)[4:] in {b"mvhd", b"cmov"} else None
    if name == b"meta":  # with four bytes in front, or without
        file.seek(begin)
        head = file.read(min(64, max(0, end - begin)))
        at = next((at for at in range(4, len(head), 4) if head[at : at + 4] == b"hdlr"), None)
        return None if at is None else begin + at - 4
    return None


def _may_hold_tables(parent: bytes, name: bytes) -> bool:
    if name in _HOLD_BOXES_SOMEWHERE:
        return True
    return name not in _LEAVES and parent not in _STRANGERS_HOLD_NONE


class _Index:
    """Counts what an index unpacks to, table by table in the order of the file.

    Tables are believed in their number of entries and not in their size, as FFmpeg believes them.
    """

    def __init__(self, file: BinaryIO, size_bytes: int) -> None:
        self._file = file
        self._size_bytes = size_bytes
        self.num_boxes = 0
        self.is_too_much = False
        self._num_entries = 0
        self._num_edits = 0  # each of which may show every sample once more
        self._num_searched_bytes = 0
        self._num_chunk_bytes = 0
        self._begin_track()

    def _begin_track(self) -> None:
        self._num_samples = 0
        self._num_chunks = 0
        self._most_in_a_chunk = 0
        self._kinds: set[bytes] = set()
        self._formats: set[bytes] = set()
        self._times: set[bool] = set()  # whether every sample lasts one tick

    def end_track(self) -> None:
        """Add up the track at hand. Of uncompressed sound FFmpeg keeps a piece of a chunk at a time."""
        is_pcm = b"soun" in self._kinds and not self._kinds & _PICTURE_OR_TEXT
        is_pcm = is_pcm and bool(self._formats) and self._formats <= _PCM and self._times == {True}
        self._num_entries += 0 if is_pcm else self._num_samples
        self._num_entries += self._num_chunks * self._most_in_a_chunk // _MIN_PCM_SAMPLES
        self._begin_track()
        self._weigh()

    def _weigh(self) -> None:
        repeats = max(1, self._num_edits - 1)  # the first is often a pause
        self.is_too_much = self.is_too_much or self._num_entries * repeats > _MAX_ENTRIES

    def search(self, begin: int, end: int) -> None:
        """Take all that may be tables in the bytes ``begin`` to ``end`` (exclusive), whatever they are in."""
        self._num_searched_bytes += max(0, end - begin)
        if self._num_searched_bytes > _MAX_SEARCHED_BYTES:
            self.is_too_much = True
            return
        for piece in range(begin, end, _PIECE_BYTES):
            self._file.seek(piece)
            content = self._file.read(min(_PIECE_BYTES, end - piece) + 3)  # a name may lie across
            for found in _TABLES.finditer(content):
                self.count(found[0], piece + found.end())
                if self.is_too_much or self.num_boxes > _MAX_BOXES:
                    return

    def count(self, name: bytes, begin: int) -> None:
        """Take the next box, whose content begins at byte ``begin``."""
        self.num_boxes += 1
        if name == b"cmov":
            self.is_too_much = True
        elif name == b"trak":
            self.end_track()
        elif name in _LEAVES or name == b"stsd":
            self._file.seek(begin)
            self._count_table(name, begin, self._file.read(32).ljust(32, b"\0"))

    def _count_table(self, name: bytes, begin: int, head: bytes) -> None:
        num = _num_entries(name, head)
        if name in _WEIGHTS:
            self._num_entries += num * _WEIGHTS[name]
            self._weigh()
        elif name in {b"stsz", b"stz2"}:
            self._num_samples += num
        elif name in {b"stco", b"co64"}:
            self._num_chunks += num
        elif name == b"stsc":
            self._count_chunks(begin + 8, num)
        elif name == b"elst":
            self._num_edits = max(self._num_edits, num)
        elif name == b"hdlr":
            self._kinds.add(head[8:12])
        elif name == b"stsd":
            self._formats.add(head[12:16] if head[4:8] == b"\0\0\0\1" else b"several")
        elif name == b"stts":
            self._times.add(head[4:8] == head[12:16] == b"\0\0\0\1")

    def _count_chunks(self, begin: int, num_runs: int) -> None:
        """Runs of chunks: the first chunk, the samples in each, and their kind."""
        num_runs = min(num_runs, max(0, self._size_bytes - begin) // 12)
        self._num_chunk_bytes += 12 * num_runs
        if self._num_chunk_bytes > self._size_bytes:  # the same bytes over and over
            self.is_too_much = True
            return
        self._file.seek(begin)
        runs = np.frombuffer(self._file.read(12 * num_runs), dtype=">u4")
        self._most_in_a_chunk = max(self._most_in_a_chunk, int(runs[1::3].max(initial=0)))


def _num_entries(name: bytes, head: bytes) -> int:
    """How many entries the table says that it has, of its first 32 bytes."""
    version, at, num_bytes = head[0], _COUNT_AT.get(name), 4
    if name == b"iinf":
        at, num_bytes = 4, 4 if version else 2
    elif name == b"sidx":
        at, num_bytes = 30 if version else 22, 2
    elif name == b"saiz":
        at = 13 if head[3] & 1 else 5
    elif name == b"sgpd" and head[4:8] == b"sync":  # of all groups the only one that FFmpeg keeps
        at = 8 + 4 * min(version, 2)
    return 0 if at is None else int.from_bytes(head[at : at + num_bytes], "big")
