"""A data file's rows for a worker: as the reader left them, and where nothing was left, read now in a child of its own.
In the worker's process nothing of somebody's file is looked at but its bytes, for their hash.
"""

from pathlib import Path

from core.contract.config import DataChoice
from core.data.files.admission import admitted, named
from core.data.files.checking import Check
from core.data.service.reader import READER, Cancelled, Progress, Reader, ReadFile, never, no_progress
from core.machine.children.pipe import Child, stopped
from core.machine.locations import Locations


def checked(
    path: Path,
    choice: DataChoice,
    locations: Locations,
    on_progress: Progress = no_progress,
    cancelled: Cancelled = never,
) -> ReadFile:
    """The report of a file as it lies there now, and where its Examples are; read only if it was not read before.

    A kept copy is not held to its folder's name here: whoever asks says what content is expected.

    Raises:
        DataError: as reading does; ``data.stopped`` where ``cancelled()`` said yes.
    """

    def seam() -> None:
        if cancelled():
            raise stopped(path.name)

    place = admitted(path, locations.home)
    before = Check(place, choice, locations.cache / "data", named(path, place))
    if before.recall(seam):
        return ReadFile(*before.answer())
    child = Child("core.data.service.reader_child", "reader", READER)
    try:
        return Reader(child, locations, promised=False).check(path, choice, on_progress, cancelled)
    finally:
        child.close()
