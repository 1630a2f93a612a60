"""Whisper's log-mel front end, a stretch at a time.

Whisper floors its spectrogram 8 decades below the loudest point of the *whole* recording
(https://github.com/openai/whisper/blob/main/whisper/audio.py, ``log_mel_spectrogram``). To give a window the
very features it would have in a run over the whole file, one number is needed in advance: that peak. The
probe decodes every upload once to measure its length and takes the peak in the same pass, so no window ever
needs the spectrogram of another. Taking the peak of each window instead, which needs no pass, lost:
it changes transcripts of recordings that are quiet in places.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sooner.audio.decode import Samples

__all__ = ["HOP_SAMPLES", "WINDOW_FRAMES", "Features", "LogMel", "PeakMeter"]

HOP_SAMPLES = 160
WINDOW_FRAMES = 3000
_FFT_SAMPLES = 400
_HALF = _FFT_SAMPLES // 2
_LEAST_ENERGY = np.float32(1e-10)

Features = npt.NDArray[np.float32]
"""Log10 mel energies, shape (n_mels, n_frames); frame i is centred on sample 160 · i."""


class LogMel:
    """Computes log-mel frames from samples.

    Args:
        mel_filters: the model's filter bank, shape (n_mels, 201).
    """

    def __init__(self, mel_filters: npt.NDArray[np.float32]) -> None:
        self._filters = np.ascontiguousarray(mel_filters, dtype=np.float32)
        self._hann = np.hanning(_FFT_SAMPLES + 1)[:-1].astype(np.float32)

    @staticmethod
    def span(first_frame: int, num_frames: int) -> tuple[int, int]:
        """The samples that these frames look at: first and one past the last; may lie outside the audio."""
        start = first_frame * HOP_SAMPLES - _HALF
        return start, start + (num_frames - 1) * HOP_SAMPLES + _FFT_SAMPLES

    def frames(self, samples: Samples, first_frame: int, num_frames: int) -> Features:
        """Log10 mel energies of ``num_frames`` frames, without floor or scaling.

        Args:
            samples: the audio from the first sample of ``span`` that exists, as far as the span reaches or
                the audio goes. Past its end the audio is silence; before its beginning it is mirrored.
        """
        start, stop = self.span(first_frame, num_frames)
        missing = stop - max(start, 0) - len(samples)
        padded = np.pad(samples, (0, max(0, missing)))
        if start < 0:
            padded = np.pad(padded, (-start, 0), mode="reflect")
        strided = np.lib.stride_tricks.sliding_window_view(padded, _FFT_SAMPLES)[::HOP_SAMPLES][:num_frames]
        spectrum = np.fft.rfft(strided * self._hann)
        power = (np.abs(spectrum) ** 2).astype(np.float32)
        mel = self._filters @ power.T
        log_mel: Features = np.log10(np.maximum(mel, _LEAST_ENERGY))
        return log_mel

    @staticmethod
    def scale(log_mel: Features, peak: float) -> Features:
        """Floor at 8 decades below ``peak`` and map to the range the model was trained on."""
        return (np.maximum(log_mel, np.float32(peak - 8.0)) + np.float32(4.0)) / np.float32(4.0)


class PeakMeter:
    """Finds the highest log-mel energy of a recording that is fed block by block.

    Costs nothing for a recording that fits in one window: its first window holds its peak.

    Args:
        log_mel: the front end.
    """

    def __init__(self, log_mel: LogMel) -> None:
        self._log_mel = log_mel
        self._parts: list[Samples] = []
        self._num_held = 0
        self._next_frame = 0
        self._peak: float | None = None

    def feed(self, block: Samples) -> None:
        """Take the next block of samples, shape (n,)."""
        self._parts.append(block)
        self._num_held += len(block)
        if self._num_held > (WINDOW_FRAMES + 3) * HOP_SAMPLES:
            self._measure(WINDOW_FRAMES)

    def finish(self) -> float | None:
        """The peak of all that was fed; ``None`` where the first window holds all of it."""
        last_frame = (self._held_from() + self._num_held) // HOP_SAMPLES
        if last_frame > WINDOW_FRAMES:
            self._measure(last_frame + 1 - self._next_frame)
        return self._peak

    def _held_from(self) -> int:
        """The first sample that is still held: where the next frame to measure begins."""
        return max(0, self._next_frame * HOP_SAMPLES - _HALF)

    def _measure(self, num_frames: int) -> None:
        held = np.concatenate(self._parts)
        if held.any():
            peak = float(self._log_mel.frames(held, self._next_frame, num_frames).max())
        else:
            peak = float(np.log10(_LEAST_ENERGY))  # hours of silence in a few kilobytes: no spectrum for them
        self._peak = peak if self._peak is None else max(self._peak, peak)
        held_from = self._held_from()
        self._next_frame += num_frames
        rest = held[self._held_from() - held_from :].copy()
        self._parts, self._num_held = [rest], len(rest)
