"""Decoding whatever FFmpeg reads into 16 kHz mono samples, piece by piece.

Nothing here holds a whole recording: ``decode_blocks`` yields about a second at a time and ``PcmStream``
keeps no more than the stretch its reader still needs. Headers are not believed where they can be checked:
a WAV whose data chunk is longer than it declares is read to its real end.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType

import av
import av.audio.frame
import av.audio.resampler
import numpy as np
import numpy.typing as npt

from sooner.errors import UnreadableAudioError

__all__ = ["SAMPLE_RATE_HZ", "PcmStream", "Samples", "decode_blocks"]

SAMPLE_RATE_HZ = 16_000
"""What Whisper's front end expects (https://arxiv.org/abs/2212.04356, §2.2)."""

Samples = npt.NDArray[np.float32]
"""Mono samples in [-1, 1] at ``SAMPLE_RATE_HZ``, shape (n,)."""

_BLOCK_SAMPLES = SAMPLE_RATE_HZ
_RATES_HZ = (1_000, 1_000_000)  # below, one frame of a hostile file expands to hours in memory
_MAX_MIXED_CHANNELS = 8  # as far as FFmpeg knows where the loudspeakers stand
_MAX_WAV_CHUNKS = 1_000
_FORMATS = (
    # Recordings only: playlists and scripts (concat, hls, sdp, ...) would let an upload open other files.
    "3gp,aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,eac3,flac,flv,gsm,matroska,mov,mp3,mp4,mpeg,mpegts,"
    "nistsphere,ogg,rm,tta,voc,w64,wav,webm,wv"
)
_UNREADABLE = (
    "the file holds no audio that could be decoded; send wav, flac, mp3, m4a, ogg, opus, webm or "
    "another format that FFmpeg reads"
)


def decode_blocks(path: Path) -> Generator[Samples, None, None]:
    """Yield the first audio stream of a file as blocks of samples of about one second.

    Packets that do not decode are skipped, and a file that breaks off yields what came before.

    Raises:
        UnreadableAudioError: nothing in the file could be opened as audio. A file whose audio stream is
            empty yields no block instead.
    """
    pending: list[Samples] = []
    num_pending = 0
    for samples in _decode_frames(path):
        pending.append(samples)
        num_pending += len(samples)
        if num_pending >= _BLOCK_SAMPLES:
            yield np.concatenate(pending)
            pending, num_pending = [], 0
    if pending:
        yield np.concatenate(pending)


def _decode_frames(path: Path) -> Iterator[Samples]:
    try:
        options = {"format_whitelist": _FORMATS, "protocol_whitelist": "file", **_wav_options(path)}
        container = av.open(str(path), metadata_errors="ignore", options=options)
    except (av.error.FFmpegError, ValueError) as error:
        raise UnreadableAudioError(_UNREADABLE) from error
    with container:
        if not container.streams.audio:
            raise UnreadableAudioError(_UNREADABLE)
        frames = _readable_frames(container, container.streams.audio[0])
        try:
            yield from _resampled(frames)
        except (av.error.FFmpegError, ValueError) as error:
            raise UnreadableAudioError(f"the audio cannot be converted to 16 kHz mono ({error})") from error


def _resampled(frames: Iterator[av.audio.frame.AudioFrame]) -> Iterator[Samples]:
    resampler: av.audio.resampler.AudioResampler | None = None
    shape: tuple[object, ...] = ()
    for frame in frames:
        if not _RATES_HZ[0] <= frame.sample_rate <= _RATES_HZ[1]:
            raise UnreadableAudioError(
                f"a sample rate of {frame.sample_rate} Hz is not supported; send {_RATES_HZ[0]} Hz or more"
            )
        frame_shape = (frame.format.name, frame.sample_rate, frame.layout.nb_channels)
        if resampler is None or frame_shape != shape:
            if resampler is not None:  # the stream changed its rate or layout midway
                yield from map(_to_float, resampler.resample(None))
            resampler, shape = _new_resampler(), frame_shape
        mixed = _average(frame) if frame.layout.nb_channels > _MAX_MIXED_CHANNELS else frame
        mixed.pts = None
        yield from map(_to_float, resampler.resample(mixed))
    if resampler is not None:
        yield from map(_to_float, resampler.resample(None))


def _average(frame: av.audio.frame.AudioFrame) -> av.audio.frame.AudioFrame:
    """The mean of all channels as a mono frame."""
    array = frame.to_ndarray()
    channels = array if frame.format.is_planar else array.reshape(-1, frame.layout.nb_channels).T
    mean = channels.mean(axis=0).astype(array.dtype)[np.newaxis, :]
    mono = av.audio.frame.AudioFrame.from_ndarray(mean, format=frame.format.packed.name, layout="mono")
    mono.sample_rate = frame.sample_rate
    return mono


def _readable_frames(
    container: av.container.InputContainer, stream: av.AudioStream
) -> Iterator[av.audio.frame.AudioFrame]:
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.error.FFmpegError:
            return  # the container breaks off here; what was decoded before it stands
        if packet is None:
            return
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            continue  # one damaged packet does not spoil the recording
        for frame in frames:
            if isinstance(frame, av.audio.frame.AudioFrame):
                yield frame


def _new_resampler() -> av.audio.resampler.AudioResampler:
    return av.audio.resampler.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE_HZ)


def _to_float(frame: av.audio.frame.AudioFrame) -> Samples:
    samples: Samples = frame.to_ndarray().reshape(-1).astype(np.float32) / np.float32(32768)
    return samples


def _wav_options(path: Path) -> dict[str, str]:
    """FFmpeg options that make a WAV with a false data length be read to its end."""
    with path.open("rb") as file:
        size_bytes = path.stat().st_size
        if file.read(12)[:4] != b"RIFF":
            return {}
        position = 12
        seen_data = False
        for _ in range(_MAX_WAV_CHUNKS):
            if position + 8 > size_bytes:
                break
            file.seek(position)
            chunk = _chunk_at(file.read(8))
            if chunk is None:  # samples where the next chunk should begin
                return {"ignore_length": "1"} if seen_data else {}
            seen_data = seen_data or chunk[0] == b"data"
            position += 8 + chunk[1] + chunk[1] % 2
    return {}


def _chunk_at(header: bytes) -> tuple[bytes, int] | None:
    """The id and the length of a RIFF chunk, or ``None`` where these bytes cannot begin one."""
    if len(header) < 8:
        return None
    name, num_bytes = struct.unpack("<4sI", header)
    return (name, num_bytes) if all(0x20 <= byte < 0x7F for byte in name) else None


class PcmStream:
    """Reads stretches of a recording in forward order, decoding no further than asked.

    Holds at most the longest stretch asked for and one block. Close it, or use it as a context manager.

    Args:
        path: the recording.
    """

    def __init__(self, path: Path) -> None:
        self._blocks = decode_blocks(path)
        self._buffer: Samples = np.zeros(0, dtype=np.float32)
        self._buffer_start = 0

    def read(self, start: int, stop: int) -> Samples:
        """Samples ``start`` to ``stop`` (exclusive), shape (≤ stop − start,): shorter where the audio ends.

        Samples before ``start`` are gone afterwards.

        Raises:
            ValueError: ``start`` lies before an earlier ``start``.
        """
        if start < self._buffer_start:
            raise ValueError(f"sample {start} was dropped; reading goes forward only")
        parts = [self._buffer]
        end = self._buffer_start + len(self._buffer)
        while end < stop and (block := next(self._blocks, None)) is not None:
            if end <= start:  # nothing read so far is needed: let it go
                parts, self._buffer_start = [], end
            parts.append(block)
            end += len(block)
        joined = np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
        self._buffer = joined[start - self._buffer_start :].copy()
        self._buffer_start = start
        return self._buffer[: stop - start]

    def forget_before(self, sample: int) -> None:
        """Drop every sample before ``sample`` now, so that an idle stream holds as little as possible."""
        self.read(sample, sample)

    def close(self) -> None:
        """Release the decoder and the file. Reading afterwards finds no more audio. Idempotent."""
        self._blocks.close()

    def __enter__(self) -> PcmStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def decode_all(path: Path) -> Samples:
    """The whole recording at once, for tools and tests on short files. Raises ``UnreadableAudioError``."""
    with closing(decode_blocks(path)) as blocks:
        parts = list(blocks)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)
