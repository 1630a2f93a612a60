"""Real speech for every request of a trace, on disk before the first is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sooner.audio.probe import Audio, Probe
from sooner.bench.joined import join_to_length
from sooner.errors import AudioTooLongError, ConfigurationError, UnreadableAudioError
from sooner.workload.recordings import clips
from sooner.workload.trace import TraceRequest

__all__ = ["MAX_JOINED_S", "AudioPool", "Speech"]

MAX_JOINED_S = 100 * 3600.0
"""Most seconds of joined recordings that a pool holds: 6 GB of FLAC."""

_LONGEST_CLIP_S = 12.0  # above it there is one shipped clip of 17 s and nothing beside
_LONGEST_OWN_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """One recording to be sent.

    Attributes:
        path: the file.
        audio_s: its real length, seconds.
        transcript: what is said in it, ``None`` where not known.
    """

    path: Path
    audio_s: float
    transcript: str | None


class AudioPool:
    """Recordings of the lengths that traces ask for.

    A request with a recording of its own gets that one. Up to 12 s, a request gets the shipped clip that is
    nearest in length; a longer one gets clips joined to its length, rounded to two digits, so that equal lengths
    share a file.

    Args:
        folder: where joined recordings are kept; whoever made it removes it.
        max_joined_s: most seconds of them.
    """

    def __init__(self, folder: Path, *, max_joined_s: float = MAX_JOINED_S) -> None:
        self._folder = folder
        self._max_joined_s = max_joined_s
        self._joined: dict[float, Speech] = {}
        self._own_s: dict[Path, float] = {}

    def prepare(
        self, requests: Iterable[TraceRequest], *, on_done: Callable[[int, int], None] | None = None
    ) -> None:
        """Make and measure all that these requests need. Takes two seconds for an hour of audio.

        Args:
            requests: of any number of traces.
            on_done: called with how many recordings are there and how many are needed.

        Raises:
            ConfigurationError: more would be joined than the pool holds, or a recording cannot be read.
        """
        requests = list(requests)
        own = {one.path for one in requests if one.path is not None} - self._own_s.keys()
        lengths = {_rounded_s(one.audio_s) for one in requests if one.path is None and _is_long(one)}
        self._check_room(lengths)
        work = [partial(self._measure, path) for path in sorted(own)]
        work += [partial(self._join, length_s) for length_s in sorted(lengths - self._joined.keys())]
        for number, step in enumerate(work, start=1):
            step()
            if on_done is not None:
                on_done(number, len(work))

    def recording_for(self, request: TraceRequest) -> Speech:
        """The recording of a request that was prepared."""
        if request.path is not None:
            audio_s = self._own_s[request.path]
            return Speech(path=request.path, audio_s=audio_s, transcript=request.transcript)
        if _is_long(request):
            return self._joined[_rounded_s(request.audio_s)]
        clip = min(clips(), key=lambda clip: abs(clip.audio_s - request.audio_s))
        return Speech(path=clip.path, audio_s=clip.audio_s, transcript=clip.transcript)

    def _check_room(self, lengths: set[float]) -> None:
        joined_s = sum(lengths | self._joined.keys())
        if joined_s > self._max_joined_s:
            raise ConfigurationError(
                f"this workload needs {joined_s / 3600:.1f} h of recordings on disk, the limit is "
                f"{self._max_joined_s / 3600:.1f} h; lower --max-file-s or --requests"
            )

    def _join(self, length_s: float) -> None:
        path = self._folder / f"joined-{length_s:g}.flac"
        made = join_to_length(path, audio_s=length_s, seed=round(length_s))
        self._joined[length_s] = Speech(path=path, audio_s=made.audio_s, transcript=made.transcript)

    def _measure(self, path: Path) -> None:
        """A trace's own length is a claim; what counts is what the server will decode."""
        audio: Audio | None = None
        try:
            probe = Probe(path, max_audio_s=_LONGEST_OWN_S)
            while audio is None:
                audio = probe.step()
        except (OSError, UnreadableAudioError, AudioTooLongError) as error:
            raise ConfigurationError(f"recording {path}: {error}") from error
        self._own_s[path] = audio.audio_s


def _is_long(request: TraceRequest) -> bool:
    return request.audio_s > _LONGEST_CLIP_S


def _rounded_s(audio_s: float) -> float:
    return float(f"{audio_s:.2g}")
