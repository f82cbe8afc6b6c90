"""The measuring scripts as modules: they lie with the GPU tests and are no package."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from core.machine.locations import REPOSITORY


@pytest.fixture(scope="session")
def script() -> ModuleType:
    """``tests/gpu/measure_memory.py``."""
    sys.path.insert(0, str(REPOSITORY / "tests" / "gpu"))
    return importlib.import_module("measure_memory")


@pytest.fixture(scope="session")
def evidence(script: ModuleType) -> ModuleType:
    """``tests/gpu/preset_evidence.py``."""
    return importlib.import_module("preset_evidence")
