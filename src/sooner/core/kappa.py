"""κ, output tokens per second of audio, as it is learnt from what the engine emits.

Where it was measured how much of a job is speech, a second of it is one in which somebody speaks, here and below:
what pauses there are says nothing about the next recording.

κ depends on the language (Whisper's vocabulary holds whole English words and single bytes of others) and on whose
recordings they are: how fast someone speaks, how much of a recording is silence. There are three levels:

    all jobs  ->  a language  ->  a client's jobs in that language
              ->  a client's jobs in any language, for those that name none

Each keeps the tokens and the seconds of its last jobs, older ones forgotten step by step, and is drawn to the
level above it, the more the less it has seen: ``(PRIOR_S · κ above + tokens) / (PRIOR_S + audio_s)``. That is the
mean of a gamma prior after Poisson counts (Gelman et al., Bayesian Data Analysis, 3rd ed., §2.6); where nothing
has been seen, it is the κ above. At the top is the κ that was configured, for every language alike: English is
known from LibriSpeech (see ``sooner.core.estimator``), but no source was found that gives Whisper's tokens per
second of the others, so a table of them would be made up. Unlike the levels below, the top forgets what was
configured, or else a wrong κ would bias all sizes for ever.

A repetition that Whisper made up, or silence, says nothing about speech. A job's rate is therefore moved to within
``OUTLIER_FACTOR`` of what its level expected, which is Huber's way with an outlier (Huber 1964,
https://doi.org/10.1214/aoms/1177703732). Leaving it out instead would leave out a true change, too, for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sooner.errors import LearntStateError

__all__ = ["KappaModel", "number_within"]

MEMORY_JOBS = 70
"""Jobs after which a level has forgotten all but 1/e: a change is followed to 95 % in 210 jobs of equal length. A
memory in seconds of audio would follow a service of clips later than one of files."""

PRIOR_S = 120.0
"""Seconds of audio that the level above counts for: about the sixteen utterances after which a speaker's own rate
tells more than everybody's."""

OUTLIER_FACTOR = 3.0
"""How far from the expected rate one job may pull: 12 of the 5,559 utterances of LibriSpeech's two test sets are
further from their set's."""

LOWEST, HIGHEST = 0.1, 30.0
"""Tokens per second that are learnt at least and at most. Whisper's decoder emits at most 448 tokens a window, 15
a second of a full one; a short one may hold more."""

SHORTEST_S, LONGEST_S = 0.1, 30.0
"""Seconds that one job counts for at least and at most. The windows of a long file have one speaker: they tell
little more than one of them, and an hour must not outweigh all that was learnt from clips."""

MAX_LANGUAGES = 100
MAX_CLIENTS = 2000  # a client that names no language takes two places: for what was detected, and for any

_Key = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """What one level remembers: decayed sums of tokens and of seconds."""

    tokens: float = 0.0
    audio_s: float = 0.0


class KappaModel:
    """κ per language and client, learnt job by job; memory is bounded.

    Args:
        kappa: what is expected before anything is seen, tokens per second of audio.
    """

    def __init__(self, *, kappa: float) -> None:
        self._prior = kappa
        # Least recently observed first. All jobs together are the language None, which each job observes.
        self._languages: dict[_Key, _Level] = {}
        self._clients: dict[_Key, _Level] = {}

    def kappa(self, language: str | None = None, client: str | None = None) -> float:
        """Tokens per second to expect; ``None``: not known, so of any. O(1)."""
        if client is not None:
            return _drawn(self._clients.get((language, client)), self.kappa(language))
        if language is not None:
            return _drawn(self._languages.get((language, None)), self.kappa())
        everything = self._languages.get((None, None))
        return self._prior if everything is None else everything.tokens / everything.audio_s

    def observe(
        self, *, audio_s: float, tokens: int, language: str | None = None, client: str | None = None
    ) -> None:
        """Learn from one finished job, of which ``audio_s`` is the speech where that was measured. O(1).

        Raises:
            ValueError: ``audio_s`` or ``tokens`` is negative or not finite; nothing is learnt.
        """
        for name, value in (("audio_s", audio_s), ("tokens", tokens)):
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a finite number of at least 0, not {value}")
        keys = dict.fromkeys([(None, None), (language, None), (None, client), (language, client)])
        expected = {key: self.kappa(*key) for key in keys}  # all before any changes: a job counts once
        for key, kappa in expected.items():
            self._learn(key, _rate(audio_s, tokens, kappa), min(max(audio_s, SHORTEST_S), LONGEST_S))

    def _learn(self, key: _Key, rate: float, weight_s: float) -> None:
        levels, limit = self._table(key)
        level = levels.pop(key, None)  # and in again at the end: the most recently observed
        if level is None:
            seed_s = PRIOR_S if key == (None, None) else 0.0
            level = _Level(tokens=_possible(self._prior) * seed_s, audio_s=seed_s)
        kept = math.exp(-1 / MEMORY_JOBS)
        levels[key] = _Level(
            tokens=kept * level.tokens + rate * weight_s,
            audio_s=kept * level.audio_s + weight_s,
        )
        if len(levels) > limit:
            del levels[next(iter(levels))]

    def _table(self, key: _Key) -> tuple[dict[_Key, _Level], int]:
        if key[1] is None:
            return self._languages, MAX_LANGUAGES + 1
        return self._clients, MAX_CLIENTS

    def state(self) -> dict[str, Any]:
        """All that was learnt, for JSON."""
        levels = (self._languages | self._clients).items()
        return {"levels": [[*key, level.tokens, level.audio_s] for key, level in levels]}

    @classmethod
    def from_state(cls, state: object, *, kappa: float) -> KappaModel:
        """A model that knows what the one knew whose ``state`` this is.

        Raises:
            LearntStateError: ``state`` is not one of ``state()``.
        """
        model = cls(kappa=kappa)
        rows = state.get("levels") if isinstance(state, dict) else None
        if not isinstance(rows, list):
            raise LearntStateError(reason="kappa has no list of levels")
        for row in rows:
            key, level = _parsed(row)
            levels, limit = model._table(key)
            if key in levels or len(levels) == limit:
                raise LearntStateError(reason=f"kappa has a level twice, or more than {limit} of a kind")
            levels[key] = level
        if rows and (None, None) not in model._languages:
            raise LearntStateError(reason="kappa lacks the level of all jobs")
        return model

    def check(self) -> None:
        """Raise ``AssertionError`` where an invariant does not hold. O(n); for tests."""
        assert len(self._languages) <= MAX_LANGUAGES + 1, "too many languages"
        assert len(self._clients) <= MAX_CLIENTS, "too many clients"
        levels = self._languages | self._clients
        assert not levels or (None, None) in levels, "what all jobs taught is gone"
        for level in levels.values():
            assert level.audio_s > 0, "a level without evidence"
            rate = level.tokens / level.audio_s
            assert LOWEST * (1 - 1e-9) <= rate <= HIGHEST * (1 + 1e-9), "a rate that nobody speaks at"


def _drawn(level: _Level | None, above: float) -> float:
    if level is None:
        return above
    return (PRIOR_S * above + level.tokens) / (PRIOR_S + level.audio_s)


def _rate(audio_s: float, tokens: int, expected: float) -> float:
    """The rate of one job, no further from the expected one than an outlier may be."""
    rate = tokens / max(audio_s, SHORTEST_S)
    return _possible(min(max(rate, expected / OUTLIER_FACTOR), expected * OUTLIER_FACTOR))


def _possible(rate: float) -> float:
    return min(max(rate, LOWEST), HIGHEST)


def _parsed(row: object) -> tuple[_Key, _Level]:
    if not isinstance(row, list) or len(row) != 4:
        raise LearntStateError(reason="a level of kappa is not language, client, tokens and seconds")
    language, client, tokens, audio_s = row
    if not all(name is None or isinstance(name, str) for name in (language, client)):
        raise LearntStateError(reason="a language or client is not a text")
    longest_s = PRIOR_S + LONGEST_S * (MEMORY_JOBS + 1)
    seen_s = number_within(audio_s, SHORTEST_S, longest_s, name="seconds of a level")
    few, many = LOWEST * seen_s * (1 - 1e-9), HIGHEST * seen_s * (1 + 1e-9)
    return (language, client), _Level(
        tokens=number_within(tokens, few, many, name="tokens of a level"), audio_s=seen_s
    )


def number_within(value: object, lowest: float, highest: float, *, name: str) -> float:
    """``value``, if it is a number from ``lowest`` to ``highest``.

    Raises:
        LearntStateError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        raise LearntStateError(reason=f"{name} must be a number from {lowest:g} to {highest:g}, not {value!r}")
    return float(value)
