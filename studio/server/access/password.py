"""The password of ``--listen``: kept as a salted scrypt hash alone, and asked for at a bounded rate.

scrypt (RFC 7914) with N = 2^15, r = 8, p = 1 takes 32 MiB and about a tenth of a second; one runs at a time. Token
buckets: an address has five tries and one more every thirty seconds, all together twenty and one every five seconds.
"""

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.contract.errors import MachineError
from core.machine.disk import write_whole

Verdict = Literal["right", "wrong", "wait"]
SHORTEST = 10
_N, _R, _P = 1 << 15, 8, 1
_MEMORY_BYTES = 64 << 20
_ADDRESSES_KEPT = 1000


@dataclass
class _Bucket:
    """Tries that are left; one more every ``seconds``, up to ``most``."""

    most: int
    seconds: float
    left: float
    at: float

    def take(self, now: float) -> bool:
        self.left = min(self.most, self.left + (now - self.at) / self.seconds)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Password:
    """The password that is kept at ``path`` (0600). Thread-safe."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._all = _Bucket(20, 5.0, 20, clock())
        self._addresses: OrderedDict[str, _Bucket] = OrderedDict()

    def is_kept(self) -> bool:
        """Whether there is one."""
        return self._read() is not None

    def keep(self, words: str) -> None:
        """Keeps another password.

        Raises:
            MachineError: it is too short.
        """
        if (count := len(words.strip())) < SHORTEST:
            raise MachineError("listen.password/short", least=SHORTEST, count=count)
        salt = secrets.token_bytes(16)
        kept = {"scrypt": [_N, _R, _P], "salt": salt.hex(), "hash": _hash(words, salt).hex()}
        write_whole(self._path, json.dumps(kept), mode=0o600)

    def judge(self, words: str, address: str) -> Verdict:
        """Whether this is the password; ``wait`` after too many tries."""
        with self._lock:
            now = self._clock()
            bucket = self._addresses.pop(address, None) or _Bucket(5, 30.0, 5, now)
            self._addresses[address] = bucket
            while len(self._addresses) > _ADDRESSES_KEPT:
                self._addresses.popitem(last=False)
            if not (bucket.take(now) and self._all.take(now)):
                return "wait"
            kept = self._read()
            if kept is None:
                return "wrong"
            salt, known = kept
            return "right" if hmac.compare_digest(_hash(words, salt), known) else "wrong"

    def _read(self) -> tuple[bytes, bytes] | None:
        try:
            raw = json.loads(self._path.read_text(encoding="utf-8"))
            return bytes.fromhex(raw["salt"]), bytes.fromhex(raw["hash"])
        except (OSError, ValueError, TypeError, KeyError):
            return None


def _hash(words: str, salt: bytes) -> bytes:
    plain = words.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(plain, salt=salt, n=_N, r=_R, p=_P, maxmem=_MEMORY_BYTES, dklen=32)
