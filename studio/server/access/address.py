"""How the studio is reached: port, scheme, the hosts it answers to, and the password where others may come in.

Without ``--listen`` that is ``http://127.0.0.1:PORT`` and ``http://localhost:PORT`` and nothing else. A Host is
compared letter by letter: whatever else means this machine (a dot behind, capitals, a number, ``[::1]``) is another
site's trick or nobody's habit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from studio.server.access.password import Password

_LOOPBACK = ("127.0.0.1", "localhost")


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
        """Whether a request names us, once."""
        return len(given) == 1 and given[0] in self.hosts

    def address(self, token: str, name: str = "") -> str:
        """The address that opens the studio once."""
        return f"{self.scheme}://{name or _LOOPBACK[0]}:{self.port}/enter?token={token}"
