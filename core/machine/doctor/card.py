"""The doctor on the card: whether there is one, whether its driver and this PyTorch go together, what holds it back."""

import re
from collections.abc import Iterator

from core.machine.doctor.finding import GIB, MachineFinding, advice, fault, fine
from core.machine.doctor.surroundings import Driver, Surroundings
from core.machine.hardware import Gpu, Machine

OLDEST_CUDA = (12, 6)
KERNELS_FROM = (7, 5)
BUSY, CAPPED = 0.75, 0.8
"""Shares: of the memory that is free, and of the power that the maker lets the card draw."""
WSL_DRIVER = "Install a current NVIDIA driver in Windows (WSL uses the Windows driver), then: wsl --shutdown"
LINUX_DRIVER = "Install a current NVIDIA driver for your card and start again."


def card_findings(machine: Machine, around: Surroundings) -> Iterator[MachineFinding]:
    """Everything about card, driver and kernels."""
    if machine.system == "Windows":
        return  # nothing of it counts there
    if machine.system == "Darwin":
        yield advice(
            "system.macos",
            "macOS has no CUDA: the window works, training runs on the CPU.",
            "Train small models here, larger ones on a machine with an NVIDIA card.",
        )
        return
    old = _old_driver(machine, around.driver)
    yield from old
    if machine.gpu is None:
        if not old:
            yield _no_card(machine, around)
        return
    yield from _newer_torch(around)
    yield from _card(machine, machine.gpu, around)
    yield from _power(machine.gpu, around)
    yield from _kernels(around)


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


def _old_driver(machine: Machine, driver: Driver) -> list[MachineFinding]:
    if driver.cuda is None or driver.cuda >= OLDEST_CUDA:
        return []
    known = ".".join(map(str, driver.cuda))
    text = f"The driver {driver.version} knows CUDA {known}; PyTorch needs {'.'.join(map(str, OLDEST_CUDA))} or newer."
    return [fault("driver.old", text, WSL_DRIVER if machine.wsl else LINUX_DRIVER)]


def _newer_torch(around: Surroundings) -> Iterator[MachineFinding]:
    built = re.search(r"\+cu(\d+)(\d)$", around.torch_build)
    known = around.driver.cuda
    if built and known and OLDEST_CUDA <= known < (int(built[1]), int(built[2])):
        text = f"PyTorch {around.torch_build} is newer than the driver, which knows CUDA {known[0]}.{known[1]}."
        yield fault("torch.newer", text, f"python3 launcher.py --torch {_build_for(around.driver)}")


def _build_for(driver: Driver) -> str:
    """The build that launcher.py would choose for this driver."""
    floors = (((13, 0), "cu130"), ((12, 8), "cu128"))
    return next((build for floor, build in floors if driver.cuda and driver.cuda >= floor), "cu126")


def _card(machine: Machine, card: Gpu, around: Surroundings) -> Iterator[MachineFinding]:
    size = f"{card.total_bytes / GIB:.0f} GB" if card.total_bytes else "unknown memory"
    yield fine("gpu.found", f"{card.name}, {size}, driver {card.driver or 'unknown'}.")
    if len(machine.gpus) > 1:
        yield fine(
            "gpu.two",
            f"{len(machine.gpus)} cards: runs take the first.",
            f"CUDA_VISIBLE_DEVICES={machine.gpus[1].index} takes another.",
        )
    if around.driver.mig and not card.uuid.startswith("MIG-"):
        yield advice(
            "gpu.mig",
            f"{card.name} is cut into parts (MIG), and none of them is chosen.",
            "Set CUDA_VISIBLE_DEVICES to a part that nvidia-smi -L lists (MIG-…), or switch MIG off.",
        )
    if card.compute_capability and card.compute_capability < KERNELS_FROM:
        yield advice(
            "gpu.old",
            f"{card.name} is older than the fast kernels know (compute capability 7.5).",
            "Runs take the plain path: right, but slower.",
        )
    elif card.compute_capability and not card.bf16:
        yield fine(
            "gpu.fp16", f"{card.name} has no bfloat16: runs use float16.", "Leave the number format at automatic."
        )
    yield from _memory(card, around.driver)


def _memory(card: Gpu, driver: Driver) -> Iterator[MachineFinding]:
    if card.total_bytes is None or card.free_bytes is None or card.compute_capability is None:
        yield fine(
            "gpu.silent",
            "The driver does not tell everything about this card: plans leave more room.",
            "A current driver tells more; the probe measures the rest.",
        )
    elif card.free_bytes < BUSY * card.total_bytes:
        held = (card.total_bytes - card.free_bytes) / GIB
        most = f", {driver.programs[0][0]} most of it" if driver.programs else ""
        yield advice(
            "gpu.busy",
            f"Other programs hold {held:.1f} of {card.total_bytes / GIB:.1f} GB of the card{most}.",
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


def _kernels(around: Surroundings) -> Iterator[MachineFinding]:
    if around.compiler and around.python_header:
        yield fine("kernels.tools", "A C compiler and Python's headers are there: fast kernels can be built.")
        return
    missing = "a C compiler" if not around.compiler else "Python's headers"
    yield advice(
        "kernels.tools",
        f"Triton wants {missing}, found none: runs take the plain, slower path.",
        "sudo apt install gcc python3-dev",
    )
