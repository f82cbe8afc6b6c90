"""Luthier: finetune language models on your own GPU.

  python3 launcher.py              set everything up, open the studio in the browser
  python3 launcher.py demo         the whole way without a browser: train, compare, export
  python3 launcher.py train FILE   start a run from a run.yaml or a data file and follow it
  python3 launcher.py runs         list the runs
  python3 launcher.py stop RUN     stop a run (saved first; --now: at once)
  python3 launcher.py resume RUN   go on with a paused, stopped or interrupted run
  python3 launcher.py export RUN   take a run home: adapter, merged weights, GGUF, or a script
  python3 launcher.py report RUN   what a run learned, got wrong and forgot; several beside each other
  python3 launcher.py pack RUN     a run as one file to give away (python3 launcher.py open FILE: from somebody else)
  python3 launcher.py publish RUN EXPORT --to OWNER/NAME   send an export to the hub, privately
  python3 launcher.py metrics RUN --to tensorboard   a run's figures in TensorBoard, W&B, MLflow or Trackio
  python3 launcher.py import FILE  a recipe of LLaMA-Factory, Axolotl, Unsloth Studio or kohya as a run.yaml
  python3 launcher.py estimate FILE   settings, memory and time of a run.yaml or a data file, before anything is loaded
  python3 launcher.py probe FILE   ten seconds of a run.yaml's longest step on this machine, thrown away
  python3 launcher.py doctor       look at this machine and say what would help (--revoke: end all browser sessions)
  python3 launcher.py explain [WORD]   what a word of the trade, or a setting, means
  python3 launcher.py test         set everything up and run the tests
  python3 launcher.py audit        ask for known weaknesses of all that is installed (lock: make presets/locks anew)

options of the studio:
  --port N        port on 127.0.0.1 (default 8765)
  --no-browser    only print the address
  --home DIR      root folder of runs and data (default ~/luthier-studio, or LUTHIER_HOME)
  --listen [ADDRESS]   for other machines too: asks for a password once, and wants
                       --tls-cert FILE --tls-key FILE, or --listen-without-tls; --name NAME for each name it answers to
options of the setup: --setup-only: set up and stop; --torch BUILD: cpu, cu126, cu128, cu130 or pypi, not the chosen one
'python3 launcher.py COMMAND --help' tells more, --version which Luthier this is. Setup happens once.
"""

# Standard library only, and plain enough that an old Python reaches the line that says it is too old.
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple, NoReturn  # Optional: an old Python must still reach its own message

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "luthier.json"
LOCKS = ROOT / "presets" / "locks"
SCRIPTS = {"test": "suite.py", "audit": "locks.py", "lock": "locks.py"}
TORCH_INDEX = "https://download.pytorch.org/whl"
#: The versions that were tried: the CPU build by the test suite, the CUDA builds on a card.
TORCH_VERSIONS = {"cpu": "2.13.0", "cu126": "2.11.0", "cu128": "2.11.0", "cu130": "2.11.0"}
ROOM_BYTES = {"cpu": 4 << 30, "pypi": 14 << 30, "cu126": 14 << 30, "cu128": 14 << 30, "cu130": 14 << 30}
PIP = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_USER": "0"}  # it refuses --user in .venv
NVIDIA_SMI = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "nvidia-smi.exe")
WSL_COMMANDS = "wsl --install   then, in the Ubuntu window:   python3 launcher.py"


class Driver(NamedTuple):
    """What nvidia-smi tells: the CUDA version its driver knows, the card's compute capability, its name."""

    cuda: tuple[int, int]
    capability: tuple[int, int] | None
    name: str


class TorchChoice(NamedTuple):
    """A build of torch, and why this one."""

    build: str
    reason: str


class StopError(Exception):
    """One line for the person; nothing more is printed."""


def main(arguments: list[str]) -> int:
    """Sets up where needed, then becomes the command in the environment."""
    if arguments[:1] in (["--help"], ["-h"], ["help"], ["--version"]):
        print(f"Luthier {own_version()}" if arguments[0] == "--version" else __doc__.strip())
        return 0
    os.umask(os.umask(0o022) | 0o022)  # what is installed, others may not write
    try:
        check_machine(tuple(sys.version_info[:3]), sys.platform)
        options, words = split_options(arguments)
        rest = command_first(words)
        developing = bool(rest) and rest[0] in SCRIPTS
        if {"-h", "--help"} & set(rest):
            hand_over(rest, sys.executable)  # help needs no packages
        if not is_ready(wanted_stamp(developing), read_stamp(), options.get("torch")):
            set_up(options.get("torch"), developing)
        if developing and rest[0] != "test":
            install(locked("development", "tools"))
        if "setup_only" in options:
            print("Ready.")
            return 0
        hand_over(rest)
    except StopError as stop:
        print(str(stop), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return 130
    return 0


def own_version() -> str:
    """From pyproject.toml: nothing may be installed yet."""
    return str(re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)[0])


def check_machine(version: tuple[int, ...], platform: str) -> None:
    """Raises StopError, in one line, for a system or a Python that cannot run Luthier."""
    if platform in ("win32", "cygwin"):
        raise StopError("Luthier runs on Linux and in WSL, not on Windows itself. In PowerShell:   " + WSL_COMMANDS)
    if tuple(version[:2]) < (3, 11):
        this = ".".join(str(part) for part in version[:3])
        raise StopError(
            f"Luthier needs Python 3.11 or newer, this is {this}. Ubuntu 24.04 brings 3.12; on an older one: "
            "sudo apt install python3.11 python3.11-venv   then:   python3.11 launcher.py"
        )


def split_options(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """The setup's own options as a dict, and everything else untouched for the command line."""
    options: dict[str, str] = {}
    queue, rest = list(arguments), list[str]()
    while queue:
        word = queue.pop(0)
        if word == "--setup-only":
            options["setup_only"] = "yes"
        elif word == "--torch" or word.startswith("--torch="):
            value = word.partition("=")[2] or (queue.pop(0) if queue else "")
            if value not in ROOM_BYTES:
                raise StopError(f"--torch takes one of {', '.join(sorted(ROOM_BYTES))}, found {value!r}.")
            options["torch"] = value
        else:
            rest.append(word)
    return options, rest


def command_first(words: list[str]) -> list[str]:
    """A --home that stands before the command goes behind it, where the command reads it."""
    count = 2 if words[:1] == ["--home"] else 1 if words and words[0].startswith("--home=") else 0
    if not count or len(words) <= count or words[count].startswith("-"):
        return words
    return [words[count], *words[:count], *words[count + 1 :]]


# ── what is installed ────────────────────────────────────────────────────────────────────────────────────────────────


def wanted_stamp(testing: bool) -> dict[str, object]:
    """What the environment must be made of: this Python, these packages, and the tests' tools or not."""
    files = [ROOT / "pyproject.toml", *sorted(LOCKS.glob("*.txt"))]
    packages = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "packages": packages, "development": testing}


def read_stamp() -> dict[str, object]:
    """What the environment is made of; empty where setup never finished."""
    try:
        return dict(json.loads(STAMP.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def is_ready(wanted: dict[str, object], stamp: dict[str, object], build: str | None = None) -> bool:
    """Whether nothing needs installing. An environment with the test tools also serves without them."""
    if build and stamp.get("torch") != build:
        return False
    same = all(stamp.get(key) == wanted[key] for key in ("python", "packages"))
    enough = bool(stamp.get("development")) or not wanted["development"]
    return same and enough and python_in_venv().exists()


def python_in_venv() -> Path:
    """The environment's interpreter."""
    return VENV / "bin" / "python"


# ── which torch ──────────────────────────────────────────────────────────────────────────────────────────────────────


def read_driver() -> Driver | None:
    """Asks nvidia-smi (5 s at most a try); None where no driver answers."""
    for program in NVIDIA_SMI:
        header = ask([program])
        if header:
            query = "--query-gpu=compute_cap,name"
            return parse_driver(header, ask([program, query, "--format=csv,noheader"]))
    return None


def ask(command: list[str]) -> str:
    """A program's output, or nothing: a missing, failing or hanging nvidia-smi all mean 'no card'."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def parse_driver(header: str, query: str) -> Driver | None:
    """nvidia-smi's two answers as a Driver; None where they name no CUDA version."""
    cuda = re.search(r"CUDA (?:UMD )?Version:\s*(\d+)\.(\d+)", header)
    if not cuda:
        return None
    card = re.search(r"^\s*(\d+)\.(\d+)\s*,\s*(.+?)\s*$", query, re.MULTILINE)
    capability = (int(card[1]), int(card[2])) if card else None
    return Driver((int(cuda[1]), int(cuda[2])), capability, card[3] if card else "NVIDIA GPU")


def choose_torch(driver: Driver | None, platform: str) -> TorchChoice:
    """Which build fits this driver and platform."""
    if platform == "darwin":
        return TorchChoice("pypi", "macOS: the window works, training runs on the CPU")
    if driver is None:
        return TorchChoice("cpu", "no NVIDIA GPU found: the CPU build")
    if driver.capability and driver.capability < (7, 5):
        return TorchChoice("cu126", f"{driver.name}: the CUDA 12.6 build, the last for cards of its age")
    cuda = ".".join(str(part) for part in driver.cuda)
    for floor, build in (((13, 0), "cu130"), ((12, 8), "cu128"), ((12, 6), "cu126")):
        if driver.cuda >= floor:
            return TorchChoice(build, f"{driver.name}, driver for CUDA {cuda}")
    raise StopError(
        f"{driver.name} is there, but its driver knows CUDA {cuda}, and 12.6 or newer is needed. Install a newer "
        "NVIDIA driver (on WSL: the Windows driver), or train on the CPU:   python3 launcher.py --torch cpu"
    )


def torch_arguments(build: str) -> list[str]:
    """pip's arguments. The index is an extra one: the person's own may have the build where it cannot be reached."""
    if build == "pypi":
        return ["torch>=2.10,<2.14"]
    return [f"torch=={TORCH_VERSIONS[build]}+{build}", "--extra-index-url", f"{TORCH_INDEX}/{build}"]


# ── setting up ───────────────────────────────────────────────────────────────────────────────────────────────────────


def set_up(build: str | None, testing: bool) -> None:
    """Three steps, each harmless to repeat; the stamp comes last, so that an interrupted setup goes on."""
    started = time.monotonic()
    before = read_stamp().get("torch")  # now: what follows deletes it
    choice = wanted_torch(build, before)
    check_room(choice.build, shutil.disk_usage(str(ROOT)).free)
    print(f"Setting up Luthier in {VENV} (once; a few minutes).", flush=True)
    if choice.build == "pypi" and before not in (None, "pypi"):
        shutil.rmtree(str(VENV), ignore_errors=True)  # any other build of torch would satisfy PyPI's requirement too
    make_venv()
    STAMP.unlink(missing_ok=True)
    print("2/3  Packages, each checked against its hash", flush=True)
    install(locked(*(("development", "cpu-kernels") if choice.build == "cpu" else ("development",)) if testing else ()))
    print(f"3/3  PyTorch, {choice.build} build ({choice.reason})", flush=True)
    install(torch_arguments(choice.build), choice.build)
    install(["--no-deps", "--no-build-isolation", "-e", str(ROOT)])
    STAMP.write_text(json.dumps(dict(wanted_stamp(testing), torch=choice.build)), encoding="utf-8")
    print(f"Set up in {time.monotonic() - started:.0f} s.", flush=True)


def wanted_torch(build: str | None, before: object) -> TorchChoice:
    """The build that was asked for, else the one installed already, else the one that fits this machine."""
    if build:
        return TorchChoice(build, "as you asked")
    if isinstance(before, str) and before in ROOM_BYTES:
        return TorchChoice(before, "as before")
    return choose_torch(read_driver(), sys.platform)


def locked(*beside: str) -> list[str]:
    """pip's arguments for everything but torch: the lock's versions only, as wheels with its hashes."""
    files = [word for name in ("packages", *beside) for word in ("-r", str(LOCKS / (name + ".txt")))]
    return ["--no-deps", "--require-hashes", "--only-binary", ":all:", *files]


def check_room(build: str, free_bytes: int) -> None:
    """Raises StopError where the disk cannot hold the packages."""
    if free_bytes < ROOM_BYTES[build] and not python_in_venv().exists():
        raise StopError(
            f"Setup needs {ROOM_BYTES[build] >> 30} GB of free disk, found {free_bytes / 2**30:.1f} GB at {ROOT}. "
            "Make room there, or move this folder to a larger disk."
        )


def make_venv() -> None:
    """Makes .venv, or makes it anew where its Python is not this one."""
    print("1/3  A Python environment", flush=True)
    try:
        import ensurepip  # noqa: F401 - Debian and Ubuntu leave it out of the plain python3 package
    except ImportError:
        raise StopError("This Python has no ensurepip. Install it:   sudo apt install python3-venv") from None
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    if python_in_venv().exists() and (VENV / "lib" / version / "site-packages" / "pip").exists():
        return
    shutil.rmtree(str(VENV), ignore_errors=True)
    done = subprocess.run([sys.executable, "-I", "-m", "venv", str(VENV)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StopError(f"Making .venv failed: {explain(done.stdout + done.stderr)}")


def install(packages: list[str], torch_build: str = "") -> None:
    """Runs pip under the person's configuration, without their PYTHONPATH (-I), shown in one moving line."""
    command = [str(python_in_venv()), "-I", "-m", "pip", "install", *packages]
    process = subprocess.Popen(
        command, env=os.environ | PIP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    kept: list[str] = []
    count = 0
    try:
        for line in process.stdout or ():
            kept.append(line)
            if line.startswith(("Collecting", "Downloading", "Installing", "  Downloading", "Building")):
                count += line.startswith("Collecting")
                show(count, line.strip())
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.wait()
        if sys.stdout.isatty():
            print("\r\033[K", end="", flush=True)  # clears the moving line
    if process.returncode:
        raise StopError(f"pip could not install: {explain(''.join(kept), torch_build)}")


def show(count: int, line: str) -> None:
    """One line that is overwritten on a terminal; elsewhere only every tenth package and the long steps."""
    words = re.sub(r"\s*\([^)]*\)$", "", line) if line.startswith("Collecting") else line
    text = f"     {count:3d} packages   {words[:90]}"
    if sys.stdout.isatty():
        print("\r\033[K" + text[: shutil.get_terminal_size().columns - 1], end="", flush=True)
    elif line.startswith("Installing") or (line.startswith("Collecting") and count % 10 == 1):
        print(text, flush=True)


NO_NETWORK = "no network. Connect and start again; setup goes on where it was."
CAUSES = (
    ("No space left on device", "the disk is full. Make room and start again; what was fetched is kept."),
    ("externally-managed-environment", "pip worked outside .venv. Delete .venv and start again."),
    ("DO NOT MATCH THE HASHES", "a package is not the one that was locked. Try another network; say so if it stays."),
)
UNREACHED = (
    ("Temporary failure in name resolution", NO_NETWORK),
    ("Failed to establish a new connection", NO_NETWORK),
    ("TimeoutError", "the package index did not answer in time. Start again; setup goes on where it was."),
)
RETRIES = ("WARNING: Retrying", "Could not fetch URL")


def explain(output: str, torch_build: str = "") -> str:
    """pip's last words as one line that says what to do; ``torch_build`` where torch was being installed."""
    for sign, words in CAUSES:
        if sign in output:
            return words
    # Before the signs of no network: pip also prints those where only the extra index is out of reach.
    if line := explain_torch(output, torch_build):
        return line
    for sign, words in UNREACHED:
        if sign in output:
            return words
    errors = [line.strip() for line in output.splitlines() if line.lower().startswith("error")]
    last = errors or [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    return last[-1][:300]


def explain_torch(output: str, build: str) -> str:
    """The line for a build that comes from PyTorch's own index and did not; empty where that is not the fault."""
    missing = "No matching distribution found for torch==" in output
    unreached = any(sign in output for sign in (*RETRIES, *(sign for sign, _ in UNREACHED)))
    instead = "or take PyPI's build:   python3 launcher.py --torch pypi"
    if unreached and (missing or build not in ("", "pypi")):
        return f"PyTorch's index ({TORCH_INDEX}) could not be reached. Connect and start again, {instead}"
    if missing:
        return f"this PyTorch build was not found; this Python may be too new for it. Try another Python, {instead}"
    return ""


def hand_over(arguments: list[str], program: str = "") -> NoReturn:
    """Becomes the environment's Python: the test suite, a command, or the studio where no command is named."""
    program = program or str(python_in_venv())
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in paths if path))
    # A json.py in the person's folder must not be taken for Python's own; text is UTF-8 whatever LC_ALL says.
    environment.update(PYTHONSAFEPATH="1", PYTHONUTF8="1")
    if arguments and arguments[0] in SCRIPTS:
        os.chdir(str(ROOT))
        target = [str(ROOT / "tests" / SCRIPTS[arguments[0]]), *arguments[arguments[0] == "test" :]]
    elif arguments and not arguments[0].startswith("-"):
        target = ["-m", "core.cli", *arguments]
    else:
        target = ["-m", "studio", *arguments]
    sys.stdout.flush()
    os.execve(program, [program, *target], environment)  # noqa: S606 - our own interpreter, no shell on purpose


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
