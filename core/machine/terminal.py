"""The end of a command in a terminal: an exit code, a fault as one line on stderr, and text that stays text.

Names of files, columns and models come from anybody, and a terminal obeys what it is shown: an escape sequence in a
name could move the cursor over what was said, or put words into the clipboard. So whatever a command prints goes
through ``plain``; a letter that the terminal's encoding lacks must not end a command either.
"""

import contextlib
import os
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from core.contract.errors import ConfigError, Fault
from core.machine.disk import keep_private

READER_GONE = 141
"""128 + SIGPIPE: how a shell says that nobody reads on."""
_UNSEEN = "\ufffd"


def exit_code(command: Callable[[], int], interrupted: int = 130) -> int:
    """Runs a command: its own code, 1 after a fault that was said, ``interrupted`` after Ctrl+C; where whoever read the
    output has left (``runs | head``), a quiet 141."""
    keep_private()
    with contextlib.redirect_stdout(_Plain(sys.stdout)), contextlib.redirect_stderr(_Plain(sys.stderr)):
        try:
            code = command()
            sys.stdout.flush()
            return code
        except _ReaderGoneError:
            # Python's own flush at the end of the process has to find somebody; a stream in memory has no descriptor.
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, sys.stdout.fileno())
                os.close(nowhere)
            return READER_GONE
        except Fault as error:
            print(error, file=sys.stderr)
            return 1
        except OSError as error:
            print(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return interrupted


def as_text(words: Sequence[str]) -> Sequence[str]:
    """The words of a command line, which are to be stored and sent as text.

    Raises:
        ConfigError: bytes that are no text under the terminal's locale.
    """
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise ConfigError("words.bytes", word=word)
    return words


def plain(text: str, encoding: str = "utf-8") -> str:
    """The text without what steers a terminal (escapes, marks of direction) or cannot be written in ``encoding``:
    controls, halves of a letter and what has no meaning become a mark; lines and tabs stay."""
    if not (text.isascii() and text.isprintable()):
        steers = ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")
        text = "".join(
            _UNSEEN if letter not in "\n\t" and unicodedata.category(letter) in steers else letter for letter in text
        )
    return text.encode(encoding, "replace").decode(encoding)


class _ReaderGoneError(Exception):
    """Whoever read what is printed has left."""


class _Plain:
    """A stream that writes ``plain`` text, and is the one behind it in everything else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(plain(text, self._stream.encoding or "utf-8"))
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError as error:
            raise _ReaderGoneError from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
