"""The lock: every package but torch, by version and hash, for every supported Python; made and audited here.

    python3 launcher.py lock             makes it anew from pyproject.toml, keeping every version that still fits
    python3 launcher.py lock --upgrade   takes the newest versions that fit
    python3 launcher.py audit            asks for known weaknesses of what is locked (pip-audit; needs the network)

    pyproject.toml ─ uv pip compile ─► presets/locks/packages.txt      what Luthier needs
                                       presets/locks/development.txt   beside it: the tests'
                                       presets/locks/tools.txt         beside both: this script's
                                       presets/locks/cpu-kernels.txt   Triton's interpreter, without a card only

torch is not among them: each of its builds comes from PyTorch's own index, pinned in launcher.py to version and build,
and brings NVIDIA's libraries and its own Triton with it, which that build names by exact versions. ``[tool.uv]`` in
pyproject.toml says what it needs of everybody else's packages, so that those are locked too.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from launcher import TORCH_VERSIONS  # noqa: E402 - it lies beside this folder

LOCKS = ROOT / "presets" / "locks"
BIN = Path(sys.executable).parent
OLDEST_PYTHON = "3.11"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
HEAD = """# Made by 'python3 launcher.py lock' from pyproject.toml; not edited by hand.
# Only wheels with these hashes are installed. torch is pinned in launcher.py: its builds have an index of their own.
"""


def main(arguments: Sequence[str]) -> int:
    """``lock`` or ``audit``."""
    parser = argparse.ArgumentParser(
        prog="launcher.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("command", choices=["lock", "audit"])
    parser.add_argument("--upgrade", action="store_true", help="newest versions that fit")
    chosen = parser.parse_args(arguments)
    return lock(chosen.upgrade) if chosen.command == "lock" else audit()


def lock(upgrade: bool = False) -> int:
    """Writes the four files; 0 when all were made."""
    LOCKS.mkdir(exist_ok=True)
    entries: dict[str, str] = {}
    for name, extras in (("packages", ()), ("development", ("dev",)), ("tools", ("dev", "tools"))):
        before = dict(entries)
        entries = read_entries(compiled([str(ROOT / "pyproject.toml")], extras, entries, upgrade))
        write(name, {key: text for key, text in entries.items() if before.get(key) != text})
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    write("cpu-kernels", read_entries(compiled(["-"], (), {}, upgrade, "\n".join(wanted["cpu-kernels"]))))
    lacking = [said for python in PYTHONS for platform in PLATFORMS if (said := lacks(python, platform))]
    print("\n".join(lacking) or f"Wheels for Python {', '.join(PYTHONS)} on {' and '.join(PLATFORMS)}.")
    return 1 if lacking else 0


def lacks(python: str, platform: str) -> str:
    """What uv says where a Python of a platform cannot install the lock from wheels alone; empty where it can."""
    files = [word for name in ("packages", "development", "tools") for word in ("-r", str(LOCKS / f"{name}.txt"))]
    command = [
        str(BIN / "uv"), "pip", "install", "--dry-run", "--python-version", python, "--python-platform", platform,
        "--only-binary", ":all:", "--no-deps", "--require-hashes", *files,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as nowhere:
        command += ["--target", nowhere]
        done = subprocess.run(command, cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=False)
    return f"Python {python}, {platform}: {done.stderr.strip()}" if done.returncode else ""


def compiled(source: list[str], extras: Sequence[str], before: dict[str, str], upgrade: bool, text: str = "") -> str:
    """uv's answer: requirements of all platforms and Pythons with their hashes, those of ``before`` unchanged."""
    constraints = LOCKS / ".before.txt"
    held = before or ({} if upgrade else read_all())
    constraints.write_text("".join(f"{key}\n" for key in held), encoding="utf-8")
    command = [
        str(BIN / "uv"), "pip", "compile", *source, "--universal", "--python-version", OLDEST_PYTHON,
        "--generate-hashes", "--no-build", "--no-header", "--no-annotate", "--no-emit-package", "torch", "--quiet",
        "--constraints", str(constraints), *(word for extra in extras for word in ("--extra", extra)),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, input=text, cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=False
        )
    finally:
        constraints.unlink()
    if done.returncode:
        raise SystemExit(f"uv could not lock: {done.stderr.strip()}")
    return done.stdout


def plain_environment() -> dict[str, str]:
    """Nobody's own index: the lock is of what everybody gets."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("UV_", "PIP_"))}


def read_entries(text: str) -> dict[str, str]:
    """Each requirement (name, version, marker) with its whole text, hashes and all."""
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=\S)", text.strip()):
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if lines:
            found[lines[0].removesuffix("\\").strip()] = "\n".join(lines)
    return found


def read_all() -> dict[str, str]:
    """What is locked now, all files together."""
    return {key: text for path in sorted(LOCKS.glob("*.txt")) for key, text in read_entries(path.read_text()).items()}


def write(name: str, entries: dict[str, str]) -> None:
    """One file, whole or not at all."""
    draft = LOCKS / f".{name}"
    draft.write_text(HEAD + "".join(f"{text}\n" for text in entries.values()), encoding="utf-8")
    draft.rename(LOCKS / f"{name}.txt")
    print(f"{name:12} {len(entries)} packages")


def audit() -> int:
    """pip-audit over all that is locked, and torch: 0 nothing is known, 1 something is, 2 nobody could be asked."""
    found = asked(sorted(LOCKS.glob("*.txt")), "--require-hashes")
    with tempfile.TemporaryDirectory() as folder:
        for version in sorted(set(TORCH_VERSIONS.values())):
            file = Path(folder) / f"{version}.txt"
            file.write_text(f"torch=={version}\n", encoding="utf-8")
            found += asked([file], "--no-deps")
    return judge(found)


def asked(files: Sequence[Path], way: str) -> list[dict[str, Any]]:
    """pip-audit's answer for the requirements of some files; a package that it could not look up has a skip_reason."""
    command = [str(BIN / "pip-audit"), way, "--disable-pip", "--progress-spinner=off", "--format=json"]
    command += [word for path in files for word in ("--requirement", str(path))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        said = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return [{"name": path.stem, "skip_reason": said[:300]} for path in files]


def judge(found: Sequence[dict[str, Any]]) -> int:
    """Says what was found of each package, in a line each, and what that means, in one."""
    weak = [one for one in found if one.get("vulns")]
    unasked = [one["name"] for one in found if "skip_reason" in one]
    for one in weak:
        known = ", ".join(
            f"{said['id']} (mended in {' or '.join(said['fix_versions']) or 'none'})" for said in one["vulns"]
        )
        print(f"{one['name']} {one['version']}: {known}")
    if weak:
        print(f"{len(weak)} of {len(found)} packages have known weaknesses: python3 launcher.py lock --upgrade")
        return 1
    if unasked:
        print(
            f"{len(unasked)} of {len(found)} packages could not be looked up: the public list of weaknesses did not "
            "answer for them. Connect to the internet (the audit asks PyPI itself, no mirror) and try again."
        )
        return 2
    print(f"Nothing is known against {len(found)} packages.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
