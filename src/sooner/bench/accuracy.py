"""Is the text right? Word error rate against what is known to be said."""

from __future__ import annotations

import re

import jiwer

__all__ = ["is_right", "word_error_rate"]

_SPOKEN = {"mr": "mister", "dishonored": "dishonoured"}  # two spellings of one word


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
