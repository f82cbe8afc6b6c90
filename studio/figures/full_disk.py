"""That the disk of runs and data is full, in words: the studio opens all the same, since deleting is what is wanted."""

import shutil
from pathlib import Path

from studio.words.text import say

LEAST_BYTES = 1 << 20
"""With less, neither a log nor a draft can be written."""


def full_disk(home: Path) -> str:
    """The sentence; empty where there is room, or none can tell."""
    try:
        return say("disk.full", home=home) if shutil.disk_usage(home).free < LEAST_BYTES else ""
    except OSError:
        return ""
