"""A data file's rows for a worker, from the cache or else read in a child. The worker itself only hashes the file."""

from pathlib import Path

from core.contract.config import DataChoice
from core.contract.methods import Method
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
    method: Method | None = None,
) -> ReadFile:
    """The report of a file as it is now, and where its Examples are; read only if it was not read before. The hash of a
    kept copy is not checked: the caller knows which one to expect. ``method``: how the rows are learned (None: as suits
    them).

    Raises:
        DataError: as reading does; ``data.stopped`` where ``cancelled()`` is true.
    """

    def safe_point() -> None:
        if cancelled():
            raise stopped(path.name)

    place = admitted(path, locations.home)
    before = Check(place, choice, locations.cache / "data", named(path, place))
    if before.recall(safe_point):
        return ReadFile(*before.answer()).under(method)
    child = Child("core.data.service.reader_child", "reader", READER)
    try:
        return Reader(child, locations, promised=False).check(path, choice, on_progress, cancelled).under(method)
    finally:
        child.close()
