"""Whose process stands at the other end of a loopback connection: the person's own, or another user's of this machine.

A start token goes to the browser as an argument of its command, and on Linux every user may read every command's
arguments. Whoever polls ``/proc`` could spend the token before the browser does. But the kernel also says who owns
each end of a connection:

    /proc/net/tcp    local address:port   remote address:port   …   uid

So a token is only taken from this user's own processes (and root's, which could read everything anyway, and through
which WSL hands Windows' browser on). Where the table does not name the connection it came from elsewhere, or the
system has no such table: then the token alone decides.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # a socket for both worlds stands in the second
_LIVES = "01"
_NOBODY = -1


def is_anothers(client: tuple[str, int] | None, port: int) -> bool:
    """Whether what came to our ``port`` was sent by a process of another user. Takes about a millisecond."""
    if not client or not client[0].startswith("127."):
        return False
    lines: list[str] = []
    for table in _TABLES:
        with contextlib.suppress(OSError):
            lines += table.read_text(encoding="ascii").splitlines()[1:]
    users = owners(lines, client, port)
    return bool(users) and not users & {0, os.getuid()}


def owners(lines: Iterable[str], client: tuple[str, int], port: int) -> set[int]:
    """The user ids of the sockets that lead from a client to a port, as the kernel's table names them; -1 for one that
    was left already: the table then says 0 whoever it was."""
    address = int.from_bytes(socket.inet_aton(client[0]), sys.byteorder)
    ours, theirs = f"{address:08X}:{client[1]:04X}", f":{port:04X}"
    rows = (line.split() for line in lines)
    ends = ((row[1], row[2], row[3], row[7]) for row in rows if len(row) > 7)
    return {
        int(user) if state == _LIVES else _NOBODY
        for here, there, state, user in ends
        if here.endswith(ours) and there.endswith(theirs)
    }
