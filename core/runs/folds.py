"""Records of the jobs that are being looked at, kept up to date by what was added to their logs since the last look."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from core.runs.folder import JobFolder
from core.runs.log import EventTail
from core.runs.record import RunFold, RunRecord

__all__ = ["Folds"]

_KEPT = 16


class Folds:
    """The last few folds, by folder. Safe to use from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[Path, tuple[EventTail, RunFold]] = OrderedDict()

    def record(self, folder: JobFolder) -> RunRecord:
        """The record of this job as of now, ``lost`` not judged."""
        with self._guard:
            if folder.path not in self._known:
                self._known[folder.path] = (EventTail(folder.events), RunFold())
            self._known.move_to_end(folder.path)
            tail, fold = self._known[folder.path]
            for event in tail.read():
                fold.add(event)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
            return fold.record

    def forget(self, folder: JobFolder) -> None:
        """Drops what is known of a job that is deleted."""
        with self._guard:
            for path in [path for path in self._known if path == folder.path or folder.path in path.parents]:
                del self._known[path]
