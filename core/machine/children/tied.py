"""Children that end with the process that started them, whatever either of them is at.

A child that waits for words on its pipe ends when the pipe closes; one that is deep in somebody's pattern or library
never looks. So the system itself is asked: the child holds the reading end of a pipe of which nobody but its parent
holds the other, and when that closes the kernel sends SIGKILL to the child (fcntl(2): ``O_ASYNC``, ``F_SETSIG``,
``F_SETOWN``). Unlike a parent-death signal this does not depend on which thread started the child, and it works for
any program. Where the system cannot do that (no Linux), a child ends as its own words say.
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
    """``subprocess.Popen(command, **options)`` of a child that does not outlive this process, nor its Popen object.

    Raises:
        OSError: no process can be made.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(command, pass_fds=[reading], **options)
    except BaseException:
        os.close(writing)
        raise
    else:
        with suppress(OSError, AttributeError):  # it has ended already, or this is no Linux
            fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(reading, fcntl.F_SETOWN, process.pid)
            fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)
        weakref.finalize(process, os.close, writing)
        return process
    finally:
        os.close(reading)
