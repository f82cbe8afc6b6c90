"""The sentences of every ``Fault``, by its key: what was expected and found, and what to do.

A key is ``code`` or ``code/case``. Braces hold the values that are given where it is raised, with their format. Another
language is another table with the same keys and braces. ``tests/test_architecture.py`` holds that every key is raised,
that every raise has its key, and that the values fit.
"""

from core.contract.faults.data import DATA
from core.contract.faults.hub import HUB
from core.contract.faults.machine import MACHINE
from core.contract.faults.models import MODELS
from core.contract.faults.runs import RUNS
from core.contract.faults.tools import TOOLS
from core.contract.faults.window import WINDOW

TEXTS: dict[str, tuple[str, str]] = {**DATA, **HUB, **MACHINE, **MODELS, **RUNS, **TOOLS, **WINDOW}
