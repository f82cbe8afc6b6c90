"""The trial always answers with one JSON line, and names what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.kernels import trial

ROOT = Path(__file__).parents[3]


def ask(*arguments: str, **environment: str) -> dict[str, Any]:
    """The trial in a process of its own, as the supervisor runs it; its environment is only what is given."""
    done = subprocess.run(
        [sys.executable, "-m", "core.kernels.trial", *arguments],
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    answer: dict[str, Any] = json.loads(lines[0])
    assert set(answer) == {"ok", "reason", "cure"}
    return answer


@pytest.mark.parametrize("arguments", [(), ("--only-compiler",)])
def test_an_empty_path_is_named_with_its_cure(arguments: tuple[str, ...]) -> None:
    answer = ask(*arguments, PATH="")
    assert answer["ok"] is False
    assert "C compiler" in answer["reason"]
    assert answer["cure"] == "sudo apt install gcc python3-dev"


def test_a_compiler_that_cc_names_must_be_there() -> None:
    answer = ask("--only-compiler", PATH=os.environ["PATH"], CC="/nowhere/cc")
    assert answer["ok"] is False
    assert "/nowhere/cc" in answer["reason"]


def test_missing_headers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)
    monkeypatch.setattr(trial.sysconfig, "get_path", lambda _kind: str(tmp_path))
    verdict = trial.try_compiler()
    assert not verdict.ok
    assert "Python.h" in verdict.reason
    assert verdict.cure.startswith("sudo apt install gcc python3-dev")
    (tmp_path / "Python.h").touch()
    assert trial.try_compiler().ok


def test_without_a_card_it_says_so(tmp_path: Path) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("")
    compiler.chmod(0o755)
    answer = ask(PATH=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert answer["ok"] is False
    assert answer["reason"]


def test_any_fault_becomes_a_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> trial.Verdict:
        print("noise that is no verdict")
        raise OSError("libcuda is gone\nand more")

    monkeypatch.setattr(trial, "try_kernels", broken)
    assert trial.main([]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"ok": False, "reason": "OSError: libcuda is gone", "cure": ""}
