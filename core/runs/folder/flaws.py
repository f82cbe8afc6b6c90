"""What is wrong with a job's folder, before anything in it is opened: each entry is looked at once, none is followed.

Such a folder may come from anybody. Files must be regular and of bounded size, folders be folders, and nothing a link,
so that no access leads out of the folder or never ends. A file that a run can do without may be too large: its reader
(``core.machine.disk.read_plain``) ignores it.
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
    "report.yaml": 256 << 10,
    "report.json": 16 << 20,
    "name": 4 << 10,
    "marks.json": 64 << 10,
    "opened.json": 4 << 10,
    "asked.json": 1 << 20,
    "began.json": 1 << 20,
    "summary.json": 128 << 10,
    "supervisor.json": 64 << 10,
    "supervisor.lock": 1 << 10,
    "events.jsonl": MOST_LOG_BYTES,
    "commands.jsonl": 64 << 20,
}
"""Files that are read as a whole."""
_SPARE = frozenset({
    "name", "marks.json", "opened.json", "asked.json", "began.json", "report.json", "summary.json", "supervisor.json",
})  # fmt: skip
"""Of these, what a run can do without or writes anew; older versions wrote summaries of any size."""
FOLDERS = frozenset({"checkpoints", "exports", "jobs", "metrics", "start"})
_OF_ITSELF = {"follow_symlinks": False}
_ANY_OF = frozenset({"run.yaml", "export.yaml", "proof.yaml", "report.yaml", "events.jsonl"})
_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def flaw_of(folder: Path) -> str:
    """The first flaw that makes this folder unusable ("name is a link"); empty where there is none."""
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
        return ""  # never read by us
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return ""  # deleted meanwhile
    if kind := _kind(status.st_mode, is_folder=entry.name in FOLDERS):
        return f"is {kind}"
    if most is None or entry.name in _SPARE or status.st_size <= most:
        return ""
    return f"is larger than {most:,} bytes"


def _kind(mode: int, is_folder: bool) -> str:
    """What it is instead of a folder or a file; empty where it is as it should be."""
    if stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode):
        return ""
    return next((word for is_kind, word in _KINDS if is_kind(mode)), "no folder" if is_folder else "a folder")
