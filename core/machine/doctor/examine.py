"""What would help this machine: each finding is one line and one action.

Host (this machine, or a recording) ─► Machine, Surroundings ─► findings
"""

from pathlib import Path

from core.machine.doctor.findings import MachineFinding, card_findings, fault, room_findings
from core.machine.doctor.surroundings import Surroundings, read_surroundings
from core.machine.hardware import Machine, read_machine
from core.machine.host import Host, at_once

PATIENCE_SECONDS = 2.5
_ORDER = {"fault": 0, "advice": 1, "fine": 2}


def examine(home: Path, host: Host | None = None) -> list[MachineFinding]:
    """Reads the machine and returns findings, within three seconds even where a driver or a disk hangs."""
    host = host or Host()
    questions = (lambda: read_machine(home, host), lambda: read_surroundings(home, host))
    machine, around = at_once(questions, PATIENCE_SECONDS)
    if machine and around:
        return findings(machine, around)
    who = f"nvidia-smi, or the disk of {home}, does" if machine else "The NVIDIA driver does"
    text = f"{who} not answer within {PATIENCE_SECONDS:g} seconds."
    silent = fault("machine.silent", text, "Restart the machine (on WSL: wsl --shutdown in PowerShell).")
    bare = Surroundings(compiler="unknown", python_header=True, home=home)
    return [silent, *(findings(machine, bare) if machine else [])]


def findings(machine: Machine, around: Surroundings) -> list[MachineFinding]:
    """All findings, faults first."""
    return sorted([*card_findings(machine, around), *room_findings(machine, around)], key=lambda one: _ORDER[one.level])
