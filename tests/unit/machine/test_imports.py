"""Heavy libraries come in fast: the collector is still meanwhile, and nobody brings along what it has no use for."""

import gc
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from core.machine.imports import importing, without_card
from core.machine.locations import REPOSITORY


def test_the_collector_is_still_while_libraries_come_and_looks_at_them_never_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for library in ("torch", "datasets"):
        monkeypatch.delitem(sys.modules, library, raising=False)
    monkeypatch.setattr("core.machine.imports.map_libraries", lambda: False)
    kept: list[object] = []
    with pytest.raises(ImportError, match="no such library"), importing():
        _fail_to_import()
    assert gc.isenabled()
    assert "datasets" not in sys.modules
    # What is frozen stays so: the libraries of this process are among it, and each collection of a later test would
    # look through a million objects, 0.7 s.
    assert not _looked_at_by_the_collector(kept)


def _fail_to_import() -> None:
    assert not gc.isenabled()
    assert sys.modules["datasets"] is None, "half a second that no run has a use for"
    raise ImportError("no such library")


def test_a_process_that_has_its_libraries_keeps_its_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    kept: list[object] = []
    with importing():
        assert gc.isenabled()
    assert _looked_at_by_the_collector(kept)


def _looked_at_by_the_collector(it: object) -> bool:
    """False where it was frozen. The number of frozen objects would not do: they still end when nobody names them."""
    return any(one is it for one in gc.get_objects())


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are mapped elsewhere by the import itself")
def test_libraries_are_mapped_while_other_threads_run_on() -> None:
    program = """
import os, sys, threading, time
from core.machine.imports import map_libraries
beats, over = [time.monotonic()], threading.Event()
def beat():
    while not over.wait(0.005):
        beats.append(time.monotonic())
thread = threading.Thread(target=beat)
thread.start()
begun = time.monotonic()
mapped, ended = map_libraries(), time.monotonic()
over.set()
thread.join()
lines = [line.split()[-1] for line in open("/proc/self/maps") if "libtorch_cpu" in line]
print(mapped, bool(lines), "torch" in sys.modules, sum(begun < at < ended for at in beats) > 3)
"""
    found = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    folder = Path(find_spec("torch").submodule_search_locations[0]) / "lib"  # type: ignore[union-attr,index]
    there = not (folder / "libtorch_cuda.so").exists()
    assert found.stdout.split()[:3] == [str(there), str(there), "False"], found.stderr
    assert not there or found.stdout.split()[3] == "True"


def test_without_a_card_no_compiler_is_brought_along_and_threads_wait_asleep_unless_somebody_wants_otherwise() -> None:
    assert without_card({}) == {"TORCHDYNAMO_DISABLE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    assert without_card({"TORCHDYNAMO_DISABLE": "0"}) == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert without_card({"TORCHDYNAMO_DISABLE": "0", "OMP_WAIT_POLICY": "ACTIVE"}) == {}


def test_no_run_brings_trl_along() -> None:
    """Importing it takes a second; tests compare with it."""
    named = re.compile(r"^\s*(?:from|import) trl\b", re.MULTILINE)
    assert not [path.name for path in (REPOSITORY / "core").rglob("*.py") if named.search(path.read_text("utf-8"))]
