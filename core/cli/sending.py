"""What leaves this machine or comes from another, from a terminal: ``publish`` sends a finished export to the hub,
``pack`` writes a run into a file, ``open`` makes a run of such a file."""

import getpass
import sys
from pathlib import Path

from core.machine.disk import drafted, not_written
from core.machine.locations import Locations
from core.models.hub.publish import publish
from core.runs.control.exported import ended, may_leave
from core.runs.control.open_file import open_run_file
from core.runs.control.store import RunStore
from core.runs.record.run_file import file_name, write_run_file

_STEP = 5
"""Percent between two lines."""


def send_export(locations: Locations, run_id: str, name: str, to: str, public: bool) -> int:
    """Sends it with the person's own login, or a token that is asked for; tells the progress and the page's address."""
    folder, told = may_leave(RunStore(locations), run_id, name), -_STEP

    def tell(done: int, total: int) -> None:
        nonlocal told
        share = 100 * done // max(1, total)
        if share >= told + _STEP:
            told = share - share % _STEP
            print(f"sending   {told:3}%", flush=True)

    page = publish(folder, to, tell, lambda: False, token=_token(), private=not public)
    print(f"sent      {page} ({'public' if public else 'private'})")
    return 0


def pack(locations: Locations, run_id: str, out: str | None, with_adapter: bool) -> int:
    """Writes a run into a file of the current folder, or into ``out``.

    Raises:
        RunError: it is at work, or has no adapter.
        MachineError: the disk does not take it.
    """
    folder = ended(RunStore(locations), run_id)
    target = Path(out or file_name(folder))
    try:
        with drafted(target.absolute()) as draft, draft.open("wb") as file:
            write_run_file(folder, file, with_adapter)
    except OSError as error:
        raise not_written(target, error) from error
    print(f"written   {target}")
    return 0


def open_file(locations: Locations, file: Path) -> int:
    """Makes a run of a file and names it."""
    run_id = open_run_file(file, locations)
    print(f"opened    {run_id}")
    return 0


def _token() -> str:
    """Empty where the person is logged in, or nobody can be asked."""
    from huggingface_hub import get_token

    if get_token() or not sys.stdin.isatty():
        return ""
    return getpass.getpass("Token of the hub with the right to write (it is not kept): ")
