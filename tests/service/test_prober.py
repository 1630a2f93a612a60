"""Probes take turns, and leave nothing behind when cancelled."""

from __future__ import annotations

import asyncio

import pytest

from sooner.audio.silero import SileroDetector
from sooner.errors import AudioTooLongError, DecodedTooLargeError
from sooner.service.prober import Prober
from sooner.workload.recordings import clip_named


def test_a_clip_is_measured_before_an_hour_is(silent_wav) -> None:
    """With one thread: slices of the hour alternate with other uploads, so the clip need not wait for it."""

    async def scenario() -> list[str]:
        prober = Prober(max_audio_s=1e6, log_mel=None, num_threads=1)
        done: list[str] = []

        async def measure(name: str, path) -> None:
            await prober.measure(path)
            done.append(name)

        hour = asyncio.ensure_future(measure("hour", silent_wav(3600.0)))
        await asyncio.sleep(0)  # the hour has the thread
        await asyncio.gather(hour, measure("clip", clip_named("jfk").path))
        prober.close()
        return done

    assert asyncio.run(scenario()) == ["clip", "hour"]


def test_too_long_is_refused(silent_wav) -> None:
    async def scenario() -> None:
        prober = Prober(max_audio_s=100.0, log_mel=None)
        with pytest.raises(AudioTooLongError):
            await prober.measure(silent_wav(600.0))
        prober.close()

    asyncio.run(scenario())


def test_cancelling_frees_the_turn(silent_wav) -> None:
    async def scenario() -> float:
        prober = Prober(max_audio_s=1e6, log_mel=None, num_threads=1)
        hour = asyncio.ensure_future(prober.measure(silent_wav(3600.0)))
        await asyncio.sleep(0)
        hour.cancel()
        await asyncio.gather(hour, return_exceptions=True)
        assert hour.cancelled()
        audio = await prober.measure(clip_named("jfk").path)
        prober.close()
        return audio.audio_s

    assert asyncio.run(scenario()) == pytest.approx(11.0)


def test_voices_and_bytes(silent_wav) -> None:
    """What the prober is given reaches the probe."""

    async def scenario() -> None:
        prober = Prober(max_audio_s=100.0, log_mel=None, voice=SileroDetector(), max_decoded_bytes=400_000)
        assert (await prober.measure(clip_named("jfk").path)).speech == ((0.0, 11.0),)
        assert (await prober.measure(silent_wav(20.0))).speech == ()
        with pytest.raises(DecodedTooLargeError) as refused:
            await prober.measure(silent_wav(60.0))
        assert refused.value.limit_bytes == 400_000
        prober.close()

    asyncio.run(scenario())
