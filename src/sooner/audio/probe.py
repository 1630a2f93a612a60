"""How long an upload really is, found by decoding it.

A header can claim any length, and the packet times of most containers are claims too, so the one honest
measure is the number of samples that come out of the decoder. Decoding is cheap beside transcribing (an hour
in seconds), but an hour in one piece would hold up the clips behind it, in a second first-come queue in front
of the scheduler. A probe therefore works in slices: whoever drives it takes turns between uploads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from sooner.audio.decode import SAMPLE_RATE_HZ, Decoder, Samples
from sooner.audio.mel import LogMel, PeakMeter
from sooner.audio.voice import VoiceDetector, VoiceMeter
from sooner.core.estimator import WINDOW_S
from sooner.errors import AudioTooLongError

__all__ = ["Audio", "Probe", "Rest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What of an upload is still to be transcribed; the arguments of ``Estimator.estimate``.

    Attributes:
        audio_s: seconds of audio.
        speech_s: seconds in which somebody speaks; ``None`` where nobody listened for voices.
        windows: windows that a decoding needs which skips from voice to voice; ``None`` likewise.
    """

    audio_s: float
    speech_s: float | None
    windows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audio:
    """One upload on disk and what is known of it.

    Attributes:
        path: where its bytes are.
        num_samples: decoded length at 16 kHz.
        peak_log_mel: highest log10 mel energy of the whole recording; ``None`` where it fits in one window
            or the engine has no use for it.
        speech: stretches in which somebody speaks, (start, end) in seconds, in order, none touching; ``None``
            where nobody listened for voices.
        warning: what the client should know of its file, such as that it breaks off; ``None`` for nothing.
    """

    path: Path
    num_samples: int
    peak_log_mel: float | None = None
    speech: tuple[tuple[float, float], ...] | None = None
    warning: str | None = None

    @property
    def audio_s(self) -> float:
        """Seconds of decoded audio."""
        return self.num_samples / SAMPLE_RATE_HZ

    @property
    def speech_s(self) -> float | None:
        """Seconds in which somebody speaks; ``None`` where nobody listened for voices."""
        return None if self.speech is None else math.fsum(end - start for start, end in self.speech)

    def rest(self, position_s: float = 0.0) -> Rest:
        """What is left to do behind ``position_s`` seconds. O(stretches of speech)."""
        audio_s = max(0.0, self.audio_s - position_s)
        if self.speech is None:
            return Rest(audio_s=audio_s, speech_s=None, windows=None)
        speech_s, windows, seen_s = 0.0, 0, position_s
        for start_s, end_s in self.speech:
            speech_s += max(0.0, end_s - max(start_s, position_s))
            if end_s > seen_s:
                begin_s = max(start_s, seen_s)
                num_more = math.ceil((end_s - begin_s) / WINDOW_S)
                windows, seen_s = windows + num_more, begin_s + num_more * WINDOW_S
        return Rest(audio_s=audio_s, speech_s=speech_s, windows=windows)


class Probe:
    """Measures one upload, a slice at a time. CPU work: call ``step`` in a thread.

    Args:
        path: the upload.
        max_audio_s: longest audio to accept, seconds; decoding stops there.
        log_mel: front end whose peak to measure on the way; ``None`` for none.
        voice: what finds voices on the way; ``None`` for nothing.
        max_decoded_bytes: samples to unpack at most, in bytes as the decoder gives them; ``None`` for no limit.
    """

    _SLICE_BLOCKS = 60  # about a minute of audio, some tens of milliseconds of work
    _SLICE_BYTES = 64 * 2**20  # the same for a minute at a high rate and with many channels
    _SLICE_PACKETS = 10_000  # and for packets of little or no audio

    def __init__(
        self,
        path: Path,
        *,
        max_audio_s: float,
        log_mel: LogMel | None = None,
        voice: VoiceDetector | None = None,
        max_decoded_bytes: int | None = None,
    ) -> None:
        self._path = path
        self._max_audio_s = max_audio_s
        self._decoder = Decoder(path, max_decoded_bytes=max_decoded_bytes)
        self._blocks = self._decoder.blocks()
        self._peak_meter = None if log_mel is None else PeakMeter(log_mel)
        self._voice_meter = None if voice is None else VoiceMeter(voice)
        self._num_samples = 0

    def step(self) -> Audio | None:
        """Decode the next slice. Returns the facts once the end is reached, else ``None``.

        Raises:
            UnreadableAudioError: there is no audio in the file.
            DecodedTooLargeError: it unpacks to more than ``max_decoded_bytes``.
            AudioTooLongError: there is more than ``max_audio_s`` of it.
        """
        stop_bytes = self._decoder.num_decoded_bytes + self._SLICE_BYTES
        stop_packets = self._decoder.num_packets + self._SLICE_PACKETS
        for _ in range(self._SLICE_BLOCKS):
            block = next(self._blocks, None)
            if block is None:
                return self._finish()
            self._take(block)
            if self._decoder.num_decoded_bytes > stop_bytes or self._decoder.num_packets >= stop_packets:
                break
        return None

    def _take(self, block: Samples) -> None:
        self._num_samples += len(block)
        if self._num_samples > self._max_audio_s * SAMPLE_RATE_HZ:
            raise AudioTooLongError(limit_s=self._max_audio_s, actual_s=self._num_samples / SAMPLE_RATE_HZ)
        for meter in (self._peak_meter, self._voice_meter):
            if meter is not None and len(block):
                meter.feed(block)

    def _finish(self) -> Audio:
        return Audio(
            path=self._path,
            num_samples=self._num_samples,
            peak_log_mel=None if self._peak_meter is None else self._peak_meter.finish(),
            speech=None if self._voice_meter is None else self._voice_meter.finish(),
            warning=self._decoder.warning(),
        )

    def close(self) -> None:
        """Release the decoder and the file. Idempotent."""
        self._blocks.close()
