"""Measuring uploads off the event loop, taking turns.

How long an upload is shows only when it has been decoded, so probes cannot be ordered by length. They are
served round robin by slices of about a minute of audio: a clip is measured in its first turn, however many
hours-long files are being measured beside it.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sooner.audio.mel import LogMel
from sooner.audio.probe import Audio, Probe
from sooner.audio.voice import VoiceDetector
from sooner.errors import ServiceClosedError
from sooner.service.threads import run_to_its_end

__all__ = ["Prober"]


class Prober:
    """Runs probes in a small pool of threads.

    Args:
        max_audio_s: longest audio to accept, seconds.
        log_mel: front end whose peak to measure; see ``Engine.log_mel``.
        voice: what finds voices; see ``Engine.voice``.
        max_decoded_bytes: samples to unpack at most of one upload, in bytes; ``None`` for no limit.
        num_threads: slices decoded at once.
    """

    def __init__(
        self,
        *,
        max_audio_s: float,
        log_mel: LogMel | None,
        voice: VoiceDetector | None = None,
        max_decoded_bytes: int | None = None,
        num_threads: int = 2,
    ) -> None:
        self._max_audio_s = max_audio_s
        self._log_mel = log_mel
        self._voice = voice
        self._max_decoded_bytes = max_decoded_bytes
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="sooner-probe")
        self._refusing = False
        self._turns = asyncio.Semaphore(num_threads)  # first in, first out: round robin by slices

    async def measure(self, path: Path) -> Audio:
        """Decode an upload once and return what is known of it.

        Raises:
            UnreadableAudioError, DecodedTooLargeError, AudioTooLongError: see ``Probe.step``.
            ServiceClosedError: ``refuse`` was called.
        """
        probe = Probe(
            path,
            max_audio_s=self._max_audio_s,
            log_mel=self._log_mel,
            voice=self._voice,
            max_decoded_bytes=self._max_decoded_bytes,
        )
        try:
            while True:
                async with self._turns:
                    if self._refusing:
                        raise ServiceClosedError
                    audio = await run_to_its_end(self._pool, probe.step)
                if audio is not None:
                    return audio
        finally:
            probe.close()

    def refuse(self) -> None:
        """Measure nothing more: every ``measure`` under way ends with ``ServiceClosedError`` after its slice."""
        self._refusing = True

    def close(self) -> None:
        """Let the threads end. Call when no ``measure`` is under way."""
        self._pool.shutdown(wait=False)
