"""Which user's process is at the other end of a loopback connection.

A start token is an argument of the browser's command, which every user can read in ``/proc`` and use first. The kernel
names the owner of each end of a connection:

    /proc/net/tcp    local address:port   remote address:port   …   uid

So a token is only accepted from this user's processes and root's (through which WSL passes Windows' browser on). Where
the table does not list the connection, the token alone decides.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # a dual-stack socket is in the second
_LIVES = "01"
_NOBODY = -1


def is_anothers(client: tuple[str, int] | None, port: int) -> bool:
    """Whether a process of another user connected to ``port``. Takes about a millisecond."""
    if not client or not client[0].startswith("127."):
        return False
    lines: list[str] = []
    for table in _TABLES:
        with contextlib.suppress(OSError):
            lines += table.read_text(encoding="ascii").splitlines()[1:]
    users = owners(lines, client, port)
    return bool(users) and not users & {0, os.getuid()}


def owners(lines: Iterable[str], client: tuple[str, int], port: int) -> set[int]:
    """The user ids of the sockets from a client to a port in the kernel's table; -1 for a closed one, which the table
    lists under 0."""
    address = int.from_bytes(socket.inet_aton(client[0]), sys.byteorder)
    ours, theirs = f"{address:08X}:{client[1]:04X}", f":{port:04X}"
    rows = (line.split() for line in lines)
    ends = ((row[1], row[2], row[3], row[7]) for row in rows if len(row) > 7)
    return {
        int(user) if state == _LIVES else _NOBODY
        for here, there, state, user in ends
        if here.endswith(ours) and there.endswith(theirs)
    }
