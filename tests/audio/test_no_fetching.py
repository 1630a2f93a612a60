"""An upload opens nothing but itself: no other file of this machine, no address."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
import pytest

from sooner.audio.decode import decode_all
from sooner.errors import UnreadableAudioError
from sooner.workload.recordings import clip_named

from . import makers

JFK_SAMPLES = decode_all(clip_named("jfk").path)
OPEN_ALL = {"protocol_whitelist": "file,http,tcp,crypto,data", "safe": "0", "allowed_extensions": "ALL"}


@pytest.fixture
def trap() -> Iterator[socket.socket]:
    """Listens; a connection waits in it to be seen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def is_contacted(trap: socket.socket) -> bool:
    try:
        trap.accept()[0].close()
    except BlockingIOError:
        return False
    return True


SCRIPTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:11\n#EXTINF:11,\n{target}\n#EXT-X-ENDLIST\n",
    "hls with a key": '#EXTM3U\n#EXT-X-TARGETDURATION:11\n#EXT-X-KEY:METHOD=AES-128,URI="{target}"\n'
    "#EXTINF:11,\n{target}\n#EXT-X-ENDLIST\n",
    "concat": "ffconcat version 1.0\nfile '{target}'\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=-\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n"
    "a=control:{target}\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><AdaptationSet>'
    '<Representation id="1" mimeType="audio/wav"><BaseURL>{target}</BaseURL></Representation></AdaptationSet>'
    "</Period></MPD>",
}


@pytest.mark.parametrize("kind", SCRIPTS)
@pytest.mark.parametrize("scheme", ["path", "file", "http"])
def test_a_script_is_not_followed(tmp_path: Path, trap: socket.socket, kind: str, scheme: str) -> None:
    other = makers.make_wav(tmp_path / "other.wav", JFK_SAMPLES)
    host, port = trap.getsockname()
    targets = {"path": str(other), "file": f"file:{other}", "http": f"http://{host}:{port}/other.wav"}
    path = tmp_path / "upload"
    path.write_text(SCRIPTS[kind].format(target=targets[scheme]))
    with pytest.raises(UnreadableAudioError, match="not audio"):
        decode_all(path)
    assert not is_contacted(trap)


def test_such_a_script_would_be_followed_by_ffmpeg_as_it_is(tmp_path: Path) -> None:
    """So the test above can fail."""
    other = makers.make_wav(tmp_path / "other.wav", JFK_SAMPLES)
    path = tmp_path / "upload"
    path.write_text(SCRIPTS["concat"].format(target=other))
    with av.open(str(path), options=OPEN_ALL) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == len(JFK_SAMPLES)


def make_mov_that_refers_elsewhere(path: Path, other: Path) -> Path:
    """PCM in QuickTime whose data reference is an alias of another file (QuickTime File Format, "dref" atoms)."""
    makers.encode(
        path, np.zeros(16_000, dtype=np.float32), codec="pcm_s16le", sample_format="s16", container="mov"
    )
    content = bytearray(path.read_bytes())
    name = str(other).replace("/", ":").encode()
    fixed = bytes(10) + bytes([0]) + bytes(27) + bytes(12) + bytes([0]) + bytes(63) + bytes(16) + bytes(20)
    alias = fixed + struct.pack(">HH", 2, len(name)) + name + bytes(len(name) % 2) + struct.pack(">Hh", 0xFFFF, 0)
    entry = struct.pack(">I", 12 + len(alias)) + b"alis" + bytes(4) + alias
    at = content.rindex(b"dref") - 4
    (old_bytes,) = struct.unpack_from(">I", content, at)
    dref = struct.pack(">I4sII", 16 + len(entry), b"dref", 0, 1) + entry
    for parent in (b"moov", b"trak", b"mdia", b"minf", b"dinf"):
        size_at = content.rindex(parent, 0, at + 8) - 4
        (size,) = struct.unpack_from(">I", content, size_at)
        struct.pack_into(">I", content, size_at, size + len(dref) - old_bytes)
    content[at : at + old_bytes] = dref
    path.write_bytes(content)
    return path


def test_a_track_that_lies_in_another_file_is_not_read(tmp_path: Path) -> None:
    other = makers.make_wav(tmp_path / "other.wav", JFK_SAMPLES)
    path = make_mov_that_refers_elsewhere(tmp_path / "upload", other)
    with av.open(
        str(path), options={"enable_drefs": "1", "use_absolute_path": "1"}
    ) as container:  # the trap is real
        leaked = np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])
    assert np.abs(leaked).max() > 1000
    try:
        samples = decode_all(path)
    except UnreadableAudioError:
        return
    assert not samples.any()
