"""What would help this machine: each finding is one line and one action.

    Host (this machine, or a recording) ─► Machine, Surroundings ─► findings

Findings are a pure function of what was read, so that machines nobody here owns can be tested from recordings. Nothing
is loaded and nothing is changed; whatever hangs is left behind within three seconds.
"""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

from core.machine.doctor.card import card_findings
from core.machine.doctor.finding import MachineFinding, fault
from core.machine.doctor.surroundings import Driver, Surroundings, read_surroundings
from core.machine.doctor.system import room_findings
from core.machine.hardware import Machine, read_machine
from core.machine.host import Host

__all__ = ["Driver", "MachineFinding", "Surroundings", "examine", "findings", "read_surroundings"]

PATIENCE_SECONDS = 2.5
_ORDER = {"fault": 0, "advice": 1, "fine": 2}


def examine(home: Path, host: Host | None = None) -> list[MachineFinding]:
    """Reads the machine and says what was found, within three seconds also where a driver or a disk never answers."""
    host = host or Host()
    read: dict[str, Any] = {}
    asked = {"machine": lambda: read_machine(home, host), "around": lambda: read_surroundings(home, host)}
    threads = [threading.Thread(target=_keep, args=(read, name, ask), daemon=True) for name, ask in asked.items()]
    for thread in threads:
        thread.start()
    waited = threading.Event()
    timer = threading.Timer(PATIENCE_SECONDS, waited.set)
    timer.daemon = True
    timer.start()
    for thread in threads:
        while thread.is_alive() and not waited.is_set():
            thread.join(0.05)
    timer.cancel()
    if set(read) == set(asked):
        return findings(read["machine"], read["around"])
    return [*_silent(read, home), *([] if "machine" not in read else findings(read["machine"], _bare(home)))]


def findings(machine: Machine, around: Surroundings) -> list[MachineFinding]:
    """Everything worth saying, faults first."""
    found = [*card_findings(machine, around), *room_findings(machine, around)]
    return sorted(found, key=lambda finding: _ORDER[finding.level])


def _keep(read: dict[str, Any], name: str, ask: Any) -> None:
    read[name] = ask()


def _silent(read: dict[str, Any], home: Path) -> list[MachineFinding]:
    """What did not answer: the driver, through NVML, or a disk that hangs."""
    who = "The NVIDIA driver does" if "machine" not in read else f"nvidia-smi, or the disk of {home}, does"
    text = f"{who} not answer within {PATIENCE_SECONDS:g} seconds."
    return [fault("machine.silent", text, "Restart the machine (on WSL: wsl --shutdown in PowerShell).")]


def _bare(home: Path) -> Surroundings:
    return dataclasses.replace(Surroundings(compiler="", python_header=True, home=home), compiler="unknown")
