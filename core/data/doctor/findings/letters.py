"""Characters that nobody sees, and text that a wrong encoding damaged; and the cleaning of the first kind.

Cleaning never touches meaning: what is invisible goes, odd line breaks become plain ones. Joiners stay (emoji, Persian
and Indic words need them), and so do direction marks in a text that holds right-to-left letters. What is all that is
left of a letter stays too: a form feed before "rac" was once the formula's \\frac, and \\x80\\x94 behind an â a dash.
"""

import re

from core.contract.data import Example

_DIRECTIONS = "\u200e\u200f\u202a-\u202e\u2066-\u2069"
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_UNSEEN = re.compile(
    "[\x00-\x06\x0e-\x1f\x7f\ufeff\u200b\u2060\u180e\ufff9-\ufffb]|[\x07\x08](?![a-z])|(?<![\u00c2-\u00c5])\u00ad"
)
_BREAK = re.compile("[\u2028\u2029]|[\x0b\x0c](?![a-z])|(?<![\x80-\x9f\u00c2-\u00f4])\x85")
_DIRECTION = re.compile(f"[{_DIRECTIONS}]")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_DAMAGE = re.compile(
    "\ufffd|\u00e2\u20ac[\u2122\u02dc\u0153\u009d\u201c\u201d\u00a6\u00a2\u009c\u0099\u0098]"
    "|\u00c3[\u00a0-\u00bf](?=[a-z\\s.,])|\u00c2[\u00a0\u00ab\u00bb\u00b0\u00a3]|\u00ef\u00bf\u00bd"
    "|[\x07\x08\x0b\x0c](?=[a-z])|[\x80-\x84\x86-\x9f]"
)
"""The replacement character, UTF-8 that was read as Windows-1252 or Latin-1, and escapes such as \\f that were read
for a formula's \\frac."""


def has_unseen(text: str) -> bool:
    """Whether cleaning would change the text."""
    if text.isascii() and not _CONTROLS.search(text):
        return False
    if _UNSEEN.search(text) or _BREAK.search(text):
        return True
    return _DIRECTION.search(text) is not None and not _reads_leftwards(text)


def clean(text: str) -> str:
    """The text without what nobody sees."""
    if not has_unseen(text):
        return text
    text = _BREAK.sub("\n", _UNSEEN.sub("", text))
    return text if _reads_leftwards(text) else _DIRECTION.sub("", text)


def cleaned(example: Example) -> Example:
    """The row with every text of its turns cleaned."""
    messages = tuple(turn.model_copy(update={"content": clean(turn.content)}) for turn in example.messages)
    texts = {name: clean(getattr(example, name)) for name in ("text", "chosen", "rejected")}
    return example.model_copy(update={"messages": messages, **texts})


def has_damage(text: str) -> bool:
    """Whether letters were lost by reading the text in a wrong encoding, or a formula's strokes by unescaping it."""
    if text.isascii() and not _CONTROLS.search(text):
        return False
    return _DAMAGE.search(text) is not None


def _reads_leftwards(text: str) -> bool:
    return _RIGHT_TO_LEFT.search(text) is not None
