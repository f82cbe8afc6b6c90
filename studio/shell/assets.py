"""Where our files for the browser lie: under their version, so that a browser that has one never asks for it again."""

import hashlib
from functools import cache

from core.machine.locations import ASSETS

PLACE = "/studio/assets"
KEPT = "private, max-age=31536000, immutable"
"""Cache-Control of a file whose address changes with its content."""
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@cache
def version() -> str:
    """Of all files that a browser may have, by their names and contents."""
    digest = hashlib.sha256()
    for path in sorted(path for path in ASSETS.rglob("*") if path.suffix in KINDS):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ASSETS).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def asset(name: str) -> str:
    """The address of a file below ``assets/``."""
    return f"{PLACE}/{version()}/{name}"
