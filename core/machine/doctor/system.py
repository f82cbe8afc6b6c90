"""The doctor on everything around the card: system, Python, memory, disks, WSL, the clock."""

from collections.abc import Iterator

from core.machine.doctor.finding import GIB, MachineFinding, advice, fault, fine
from core.machine.doctor.surroundings import NETWORK_DISKS, WINDOWS_DISKS, Surroundings
from core.machine.hardware import Machine

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
SMALL_RAM, LOW_RAM, PINNED_RAM = 8, 2, 16
FULL_DISK, LOW_DISK = 2, 20
AHEAD_SECONDS = 300
WSL_MEMORY = "Raise 'memory=' in .wslconfig, then: wsl --shutdown"


def room_findings(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    """Everything but the card."""
    yield from _system(machine, around)
    yield from _memory(machine, around)
    yield from _disk(machine, around)
    yield from _places(machine, around)
    if machine.wsl and not around.wsl_one and not around.systemd:
        yield advice(
            "wsl.systemd",
            "systemd is off in this WSL: nothing keeps the machine from sleeping during a run.",
            "Add systemd=true under [boot] in /etc/wsl.conf, then in PowerShell: wsl --shutdown",
        )
    if (ahead := around.seconds_ahead) > AHEAD_SECONDS:
        span = f"{ahead / 60:.0f} minutes" if ahead < 7200 else f"{ahead / 3600:.0f} hours"
        yield advice(
            "clock.behind",
            f"The clock is {span} behind the newest run's log: it jumped.",
            "wsl --shutdown in PowerShell, then start again" if machine.wsl else "sudo timedatectl set-ntp true",
        )


def _system(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    if machine.system == "Windows":
        yield fault(
            "system.windows",
            "Luthier runs in WSL, not on Windows itself.",
            "In PowerShell: wsl --install, then in the Ubuntu window: python3 launcher.py",
        )
    version = ".".join(map(str, around.python))
    if around.python[:2] < OLDEST_PYTHON:
        yield fault(
            "python.old",
            f"This is Python {version}; 3.11 or newer is needed.",
            "sudo apt install python3.11 python3.11-venv, then: python3.11 launcher.py",
        )
    elif around.python[:2] > NEWEST_PYTHON:
        yield advice(
            "python.new",
            f"This is Python {version}; PyTorch was tried up to 3.14.",
            "Should setup find no build, start launcher.py with an older Python.",
        )


def _memory(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    total, free = machine.ram_total_bytes / GIB, machine.ram_free_bytes / GIB
    if total < SMALL_RAM:
        if machine.wsl:
            cap = around.wsl_memory_bytes
            why = f"memory={cap / GIB:.0f}GB in .wslconfig" if cap else "half of what Windows has"
            yield advice("ram.small", f"WSL has {total:.1f} GB of memory ({why}); loading a 7B wants 8.", WSL_MEMORY)
        else:
            yield advice(
                "ram.small",
                f"This machine has {total:.1f} GB of memory; loading a 7B wants 8.",
                "Prefer models up to 1B.",
            )
    elif free < LOW_RAM:
        yield advice("ram.low", f"Only {free:.1f} GB of memory is free.", "Close other programs first.")
    else:
        yield fine("ram", f"{free:.1f} of {total:.1f} GB of memory are free, {machine.cpu_count} processor cores.")
        if machine.wsl and machine.gpu and total < PINNED_RAM:
            yield advice(
                "ram.pinned",
                f"In WSL the card reaches about half of the memory directly: {total / 2:.0f} GB.",
                WSL_MEMORY,
            )


def _disk(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    free = machine.disk_free_bytes
    if not around.writable:
        yield fault(
            "disk.readonly",
            f"Nothing can be written at {around.home}.",
            "Give yourself the right to, or move the root folder: --home DIR.",
        )
    elif free is None:
        yield advice("disk.unknown", f"The free disk at {around.home} cannot be read.", "Check that it is mounted.")
    elif free < FULL_DISK * GIB:
        yield fault(
            "disk.full",
            f"Only {free / GIB:.1f} GB of disk are free at {around.home}.",
            "Make room, or move the root folder: --home DIR.",
        )
    elif free < LOW_DISK * GIB:
        yield advice(
            "disk.low",
            f"{free / GIB:.0f} GB of disk are free; a 7B takes 15, its merge 15 more.",
            "Make room before a large download, or move the root folder: --home DIR.",
        )
    else:
        yield fine("disk", f"{free / GIB:.0f} GB of disk are free at {around.home}.")


def _places(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    """Where runs and models lie: a Windows disk is read slowly through WSL, and a network may go away."""
    on_windows = machine.wsl and (around.home.is_relative_to("/mnt") or around.home_disk in WINDOWS_DISKS)
    if on_windows:
        yield advice(
            "disk.mnt",
            f"{around.home} lies on the Windows disk, which WSL reads slowly.",
            "Keep runs in the Linux home: --home ~/luthier-studio",
        )
    elif around.home_disk in NETWORK_DISKS:
        yield advice(
            "disk.network",
            f"{around.home} lies on a network drive: locks and checkpoints depend on it.",
            "Keep runs on a disk of this machine: --home DIR",
        )
    models = around.models
    if machine.wsl and models and (models.is_relative_to("/mnt") or around.models_disk in WINDOWS_DISKS):
        yield advice(
            "models.mnt",
            f"Models lie at {models}, on the Windows disk: loading takes several times longer.",
            "Move them into the Linux home, and unset HF_HOME.",
        )
