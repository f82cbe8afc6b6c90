"""Number and checksum of a line of the events log.

::

    {"kind":"step", … ,"n":17,"crc32":"5d41402a"}      n: the line's number; crc32: of the line up to there

A line without them (from an older version) is believed. Lines with a wrong checksum are left out and counted, and so
are the lines that a number skips.
"""

import zlib

MOST_LINE_BYTES = 1 << 20
"""No event comes near this: a longer line is damage, and is not held in memory."""
_NUMBER, _SUM = b',"n":', b',"crc32":"'
_SEAL_BYTES = len(_SUM) + 8 + len(b'"}')


def sealed(line: bytes, number: int) -> bytes:
    """A JSON object as the log's line of this number, without the newline."""
    said = line[:-1] + _NUMBER + str(number).encode()
    return said + _SUM + f'{zlib.crc32(said):08x}"}}'.encode()


def number_of(line: bytes) -> int | None:
    """The number of a sound line; 0 for one without a checksum, None for a damaged one."""
    at = len(line) - _SEAL_BYTES
    if line[at : at + len(_SUM)] != _SUM:
        return 0 if line[:1] == b"{" and line[-1:] == b"}" else None
    said = line[:at]
    try:
        if int(line[at + len(_SUM) : -2], 16) != zlib.crc32(said):
            return None
        return int(said[said.rindex(_NUMBER) + len(_NUMBER) :])
    except ValueError:
        return None


class LineCheck:
    """Takes a log's lines in order and counts the damaged and missing ones.

    Args:
        whole: the first line taken is the log's first.
    """

    def __init__(self, whole: bool) -> None:
        self._last: int | None = 0 if whole else None
        self._bad = 0  # since the last good line
        self._lost = 0

    @property
    def damaged(self) -> int:
        """Damaged and missing lines so far."""
        return self._lost + self._bad

    def good(self, line: bytes) -> bool:
        """Whether the next line is sound."""
        number = number_of(line) if len(line) <= MOST_LINE_BYTES else None
        if number is None:
            self._bad += 1
            return False
        skipped = number - self._last - 1 if number and self._last is not None else 0
        self._lost += max(skipped, self._bad)
        self._last, self._bad = number or None, 0
        return True

    def bad(self) -> None:
        """Counts a line that is too long to be read."""
        self._bad += 1
