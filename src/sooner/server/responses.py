"""From results to reply bodies, in OpenAI's shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from fastapi.responses import JSONResponse, PlainTextResponse, Response

from sooner.core.scheduler import QueuedJob, SchedulerStatistics
from sooner.server.parameters import ResponseFormat
from sooner.service.dispatcher import Transcript

__all__ = ["queue_body", "transcript_response"]


def transcript_response(transcript: Transcript, response_format: ResponseFormat) -> Response:
    """The reply for a finished job, with what scheduling and serving did to it in the headers."""
    headers = {
        "x-request-id": transcript.job.id,
        "x-sooner-wait-s": f"{transcript.wait_s:.3f}",
        "x-sooner-service-s": f"{transcript.service_s:.3f}",
        "x-sooner-size-s": f"{transcript.job.size_s:.3f}",
        "x-sooner-num-tokens": str(transcript.num_tokens),
        "x-sooner-num-windows": str(transcript.num_windows),
    }
    if response_format == "text":
        return PlainTextResponse(transcript.text + "\n", headers=headers)
    body: dict[str, object] = {"text": transcript.text}
    if response_format == "verbose_json":
        body = _verbose(transcript)
    return JSONResponse(body, headers=headers)


def _verbose(transcript: Transcript) -> dict[str, object]:
    return {
        "task": "transcribe",
        "language": transcript.language,
        "duration": transcript.job.audio_s,
        "text": transcript.text,
        "segments": [
            {
                "id": index,
                "seek": segment.seek,
                "start": segment.start_s,
                "end": segment.end_s,
                "text": segment.text,
                "tokens": segment.tokens,
                "temperature": segment.temperature,
                "avg_logprob": segment.avg_logprob,
                "compression_ratio": segment.compression_ratio,
                "no_speech_prob": segment.no_speech_prob,
            }
            for index, segment in enumerate(transcript.segments)
        ],
    }


def queue_body(
    statistics: SchedulerStatistics, jobs: Sequence[QueuedJob], *, num_arriving: int
) -> dict[str, object]:
    """The reply of ``GET /v1/queue``."""
    return {
        **asdict(statistics),
        "num_arriving": num_arriving,
        "running": [_job_row(row) for row in jobs if row.running],
        "waiting": [_job_row(row) for row in jobs if not row.running],
    }


def _job_row(row: QueuedJob) -> dict[str, object]:
    return {
        "id": row.job.id,
        "audio_s": round(row.job.audio_s, 3),
        "size_s": round(row.job.size_s, 3),
        "remaining_s": round(row.remaining_s, 3),
        "wait_s": round(row.wait_s, 3),
        "position": row.position,
        "predicted_start_s": round(row.predicted_start_s, 3),
    }
