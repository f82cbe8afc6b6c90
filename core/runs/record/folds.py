"""Records of the jobs that are being looked at, kept up to date by what was added to their logs since the last look."""

import threading
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventTail
from core.runs.record.job_record import RunFold, RunRecord

_KEPT = 16


class Folds:
    """The last few folds, by folder. Safe to use from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: OrderedDict[Path, tuple[EventTail, RunFold]] = OrderedDict()

    def record(self, folder: JobFolder, dead: bool = False) -> RunRecord:
        """The record of this job as of now, ``lost`` not judged. ``dead``: nobody writes its log any more.

        Raises:
            OSError: the log is no regular file, or may not be read.
        """
        with self._guard:
            if (known := self._known.get(folder.path)) and known[0].cut():
                del self._known[folder.path]  # a log that became shorter is not the one that was read
            if folder.path not in self._known:
                self._known[folder.path] = (EventTail(folder.events), RunFold())
            self._known.move_to_end(folder.path)
            tail, fold = self._known[folder.path]
            for event in tail.read():
                fold.add(event)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
            torn = dead and tail.torn
            return replace(fold.record, damaged=tail.damaged + torn)

    def forget(self, folder: JobFolder) -> None:
        """Drops what is known of a job that is deleted."""
        with self._guard:
            for path in [path for path in self._known if path == folder.path or folder.path in path.parents]:
                del self._known[path]
