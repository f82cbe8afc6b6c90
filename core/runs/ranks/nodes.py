"""Ranks on several machines: what the command of each says when it comes, and rank 0's door for them.

::

    machine 0   train … --nodes 2 --node-rank 0 --rendezvous HOST:PORT     owns the run; its worker listens at the port
    machine 1   train … --nodes 2 --node-rank 1 --rendezvous HOST:PORT     starts ranks only (``node.py``)

One line a machine goes through the port (``line.py``); the sums go from rank to rank, through ports of their own. As
with torchrun, whoever reaches the port may join: it is for a network of one's own. Imports no torch.
"""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from core.contract.errors import ConfigError, RunError
from core.machine.disk import file_sha256
from core.machine.imports import version_of
from core.machine.locations import REPOSITORY
from core.runs.ranks.line import Line

NODES_VARIABLE = "LUTHIER_NODES"
"""``NODES HOST:PORT SECONDS``, for a supervisor and its workers on machine 0."""
WAIT_SECONDS = 600.0
_DECISIVE = ("torch", "transformers", "peft", "bitsandbytes")
_NETWORKS = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True)
class Meeting:
    """How many machines meet where, and how long one waits for the others."""

    nodes: int
    host: str
    port: int
    seconds: float = WAIT_SECONDS

    @classmethod
    def at(cls, nodes: int, rendezvous: str, seconds: float = WAIT_SECONDS) -> Meeting:
        """Of a command line's words.

        Raises:
            ConfigError: ``rendezvous`` is no HOST:PORT.
        """
        host, _, port = rendezvous.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16 or nodes < 2:
            raise ConfigError("ranks.rendezvous", given=rendezvous or "nothing")
        return cls(nodes, host.strip("[]"), int(port), seconds)

    @classmethod
    def told(cls, environment: Mapping[str, str]) -> Meeting | None:
        """As machine 0's supervisor was told; None on a machine that trains alone."""
        nodes, _, rest = environment.get(NODES_VARIABLE, "").partition(" ")
        where, _, seconds = rest.partition(" ")
        return cls.at(int(nodes), where, float(seconds)) if nodes else None

    def __str__(self) -> str:
        return f"{self.nodes} {self.host}:{self.port} {self.seconds:g}"


def networks(address: str) -> dict[str, str]:
    """Variables that name the network on which other ranks reach this machine at ``address``: by its own name it may
    know itself as 127.0.1.1 only, or not at all. What the person has set stays."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses):
            return {variable: os.environ.get(variable, name) for variable in _NETWORKS}
    return {}


def credentials(data: Path) -> dict[str, Any]:
    """What machines compare before they train together.

    Raises:
        OSError: the data file cannot be read.
    """
    code = hashlib.sha256()
    for path in sorted((REPOSITORY / "core").rglob("*.py")):
        code.update(path.read_bytes())
    versions = {name: version_of(name).partition("+")[0] for name in _DECISIVE}
    return {"code": code.hexdigest(), "versions": versions, "data": file_sha256(data)}


def other_than(mine: dict[str, Any], its: dict[str, Any]) -> str:
    """What differs, in words; '' where the machines may train together."""
    versions = its.get("versions", {})
    others = [
        f"{name} {versions.get(name) or 'missing'} in place of {version or 'none'}"
        for name, version in mine["versions"].items()
        if versions.get(name, "") != version
    ]
    others += ["another version of Luthier"] if its.get("code") != mine["code"] else []
    others += ["another data file"] if its.get("data") != mine["data"] else []
    return ", ".join(others)


@dataclass(frozen=True)
class Visitor:
    """The command of another machine: its line, and what it said first."""

    line: Line
    node: int
    cards: int
    credentials: dict[str, Any]


class Door:
    """Listens for the other machines of a meeting, in threads. ``heard`` is called with a machine's number and each
    message after its first; ``ended`` when its line ends.

    Raises:
        RunError: the port cannot be listened at.
    """

    def __init__(
        self, meeting: Meeting, heard: Callable[[int, dict[str, Any]], object], ended: Callable[[int], object]
    ) -> None:
        self.meeting, self._heard, self._ended = meeting, heard, ended
        self._guard = threading.Lock()
        self._here: dict[int, Visitor] = {}
        try:
            family, *_, (address, *_) = socket.getaddrinfo(meeting.host, meeting.port, type=socket.SOCK_STREAM)[0]
            # A name may be this machine's 127.0.1.1 in its own eyes; an address is the network that is meant.
            mine = address if address == meeting.host else ""
            self._listening = socket.create_server((mine, meeting.port), family=family)
        except OSError as error:
            reason = error.strerror or str(error)
            raise RunError("ranks.port", port=meeting.port, host=meeting.host, reason=reason) from error
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def missing(self) -> list[int]:
        """The numbers of machines that have not come."""
        with self._guard:
            return [node for node in range(1, self.meeting.nodes) if node not in self._here]

    def visitors(self) -> list[Visitor]:
        """Those that have, by number."""
        with self._guard:
            return [visitor for _, visitor in sorted(self._here.items())]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                end, _ = self._listening.accept()
                watch_peer(end)
                self._receive(Line(end))

    def _receive(self, line: Line) -> None:
        """A machine that comes again takes the place of its first line."""
        known: list[int] = []

        def heard(message: dict[str, Any]) -> None:
            if known:
                self._heard(known[0], message)
                return
            visitor = Visitor(line, int(message["node"]), int(message["cards"]), message)
            known.append(visitor.node)
            with self._guard:
                self._here[visitor.node] = visitor

        def ended() -> None:
            with self._guard:
                mine = [node for node in known if self._here.get(node) and self._here[node].line is line]
                for node in mine:
                    del self._here[node]
            for node in mine:
                self._ended(node)

        line.listen(heard, ended)


def watch_peer(end: socket.socket) -> None:
    """Notices a machine that lost its power or its network within a minute."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 6)):
        if (option := getattr(socket, name, None)) is not None:
            end.setsockopt(socket.IPPROTO_TCP, option, value)
