"""Decoding whatever FFmpeg reads into 16 kHz mono samples, piece by piece.

Nothing here holds a whole recording: a ``Decoder`` yields about a second at a time and ``PcmStream`` keeps no
more than the stretch its reader still needs. Headers are not believed where they can be checked: a WAV whose
data chunk is longer than it declares is read to its real end, and what is unpacked is counted as it comes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import av
import av.audio.frame
import av.audio.resampler
import numpy as np
import numpy.typing as npt

from sooner.audio.sniff import Envelope, look_at
from sooner.errors import DecodedTooLargeError, UnreadableAudioError

__all__ = ["SAMPLE_RATE_HZ", "Decoder", "PcmStream", "Samples", "decode_blocks"]

SAMPLE_RATE_HZ = 16_000
"""What Whisper's front end expects (https://arxiv.org/abs/2212.04356, §2.2)."""

Samples = npt.NDArray[np.float32]
"""Mono samples in [-1, 1] at ``SAMPLE_RATE_HZ``, shape (n,)."""

_BLOCK_SAMPLES = SAMPLE_RATE_HZ
_RATES_HZ = (1_000, 1_000_000)  # below, one frame of a hostile file expands to hours in memory
_MAX_MIXED_CHANNELS = 8  # as far as FFmpeg knows where the loudspeakers stand
_MAX_BARREN_PACKETS = 2_000  # in a row; some 40 s of most codecs. What is no audio makes a million in 10 MB
_MAX_BARREN_BYTES = 32 * 2**20  # in which not one packet begins: a second or two of searching
_BREATH_PACKETS = 1_000  # after which the caller gets a block, though it be empty
_TOLERANCE_S = 0.05  # less than a frame of FLAC at any usual rate
_FORMATS = (
    # Recordings only: playlists and scripts (concat, hls, sdp, ...) would let an upload open other files.
    "aac,ac3,aiff,amr,amrnb,amrwb,ape,asf,au,avi,caf,dsf,eac3,flac,flv,gsm,matroska,mp3,mpeg,mpegts,nistsphere,ogg,"
    "rm,tta,voc,w64,wav,webm,wv"
)
_MP4_FORMATS = "mov,mp4"  # for what has been looked at as such, and for nothing else
_OPTIONS = {"protocol_whitelist": "none"}  # nor does a recording open anything
_SEND = "send wav, flac, mp3, m4a, ogg, opus, webm or another format that FFmpeg reads"
_NO_SAMPLE = "the file holds no sample of audio; record again, or check what was sent"
_NOTHING_DECODES = f"the file is not audio, or damaged throughout: nothing in it decodes as {{codec}}; {_SEND}"
_INFLATED = "the file's index names more samples than a recording has, so it is damaged or hostile; save it anew"


class Decoder:
    """One pass over the first audio track of a file.

    Packets that do not decode are skipped, up to 2,000 in a row, and a file that breaks off yields what came
    before. Neither the name nor anything that the file refers to is looked at: FFmpeg gets bytes, and no leave to
    open more.

    Args:
        path: the recording.
        max_decoded_bytes: samples to unpack at most, in bytes as the decoder gives them; ``None`` for no limit.
    """

    def __init__(self, path: Path, *, max_decoded_bytes: int | None = None) -> None:
        self._path = path
        self._max_decoded_bytes = max_decoded_bytes
        self.num_decoded_bytes = 0
        self.num_packets = 0
        self._num_samples = 0
        self._envelope = Envelope()
        self._stopped = False
        self._skipped = False

    def blocks(self) -> Generator[Samples, None, None]:
        """Yield the recording as blocks of samples of about one second, and an empty one where it takes long.

        Raises:
            UnreadableAudioError: the file is no recording, has no audio track, or not one sample in it.
            DecodedTooLargeError: there is more in it than ``max_decoded_bytes``.
        """
        pending: list[Samples] = []
        num_pending = 0
        for samples in self._decode():
            if not len(samples):
                yield samples
                continue
            pending.append(samples)
            num_pending += len(samples)
            self._num_samples += len(samples)
            if num_pending >= _BLOCK_SAMPLES:
                yield np.concatenate(pending)
                pending, num_pending = [], 0
        if pending:
            yield np.concatenate(pending)

    def warning(self) -> str | None:
        """What the client should know of its file, once all blocks are read; ``None`` for nothing."""
        read_s = self._num_samples / SAMPLE_RATE_HZ
        declared_s = self._envelope.declared_s
        if self._envelope.is_cut:
            return f"the file breaks off after {read_s:.1f} s; what is there was transcribed"
        if self._stopped:
            return f"the file is damaged after {read_s:.1f} s; what comes before was transcribed"
        if declared_s is not None and read_s < declared_s - _TOLERANCE_S:
            return (
                f"the file breaks off or is damaged: it declares {declared_s:.1f} s and holds {read_s:.1f} s; "
                "what is there was transcribed"
            )
        if self._skipped:
            return "the file is damaged in places; what could be decoded was transcribed"
        return None

    def _decode(self) -> Iterator[Samples]:
        with self._path.open("rb") as file:
            self._envelope = look_at(file)
            if self._envelope.is_inflated:
                raise UnreadableAudioError(_INFLATED)
            view = _View(file, self._envelope.start_bytes)
            with self._open(file, view) as container:
                stream = _audio_track(container)
                packets = self._packets(container, view)
                try:
                    yield from _resampled(self._counted(self._readable_frames(packets, stream)))
                except (av.error.FFmpegError, ValueError) as error:
                    raise UnreadableAudioError(
                        f"the audio cannot be converted to 16 kHz mono ({error})"
                    ) from error

    def _open(self, file: BinaryIO, view: _View) -> av.container.InputContainer:
        options = _OPTIONS | {"format_whitelist": _MP4_FORMATS if self._envelope.is_mp4 else _FORMATS}
        if self._envelope.runs_on:
            options["ignore_length"] = "1"
        try:
            return av.open(view, mode="r", metadata_errors="ignore", options=options)
        except (av.error.FFmpegError, ValueError) as error:
            if not file.seek(0, os.SEEK_END):
                reason = _NO_SAMPLE
            elif self._envelope.is_cut:
                reason = "the file breaks off before anything in it can be decoded; send the whole file"
            else:
                reason = f"the file is not audio, or damaged at its beginning; {_SEND}"
            raise UnreadableAudioError(reason) from error

    def _readable_frames(
        self, packets: Iterator[av.Packet[Any]], stream: av.AudioStream
    ) -> Iterator[av.audio.frame.AudioFrame | None]:
        """The track's frames, and ``None`` after so many packets of whatever track."""
        failed, num_frames, num_packets, num_barren = False, 0, 0, 0
        for packet in packets:
            self.num_packets += 1
            if self.num_packets % _BREATH_PACKETS == 0:
                yield None
            if packet.stream_index != stream.index:
                continue
            num_packets += packet.size > 0
            frames = _frames(packet)
            failed = failed or frames is None  # one damaged packet does not spoil the recording
            num_barren = 0 if frames else num_barren + 1
            for frame in frames or ():
                # Damage only where audio follows: many files begin or end with something that is none.
                self._skipped = self._skipped or (failed and num_frames > 0)
                failed, num_frames = False, num_frames + 1
                yield frame
            if num_barren > _MAX_BARREN_PACKETS:
                self._stopped = True
                break
        if not num_frames:
            is_empty = num_packets == 0 and not self._stopped
            codec = getattr(stream, "name", "audio")  # it has none where FFmpeg knows no decoder
            raise UnreadableAudioError(_NO_SAMPLE if is_empty else _NOTHING_DECODES.format(codec=codec))

    def _packets(self, container: av.container.InputContainer, view: _View) -> Iterator[av.Packet[Any]]:
        """Those of all tracks, so that the caller has its turn in an hour of pictures without sound, too."""
        packets = container.demux()
        while True:
            view.allow(_MAX_BARREN_BYTES)
            try:
                packet = next(packets, None)
            except av.error.FFmpegError:
                self._stopped = True
                return  # the container breaks off here; what was decoded before it stands
            self._stopped = self._stopped or view.is_exhausted
            if packet is None:
                return
            yield packet

    def _counted(
        self, frames: Iterator[av.audio.frame.AudioFrame | None]
    ) -> Iterator[av.audio.frame.AudioFrame | None]:
        for frame in frames:
            if frame is not None:
                self.num_decoded_bytes += frame.samples * frame.layout.nb_channels * frame.format.bytes
            if self._max_decoded_bytes is not None and self.num_decoded_bytes > self._max_decoded_bytes:
                raise DecodedTooLargeError(limit_bytes=self._max_decoded_bytes)
            yield frame


def decode_blocks(path: Path) -> Generator[Samples, None, None]:
    """The recording as blocks of about one second, without limits: see ``Decoder.blocks``."""
    return Decoder(path).blocks()


class _View:
    """A file from ``start`` on, as FFmpeg asks for it; it has no name to guess a format from.

    It may be read in full until ``allow`` is called, and then as many bytes as that says; there it ends.
    """

    def __init__(self, file: BinaryIO, start: int) -> None:
        self._file = file
        self._start = start
        self._left_bytes = math.inf
        file.seek(start)

    @property
    def is_exhausted(self) -> bool:
        return self._left_bytes < 0

    def allow(self, num_bytes: int) -> None:
        if not self.is_exhausted:
            self._left_bytes = num_bytes

    def read(self, num_bytes: int) -> bytes:
        self._left_bytes -= num_bytes
        return b"" if self.is_exhausted else self._file.read(num_bytes)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and offset < 0:
            return -1  # to FFmpeg an error; an exception would reach the caller past it
        return self._file.seek(offset + self._start if whence == os.SEEK_SET else offset, whence) - self._start

    def tell(self) -> int:
        return self._file.tell() - self._start


def _audio_track(container: av.container.InputContainer) -> av.AudioStream:
    tracks = container.streams.audio
    if not tracks:
        others = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise UnreadableAudioError(f"the file has no audio track (it holds {others}); send one with sound")
    return tracks[0]


def _frames(packet: av.Packet[av.AudioStream]) -> list[av.audio.frame.AudioFrame] | None:
    """What a packet decodes to; ``None`` where it is damaged."""
    try:
        return packet.decode()
    except av.error.FFmpegError:
        return None


def _resampled(frames: Iterator[av.audio.frame.AudioFrame | None]) -> Iterator[Samples]:
    """The frames at 16 kHz, and nothing for ``None``."""
    resampler: av.audio.resampler.AudioResampler | None = None
    packer: av.audio.resampler.AudioResampler | None = None
    shape: tuple[object, ...] = ()
    for frame in frames:
        if frame is None:
            yield np.zeros(0, dtype=np.float32)
            continue
        if not _RATES_HZ[0] <= frame.sample_rate <= _RATES_HZ[1]:
            raise UnreadableAudioError(
                f"a sample rate of {frame.sample_rate} Hz is not supported; send {_RATES_HZ[0]} Hz or more"
            )
        frame_shape = (frame.format.name, frame.sample_rate, frame.layout.nb_channels)
        if resampler is None or frame_shape != shape:
            if resampler is not None:  # the stream changed its rate or layout midway
                yield from map(_to_float, resampler.resample(None))
            resampler, packer, shape = _new_resampler(), _new_packer(frame), frame_shape
        frame.pts = None
        for packed in [frame] if packer is None else packer.resample(frame):
            mixed = _average(packed) if packed.layout.nb_channels > _MAX_MIXED_CHANNELS else packed
            mixed.pts = None
            yield from map(_to_float, resampler.resample(mixed))
    if resampler is not None:
        yield from map(_to_float, resampler.resample(None))


def _average(frame: av.audio.frame.AudioFrame) -> av.audio.frame.AudioFrame:
    """The mean of all channels, which alternate in the frame, as a mono frame."""
    channels = frame.to_ndarray().reshape(-1, frame.layout.nb_channels)
    mean = channels.mean(axis=1).astype(channels.dtype)[np.newaxis, :]
    mono = av.audio.frame.AudioFrame.from_ndarray(mean, format=frame.format.name, layout="mono")
    mono.sample_rate = frame.sample_rate
    return mono


def _new_packer(frame: av.audio.frame.AudioFrame) -> av.audio.resampler.AudioResampler | None:
    """What makes channels alternate that lie apart. PyAV reads past the end of their list where there are many."""
    if not frame.format.is_planar or frame.layout.nb_channels <= _MAX_MIXED_CHANNELS:
        return None
    packed = frame.format.packed.name
    return av.audio.resampler.AudioResampler(format=packed, layout=frame.layout, rate=frame.sample_rate)


def _new_resampler() -> av.audio.resampler.AudioResampler:
    return av.audio.resampler.AudioResampler(format="s16", layout="mono", rate=SAMPLE_RATE_HZ)


def _to_float(frame: av.audio.frame.AudioFrame) -> Samples:
    samples: Samples = frame.to_ndarray().reshape(-1).astype(np.float32) / np.float32(32768)
    return samples


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
