"""The end of a command in a terminal: an exit code, and a fault as one line on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable

from core.contract.errors import StudioError

__all__ = ["exit_code"]


def exit_code(command: Callable[[], int], interrupted: int = 130) -> int:
    """Runs a command: its own code, 1 after a fault that was said, ``interrupted`` after Ctrl+C."""
    try:
        return command()
    except StudioError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupted
