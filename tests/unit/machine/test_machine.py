"""Hardware readings are optional, and the doctor says the right line for machines that were only recorded."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.contract.errors import MachineError
from core.machine.cards import CardSet
from core.machine.doctor.examine import Surroundings, findings, read_surroundings
from core.machine.hardware import Gpu, GpuReading, Machine, read_gpu, read_machine, titles_of
from core.machine.host import Host
from core.machine.locations import REPOSITORY, Locations

GIB = 1 << 30
CARD = Gpu(0, "GPU-1", "NVIDIA GeForce RTX 3060", 12 * GIB, 11 * GIB, (8, 6), "580.65")
PLAIN = Machine((CARD,), 8, 32 * GIB, 24 * GIB, 200 * GIB, "Linux", False)
TOOLS = Surroundings("/usr/bin/gcc", True, Path("/home/you/luthier"))


@pytest.mark.parametrize(
    ("machine", "around", "expected"),
    [
        (PLAIN, TOOLS, set()),
        (replace(PLAIN, gpus=(replace(CARD, compute_capability=(7, 5)),)), TOOLS, set()),
        (PLAIN, Surroundings("/usr/bin/gcc", False, TOOLS.home), {"kernels.tools"}),
        (replace(PLAIN, gpus=()), Surroundings(None, False, TOOLS.home), {"gpu.none"}),
        (replace(PLAIN, ram_free_bytes=GIB), TOOLS, {"ram.low"}),
        (replace(PLAIN, disk_free_bytes=10 * GIB), TOOLS, {"disk.low"}),
        (replace(PLAIN, disk_free_bytes=None), TOOLS, {"disk.unknown"}),
    ],
)
def test_what_no_recorded_machine_has(machine: Machine, around: Surroundings, expected: set[str]) -> None:
    assert {found.code for found in findings(machine, around) if found.level != "fine"} == expected


def test_reading_this_machine_never_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert read_surroundings(Path("/")).compiler is None
    machine = read_machine(tmp_path / "not" / "yet")
    assert machine.cpu_count >= 1
    assert machine.ram_total_bytes > machine.ram_free_bytes > 0
    assert machine.disk_free_bytes
    assert machine.cards.locks == ((f"gpu-{machine.gpu.uuid}" if machine.gpu else "cpu"),)
    assert read_gpu("GPU-that-is-not-there") == GpuReading()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/slurm/job_7/step_0\n",
          "sys/fs/cgroup/slurm/job_7/memory.max": f"{8 * GIB}\n",
          "sys/fs/cgroup/slurm/job_7/memory.current": f"{5 * GIB}",
          "sys/fs/cgroup/slurm/job_7/memory.stat": f"anon 7\ninactive_file {GIB}\nactive_file {GIB}\nshmem {GIB}\n",
          "sys/fs/cgroup/slurm/job_7/step_0/memory.max": "max\n",
          "sys/fs/cgroup/slurm/job_7/step_0/memory.current": "1\n"}, (8 * GIB, 5 * GIB)),
        ({"proc/self/cgroup": "9:name=systemd:/\n4:memory:/docker/abc\n3:cpu,cpuacct:/\n",
          "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
          "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{5 * GIB}\n"}, (4 * GIB, 0)),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, (64 * GIB, 60 * GIB)),
        ({}, (64 * GIB, 60 * GIB)),
    ],
)  # fmt: skip
def test_memory_is_what_a_container_or_a_scheduler_allows(
    files: dict[str, str], expected: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nested limits the tightest; page cache that can be given back is free."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=64 * GIB, available=60 * GIB))
    host = Host()
    host.root = tmp_path
    assert host.memory() == expected


def test_cards_are_chosen_by_their_numbers_on_the_bus_and_one_that_is_not_there_is_named() -> None:
    """Rank 0 works on the first one named; locks are in one order, whatever is named first."""
    two = replace(PLAIN, gpus=(CARD, replace(CARD, index=1, uuid="GPU-2", total_bytes=24 * GIB)))
    assert two.choosing("") is two
    assert two.cards == CardSet(("GPU-1",))
    turned = two.choosing("1, 0")
    assert (turned.gpu, turned.cards) == (two.gpus[1], CardSet(("GPU-2", "GPU-1")))
    assert turned.cards.locks == two.choosing("all").cards.locks == ("gpu-GPU-1", "gpu-GPU-2")
    assert turned.cards.meets(two.cards)
    assert CardSet.parse(str(turned.cards)) == turned.cards
    shown = [turned.cards.environment({}, rank)["CUDA_VISIBLE_DEVICES"] for rank in (0, 1)]
    assert shown == ["GPU-2", "GPU-1"]
    assert "RTX 3060 (24 GiB) beside NVIDIA GeForce RTX 3060 (12 GiB)" in turned.unlike
    assert not two.choosing("0").unlike
    assert not two.unlike
    with pytest.raises(MachineError, match="Cards are numbered 0 to 1; 3 is not there"):
        two.choosing("0,3")
    hidden = replace(two, gpus=(replace(CARD, index=1), replace(CARD, index=3)))
    with pytest.raises(MachineError, match="numbered 1, 3; 0 is"):
        hidden.choosing("0")


def test_without_a_card_a_choice_of_two_is_two_processes() -> None:
    """On the CPU, whose lock is one."""
    bare = replace(PLAIN, gpus=())
    two = bare.choosing("0,1").cards
    assert (two.ranks, two.locks, bare.cards.ranks, bare.choosing("all").cards.ranks) == (2, ("cpu",), 1, 1)
    assert CardSet.parse(str(two)) == two
    assert two.meets(CardSet())


def fake_nvml(monkeypatch: pytest.MonkeyPatch, build: str = "2.11.0+cu128", **answers: object) -> SimpleNamespace:
    """A driver of three cards and one part of a card that tells who they are, and else what is asked for here."""
    names = ["GPU-aa11", "GPU-bb22", "GPU-cc33"]
    said: dict[str, object] = {
        "nvmlInit": lambda: None, "nvmlShutdown": lambda: None, "nvmlDeviceGetCount": lambda: 3,
        "nvmlDeviceGetHandleByIndex": lambda index: names[index], "nvmlDeviceGetUUID": lambda handle: handle,
        "nvmlDeviceGetHandleByUUID": lambda uuid: {"MIG-dd44": "MIG-dd44", "GPU-aa11": "GPU-aa11"}[uuid],
        "nvmlDeviceGetName": lambda handle: b"NVIDIA GeForce RTX 2070", "nvmlSystemGetDriverVersion": refuse,
    }  # fmt: skip
    for name in ("MemoryInfo", "CudaComputeCapability", "UtilizationRates", "PowerUsage", "Temperature"):
        said[f"nvmlDeviceGet{name}"] = refuse
    nvml = SimpleNamespace(**said | answers)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(Host, "torch_build", lambda _host: build)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return nvml


def refuse(*_: object) -> object:
    raise RuntimeError("Not Supported")


def test_a_driver_that_answers_half_is_read_half(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=8 * GIB, free=7 * GIB, used=GIB)
    nvml = fake_nvml(monkeypatch, nvmlDeviceGetMemoryInfo=lambda handle: memory)
    card = read_machine().gpus[0]
    assert (card.uuid, card.name, card.driver) == ("GPU-aa11", "NVIDIA GeForce RTX 2070", "")
    assert (card.compute_capability, card.bf16) == (None, False)
    assert read_gpu("GPU-aa11") == GpuReading(used_bytes=GIB)
    assert (card.held_bytes, card.power_limit_watts) == (GIB, None)
    nvml.nvmlDeviceGetEnforcedPowerLimit = lambda handle: 175_000
    assert read_machine().gpus[0].power_limit_watts == 175.0


def test_cards_have_titles_also_where_they_are_hidden_from_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank sees its own card alone, and rank 0 names all of them."""
    cards = CardSet(("GPU-aa11", "GPU-gone"))
    fake_nvml(monkeypatch, nvmlDeviceGetIndex=lambda handle: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb22")
    assert titles_of(cards) == ("RTX 2070 (3)", "GPU-gone")
    assert replace(CARD, name="NVIDIA H200").title == "H200 (0)"


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
    fake_nvml(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = read_machine()
    assert [card.uuid for card in machine.gpus] == expected
    assert ("CUDA_VISIBLE_DEVICES" in machine.gpu_problem) == (not expected)
    assert [card.cuda_name for card in machine.gpus] == expected


@pytest.mark.parametrize(("build", "cards"), [("2.13.0+cpu", 0), ("2.11.0+cu128", 3), ("2.13.0", 3), ("", 3)])
def test_a_cpu_build_of_pytorch_has_no_card_for_anybody(
    build: str, cards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(monkeypatch, build)
    machine = read_machine()
    assert len(machine.gpus) == cards
    assert machine.gpu_problem == ("" if cards else "this PyTorch is the CPU build")


def test_the_root_is_named_or_of_the_environment_or_beside_the_clone_and_never_the_repository(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LUTHIER_HOME", str(tmp_path / "env"))
    assert Locations.find().home == tmp_path / "env"
    made = Locations.find(tmp_path / "given").make()
    assert (made.home, made.runs.is_dir()) == (tmp_path / "given", True)
    assert made.home.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("LUTHIER_HOME")
    assert Locations.find().home == Path.home().resolve() / "luthier-studio"
    with pytest.raises(MachineError, match="--home"):
        Locations.find(REPOSITORY)
