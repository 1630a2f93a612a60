"""Segments as subtitles: SubRip and WebVTT.

Both end a cue at an empty line and take a line with ``-->`` for the times of another, so neither may get into the
text. WebVTT (https://www.w3.org/TR/webvtt1/) also reads markup, which is escaped; SubRip has no escapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sooner.engines.base import Segment

__all__ = ["srt", "vtt"]


def srt(segments: Iterable[Segment]) -> str:
    """The segments as a SubRip file; those without text are left out. O(characters)."""
    cues = [
        f"{number}\n{_time(start_ms, ',')} --> {_time(end_ms, ',')}\n{text.replace('-->', '->')}\n\n"
        for number, (start_ms, end_ms, text) in enumerate(_cues(segments), start=1)
    ]
    return "".join(cues)


def vtt(segments: Iterable[Segment]) -> str:
    """The segments as a WebVTT file; those without text are left out. O(characters)."""
    cues = [
        f"{_time(start_ms, '.')} --> {_time(end_ms, '.')}\n{_escaped(text)}\n\n"
        for start_ms, end_ms, text in _cues(segments)
    ]
    return "WEBVTT\n\n" + "".join(cues)


def _cues(segments: Iterable[Segment]) -> Iterator[tuple[int, int, str]]:
    """Begin and end, milliseconds, and text of each cue."""
    for segment in segments:
        lines = (line.strip() for line in segment.text.splitlines())
        text = "\n".join(line for line in lines if line)
        if text:
            start_ms = round(segment.start_s * 1000)
            yield start_ms, max(start_ms + 1, round(segment.end_s * 1000)), text  # players drop a cue of no length


def _time(total_ms: int, mark: str) -> str:
    seconds, ms = divmod(total_ms, 1000)
    minutes, s = divmod(seconds, 60)
    h, m = divmod(minutes, 60)
    return f"{h:02d}:{m:02d}:{s:02d}{mark}{ms:03d}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
