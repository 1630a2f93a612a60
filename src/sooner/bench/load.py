"""One run: a trace sent to one server in an open loop, and a run file that grows as answers come.

While requests are under way nothing is done here but sending, reading and writing a line, because whatever else
this process did would make it send late. Texts are compared with what was said when all is over; then the file is
written once more, with word error rates, and with how late requests were sent in the header.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sooner.bench.accuracy import WordErrors, word_errors
from sooner.bench.audio_pool import AudioPool, Speech
from sooner.bench.client import Answer, Caller, Sending, send_all
from sooner.core.estimator import Estimator
from sooner.core.latency import LatencyRecord, percentile
from sooner.errors import ConfigurationError
from sooner.evidence.run_file import Failure, Run, RunHeader, RunWriter, write_runs
from sooner.workload.trace import TraceRequest

__all__ = ["Load", "Watcher", "line_of", "measure", "plan_load", "warm_up"]

_MAX_MESSAGE = 500
_SIZES = Estimator()  # the same yardstick for every server, so that slowdowns can be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one run sends.

    Attributes:
        sendings: the requests; their labels are their ids, equal in all runs of a trace.
        speeches: the recording of each.
        languages: the language that each names, ``None`` for none.
    """

    sendings: Sequence[Sending]
    speeches: Sequence[Speech]
    languages: Sequence[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watcher:
    """Who is told how a run goes on.

    Attributes:
        on_sent: called as each request is sent.
        on_line: called with each line as it is written.
    """

    on_sent: Callable[[], None]
    on_line: Callable[[LatencyRecord | Failure], None]


def plan_load(
    trace: Sequence[TraceRequest], pool: AudioPool, *, form: Mapping[str, str], language: str | None = None
) -> Load:
    """What a trace sends.

    Args:
        trace: the requests.
        pool: has been prepared for them.
        form: form fields of every request.
        language: asked for where a request names none; ``None`` leaves it to the server.
    """
    languages = [request.language or language for request in trace]
    speeches = [pool.recording_for(request) for request in trace]
    sendings = [
        Sending(
            path=speech.path,
            at_s=request.arrival_s,
            label=str(number),
            form=form if spoken is None else {**form, "language": spoken},
        )
        for number, (request, speech, spoken) in enumerate(zip(trace, speeches, languages, strict=True))
    ]
    return Load(sendings=sendings, speeches=speeches, languages=languages)


def warm_up(url: str, load: Load, *, number: int, caller: Caller) -> None:
    """Send the shortest recording ``number`` times at once, and forget the answers.

    Raises:
        ConfigurationError: none of them got a text, so the run would be in vain.
    """
    if not number:
        return
    shortest = min(range(len(load.sendings)), key=lambda index: load.speeches[index].audio_s)
    sending = replace(load.sendings[shortest], at_s=0.0)
    answers = asyncio.run(send_all(url, [sending] * number, caller=caller))
    if all(answer.error is not None for answer in answers):
        last = answers[-1]
        raise ConfigurationError(f"{url} answers no request: {last.error}: {last.text.strip()[:_MAX_MESSAGE]}")


def measure(url: str, load: Load, *, header: RunHeader, path: Path, caller: Caller, watcher: Watcher) -> Run:
    """Send a load and record what comes back.

    Args:
        url: the server, without ``/v1``.
        load: what to send.
        header: first line of the file.
        path: the run file; broken off, it holds what had come by then.
        caller: see ``Caller``.
        watcher: see ``Watcher``.
    """
    with RunWriter(path) as writer:
        writer.write(header)

        def note(answer: Answer) -> None:
            line = line_of(answer, load)
            writer.write(line)
            watcher.on_line(line)

        answers = asyncio.run(send_all(url, load.sendings, on_sent=watcher.on_sent, on_answer=note, caller=caller))
    run = _whole_run(header, answers, load)
    whole = path.with_suffix(".part")
    write_runs(whole, [run])
    whole.replace(path)  # at once, so that there is never half of a file
    return run


def line_of(answer: Answer, load: Load, errors: WordErrors | None = None) -> LatencyRecord | Failure:
    """The line of a request, in seconds since the run began.

    Args:
        answer: what came back.
        load: what was sent.
        errors: of its text, ``None`` where not counted.
    """
    index = int(answer.sending.label)
    audio_s = load.speeches[index].audio_s
    begin_s = answer.due_s - answer.sending.at_s
    arrival_s, over_s = answer.sent_s - begin_s, answer.answered_s - begin_s
    if answer.error is not None:
        return Failure(
            id=answer.sending.label,
            audio_s=audio_s,
            arrival_s=arrival_s,
            failed_s=over_s,
            error=answer.error,
            message=answer.text.strip()[:_MAX_MESSAGE],
        )
    return LatencyRecord(
        id=answer.sending.label,
        audio_s=audio_s,
        size_s=_SIZES.estimate(audio_s).size_s,
        arrival_s=arrival_s,
        finished_s=over_s,
        first_text_s=answer.first_s - begin_s if answer.is_streamed else None,
        wait_s=answer.wait_s,
        service_s=answer.service_s,
        num_windows=answer.num_windows,
        num_tokens=answer.num_tokens,
        language=load.languages[index],
        word_error_rate=None if errors is None else errors.rate,
    )


def _whole_run(header: RunHeader, answers: Sequence[Answer], load: Load) -> Run:
    errors = [_errors_of(answer, load) for answer in answers]
    counted = [one for one in errors if one is not None]
    lines = [line_of(answer, load, found) for answer, found in zip(answers, errors, strict=True)]
    lags_s = [answer.lag_s for answer in answers]
    notes = {
        **header.notes,
        "lag_p99_s": percentile(lags_s, 99),
        "lag_max_s": max(lags_s),
        "num_words": sum(one.num_words for one in counted),
        "num_word_errors": sum(one.num_errors for one in counted),
    }
    return Run(
        header=replace(header, notes=notes),
        records=tuple(line for line in lines if isinstance(line, LatencyRecord)),
        failures=tuple(line for line in lines if isinstance(line, Failure)),
    )


def _errors_of(answer: Answer, load: Load) -> WordErrors | None:
    said = load.speeches[int(answer.sending.label)].transcript
    if answer.error is not None or not said:
        return None
    found = word_errors(said, answer.text)
    return found if found.num_words else None  # a transcript of nothing but punctuation
