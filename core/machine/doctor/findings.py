"""The doctor's findings: card, driver and kernels; then system, memory, disks, WSL and the clock."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from core.machine.doctor.surroundings import NETWORK_DISKS, WINDOWS_DISKS, Driver, Surroundings
from core.machine.hardware import KERNELS_FROM, Gpu, Machine
from core.machine.imports import install_command

GIB = 1 << 30
OLDEST_CUDA = (12, 6)
BUSY, CAPPED = 0.75, 0.8
"""Shares: of free memory, and of the default power limit."""
WSL_DRIVER = "Install a current NVIDIA driver in Windows (WSL uses the Windows driver), then: wsl --shutdown"
LINUX_DRIVER = "Install a current NVIDIA driver for your card and start again."
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
SMALL_RAM, LOW_RAM, PINNED_RAM = 8, 2, 16
FULL_DISK, LOW_DISK = 2, 20
AHEAD_SECONDS = 300
WSL_MEMORY = "Raise 'memory=' in .wslconfig, then: wsl --shutdown"


@dataclass(frozen=True)
class MachineFinding:
    """One thing noticed. ``action`` is empty where nothing is to be done."""

    level: Literal["fine", "advice", "fault"]
    code: str
    text: str
    action: str = ""


fine = partial(MachineFinding, "fine")
"""In order, or cannot be changed."""
advice = partial(MachineFinding, "advice")
"""Works, and would work better."""
fault = partial(MachineFinding, "fault")
"""Does not work until something is done."""


def card_findings(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    """Everything about card, driver and kernels."""
    if machine.system == "Windows":
        return
    if machine.system == "Darwin":
        yield advice(
            "system.macos",
            "macOS has no CUDA: the window works, training runs on the CPU.",
            "Train small models here, larger ones on a machine with an NVIDIA card.",
        )
        return
    driver, known = around.driver, around.driver.cuda
    old = known is not None and known < OLDEST_CUDA
    if old:
        yield fault(
            "driver.old",
            f"The driver {driver.version} knows CUDA {_dotted(known)}; PyTorch needs {_dotted(OLDEST_CUDA)} or newer.",
            WSL_DRIVER if machine.wsl else LINUX_DRIVER,
        )
    if machine.gpu is None:
        if not old:
            yield _no_card(machine, around)
        return
    built = re.search(r"\+cu(\d+)(\d)$", around.torch_build)
    if built and known and not old and known < (int(built[1]), int(built[2])):
        text = f"PyTorch {around.torch_build} is newer than the driver, which knows CUDA {_dotted(known)}."
        yield fault("torch.newer", text, f"python3 launcher.py --torch {_build_for(driver)}")
    several = len(machine.gpus) > 1
    for card in machine.gpus:
        yield from _card(card.title if several else card.name, card, around)
    if several:
        yield from _together(machine)
    yield from _power(machine.gpu, around)
    if around.compiler and around.python_header:
        yield fine("kernels.tools", "A C compiler and Python's headers are there: fast kernels can be built.")
    else:
        missing = "Python's headers" if around.compiler else "a C compiler"
        text = f"Triton wants {missing}, found none: runs take the plain, slower path."
        yield advice("kernels.tools", text, "sudo apt install gcc python3-dev")


def _dotted(version: tuple[int, ...] | None) -> str:
    return ".".join(map(str, version or ()))


def _no_card(machine: Machine, around: Surroundings) -> MachineFinding:
    said = around.driver.problem
    if "CPU build" in machine.gpu_problem:
        return advice(
            "torch.cpu",
            "There is a card, and this PyTorch is the CPU build: training is slow.",
            f"python3 launcher.py --torch {_build_for(around.driver)}",
        )
    if "CUDA_VISIBLE_DEVICES" in machine.gpu_problem:
        return advice(
            "gpu.hidden",
            f"No card is used: {machine.gpu_problem}.",
            "Unset CUDA_VISIBLE_DEVICES, or name a card that nvidia-smi lists.",
        )
    if "mismatch" in said:
        return fault(
            "driver.mismatch", "The NVIDIA driver was updated, and the old one still runs.", "Restart the machine."
        )
    if around.wsl_one:
        return fault("wsl.one", "This is WSL 1, which has no GPU.", "In PowerShell: wsl --set-version Ubuntu 2")
    if machine.wsl:
        if around.devices:
            return advice(
                "gpu.none", "WSL passes a card on, and no NVIDIA driver answers: training is slow.", WSL_DRIVER
            )
        return advice(
            "wsl.gpu",
            "WSL shows no card: everything works, training is slow.",
            "In PowerShell: wsl --update, then a current NVIDIA driver in Windows, then: wsl --shutdown",
        )
    if around.container and not around.devices:
        return advice(
            "gpu.container",
            "This container was given no card: everything works, training is slow.",
            "Start it with --gpus all (Docker with the NVIDIA container toolkit).",
        )
    why = machine.gpu_problem or "no NVIDIA driver answers"
    return advice(
        "gpu.none",
        f"No NVIDIA GPU answers ({why}): everything works, training is slow.",
        f"If there is one: {LINUX_DRIVER[0].lower()}{LINUX_DRIVER[1:]}",
    )


def _build_for(driver: Driver) -> str:
    """The build that launcher.py would choose for this driver."""
    floors = (((13, 0), "cu130"), ((12, 8), "cu128"))
    return next((build for floor, build in floors if driver.cuda and driver.cuda >= floor), "cu126")


def _together(machine: Machine) -> Iterator[MachineFinding]:
    numbers = ",".join(str(card.index) for card in machine.gpus)
    yield fine(
        "gpu.several",
        f"{len(machine.gpus)} cards: a run takes the first, or those that are chosen for it.",
        f"Choose on New run, or with --cards {numbers}.",
    )
    if machine.choosing("all").unlike:
        yield fine(
            "gpu.unlike", "They are unlike: together each gets rows by its speed, the smaller memory says what fits."
        )


def _card(name: str, card: Gpu, around: Surroundings) -> Iterator[MachineFinding]:
    size = f"{card.total_bytes / GIB:.0f} GB" if card.total_bytes else "unknown memory"
    able = f", {'bfloat16' if card.bf16 else 'float16'}" if card.compute_capability else ""
    yield fine("gpu.found", f"{name}, {size}{able}, driver {card.driver or 'unknown'}.")
    if around.driver.mig and not card.uuid.startswith("MIG-"):
        yield advice(
            "gpu.mig",
            f"{name} is cut into parts (MIG), and none of them is chosen.",
            "Set CUDA_VISIBLE_DEVICES to a part that nvidia-smi -L lists (MIG-…), or switch MIG off.",
        )
    if card.compute_capability and card.compute_capability < KERNELS_FROM:
        yield advice(
            "gpu.old",
            f"{name} is older than the fast kernels know (compute capability 7.5).",
            "Runs take the plain path: right, but slower.",
        )
    elif card.compute_capability and not card.bf16:
        yield fine("gpu.fp16", f"{name} has no bfloat16: runs use float16.", "Leave the number format at automatic.")
        yield from _xformers(around)
    yield from _memory(name, card, around.driver)


def _xformers(around: Surroundings) -> Iterator[MachineFinding]:
    """On cards without FlashAttention; not needed there either, so that its absence is no finding."""
    version, wanted = around.xformers
    if wanted:
        text = f"xformers {version} is made for PyTorch {wanted}, not {around.torch_build}: attention runs in PyTorch."
        yield fine("gpu.xformers", text, f"Nothing is lost. Newer: {install_command(['--upgrade', 'xformers'])}")
    elif version:
        yield fine("gpu.xformers", f"xformers {version} fits this PyTorch: attention on this card goes through it.")


def _memory(name: str, card: Gpu, driver: Driver) -> Iterator[MachineFinding]:
    if card.total_bytes is None or card.free_bytes is None or card.compute_capability is None:
        yield fine(
            "gpu.silent",
            f"The driver does not tell everything about {name}: plans leave more room.",
            "A current driver tells more; the probe measures the rest.",
        )
    elif card.free_bytes < BUSY * card.total_bytes:
        held = (card.total_bytes - card.free_bytes) / GIB
        most = f", {driver.programs[0][0]} most of it" if driver.programs else ""
        yield advice(
            "gpu.busy",
            f"Other programs hold {held:.1f} of {card.total_bytes / GIB:.1f} GB of {name}{most}.",
            "Close games, browsers with video and other notebooks before a large run.",
        )


def _power(card: Gpu, around: Surroundings) -> Iterator[MachineFinding]:
    limit = around.driver.power_limit or card.power_limit_watts
    default = around.driver.power_default
    if around.on_battery:
        yield advice(
            "power.battery", "This machine runs on its battery: the card is slowed down.", "Plug it in before a run."
        )
    elif limit and default and limit < CAPPED * default:
        yield advice(
            "power.capped",
            f"The card may draw {limit:.0f} of {default:.0f} W: steps take longer.",
            f"Choose the machine's performance mode, or: sudo nvidia-smi -pl {default:.0f}",
        )


def room_findings(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    """Everything but the card."""
    yield from _system(machine, around)
    yield from _ram(machine, around)
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
    version = _dotted(around.python)
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


def _ram(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
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
    """On which disks runs and models lie."""
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
