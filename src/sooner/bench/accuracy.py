"""Is the text right? Word error rate against what is known to be said."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

import jiwer

__all__ = ["WordErrors", "is_right", "word_errors"]

_IN_WORDS = "LMN"  # Unicode's letters, marks (which ``\w`` leaves out; vowels in Hindi) and numbers
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff])")
"""Chinese characters and kana: languages that put no spaces between words."""

_SPOKEN = {"mr": "mister", "dishonored": "dishonoured"}  # two spellings of one word


@dataclass(frozen=True, slots=True, kw_only=True)
class WordErrors:
    """How a text differs from what was said.

    Attributes:
        num_errors: wrong, missing and added words.
        num_words: words that were said; Chinese characters and kana count as a word each.
    """

    num_errors: int
    num_words: int

    @property
    def rate(self) -> float | None:
        """Errors per word that was said, ``None`` where none was."""
        return self.num_errors / self.num_words if self.num_words else None


def word_errors(said: str, text: str) -> WordErrors:
    """Count the errors of ``text``; case and punctuation do not count.

    Words are what spaces separate, but for Chinese and Japanese, where every character is one. Thai and other
    languages without spaces have few words, and so a rate that tells little.
    """
    found = jiwer.process_words(_words(said), _words(text))
    return WordErrors(
        num_errors=found.substitutions + found.deletions + found.insertions,
        num_words=found.hits + found.substitutions + found.deletions,
    )


def is_right(said: str, text: str) -> bool:
    """Whether ``text`` is ``said`` but for the errors that a tiny model makes: two words, or 12 % of a long text.

    An empty text, another file's text and a lost or doubled window are far outside.
    """
    found = word_errors(said, text)
    return found.num_errors <= max(2.0, 0.12 * found.num_words)


def _words(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    kept = "".join(one if one == "'" or unicodedata.category(one)[0] in _IN_WORDS else " " for one in plain)
    words = (word.strip("'") for word in _UNSPACED.sub(r" \1 ", kept).split())  # quotes, but not an apostrophe
    return " ".join(_SPOKEN.get(word, word) for word in words if word)
