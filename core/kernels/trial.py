"""``python -m core.kernels.trial``: whether Triton can build and run a kernel here.

Prints one JSON line ``{"ok": bool, "reason": str, "cure": str}`` and always exits with 0. Triton compiles a C file at
its first kernel, so it needs a C compiler and Python.h; a fresh Ubuntu under WSL has neither. These are checked first,
in milliseconds, then the card with one trivial kernel. ``--only-compiler`` stops after the first part.
"""

import contextlib
import json
import os
import shutil
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path

CURE = "sudo apt install gcc python3-dev"


@dataclass(frozen=True)
class Verdict:
    """Whether Triton's kernels run; if not, why in one line, and the command that cures it (empty: unknown)."""

    ok: bool
    reason: str = ""
    cure: str = ""


def main(arguments: list[str] | None = None) -> int:
    """Prints the verdict; never raises."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout gets one line only
            verdict = try_compiler() if "--only-compiler" in arguments else try_kernels()
    except BaseException as error:  # noqa: BLE001 - always a verdict
        verdict = Verdict(False, _line(error))
    print(json.dumps(asdict(verdict)), flush=True)
    return 0


def try_compiler() -> Verdict:
    """Looks for the C compiler that Triton would call (``$CC``, gcc or clang) and for Python's C headers."""
    named = os.environ.get("CC", "")
    if named and not shutil.which(named):
        return Verdict(False, f"the C compiler {named} that CC names is not there", "unset CC")
    if not named and not any(shutil.which(name) for name in ("gcc", "clang")):
        return Verdict(False, "no C compiler (gcc or clang) is on PATH, and Triton needs one", CURE)
    folders = {sysconfig.get_path(kind) for kind in ("include", "platinclude")}
    if not any((Path(folder) / "Python.h").is_file() for folder in folders):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
        cure = f"{CURE} {version}" if "/usr/include" in str(folders) else CURE
        return Verdict(False, "Python.h is missing, and Triton needs it", cure)
    return Verdict(True)


def try_kernels() -> Verdict:
    """Checks compiler and card, and runs one kernel."""
    verdict = try_compiler()
    if not verdict.ok:
        return verdict
    from core.kernels import dispatch, trial_kernel  # imports torch

    if dispatch.triton is None:
        return Verdict(False, "this install of torch comes without Triton")
    problem = trial_kernel.card_problem()
    if problem:
        return Verdict(False, problem)
    return Verdict(True) if trial_kernel.adds_one() else Verdict(False, "a trivial kernel gave a wrong result")


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
