"""Hardware readings are optional, and the doctor says the right line for machines that were only recorded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

import core.machine.hardware
import core.machine.host
from core.contract.errors import MachineError
from core.machine.doctor.examine import Surroundings, findings, read_surroundings
from core.machine.hardware import Gpu, GpuReading, Machine, is_wsl, read_gpu, read_machine
from core.machine.locations import REPOSITORY, Locations

GIB = 1 << 30
CARD = Gpu(0, "GPU-1", "NVIDIA GeForce RTX 3060", 12 * GIB, 11 * GIB, (8, 6), "580.65")
PLAIN = Machine((CARD,), 8, 32 * GIB, 24 * GIB, 200 * GIB, "Linux", False)
TOOLS = Surroundings("/usr/bin/gcc", True, Path("/home/you/luthier"))


def change(**values: object) -> Machine:
    return dataclasses.replace(PLAIN, **values)  # type: ignore[arg-type]


def with_card(**values: object) -> Machine:
    return change(gpus=(dataclasses.replace(CARD, **values),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("machine", "around", "expected"),
    [
        (PLAIN, TOOLS, set()),
        (with_card(compute_capability=(7, 5)), TOOLS, set()),
        (PLAIN, Surroundings("/usr/bin/gcc", False, TOOLS.home), {"kernels.tools"}),
        (change(gpus=()), Surroundings(None, False, TOOLS.home), {"gpu.none"}),
        (change(ram_free_bytes=GIB), TOOLS, {"ram.low"}),
        (change(disk_free_bytes=10 * GIB), TOOLS, {"disk.low"}),
        (change(disk_free_bytes=None), TOOLS, {"disk.unknown"}),
    ],
)
def test_what_no_recorded_machine_has(machine: Machine, around: Surroundings, expected: set[str]) -> None:
    assert {found.code for found in findings(machine, around) if found.level != "fine"} == expected


def test_no_compiler_on_an_empty_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert read_surroundings(Path("/")).compiler is None


def test_reading_this_machine_never_raises(tmp_path: Path) -> None:
    machine = read_machine(tmp_path / "not" / "yet")
    assert machine.cpu_count >= 1
    assert machine.ram_total_bytes > machine.ram_free_bytes > 0
    assert machine.disk_free_bytes
    assert machine.cards.locks == ((f"gpu-{machine.gpu.uuid}" if machine.gpu else "cpu"),)
    assert read_gpu("GPU-that-is-not-there") == GpuReading()


def test_a_driver_that_answers_half_is_read_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> object:
        raise RuntimeError("Not Supported")

    nvml = SimpleNamespace(
        nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index, nvmlDeviceGetHandleByUUID=lambda uuid: 0,
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=8 * GIB, free=7 * GIB, used=GIB),
        nvmlDeviceGetCudaComputeCapability=refuse, nvmlDeviceGetUUID=lambda handle: b"GPU-7",
        nvmlDeviceGetName=lambda handle: b"NVIDIA GeForce RTX 2070", nvmlSystemGetDriverVersion=refuse,
        nvmlDeviceGetUtilizationRates=refuse, nvmlDeviceGetPowerUsage=refuse, nvmlDeviceGetTemperature=refuse,
    )  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    monkeypatch.setattr(core.machine.host.Host, "torch_build", lambda _host: "2.11.0+cu128")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (card,) = read_machine().gpus
    assert (card.uuid, card.name) == ("GPU-7", "NVIDIA GeForce RTX 2070")
    assert (card.compute_capability, card.bf16) == (None, False)
    assert read_gpu("GPU-7") == GpuReading(used_bytes=GIB)
    assert (card.held_bytes, card.power_limit_watts) == (GIB, None)
    nvml.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 175_000
    assert read_machine().gpus[0].power_limit_watts == 175.0


def test_wsl_is_read_from_the_kernel(tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("Linux version 6.6.87.2-microsoft-standard-WSL2")
    assert is_wsl(version)
    version.write_text("Linux version 6.8.0-generic")
    assert not is_wsl(version)
    assert not is_wsl(tmp_path / "absent")


def test_the_root_folder_is_given_or_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LUTHIER_HOME", str(tmp_path / "env"))
    assert Locations.find().home == tmp_path / "env"
    made = Locations.find(tmp_path / "given").make()
    assert made.home == tmp_path / "given"
    assert made.runs.is_dir()
    assert made.home.stat().st_mode & 0o777 == 0o700


def fake_cards(monkeypatch: pytest.MonkeyPatch, build: str = "2.11.0+cu128") -> None:
    """Three cards and one part of a card, read through a driver that tells only who they are."""
    names = ["GPU-aa11", "GPU-bb22", "GPU-cc33"]
    nvml = SimpleNamespace(
        nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: names[index], nvmlDeviceGetUUID=lambda handle: handle,
        nvmlDeviceGetHandleByUUID=lambda uuid: {"MIG-dd44": "MIG-dd44"}[uuid],
        nvmlDeviceGetMemoryInfo=lambda handle: None, nvmlDeviceGetCudaComputeCapability=lambda handle: (8, 0),
        nvmlDeviceGetName=lambda handle: "NVIDIA A100", nvmlSystemGetDriverVersion=lambda: "580.65",
    )  # fmt: skip
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    monkeypatch.setattr(core.machine.host.Host, "torch_build", lambda _host: build)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("2", ["GPU-cc33"]),
        ("2,0", ["GPU-cc33", "GPU-aa11"]),
        (" GPU-bb , 0", ["GPU-bb22", "GPU-aa11"]),
        ("1,-1,0", ["GPU-bb22"]),
        ("MIG-dd44", ["MIG-dd44"]),
        ("7", []),
        ("GPU-ff", []),
        ("-1", []),
    ],
)
def test_a_list_of_cards_filters_and_orders_them(
    visible: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cards(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = read_machine()
    assert [card.uuid for card in machine.gpus] == expected
    assert ("CUDA_VISIBLE_DEVICES" in machine.gpu_problem) == (not expected)
    assert [card.cuda_name for card in machine.gpus] == expected


@pytest.mark.parametrize(("build", "cards"), [("2.13.0+cpu", 0), ("2.11.0+cu128", 3), ("2.13.0", 3), ("", 3)])
def test_a_cpu_build_of_pytorch_has_no_card_for_anybody(
    build: str, cards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cards(monkeypatch, build)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = read_machine()
    assert len(machine.gpus) == cards
    assert machine.gpu_problem == ("" if cards else "this PyTorch is the CPU build")


def test_the_default_root_is_beside_the_clone_and_never_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUTHIER_HOME")
    assert Locations.find().home == Path.home().resolve() / "luthier-studio"
    with pytest.raises(MachineError, match="--home"):
        Locations.find(REPOSITORY)
