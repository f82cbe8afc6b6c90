"""The real supervisor with the fake worker, on a machine without a card."""

import gc
import sys
from pathlib import Path

gc.disable()  # until all is imported: a tenth of this process's time

from core.machine.hardware import Machine  # noqa: E402
from core.runs.supervise.supervisor import supervise  # noqa: E402

MACHINE = Machine((), 2, 0, 0, None, "Linux", False)

if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    worker = (sys.executable, "-S", str(Path(__file__).with_name("fake_worker.py")))
    sys.exit(supervise(Path(sys.argv[1]), worker, MACHINE))
