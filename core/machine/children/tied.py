"""Children that end with the process that started them, even while they are busy.

The child holds the reading end of a pipe whose other end only its parent holds; when that closes the kernel sends
SIGKILL to the child (fcntl(2): ``O_ASYNC``, ``F_SETSIG``, ``F_SETOWN``). Unlike a parent-death signal this does not
depend on the thread that started the child. Elsewhere than on Linux a child ends by itself when its stdin closes.
"""

import fcntl
import os
import signal
import subprocess
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


def start_tied(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """``subprocess.Popen(command, **options)`` of a child that outlives neither this process nor its Popen object.
    Raises OSError."""
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(command, pass_fds=[reading], **options)
    except BaseException:
        os.close(writing)
        raise
    else:
        with suppress(OSError, AttributeError):  # it has ended already, or this is not Linux
            fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(reading, fcntl.F_SETOWN, process.pid)
            fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
        weakref.finalize(process, os.close, writing)
        return process
    finally:
        os.close(reading)
