"""English names of the languages that Whisper knows: OpenAI's ``verbose_json`` names them, and gives no codes.

The names are the ones of https://github.com/openai/whisper/blob/main/whisper/tokenizer.py.
"""

from __future__ import annotations

__all__ = ["language_name"]

_NAMES = """
af afrikaans, am amharic, ar arabic, as assamese, az azerbaijani, ba bashkir, be belarusian, bg bulgarian,
bn bengali, bo tibetan, br breton, bs bosnian, ca catalan, cs czech, cy welsh, da danish, de german, el greek,
en english, es spanish, et estonian, eu basque, fa persian, fi finnish, fo faroese, fr french, gl galician,
gu gujarati, ha hausa, haw hawaiian, he hebrew, hi hindi, hr croatian, ht haitian creole, hu hungarian,
hy armenian, id indonesian, is icelandic, it italian, ja japanese, jw javanese, ka georgian, kk kazakh, km khmer,
kn kannada, ko korean, la latin, lb luxembourgish, ln lingala, lo lao, lt lithuanian, lv latvian, mg malagasy,
mi maori, mk macedonian, ml malayalam, mn mongolian, mr marathi, ms malay, mt maltese, my myanmar, ne nepali,
nl dutch, nn nynorsk, no norwegian, oc occitan, pa punjabi, pl polish, ps pashto, pt portuguese, ro romanian,
ru russian, sa sanskrit, sd sindhi, si sinhala, sk slovak, sl slovenian, sn shona, so somali, sq albanian,
sr serbian, su sundanese, sv swedish, sw swahili, ta tamil, te telugu, tg tajik, th thai, tk turkmen, tl tagalog,
tr turkish, tt tatar, uk ukrainian, ur urdu, uz uzbek, vi vietnamese, yi yiddish, yo yoruba, yue cantonese,
zh chinese
"""
_NAME_OF = dict(entry.strip().split(maxsplit=1) for entry in _NAMES.split(","))


def language_name(code: str) -> str:
    """The English name, in lower case, of a language; the code itself where it is not one of Whisper's."""
    return _NAME_OF.get(code, code)
