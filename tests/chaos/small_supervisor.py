"""The real supervisor over the small worker, on a machine without a card, struck as its environment says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from core.runs.supervise.supervisor import supervise

from .jobs import MACHINE
from .seam import Ledger, Seam, Strike
from .small import LEDGER, STRIKES

WORKER = (sys.executable, "-m", "tests.chaos.small")

if __name__ == "__main__":
    Seam(
        Strike.parse(os.environ.get(STRIKES["supervisor"], "")), Ledger(Path(os.environ[LEDGER])), "supervisor"
    ).install()
    sys.exit(supervise(Path(sys.argv[1]), WORKER, MACHINE))
