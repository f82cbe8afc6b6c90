"""Texts as words, and words as numbers (CRC-32, since the split depends on them and Python's ``hash`` differs between
processes). In writing systems without spaces each character is a word."""

import re
from zlib import crc32

from core.contract.data import Example

_MARKS = ".,;:!?'\"()[]{}`\\–—…“”‘’«»„¿¡、。，！？：；（）「」"
"""Signs that only separate words; others (+ = < %) are words, or parts of one."""
_PARTED = {ord(mark): " " for mark in _MARKS}
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_MOST_WORDS = 1 << 19
_LONGEST = 64


class WordNumbers(dict[str, int]):
    """Word to 32-bit number: a cache of bounded size, since a file's words may be endless."""

    def __missing__(self, word: str) -> int:
        number = crc32(word.encode("utf-8", "surrogatepass"))
        if len(word) <= _LONGEST:
            if len(self) >= _MOST_WORDS:
                self.clear()
            self[word] = number
        return number


def words_of(text: str) -> list[str]:
    """The words of a text in order, lower case; of a text without any word or sign its characters."""
    parted = text.lower().translate(_PARTED)
    if not parted.isascii():
        parted = _UNSPACED.sub(r" \g<0> ", parted)
    return parted.split() or [character for character in text if not character.isspace()]


def said_in(example: Example) -> str:
    """A row's raw text, or all turns but the system prompt, which many rows share."""
    if not example.messages:
        return example.text
    parts = [turn.content or turn.tool_calls for turn in example.messages if turn.role != "system"]
    return "\n".join([*parts, example.chosen, example.rejected] if example.chosen else parts)
