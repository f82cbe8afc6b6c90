"""The trial always answers with one JSON line, and names what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.kernels import dispatch, trial
from core.kernels.dispatch import LOWEST_CAPABILITY
from core.machine.hardware import KERNELS_FROM

ROOT = Path(__file__).parents[3]


def test_the_card_it_wants_is_the_one_that_plans_and_doctor_want() -> None:
    assert LOWEST_CAPABILITY == KERNELS_FROM


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


@pytest.mark.parametrize(
    ("environment", "said", "cure"),
    [
        ({"PATH": ""}, "C compiler", "sudo apt install gcc python3-dev"),
        ({"PATH": os.environ["PATH"], "CC": "/nowhere/cc"}, "/nowhere/cc", "unset CC"),
    ],
)
def test_a_compiler_that_is_not_there_is_named_with_its_cure(environment: dict[str, str], said: str, cure: str) -> None:
    answer = ask("--only-compiler", **environment)
    assert answer["ok"] is False
    assert said in answer["reason"]
    assert answer["cure"] == cure


def test_missing_headers_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", sys.executable)
    monkeypatch.setattr(trial.sysconfig, "get_path", lambda _kind: str(tmp_path))
    verdict = trial.try_compiler()
    assert not verdict.ok
    assert "Python.h" in verdict.reason
    assert verdict.cure.startswith("sudo apt install gcc python3-dev")
    (tmp_path / "Python.h").touch()
    assert trial.try_compiler().ok


def test_without_a_card_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a compiler is there, and Triton."""
    monkeypatch.setattr(trial, "try_compiler", lambda: trial.Verdict(True))
    monkeypatch.setattr(dispatch, "triton", object())
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert trial.main([]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": False, "reason": "torch sees no CUDA card", "cure": ""}


def test_any_fault_becomes_a_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> trial.Verdict:
        print("noise that is no verdict")
        raise OSError("libcuda is gone\nand more")

    monkeypatch.setattr(trial, "try_kernels", broken)
    assert trial.main([]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"ok": False, "reason": "OSError: libcuda is gone", "cure": ""}
