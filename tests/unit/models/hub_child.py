"""``python hub_child.py``: for each line of its input a fork, which asks the hub; what it ended with is its output.

A fresh process would spend half a second on imports before its first question. Here all is imported once but
huggingface_hub, which reads its variables as it is imported: each fork imports it anew.
"""

import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from core.contract.errors import Fault
from core.models import catalog
from core.models.hub import cache
from core.models.hub import client as hub

LONGEST_SECONDS = 99
LIBRARY = "huggingface_hub"


def main() -> None:
    library = importlib.import_module(LIBRARY)
    for name in ("HfApi", "scan_cache_dir", "snapshot_download"):
        getattr(library, name)  # what these need in turn stays imported when they are forgotten
    for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARY]:
        del sys.modules[name]
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            answer(asked)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def answer(asked: dict[str, Any]) -> None:
    """Evaluates ``asked["ask"]`` with these variables; everything that is said goes into the file ``said``."""
    signal.alarm(LONGEST_SECONDS)
    os.environ.clear()
    os.environ.update(asked["environment"])
    with Path(asked["said"]).open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    code = 1
    try:
        for expression in asked["ask"]:
            told(expression)
        code = 0
    except BaseException:  # said in the file, as a process would
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def told(expression: str) -> None:
    started, progress = time.monotonic(), list[Any]()
    names = {"progress": progress, "catalog": catalog, "cache": cache, "hub": hub}
    try:
        said = {"value": eval(expression, names)}
    except Fault as error:
        said = {"code": error.code, "text": str(error), "kind": type(error).__name__}
    said |= {"progress": progress, "seconds": time.monotonic() - started, "torch": "torch" in sys.modules}
    print("ANSWER " + json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
