"""Marks of answers: good or bad, in the words and signs that feedback is written in."""

import unicodedata
from typing import Any

_GOOD = ("true", "1", "+1", "yes", "y", "good", "chosen", "thumbs up", "thumb up", "up", "like", "👍")
_BAD = ("false", "0", "-1", "no", "n", "bad", "rejected", "thumbs down", "thumb down", "down", "dislike", "👎")
_MARKS = {**dict.fromkeys(_GOOD, True), **dict.fromkeys(_BAD, False)}
_TONES = range(0x1F3FB, 0x1F400)
"""Skin tones of emoji."""
MARKS_WANTED = "true or false, 1 or 0, yes or no, good or bad, 👍 or 👎"


def written_mark(value: Any) -> str:
    """A cell of a column of marks as text, without blanks around it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # tables store whole numbers with gaps between them as floats
    return ("true" if value else "false") if isinstance(value, bool) else str(value).strip()


def mark_of(value: Any) -> bool | None:
    """Whether a cell marks an answer good (True) or bad (False); None where it says neither."""
    if isinstance(value, (list, dict)):
        return None
    words = unicodedata.normalize("NFKC", written_mark(value)).casefold().replace("_", " ").replace("−", "-")
    bare = "".join(sign for sign in words if sign != "\ufe0f" and ord(sign) not in _TONES)
    return _MARKS.get(bare)
