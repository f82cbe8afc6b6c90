"""This machine's login at the hub: whether there is one and where it stands, one entered, one removed.

The token is kept by huggingface_hub's own functions, in its own files. Here it goes to the hub alone: no answer, fault
or log repeats it.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.contract.errors import Fault, HubError
from core.machine.disk import not_written
from core.models.hub.client import is_offline

VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""Where huggingface_hub looks before its file."""
_OF_GROUPS = "api_org"
"""So begin the tokens of organizations, which cannot log in."""


@dataclass(frozen=True)
class Login:
    """Where the token is that is used: the name of a variable, or a file, at most one of them set; neither: none."""

    variable: str = ""
    file: str = ""


def login_of_machine() -> Login:
    """Whose token is used; asks nobody."""
    from huggingface_hub import constants

    if named := next((name for name in VARIABLES if os.environ.get(name, "").strip()), ""):
        return Login(variable=named)
    file = Path(constants.HF_TOKEN_PATH)
    with suppress(OSError, ValueError):
        if file.read_text(encoding="utf-8").strip():
            return Login(file=str(file))
    return Login()


def log_in(token: str) -> None:
    """Has the hub look at a person's token, and keeps it.

    Raises:
        HubError: the hub does not know it, or gives no answer.
        MachineError: the disk does not take it.
    """
    from huggingface_hub import constants, login

    if not token or not token.isascii() or not token.isprintable() or token.startswith(_OF_GROUPS):
        raise HubError("hub.login/unknown", endpoint=constants.ENDPOINT)
    try:
        login(token)
    except Exception as error:  # noqa: BLE001 - the classes of the network below change between versions
        raise _translated(error) from None


def log_out() -> None:
    """Removes the token that is kept on this machine, and none that is kept beside it for another use.

    Raises:
        MachineError: the disk does not let it go.
    """
    from huggingface_hub import constants, logout
    from huggingface_hub.utils import get_stored_tokens

    file = Path(constants.HF_TOKEN_PATH)
    try:
        used = file.read_text(encoding="utf-8").strip() if file.exists() else ""
        for name in [name for name, token in get_stored_tokens().items() if token == used]:
            with suppress(FileNotFoundError):  # where git is not installed it keeps no credential either
                logout(name)
        file.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(error.filename, error, "then try again") from None


def _translated(error: Exception) -> Fault:
    """What the hub, the network or the disk said, as a Fault that repeats nothing of what was sent."""
    from huggingface_hub import constants

    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (400, 401, 403):
        return HubError("hub.login/unknown", endpoint=constants.ENDPOINT)
    if isinstance(error, OSError) and error.filename:
        return not_written(error.filename, error, "then try again")
    if is_offline():
        return HubError("hub.login/offline")
    kind = f"HTTP {status}" if status else type(error).__name__
    return HubError("hub.login/unreachable", endpoint=constants.ENDPOINT, kind=kind)
