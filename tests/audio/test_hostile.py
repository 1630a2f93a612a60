"""Files made to cost more than they hold, and files that are broken anywhere."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import psutil
import pytest

from sooner.audio import mp4
from sooner.audio.decode import SAMPLE_RATE_HZ, Decoder, decode_all
from sooner.audio.probe import Audio, Probe
from sooner.errors import UnreadableAudioError

from . import makers
from .makers import STBL, box, into_mp4

SECOND = (np.sin(np.arange(SAMPLE_RATE_HZ) / 20) * 0.1).astype(np.float32)
MANY = 30_000_000
SIZES = box(b"stsz", struct.pack(">III", 0, 1, MANY))
HDLR = box(b"hdlr", bytes(8) + b"mdta" + bytes(12))


@pytest.fixture(scope="module")
def m4a(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A second of AAC in MP4 whose index comes last."""
    return makers.make_m4a_moov_at_end(tmp_path_factory.mktemp("m4a") / "a.m4a", SECOND).read_bytes()


def is_inflated(content: bytes) -> bool:
    return mp4.is_index_inflated(BytesIO(content), 0, len(content))


def measure(path: Path) -> tuple[Audio, int]:
    probe, steps = Probe(path, max_audio_s=1e6), 1
    try:
        while (audio := probe.step()) is None:
            steps += 1
    finally:
        probe.close()
    return audio, steps


WRAPPERS = {
    **{name.decode(): box(name, SIZES) for name in sorted(mp4._PARENTS | {b"abcd"})},
    "meta": box(b"meta", bytes(4) + HDLR + SIZES),
    "meta of QuickTime": box(b"meta", HDLR + SIZES),
    "meta without a kind": box(b"meta", bytes(4) + SIZES),
    "sample entry": box(b"stsd", struct.pack(">II", 0, 1) + box(b"mp4a", bytes(28) + SIZES)),
    "encrypted sample entry": box(
        b"stsd", struct.pack(">II", 0, 1) + box(b"enca", bytes(28) + box(b"sinf", box(b"schi", SIZES)))
    ),
    "properties": box(b"iprp", box(b"ipco", SIZES)),
    "an index thrown away": box(b"free", box(b"mvhd") + SIZES),
    "length of 64 bits": struct.pack(">I4sQ", 1, b"sinf", 16 + len(SIZES)) + SIZES,
    "length left open": struct.pack(">I4s", 0, b"sinf") + SIZES,
    "compact sizes": box(b"sinf", box(b"stz2", struct.pack(">III", 0, 4, MANY))),
}


@pytest.mark.parametrize("where", [STBL, STBL[:2], STBL[:1]], ids=lambda where: where[-1].decode())
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_table_of_sizes_is_found_wherever_ffmpeg_finds_it(
    m4a: bytes, name: str, where: tuple[bytes, ...]
) -> None:
    """These are the boxes in which the FFmpeg that PyAV 18 brings follows a table, and some more."""
    content = m4a.replace(b"stsz", b"free")
    assert not is_inflated(content)
    assert is_inflated(into_mp4(content, WRAPPERS[name], where=where))


def test_a_hidden_table_is_refused_before_it_costs_memory(m4a: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hidden.m4a"
    path.write_bytes(into_mp4(m4a.replace(b"stsz", b"free"), WRAPPERS["sinf"]))
    before_bytes = psutil.Process().memory_info().rss
    with pytest.raises(UnreadableAudioError, match="index names more samples"):
        decode_all(path)
    assert psutil.Process().memory_info().rss - before_bytes < 64 * 2**20


@pytest.mark.parametrize(
    "table",
    [
        box(b"sgpd", b"\0\0\0\0sync" + struct.pack(">I", MANY)),
        box(b"sgpd", b"\1\0\0\0sync" + struct.pack(">II", 1, MANY)),
        box(b"iinf", struct.pack(">II", 1 << 24, MANY)),
        box(b"meta", bytes(4) + HDLR + box(b"keys", struct.pack(">II", 0, MANY))),
        box(b"senc", struct.pack(">II", 0, MANY)),
        box(b"saiz", struct.pack(">IBI", 0, 8, MANY)),
        box(b"saiz", struct.pack(">I8xBI", 1, 8, MANY)),
        box(b"sidx", struct.pack(">I16xHH", 0, 0, 60_000)) * 3,
        box(b"sidx", struct.pack(">I24xHH", 1 << 24, 0, 60_000)) * 3,
        box(b"edts", box(b"elst", struct.pack(">II", 0, 1_000_000))),
        box(b"stco", struct.pack(">II", 0, 10)) + box(b"stsc", struct.pack(">IIIII", 0, 1, 1, 2**31 - 1, 1)),
        box(b"cmov"),
        box(b"wxyz", bytes(17 * 2**20)),
    ],
    ids=lambda table: f"{table[4:8].decode()}-{len(table)}",
)
def test_whatever_else_ffmpeg_makes_much_of(m4a: bytes, table: bytes) -> None:
    assert is_inflated(into_mp4(m4a, table))


def test_words_in_pictures_texts_and_samples_are_no_tables(m4a: bytes, tmp_path: Path) -> None:
    words = b"a trunk of keys: stsz" + b"\xff" * 40
    tags = box(b"meta", bytes(4) + HDLR + box(b"ilst", box(b"covr", box(b"data", words)) + box(b"\xa9nam", words)))
    content = into_mp4(m4a, box(b"udta", tags + box(b"thum", words)), where=STBL[:1])
    content += box(b"uuid", bytes(16) + words) + box(b"free", words) + box(b"mdat", words) + box(b"sefd", words)
    assert not is_inflated(content)
    path = tmp_path / "tagged.m4a"
    path.write_bytes(content)
    np.testing.assert_array_equal(
        decode_all(path), decode_all(makers.make_m4a_moov_at_end(tmp_path / "a", SECOND))
    )


def test_times_are_not_unpacked_beyond_the_samples(tmp_path: Path, m4a: bytes) -> None:
    times = box(b"ctts", struct.pack(">IIII", 0, 1, 2**31 - 1, 3))
    path = makers.make_mp4_bomb(tmp_path / "times.m4a", num_samples=2**31 - 1, table="times")
    before_bytes = psutil.Process().memory_info().rss
    assert len(decode_all(path)) > 0
    path.write_bytes(into_mp4(m4a, times))
    assert len(decode_all(path)) > 0
    assert psutil.Process().memory_info().rss - before_bytes < 64 * 2**20


def test_boxes_that_reach_beyond_theirs_are_clipped() -> None:
    """Every second one holds a table that claims the rest of the file, which is to be read once at most."""
    num_runs = 2**20
    pair = struct.pack(">I4sQ", 1, b"udta", 32) + struct.pack(">I4sII", 12 * num_runs, b"stsc", 0, num_runs)
    content = box(b"ftyp", b"isom\0\0\0\0") + pair * 2_000 + bytes(12 * num_runs)
    started_s = time.process_time()
    assert is_inflated(content)
    assert time.process_time() - started_s < 2


@pytest.mark.parametrize("num_boxes", [100_000, 1_100_000])
def test_a_million_boxes_are_none_too_many_and_more_are(num_boxes: int) -> None:
    assert is_inflated(box(b"ftyp") + box(b"moof") * num_boxes) == (num_boxes > 1_000_000)


def test_packets_that_never_decode_are_given_up(tmp_path: Path) -> None:
    path = makers.make_adts_noise(tmp_path / "noise.aac", num_packets=1_000_000)
    started_s = time.process_time()
    with pytest.raises(UnreadableAudioError, match="nothing in it decodes as aac"):
        measure(path)
    assert time.process_time() - started_s < 10  # it was 14 s for these, and a minute for every 40 MB more


def test_packets_that_decode_no_more_end_the_recording(tmp_path: Path) -> None:
    encode = partial(makers.encode, codec="aac", sample_format="fltp", container="adts")
    good = encode(tmp_path / "good.aac", np.tile(SECOND, 60)).read_bytes()
    for num_packets, warning in ((500, None), (50_000, "the file is damaged after 60.")):
        path = makers.make_adts_noise(tmp_path / "end.aac", num_packets=num_packets, first=good)
        audio, _ = measure(path)
        assert audio.audio_s == pytest.approx(60, abs=0.2)
        assert (audio.warning or "").startswith(warning or "")
        assert (audio.warning is None) == (warning is None)


def test_a_slice_is_bounded_in_packets_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pictures too: an hour of them without sound is no reason to keep others waiting."""
    path = makers.make_video_with_audio(tmp_path / "film.mkv", np.tile(SECOND, 120), container="matroska")
    whole, steps = measure(path)
    monkeypatch.setattr(Probe, "_SLICE_PACKETS", 1_000)
    audio, more_steps = measure(path)
    assert audio == whole
    assert more_steps > steps + 2


def test_a_search_for_the_next_packet_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sooner.audio.decode._MAX_BARREN_BYTES", 2**20)
    path = makers.make_video_with_audio(tmp_path / "film.ts", SECOND, container="mpegts")
    path.write_bytes(path.read_bytes() + np.random.default_rng(0).bytes(8 * 2**20))
    decoder = Decoder(path)
    assert sum(map(len, decoder.blocks())) == pytest.approx(SAMPLE_RATE_HZ, abs=2_000)
    assert decoder.warning() == "the file is damaged after 1.0 s; what comes before was transcribed"


@pytest.mark.parametrize("channels", [9, 12, 33])
def test_many_channels_that_lie_apart(tmp_path: Path, channels: int) -> None:
    """Of such a frame PyAV reads past the end of its list of channels, which ends the process."""
    path = makers.make_ogg_of_many_channels(tmp_path / "many.ogg", SECOND, channels=channels)
    samples = decode_all(path)
    assert len(samples) == len(SECOND)
    assert np.abs(samples).max() == pytest.approx(0.1, abs=0.03)


SHORT = SECOND[:8000]
FORMATS: dict[str, Callable[[Path, np.ndarray], Path]] = {
    "m4a, moov at the end": makers.make_m4a_moov_at_end,
    "m4a, moov first": makers.make_m4a_moov_first,
    "m4a in fragments": makers.make_m4a_fragmented,
    "wav": makers.make_wav,
    "flac": makers.make_flac,
    "ogg": lambda path, samples: makers.make_ogg(path, np.tile(samples, 12)),  # of more than one page
    "mp3": makers.make_mp3_vbr,
    "webm": makers.make_webm,
}


def _damaged(content: bytes) -> Iterator[bytes]:
    """Cut at many places, closely in the last 2 kB and in the first; and with some bytes of it changed."""
    size = len(content)
    yield from (content[:at] for at in {*range(0, size, 1 + size // 40), *range(max(0, size - 2000), size, 23)})
    dice = random.Random(0)
    for _ in range(60):
        changed = bytearray(content)
        for _ in range(dice.choice((1, 4, 16))):
            changed[dice.randrange(min(size, dice.choice((64, 1024, size))))] = dice.randrange(256)
        yield bytes(changed)


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_broken_anywhere_is_read_or_refused(tmp_path: Path, name: str) -> None:
    """And nothing else: no other error, and no more of it than there was."""
    content = FORMATS[name](tmp_path / "whole", SHORT).read_bytes()
    path, outcomes = tmp_path / "broken", set()
    for damaged in _damaged(content):
        path.write_bytes(damaged)
        try:
            audio, _ = measure(path)
        except UnreadableAudioError:
            outcomes.add("refused")
        else:
            assert audio.num_samples >= 0
            outcomes.add("read" if audio.warning is None else "warned")
    assert {"refused", "warned"} & outcomes
    assert {"read", "warned"} & outcomes
