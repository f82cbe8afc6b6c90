"""A checkpoint's MANIFEST.json as text: its step, facts and files, and the SHA-256 of all that as last entry."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

MANIFEST = "MANIFEST.json"
_OWN = "sha256"


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The manifest with its own hash, which is left out where it stands already."""
    body = {key: value for key, value in manifest.items() if key != _OWN}
    own = hashlib.sha256(json.dumps(body, indent=1).encode()).hexdigest()
    return json.dumps({**body, _OWN: own}, indent=1)
