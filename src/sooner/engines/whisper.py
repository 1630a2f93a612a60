"""Whisper through faster-whisper and CTranslate2, one window a step.

faster-whisper's own ``transcribe`` holds the whole recording and its spectrogram, and its generator cannot
be stopped at a window's end. The loop here makes the same calls window by window, on features that are equal
bit by bit (see ``audio.mel``), so the text is the one of a run to completion. Two things differ on purpose:

- A window that the model itself doubts (``no_speech_prob`` over 0.6) is checked by Silero's voice detector and
  dropped where that hears nobody: Whisper writes "You" or "Thank you." over silence.
- A window that would not advance is skipped, so no recording runs for ever.

Where the probe listened for voices, so does a third: a window begins where somebody speaks, or not at all.

Where the text of a window looks wrong (repetitions, low probability) Whisper tries again at higher temperatures,
up to five times. Each try is a step of its own: six in one go kept a worker for eight times the median window,
and nothing could overtake. CTranslate2 limits a try to 224 tokens, half of Whisper's context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from ctranslate2 import StorageView, get_cuda_device_count
from faster_whisper import WhisperModel
from faster_whisper.audio import pad_or_trim
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import TranscriptionOptions, get_suppressed_tokens
from faster_whisper.utils import get_end
from faster_whisper.vad import VadOptions, get_speech_timestamps

from sooner.audio.decode import SAMPLE_RATE_HZ, PcmStream, Samples
from sooner.audio.mel import HOP_SAMPLES, WINDOW_FRAMES, LogMel
from sooner.audio.probe import Audio
from sooner.audio.silero import SileroDetector
from sooner.audio.voice import VoiceDetector
from sooner.core.job import Job
from sooner.engines.base import DecodingOptions, Segment, WindowResult, Word
from sooner.engines.models import ModelFiles
from sooner.engines.process import tune_for_workers
from sooner.errors import EngineError, ModelUnavailableError, SchedulerUsageError

__all__ = ["WhisperDecoding", "WhisperEngine"]

_FRAME_S = HOP_SAMPLES / SAMPLE_RATE_HZ
_FRAMES_PER_S = SAMPLE_RATE_HZ // HOP_SAMPLES
_FALLBACK_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_NO_SPEECH = 0.6
_LOG_PROB = -1.0
_COMPRESSION_RATIO = 2.4
_VOICE = VadOptions(min_speech_duration_ms=250)
_PREPENDED = "\"'“¿([{-"  # punctuation that belongs to the word behind it, and to the one before it
_APPENDED = "\"'.。,，!！?？:：”)]}、"


class WhisperEngine:
    """One loaded model, shared by ``num_workers`` threads.

    Args:
        files: the model; see ``find_model``.
        num_workers: how many windows may run at once.
        device: ``auto``, ``cpu`` or ``cuda``.
        compute_type: a CTranslate2 compute type; ``auto`` is int8 on a CPU, float16 on a GPU.
        beam_size: beams at temperature 0.

    Raises:
        ModelUnavailableError: the model could not be loaded or fetched.
    """

    def __init__(
        self,
        files: ModelFiles,
        *,
        num_workers: int,
        device: str = "auto",
        compute_type: str = "auto",
        beam_size: int = 5,
    ) -> None:
        tune_for_workers()
        device = resolve_device(device)
        if compute_type == "auto":
            compute_type = "int8" if device == "cpu" else "float16"
        try:
            self.model = WhisperModel(
                files.location,
                device=device,
                compute_type=compute_type,
                cpu_threads=1,
                num_workers=num_workers,
            )
        except Exception as error:  # the hub client and CTranslate2 raise types of many libraries
            raise ModelUnavailableError(
                f"model {files.location!r} could not be loaded on {device} ({compute_type}): {error}"
            ) from error
        self.model_id = files.model_id
        self.device = device
        self.compute_type = compute_type
        self.beam_size = beam_size
        self.log_mel = LogMel(self.model.feature_extractor.mel_filters)
        self.languages = tuple(self.model.supported_languages)
        get_speech_timestamps(np.zeros(SAMPLE_RATE_HZ, dtype=np.float32), _VOICE)  # load the detector now
        self.can_translate = bool(self.model.model.is_multilingual)
        self.ready = True
        self.num_restarts = 0

    @cached_property
    def voice(self) -> VoiceDetector:
        """For the probe; loaded when asked for, because windows are run in a process that does not probe."""
        return SileroDetector()

    def start(self, job: Job, audio: Audio, options: DecodingOptions) -> WhisperDecoding:
        return WhisperDecoding(self, job, audio, options)

    def close(self) -> None:
        self.ready = False


def resolve_device(device: str) -> str:
    """``auto`` becomes ``cuda`` where CTranslate2 finds a GPU, else ``cpu``."""
    if device != "auto":
        return device
    return "cuda" if get_cuda_device_count() else "cpu"


class WhisperDecoding:
    """See ``Decoding``. Between steps it holds the tail of its last window, tokens and an open decoder."""

    def __init__(self, engine: WhisperEngine, job: Job, audio: Audio, options: DecodingOptions) -> None:
        self._model = engine.model
        self._log_mel = engine.log_mel
        self._audio = audio
        self._peak = audio.peak_log_mel
        self._num_frames = audio.num_samples // HOP_SAMPLES
        self._stream = PcmStream(audio.path)
        self._seek = self._next_voice(0)
        self._language = job.language
        self._options = options
        self._beam_size = engine.beam_size
        self._recogniser: _Recogniser | None = None
        self._window: _Window | None = None
        self._finished = False

    def step(self) -> WindowResult:
        if self._finished:
            raise SchedulerUsageError("this decoding is finished or closed")
        try:
            return self._step()
        except (OSError, RuntimeError, ValueError) as error:
            raise EngineError(f"the model failed at {self._position_s():.1f} s: {error}") from error

    def _step(self) -> WindowResult:
        segments: tuple[Segment, ...] = ()
        num_tokens = 0
        if self._seek < self._num_frames:
            window = self._window or self._next_window()
            attempt = self._recogniser_for(window).attempt(window)
            num_tokens = attempt.num_tokens
            self._window = window if attempt.again else None
            if not attempt.again:
                segments, self._seek = attempt.segments, self._next_voice(attempt.next_seek)
                seen = min(self._seek, window.seek + window.num_frames)  # what is skipped is not decoded yet
                self._stream.forget_before(max(0, LogMel.span(seen, 1)[0]))
        done = self._seek >= self._num_frames
        if done:
            self.close()
        return WindowResult(
            segments=segments,
            num_tokens=num_tokens,
            position_s=self._audio.audio_s if done else self._position_s(),
            done=done,
            language=(self._language or "en") if self._recogniser is None else self._recogniser.language,
        )

    def _next_voice(self, seek: int) -> int:
        """The first frame from ``seek`` on at which somebody speaks; past the end where nobody does."""
        if self._audio.speech is None:
            return seek
        for start_s, end_s in self._audio.speech:
            if end_s > seek * _FRAME_S:
                return max(seek, int(start_s * _FRAMES_PER_S))
        return self._num_frames

    def _next_window(self) -> _Window:
        """Encode the window at the current seek, its features scaled by the peak of the whole recording."""
        num_frames = min(WINDOW_FRAMES, self._num_frames - self._seek)
        # One frame more than the window: where the probe measured no peak, the first window sees every frame.
        start, stop = LogMel.span(self._seek, num_frames + 1)
        samples = self._stream.read(max(0, start), stop)
        log_mel = self._log_mel.frames(samples, self._seek, num_frames + 1)
        if self._peak is None:
            self._peak = float(log_mel.max())
        features = LogMel.scale(log_mel[:, :num_frames], self._peak)
        encoded = self._model.encode(pad_or_trim(features))
        return _Window(seek=self._seek, num_frames=num_frames, samples=samples, encoded=encoded)

    def _recogniser_for(self, window: _Window) -> _Recogniser:
        if self._recogniser is None:
            language = self._language
            if language is None:
                language = "en"
                if self._model.model.is_multilingual:
                    language = self._model.model.detect_language(window.encoded)[0][0][0][2:-2]
            self._recogniser = _Recogniser(self._model, language, self._options, self._beam_size)
        return self._recogniser

    def _position_s(self) -> float:
        return self._seek * HOP_SAMPLES / SAMPLE_RATE_HZ

    def close(self) -> None:
        self._finished = True
        self._window = None
        self._stream.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """One encoded window: frames ``seek`` to ``seek + num_frames`` of the recording."""

    seek: int
    num_frames: int
    samples: Samples
    encoded: StorageView


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """What one pass over a window gave; with ``again``, nothing yet but the tokens it cost."""

    num_tokens: int
    again: bool = False
    segments: tuple[Segment, ...] = ()
    next_seek: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    tokens: list[int]
    avg_logprob: float
    temperature: float
    compression_ratio: float
    no_speech_prob: float

    @property
    def doubtful(self) -> bool:
        """Whether a higher temperature should be tried; silence is not worth another try."""
        if self.avg_logprob < _LOG_PROB:
            return self.no_speech_prob <= _NO_SPEECH
        return self.compression_ratio > _COMPRESSION_RATIO


class _Recogniser:
    """Turns encoded windows into segments; its state is the text that conditions the next window."""

    def __init__(self, model: WhisperModel, language: str, options: DecodingOptions, beam_size: int) -> None:
        self.language = language
        self._model = model
        self._tokenizer = Tokenizer(
            model.hf_tokenizer, model.model.is_multilingual, task=options.task, language=language
        )
        self._options = _transcription_options(self._tokenizer, beam_size)
        self._temperatures = _FALLBACK_TEMPERATURES if options.temperature == 0 else (options.temperature,)
        self._words = options.words
        self._last_speech_s = 0.0  # where the last word ended
        self._candidates: list[_Candidate] = []
        self._context: list[int] = []
        if options.prompt:
            self._context = self._tokenizer.encode(" " + options.prompt.strip())

    def attempt(self, window: _Window) -> _Attempt:
        """Decode the window at the next temperature; accept the text, or ask to be called again."""
        candidate = self._generate(window.encoded, self._temperatures[len(self._candidates)])
        self._candidates.append(candidate)
        num_tokens = len(candidate.tokens)
        if candidate.doubtful:
            if len(self._candidates) < len(self._temperatures):
                return _Attempt(num_tokens=num_tokens, again=True)
            candidate = self._least_bad()
        hottest = self._candidates[-1].temperature
        self._candidates = []
        segments, next_seek = self._accept(candidate, window, hottest)
        return _Attempt(num_tokens=num_tokens, segments=segments, next_seek=next_seek)

    def _generate(self, encoded: StorageView, temperature: float) -> _Candidate:
        prompt = self._model.get_prompt(self._tokenizer, self._context)
        options = replace(self._options, temperatures=[temperature])
        result, avg_logprob, _, compression_ratio = self._model.generate_with_fallback(
            encoded, prompt, self._tokenizer, options
        )
        return _Candidate(
            tokens=result.sequences_ids[0],
            avg_logprob=avg_logprob,
            temperature=temperature,
            compression_ratio=compression_ratio,
            no_speech_prob=result.no_speech_prob,
        )

    def _least_bad(self) -> _Candidate:
        varied = [c for c in self._candidates if c.compression_ratio <= _COMPRESSION_RATIO]
        return max(varied or self._candidates, key=lambda c: c.avg_logprob)

    def _accept(self, candidate: _Candidate, window: _Window, hottest: float) -> tuple[tuple[Segment, ...], int]:
        """The segments of the accepted text, and the frame at which the next window begins."""
        past_window = window.seek + window.num_frames
        if _is_silence(candidate, window.samples):
            return (), past_window
        pieces, next_seek, ends_in_silence = self._model._split_segments_by_timestamps(
            tokenizer=self._tokenizer,
            tokens=candidate.tokens,
            time_offset=window.seek * _FRAME_S,
            segment_size=window.num_frames,
            segment_duration=window.num_frames * _FRAME_S,
            seek=window.seek,
        )
        if self._words:
            last_word_s = self._find_words(pieces, window)
            if not ends_in_silence and last_word_s > window.seek * _FRAME_S:
                next_seek = round(last_word_s * _FRAMES_PER_S)
        segments = tuple(
            self._segment(piece, candidate, window.seek, hottest)
            for piece in pieces
            if piece["start"] != piece["end"]
        )
        segments = tuple(segment for segment in segments if segment.text.strip())
        for segment in segments:
            self._context.extend(segment.tokens)
        if hottest > self._options.prompt_reset_on_temperature:
            self._context = []  # text that took so much luck must not steer the next window
        return segments, next_seek if next_seek > window.seek else past_window

    def _find_words(self, pieces: list[dict[str, Any]], window: _Window) -> float:
        """Give each piece its words, and times that fit them. Returns the second at which the last one ends."""
        self._model.add_word_timestamps(
            [pieces],
            self._tokenizer,
            window.encoded,
            window.num_frames,
            _PREPENDED,
            _APPENDED,
            last_speech_timestamp=self._last_speech_s,
        )
        self._last_speech_s = float(get_end(pieces))
        return self._last_speech_s

    def _segment(self, piece: dict[str, Any], candidate: _Candidate, seek: int, temperature: float) -> Segment:
        return Segment(
            start_s=float(piece["start"]),
            end_s=float(piece["end"]),
            text=self._tokenizer.decode(piece["tokens"]),
            tokens=tuple(piece["tokens"]),
            temperature=temperature,
            avg_logprob=candidate.avg_logprob,
            compression_ratio=candidate.compression_ratio,
            no_speech_prob=candidate.no_speech_prob,
            seek=seek,
            words=tuple(map(_word, piece.get("words", ()))),
        )


def _word(word: dict[str, Any]) -> Word:
    return Word(
        start_s=float(word["start"]),
        end_s=float(word["end"]),
        text=word["word"],
        probability=float(word["probability"]),
    )


def _is_silence(candidate: _Candidate, samples: Samples) -> bool:
    if candidate.no_speech_prob <= _NO_SPEECH:
        return False
    return candidate.avg_logprob <= _LOG_PROB or not get_speech_timestamps(samples, _VOICE)


def _transcription_options(tokenizer: Tokenizer, beam_size: int) -> TranscriptionOptions:
    """faster-whisper's own defaults; the temperature is set for each attempt."""
    return TranscriptionOptions(
        beam_size=beam_size,
        best_of=5,
        patience=1,
        length_penalty=1,
        repetition_penalty=1,
        no_repeat_ngram_size=0,
        log_prob_threshold=_LOG_PROB,
        no_speech_threshold=_NO_SPEECH,
        compression_ratio_threshold=_COMPRESSION_RATIO,
        condition_on_previous_text=True,
        prompt_reset_on_temperature=0.5,
        temperatures=[],
        initial_prompt=None,
        prefix=None,
        suppress_blank=True,
        suppress_tokens=get_suppressed_tokens(tokenizer, [-1]),
        without_timestamps=False,
        max_initial_timestamp=1.0,
        word_timestamps=False,
        prepend_punctuations="",
        append_punctuations="",
        multilingual=False,
        max_new_tokens=None,
        clip_timestamps="0",
        hallucination_silence_threshold=None,
        hotwords=None,
    )
