"""What is wrong with a job's folder, before anything in it is opened: each entry is looked at once, none is followed.

Such a folder may come from somewhere else, or be half gone. Files are regular and of a bounded size, folders are
folders, and nothing is a link: then no reading, writing or deleting leads out of the folder or never ends. A file that
a run can do without may be too large: its reader (``core.machine.disk.read_plain``) passes over it.
"""

import os
import stat
from pathlib import Path

NO_JOB = "neither run.yaml nor a log is there"
MOST_LOG_BYTES = 1 << 30
"""Two million steps."""
MOST_BYTES = {
    "run.yaml": 256 << 10,
    "export.yaml": 256 << 10,
    "proof.yaml": 256 << 10,
    "name": 4 << 10,
    "asked.json": 1 << 20,
    "began.json": 1 << 20,
    "summary.json": 64 << 10,
    "supervisor.json": 64 << 10,
    "supervisor.lock": 1 << 10,
    "events.jsonl": MOST_LOG_BYTES,
    "commands.jsonl": 64 << 20,
}
"""Files that are read as a whole."""
_SPARE = frozenset({"name", "asked.json", "began.json", "summary.json", "supervisor.json"})
"""Of these, what a run can do without or writes anew. Older versions wrote summaries of any size; and who lives is told
by the locks, not by supervisor.json."""
FOLDERS = frozenset({"checkpoints", "exports", "jobs", "start"})
_OF_ITSELF = {"follow_symlinks": False}
_ANY_OF = frozenset({"run.yaml", "export.yaml", "proof.yaml", "events.jsonl"})
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def flaw_of(folder: Path) -> str:
    """The first thing that makes this folder unusable, in words ("name is a link"); empty where nothing does."""
    try:
        if kind := _kind(os.lstat(folder).st_mode, is_folder=True):
            return f"it is {kind}"
        seen = set()
        with os.scandir(folder) as entries:
            for entry in entries:
                seen.add(entry.name)
                if flaw := _flaw(entry):
                    return f"{entry.name[:80]} {flaw}"
    except OSError as error:
        return f"it cannot be looked into ({error.strerror})"
    return "" if seen & _ANY_OF else NO_JOB


def _flaw(entry: os.DirEntry[str]) -> str:
    most = MOST_BYTES.get(entry.name)
    if most is None and entry.name not in FOLDERS and (entry.is_file(**_OF_ITSELF) or entry.is_dir(**_OF_ITSELF)):
        return ""  # not ours to read: no more is asked
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return ""  # it went meanwhile
    if kind := _kind(status.st_mode, is_folder=entry.name in FOLDERS):
        return f"is {kind}"
    if most is None or entry.name in _SPARE or status.st_size <= most:
        return ""
    return f"is larger than {most:,} bytes"


def _kind(mode: int, is_folder: bool) -> str:
    """What it is where it should be a folder, or else a file; empty where it is that."""
    for is_kind, word in _KINDS:
        if is_kind(mode):
            return word
    if is_folder:
        return "" if stat.S_ISDIR(mode) else "no folder"
    return "" if stat.S_ISREG(mode) else "a folder"
