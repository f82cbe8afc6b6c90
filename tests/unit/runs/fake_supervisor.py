"""The real supervisor with the fake worker, on a machine without a card."""

import sys
from pathlib import Path

from core.machine.hardware import Machine
from core.runs.supervise.supervisor import supervise

MACHINE = Machine((), 2, 0, 0, None, "Linux", False)

if __name__ == "__main__":
    worker = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
    sys.exit(supervise(Path(sys.argv[1]), worker, MACHINE))
