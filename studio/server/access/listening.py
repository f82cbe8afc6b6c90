"""How the studio is reached: by loopback alone, or with ``--listen`` by other machines too.

Without ``--listen`` by ``http://127.0.0.1:PORT`` and ``http://localhost:PORT`` only; a Host is compared letter by
letter. ``--listen`` needs a password, and TLS or an explicit ``--listen-without-tls``.

On all addresses of this machine it answers to those addresses as numbers and to the names of ``--name``, no other (DNS
rebinding). The password comes from ``LUTHIER_PASSWORD_FILE``, ``LUTHIER_PASSWORD`` or the terminal, never from the
command line, which every program of the machine can read.
"""

import getpass
import itertools
import os
import re
import ssl
import sys
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.contract.errors import MachineError
from core.machine.locations import Locations
from studio.server.access.password import SHORTEST, Password
from studio.words.text import say

_LOOPBACK = ("127.0.0.1", "localhost")
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what --listen means without an address, which is asked for by hand
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\]")


@dataclass(frozen=True)
class Front:
    """What the guard answers to. ``names``: hosts beside loopback; ``certificate``, ``key``: files of TLS, if any."""

    port: int
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    password: Password | None = None

    @property
    def scheme(self) -> str:
        """``https`` where there is a certificate."""
        return "https" if self.certificate else "http"

    @property
    def hosts(self) -> frozenset[str]:
        """The Host headers that are ours."""
        return frozenset(f"{name}:{self.port}" for name in (*_LOOPBACK, *self.names))

    def is_host(self, given: Sequence[str]) -> bool:
        """Whether a request has one Host header, which is ours."""
        return len(given) == 1 and given[0] in self.hosts

    def address(self, token: str, name: str = "") -> str:
        """The address that opens the studio once."""
        return f"{self.scheme}://{name or _LOOPBACK[0]}:{self.port}/enter?token={token}"


@dataclass(frozen=True)
class Wish:
    """What the command line asks for; ``address`` empty means: loopback alone."""

    address: str = ""
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    without_tls: bool = False


def front_of(wish: Wish, port: int, locations: Locations) -> Front:
    """How the studio will be reached.

    Raises:
        MachineError: neither TLS nor ``without_tls``, no valid certificate and key, an invalid name, or no password.
    """
    if not wish.address:
        return Front(port)
    if wish.certificate is None and not wish.without_tls:
        raise MachineError("listen.tls")
    if wish.certificate is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(wish.certificate, wish.key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise MachineError(
                "listen.certificate", certificate=wish.certificate, key=wish.key, reason=error
            ) from error
    names = names_of(wish, own_addresses())
    return Front(port, names, wish.certificate, wish.key, _password(locations, os.environ))


def names_of(wish: Wish, own: Iterable[str]) -> tuple[str, ...]:
    """The hosts beside loopback: the address (all ``own`` ones where it is every address), and the names.

    Raises:
        MachineError: a name that cannot stand in an address.
    """
    given = own if wish.address in (EVERYWHERE, "::") else (wish.address,)
    hosts = tuple(dict.fromkeys(f"[{one}]" if ":" in one else one.lower() for one in (*given, *wish.names)))
    for host in hosts:
        if not _NAME.fullmatch(host):
            raise MachineError("listen.name", host=host[:80])
    return hosts


def own_addresses() -> list[str]:
    """This machine's addresses but loopback, as numbers."""
    every = itertools.chain.from_iterable(psutil.net_if_addrs().values())
    return sorted({one.address for one in every if one.family.name == "AF_INET"} - {"127.0.0.1"})


def means(front: Front, wish: Wish) -> str:
    """What it means to listen, in plain words."""
    secure = say("listen.tls", certificate=front.certificate) if front.certificate else say("listen.plain")
    names = ", ".join(front.names)
    first = f"{front.scheme}://{front.names[0]}:{front.port}/" if front.names else ""
    lines = [say("listen.means", address=wish.address), secure, say("listen.names", names=names or "127.0.0.1")]
    return "\n".join([*lines, say("listen.address", address=first)] if first else lines)


def _password(locations: Locations, environment: MutableMapping[str, str]) -> Password:
    """The given password, else the kept one, else one typed now."""
    kept = Password(locations.password)
    file, words = environment.pop("LUTHIER_PASSWORD_FILE", ""), environment.pop("LUTHIER_PASSWORD", "")
    if file:
        try:
            words = Path(file).read_text(encoding="utf-8").rstrip("\r\n")
            if not words:
                raise ValueError("an empty file")
        except (OSError, ValueError) as error:
            raise MachineError("listen.password/file", file=Path(file)) from error
    if words:
        kept.keep(words)
    elif not kept.is_kept():
        kept.keep(_asked())
    return kept


def _asked() -> str:
    """The password, typed twice at the terminal without echo."""
    if not sys.stdin.isatty():
        raise MachineError("listen.password/no_terminal")
    words = getpass.getpass(say("listen.ask", count=SHORTEST))
    if getpass.getpass(say("listen.ask_again")) != words:
        raise MachineError("listen.password/differ")
    return words
