"""Is the text right? Word error rate against what is known to be said."""

from __future__ import annotations

import re
from dataclasses import dataclass

import jiwer

__all__ = ["WordErrors", "is_right", "word_error_rate", "word_errors"]

_SPOKEN = {"mr": "mister", "dishonored": "dishonoured"}  # two spellings of one word


@dataclass(frozen=True, slots=True, kw_only=True)
class WordErrors:
    """How a text differs from what was said.

    Attributes:
        num_errors: wrong, missing and added words.
        num_words: words that were said.
    """

    num_errors: int
    num_words: int


def word_errors(said: str, text: str) -> WordErrors:
    """Count the errors of ``text``; case and punctuation do not count. Something must have been said."""
    found = jiwer.process_words(_words(said), _words(text))
    return WordErrors(
        num_errors=found.substitutions + found.deletions + found.insertions,
        num_words=found.hits + found.substitutions + found.deletions,
    )


def word_error_rate(said: str, text: str) -> float:
    """Wrong, missing and added words of ``text`` per word that was ``said``; case and punctuation do not count."""
    return float(jiwer.wer(_words(said), _words(text)))


def is_right(said: str, text: str) -> bool:
    """Whether ``text`` is ``said`` but for the errors that a tiny model makes: two words, or 12 % of a long text.

    An empty text, another file's text and a lost or doubled window are far outside.
    """
    num_said = len(_words(said).split())
    return word_error_rate(said, text) * num_said <= max(2.0, 0.12 * num_said)


def _words(text: str) -> str:
    words = re.sub(r"[^a-z0-9' ]", " ", text.lower()).split()
    return " ".join(_SPOKEN.get(word, word) for word in words)
