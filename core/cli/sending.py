"""``publish``: a finished export sent to the hub, from a terminal."""

import getpass
import sys

from core.machine.locations import Locations
from core.models.hub.publish import publish
from core.runs.control.exported import may_leave
from core.runs.control.store import RunStore

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


def _token() -> str:
    """Empty where the person is logged in, or nobody can be asked."""
    from huggingface_hub import get_token

    if get_token() or not sys.stdin.isatty():
        return ""
    return getpass.getpass("Token of the hub with the right to write (it is not kept): ")
