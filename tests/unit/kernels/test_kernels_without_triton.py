"""Triton is not there on a machine without an NVIDIA card: everything that trains must still be there."""

import subprocess
import sys

LOADS = """
import sys
sys.modules["triton"] = None
import core.kernels.trial_kernel, core.train.run
from core.kernels.dispatch import use_triton
import torch
assert not use_triton(torch.zeros(1))
"""


def test_a_worker_loads_on_a_machine_without_triton() -> None:
    assert subprocess.run([sys.executable, "-c", LOADS], check=False).returncode == 0
