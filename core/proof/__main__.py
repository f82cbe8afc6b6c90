"""``python -m core.proof PROOF_DIR``: one proof, from the free card to its result.

    wait for the card ─► python -m core.bench KIND … --json result.json ─► finished | failed

The bench prints its progress on stderr; ``3 of 13`` in a line is how far it is. The supervisor stops a proof by ending
this process and everything below it; the rungs measured so far stay.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from core.contract.errors import Fault, RunError
from core.contract.events import Failed, Finished, Hello, Stage
from core.machine.children.tied import start_tied
from core.machine.hardware import Machine, read_machine
from core.machine.locations import REPOSITORY, Locations
from core.proof.store import COMMANDS, proven, read_flags
from core.runs.control.gpu_lease import SpareCard
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter, open_writer
from core.runs.record.learned import append

HOLDER = "a proof"
DIFFERS = 2
"""The bench's exit code for a bad verdict, which is a result."""
_PART = re.compile(r"^rung (\d+) of (\d+)$|: begins \((\d+) of (\d+)\)$")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what the folder asks for; 0 where its last event was written."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if len(words) != 1:
        print("usage: python -m core.proof PROOF_DIR", file=sys.stderr)
        return 1
    folder = JobFolder(Path(words[0]).resolve())
    writer, machine = open_writer(folder), read_machine()
    device = "cuda:0" if machine.gpu else "cpu"
    writer.write(Hello(device=device, device_name=machine.gpu.name if machine.gpu else ""))
    try:
        card = SpareCard(Locations.find(), machine.cards, HOLDER)
        card.take(lambda who: writer.write(Stage(stage="waiting", text=who)))
        try:
            _measure(folder, writer)
            _keep(folder, machine)
        finally:
            card.release()
    except (Fault, OSError) as error:
        writer.write(Failed.by(error if isinstance(error, Fault) else RunError("proof.fault", reason=error)))
    finally:
        writer.close()
    return 0


def progress_of(line: str) -> tuple[int, int] | None:
    """The parts done before the one that this line begins, and their number; None for other lines."""
    part = _PART.search(line.strip())
    if not part:
        return None
    number, total = (int(number) for number in part.groups() if number)
    return (number - 1, total) if total > 1 else None  # a single one is part of its rung


def _measure(folder: JobFolder, writer: EventWriter) -> None:
    kind, flags = read_flags(folder)
    begun = time.monotonic()
    writer.write(Stage(stage="verifying", text=""))
    command = [sys.executable, "-m", "core.bench", COMMANDS[kind], *flags, "--json", str(folder.path / "result.json")]
    bench = start_tied(
        command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    last, part = "", (0, 0)
    for line in bench.stderr or ():
        print(line, end="", file=sys.stderr, flush=True)  # worker.log
        last = line.strip() or last
        part = progress_of(line) or part
        text = re.sub(r": begins \(\d+ of \d+\)$", "", last)[:300]
        writer.write(Stage(stage="verifying", text=text, done=part[0], total=part[1], unit="parts"))
    code = bench.wait()
    if code in (0, DIFFERS) and (folder.path / "result.json").is_file():
        writer.write(Finished(seconds=time.monotonic() - begun))
        return
    failure = RunError("proof.failed/said", last=last) if last else RunError("proof.failed/exit_code", exit_code=code)
    writer.write(Failed.by(failure))


def _keep(folder: JobFolder, machine: Machine) -> None:
    """What a proof of 8-bit arithmetic found, for the plans of this machine."""
    if read_flags(folder)[0] != "eight":
        return
    with suppress(OSError, LookupError, TypeError, ValueError):  # no result, or a full disk: nothing is proven
        result = json.loads((folder.path / "result.json").read_text(encoding="utf-8"))
        for line in proven(folder.name, result, machine, time.time()):
            append(Locations.find(), line)


if __name__ == "__main__":
    sys.exit(main())
