"""One thing that the doctor noticed: a line, and a line that says what to do."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

GIB = 1 << 30


@dataclass(frozen=True)
class MachineFinding:
    """One thing noticed. ``action`` is empty where nothing is to be done."""

    level: Literal["fine", "advice", "fault"]
    code: str
    text: str
    action: str = ""


fine = partial(MachineFinding, "fine")
"""As it should be, or not to be changed."""
advice = partial(MachineFinding, "advice")
"""Works, and would work better."""
fault = partial(MachineFinding, "fault")
"""Does not work until something is done."""
