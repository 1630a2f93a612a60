"""From results to reply bodies, in OpenAI's shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fastapi.responses import JSONResponse, PlainTextResponse, Response

from sooner.audio.probe import Audio
from sooner.engines.base import Segment, Word
from sooner.server.languages import language_name
from sooner.server.parameters import Parameters
from sooner.server.subtitles import srt, vtt
from sooner.service.dispatcher import Transcript

__all__ = ["done_event", "transcript_response", "warning_header"]


def transcript_response(transcript: Transcript, audio: Audio, parameters: Parameters) -> Response:
    """The reply for a finished job, with what scheduling and serving did to it in the headers."""
    headers = {
        "x-request-id": transcript.job.id,
        "x-sooner-wait-s": f"{transcript.wait_s:.3f}",
        "x-sooner-service-s": f"{transcript.service_s:.3f}",
        "x-sooner-size-s": f"{transcript.job.size_s:.3f}",
        "x-sooner-num-tokens": str(transcript.num_tokens),
        "x-sooner-num-windows": str(transcript.num_windows),
        **warning_header(audio),
    }
    match parameters.response_format:
        case "text":
            return PlainTextResponse(transcript.text + "\n", headers=headers)
        case "srt":
            return PlainTextResponse(srt(transcript.segments), headers=headers)
        case "vtt":
            return Response(vtt(transcript.segments), media_type="text/vtt", headers=headers)
        case "verbose_json":
            body = _verbose(transcript, audio, parameters)
        case "json":
            body = {"text": transcript.text, **_remarks(audio)}
    return JSONResponse(body, headers=headers)


def done_event(transcript: Transcript, audio: Audio) -> dict[str, object]:
    """The last event of a stream."""
    return {"type": "transcript.text.done", "text": transcript.text, **_remarks(audio)}


def warning_header(audio: Audio) -> Mapping[str, str]:
    """The header that warns of a damaged file; empty where there is nothing to say."""
    if audio.warning is None:
        return {}
    plain = " ".join(audio.warning.split())  # a header is one line, and ASCII
    return {"x-sooner-warning": plain.encode("ascii", errors="replace").decode()}


def _remarks(audio: Audio) -> dict[str, object]:
    usage = {"type": "duration", "seconds": math.ceil(audio.audio_s)}
    return {"usage": usage} if audio.warning is None else {"usage": usage, "warnings": [audio.warning]}


def _verbose(transcript: Transcript, audio: Audio, parameters: Parameters) -> dict[str, object]:
    """OpenAI leaves ``segments`` out where words alone are asked for, and ``words`` where they are not."""
    task = parameters.decoding.task
    body: dict[str, object] = {
        "task": task,
        "language": "english" if task == "translate" else language_name(transcript.language),
        "duration": audio.audio_s,
        "text": transcript.text,
    }
    if "word" in parameters.granularities:
        body["words"] = [_word(word) for segment in transcript.segments for word in segment.words]
    if "segment" in parameters.granularities:
        body["segments"] = [_segment(index, segment) for index, segment in enumerate(transcript.segments)]
    return body | _remarks(audio)


def _word(word: Word) -> dict[str, object]:
    return {"word": word.text.strip(), "start": _to_ms(word.start_s), "end": _to_ms(word.end_s)}


def _segment(index: int, segment: Segment) -> dict[str, object]:
    return {
        "id": index,
        "seek": segment.seek,
        "start": _to_ms(segment.start_s),
        "end": _to_ms(segment.end_s),
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def _to_ms(seconds: float) -> float:
    """Rounded to milliseconds, as in subtitles: 0.8400000000000001 tells nobody more."""
    return round(seconds, 3)
