"""``python -m studio.pages.report HOME FILE RUN [RUN …]``: reports as one HTML file, for the command line (``report RUN
--html FILE``), whose floor knows no page."""

import sys
from pathlib import Path

from core.machine.disk import not_written, write_whole
from core.machine.locations import Locations
from core.machine.terminal import exit_code
from core.runs.control.store import RunStore
from studio.pages.report.file import file_of


def main() -> int:
    """Writes the file and says where."""
    home, path, *run_ids = sys.argv[1:]
    text = file_of(RunStore(Locations(Path(home))), list(dict.fromkeys(run_ids)))
    try:
        write_whole(Path(path), text, mode=0o644)
    except OSError as error:
        raise not_written(path, error) from error
    print(f"written   {path}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
