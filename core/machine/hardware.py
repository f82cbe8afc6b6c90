"""The machine: GPU, memory, disk, WSL. No reading raises.

GPUs are read through NVML (nvidia-ml-py), which needs neither torch nor a CUDA context.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from core.contract.errors import MachineError
from core.machine.cards import CardSet
from core.machine.host import Host

_UUIDS = ("GPU-", "MIG-")
KERNELS_FROM = (7, 5)
"""The oldest compute capability with kernels of ours; a test holds it to ``core.kernels.dispatch``."""
_ALIKE = 0.05
"""Share by which the memory of two cards of one name may differ."""


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA card as NVML describes it; unknown is None."""

    index: int
    uuid: str
    name: str
    total_bytes: int | None
    free_bytes: int | None
    compute_capability: tuple[int, int] | None
    driver: str = ""
    power_limit_watts: float | None = None
    """The present limit."""

    @property
    def title(self) -> str:
        """What people call it, with its number: "RTX 3060 (0)"."""
        return f"{self.short} ({self.index})"

    @property
    def short(self) -> str:
        """Its name without the maker's."""
        return self.name.removeprefix("NVIDIA ").removeprefix("GeForce ")

    @property
    def kind(self) -> tuple[str, int]:
        """Name and memory, by which cards are ``alike``."""
        return self.name, self.total_bytes or 0

    @property
    def held_bytes(self) -> int | None:
        """Memory that programs hold now."""
        return None if self.total_bytes is None or self.free_bytes is None else self.total_bytes - self.free_bytes

    @property
    def bf16(self) -> bool:
        """bfloat16 arithmetic in hardware: Ampere (8.0) and later."""
        return self.compute_capability is not None and self.compute_capability >= (8, 0)

    @property
    def cuda_name(self) -> str:
        """Its name in CUDA_VISIBLE_DEVICES: the UUID, or the number in the order of the PCI bus."""
        return self.uuid if self.uuid.startswith(_UUIDS) else str(self.index)


@dataclass(frozen=True)
class GpuReading:
    """What a card is doing now; unknown is None."""

    used_bytes: int | None = None
    load: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


@dataclass(frozen=True)
class Machine:
    """What there is to train on; ``gpus`` are those that PyTorch may use, in the order of CUDA_VISIBLE_DEVICES."""

    gpus: tuple[Gpu, ...]
    cpu_count: int
    ram_total_bytes: int
    ram_free_bytes: int
    disk_free_bytes: int | None
    system: str
    wsl: bool
    gpu_problem: str = ""
    copy_bytes_a_second: float = 0.0
    """From its memory to each card of a job, as earlier runs measured it (``core.estimate.learned``); 0: unknown."""

    @property
    def gpu(self) -> Gpu | None:
        """The card that is used; None without one."""
        return self.gpus[0] if self.gpus else None

    chosen: CardSet | None = None
    """What a job chose (``choosing``); None: the first card, or the CPU."""

    @property
    def working(self) -> tuple[Gpu, ...]:
        """The cards that a job on this machine works on: those that it chose, else the first."""
        return self.gpus if self.chosen else self.gpus[:1]

    @property
    def pins_little(self) -> bool:
        """Whether its system pins about half of its memory at most."""
        return self.wsl or self.system == "Windows"

    @property
    def cards(self) -> CardSet:
        """The cards that a job on this machine works on, one job a card."""
        return self.chosen or CardSet((self.gpu.cuda_name,) if self.gpu else ())

    def choosing(self, text: str) -> "Machine":
        """This machine for a job that asks for these cards (``train.cards``): ``gpus`` are those, in that order. On a
        machine without a card it works with as many processes.

        Raises:
            MachineError: one of them is not there.
        """
        if not text:
            return self
        names = [name.strip() for name in text.split(",")]
        if not self.gpus:
            return replace(self, chosen=CardSet(processes=len(names)))
        gpus = self.gpus if names == ["all"] else tuple(_named(self.gpus, name) for name in names)
        return replace(self, gpus=gpus, chosen=CardSet(tuple(gpu.cuda_name for gpu in gpus)))

    @property
    def unlike(self) -> str:
        """Names and memory of the cards that a job chose, where they are not all alike."""
        if not self.chosen or len(kinds(self.gpus)) < 2:
            return ""
        return " beside ".join(f"{gpu.name} ({(gpu.total_bytes or 0) / 2**30:.0f} GiB)" for gpu in self.gpus)


def alike(one: tuple[object, float], other: tuple[object, float]) -> bool:
    """Whether two cards, by name and bytes, are of one kind: a name may stand for several memories (RTX 3060), and two
    cards of one kind may show a little more or less of it."""
    (name, size), (its_name, its_size) = one, other
    return name == its_name and abs(size - its_size) <= _ALIKE * max(size, its_size)


def kinds(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """The cards of each kind, in their order."""
    found: list[list[Gpu]] = []
    for gpu in gpus:
        kind = next((kind for kind in found if alike(kind[0].kind, gpu.kind)), None)
        found.append([gpu]) if kind is None else kind.append(gpu)
    return found


def _named(gpus: Sequence[Gpu], name: str) -> Gpu:
    for gpu in gpus:
        if name in (str(gpu.index), gpu.uuid):
            return gpu
    numbers = [gpu.index for gpu in gpus]
    row = numbers[1:] and numbers == list(range(numbers[0], numbers[-1] + 1))
    known = f"{numbers[0]} to {numbers[-1]}" if row else ", ".join(map(str, numbers))
    raise MachineError("card.missing", known=known, name=name)


def read_machine(home: Path | None = None, host: Host | None = None) -> Machine:
    """Reads the machine; ``home`` is the folder whose disk counts. Takes milliseconds and never raises."""
    host = host or Host()
    gpus, problem = _read_gpus(host)
    total, free = host.memory()
    return Machine(
        gpus=gpus,
        cpu_count=host.cpu_count(),
        ram_total_bytes=total,
        ram_free_bytes=free,
        disk_free_bytes=host.free_bytes(home or Path.home()),
        system=host.system,
        wsl=is_wsl(host.place("/proc/version")),
        gpu_problem=problem,
    )


def is_wsl(version_file: Path = Path("/proc/version")) -> bool:
    """Whether this Linux runs inside Windows."""
    try:
        return "microsoft" in version_file.read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False


def read_gpu(uuid: str) -> GpuReading:
    """What the card with this UUID is doing."""
    with Host().nvml() as nvml:
        if nvml is None:
            return GpuReading()
        handle = _ask(nvml.nvmlDeviceGetHandleByUUID, uuid)
        if handle is None:
            return GpuReading()
        memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        load = _ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        power = _ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuReading(
            used_bytes=int(memory.used) if memory else None,
            load=load.gpu / 100 if load else None,
            temperature_celsius=_ask(nvml.nvmlDeviceGetTemperature, handle, 0),
            power_watts=power / 1000 if power else None,
        )


def titles_of(cards: CardSet) -> tuple[str, ...]:
    """What people call these cards; their names for CUDA where the driver does not say."""
    with Host().nvml() as nvml:
        titles = []
        for name in cards.ids:
            handle = None if nvml is None else _ask(nvml.nvmlDeviceGetHandleByUUID, name)
            index = None if handle is None else _ask(nvml.nvmlDeviceGetIndex, handle) or 0
            card = None if index is None else _read_card(nvml, index, handle)
            titles.append(card.title if card else name)
    return tuple(titles)


def _read_gpus(host: Host) -> tuple[tuple[Gpu, ...], str]:
    visible = host.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return (), "CUDA_VISIBLE_DEVICES hides all cards"
    with host.nvml() as nvml:
        if nvml is None:
            return (), "no NVIDIA driver answers"
        count = _ask(nvml.nvmlDeviceGetCount) or 0
        if count and "+cpu" in host.torch_build():
            return (), "this PyTorch is the CPU build"
        read = (_read_card(nvml, index, _ask(nvml.nvmlDeviceGetHandleByIndex, index)) for index in range(count))
        cards = [card for card in read if card is not None]
        if not count or visible is None:
            return tuple(cards), "" if count else "the driver shows no card"
        chosen = tuple(_chosen(nvml, cards, visible))
        return chosen, "" if chosen else "CUDA_VISIBLE_DEVICES names no card of this machine"


def _chosen(nvml: Any, cards: list[Gpu], visible: str) -> Iterator[Gpu]:
    """The cards that CUDA_VISIBLE_DEVICES names, in its order, up to the first unknown name, as in CUDA."""
    for name in (word.strip() for word in visible.split(",")):
        if name.startswith("MIG-"):
            card = _read_card(nvml, 0, _ask(nvml.nvmlDeviceGetHandleByUUID, name))
        elif name.startswith("GPU-"):  # CUDA accepts a UUID's beginning
            card = next((card for card in cards if card.uuid.startswith(name)), None)
        else:
            card = next((card for card in cards if str(card.index) == name), None)
        if card is None:
            return
        yield card


def _read_card(nvml: Any, index: int, handle: Any) -> Gpu | None:
    if handle is None:
        return None
    memory = _ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    limit = _ask(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))  # older drivers and bindings lack it
    return Gpu(
        index=index,
        uuid=_text(_ask(nvml.nvmlDeviceGetUUID, handle)) or str(index),
        name=_text(_ask(nvml.nvmlDeviceGetName, handle)) or "NVIDIA GPU",
        total_bytes=int(memory.total) if memory else None,
        free_bytes=int(memory.free) if memory else None,
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
        driver=_text(_ask(nvml.nvmlSystemGetDriverVersion)),
        power_limit_watts=limit / 1000 if limit else None,
    )


def _ask(function: Any, *arguments: Any) -> Any:
    """The answer, or None: some drivers (WSL's) lack single readings."""
    try:
        return function(*arguments)
    except Exception:  # noqa: BLE001 - NVML raises one class per missing feature
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
