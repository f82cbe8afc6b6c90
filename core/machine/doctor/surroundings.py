"""What matters beside the hardware: the driver, Windows' limits on WSL, disks, tools, the clock.

nvidia-smi ─ driver, CUDA version, power, MIG, who holds memory      /proc/mounts ─ what kind of disk
.wslconfig, wsl.conf, /dev/dxg ─ what Windows gives to WSL          /proc/1, /.dockerenv ─ a container
"""

import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from core.machine.host import COMMAND_SECONDS, Host, at_once

WINDOWS_DISKS = ("9p", "drvfs", "virtiofs")
NETWORK_DISKS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "ncpfs", "afs", "ceph", "fuse.glusterfs", "lustre")
WSL_SMI = "/usr/lib/wsl/lib/nvidia-smi"
QUERY = "--query-gpu=name,driver_version,compute_cap,power.limit,power.default_limit,mig.mode.current"
APPS = "--query-compute-apps=pid,process_name,used_gpu_memory"
CSV = "--format=csv,noheader,nounits"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Driver:
    """What nvidia-smi says; power in watts, of the first card, as is ``mig``."""

    version: str = ""
    cuda: tuple[int, int] | None = None
    power_limit: float | None = None
    power_default: float | None = None
    mig: bool = False
    programs: tuple[tuple[str, int], ...] = ()
    """Name and MiB of each program that computes on a card; empty where unknown."""
    problem: str = ""
    """Its error message, such as a library of another version, or no device."""


@dataclass(frozen=True)
class Surroundings:
    """Everything beside ``Machine``; what cannot be read is as on a machine in order."""

    compiler: str | None
    python_header: bool
    home: Path
    python: tuple[int, ...] = (3, 12, 0)
    torch_build: str = ""
    xformers: tuple[str, str] = ("", "")
    """Its version, and the PyTorch that it is made for where another one is installed."""
    driver: Driver = Driver()
    models: Path | None = None
    home_disk: str = ""
    models_disk: str = ""
    writable: bool = True
    seconds_ahead: float = 0.0
    container: bool = False
    devices: bool = True
    """Whether the kernel shows a card: /dev/nvidia0, or /dev/dxg on WSL."""
    on_battery: bool = False
    wsl_one: bool = False
    wsl_memory_bytes: int | None = None
    systemd: bool = True


def read_surroundings(home: Path, host: Host | None = None) -> Surroundings:
    """Reads all of it; nvidia-smi's three commands run in parallel."""
    host = host or Host()
    told = host.environment
    own = Path(told.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - the recording's home, not ours
    models = Path(told.get("HF_HUB_CACHE") or f"{told.get('HF_HOME') or own / '.cache/huggingface'}/hub")
    rows = [line.split() for line in host.text("/proc/mounts").splitlines()]
    mounts = [(row[1].replace("\\040", " "), row[2]) for row in rows if len(row) >= 3]
    disks = sorted(mounts, key=lambda one: -len(one[0]))  # the longest path first
    power = "/sys/class/power_supply"
    mains = [name for name in host.names(power) if host.text(f"{power}/{name}/type").strip() == "Mains"]
    unplugged = [host.text(f"{power}/{name}/online").strip() == "0" for name in mains]  # none on a desktop
    in_container = host.exists("/.dockerenv") or host.exists("/run/.containerenv")
    return Surroundings(
        compiler=host.compiler(),
        python_header=host.python_header(),
        home=home,
        python=host.python,
        torch_build=host.torch_build(),
        xformers=host.xformers(),
        driver=read_driver(host),
        models=models,
        home_disk=_disk_of(home, disks),
        models_disk=_disk_of(models, disks),
        writable=host.writable(home),
        seconds_ahead=host.seconds_ahead(home),
        container=in_container or bool(re.search(r"docker|kubepods|containerd|lxc", host.text("/proc/1/cgroup"))),
        devices=host.exists("/dev/dxg") or any(name.startswith("nvidia") for name in host.names("/dev")),
        on_battery=bool(unplugged) and all(unplugged),
        wsl_one="-Microsoft" in host.text("/proc/version"),
        wsl_memory_bytes=_wsl_memory(host),
        systemd=host.exists("/run/systemd/system"),
    )


def read_driver(host: Host) -> Driver:
    """nvidia-smi's answers; an empty Driver where there is none."""
    program = WSL_SMI if host.exists(WSL_SMI) else "nvidia-smi"
    commands = ([program], [program, QUERY, CSV], [program, APPS, CSV])
    said = at_once([partial(host.run, command) for command in commands], COMMAND_SECONDS + 0.2)
    header, query, apps = (words or "" for words in said)
    cuda = re.search(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)", header)
    version = re.search(r"Driver Version:\s*([\d.]+)", header)
    if not cuda:
        problem = next((line.strip() for line in header.splitlines() if line.strip()), "")
        return Driver(problem=problem[:160])
    fields = [word.strip() for word in (query.splitlines() or [""])[0].split(",")]
    fields += [""] * (6 - len(fields))
    rows = [[word.strip() for word in line.split(",")] for line in apps.splitlines()]
    held = [(PurePosixPath(row[1].replace("\\", "/")).name, _number(row[2])) for row in rows if len(row) == 3]
    programs = [(name, int(size)) for name, size in held if size]
    return Driver(
        version=version[1] if version else fields[1],
        cuda=(int(cuda[1]), int(cuda[2])),
        power_limit=_number(fields[3]),
        power_default=_number(fields[4]),
        mig=fields[5] == "Enabled",
        programs=tuple(sorted(programs, key=lambda one: -one[1])),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # [N/A], [Not Supported], [Insufficient Permissions]
        return None


def _disk_of(folder: Path, mounts: list[tuple[str, str]]) -> str:
    return next((kind for place, kind in mounts if folder.is_relative_to(place)), "")


def _wsl_memory(host: Host) -> int | None:
    """``memory=`` of the first .wslconfig of a Windows user; the default is half of Windows' memory."""
    for name in host.names("/mnt/c/Users"):
        limit = re.search(
            r"^\s*memory\s*=\s*(\d+)\s*([KMGT]?)B?\s*$", host.text(f"/mnt/c/Users/{name}/.wslconfig"), re.I | re.M
        )
        if limit:
            return int(limit[1]) * _UNITS[limit[2].upper()]
    return None
