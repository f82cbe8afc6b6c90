"""A command's exit code, faults as one line on stderr, and safe output.

Names of files, columns and models are untrusted, and an escape sequence in one could rewrite the screen or the
clipboard. So whatever a command prints goes through ``plain``.
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
"""128 + SIGPIPE."""
_UNSEEN = "\ufffd"


def exit_code(command: Callable[[], int], interrupted: int = 130) -> int:
    """Runs a command and returns its code, 1 after a fault, ``interrupted`` after Ctrl+C, 141 where the output's reader
    has left (``runs | head``)."""
    keep_private()
    with contextlib.redirect_stdout(_Plain(sys.stdout)), contextlib.redirect_stderr(_Plain(sys.stderr)):
        try:
            code = command()
            sys.stdout.flush()
            return code
        except _ReaderGoneError:
            # For Python's own flush at exit; a stream in memory has no descriptor.
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
    """The words of a command line, checked.

    Raises:
        ConfigError: a word has bytes that are no text under the terminal's locale.
    """
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            raise ConfigError("words.bytes", word=word)
    return words


def plain(text: str, encoding: str = "utf-8") -> str:
    """The text with U+FFFD for control, format, surrogate and unassigned characters except newline and tab, and "?" for
    what ``encoding`` lacks."""
    if not (text.isascii() and text.isprintable()):
        steers = ("Cc", "Cf", "Cs", "Cn", "Zl", "Zp")
        text = "".join(
            _UNSEEN if letter not in "\n\t" and unicodedata.category(letter) in steers else letter for letter in text
        )
    return text.encode(encoding, "replace").decode(encoding)


class _ReaderGoneError(Exception):
    """Whoever read what is printed has left."""


class _Plain:
    """A stream that writes ``plain`` text to another."""

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
