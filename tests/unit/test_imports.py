"""Heavy libraries come in fast: the collector is still meanwhile, and nobody brings along what it has no use for."""

from __future__ import annotations

import ast
import gc
import sys
from types import ModuleType

import pytest

from core.imports import importing, without_card
from core.locations import REPOSITORY


def test_the_collector_is_still_while_libraries_come_and_looks_at_them_never_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    before = gc.get_freeze_count()
    try:
        with pytest.raises(ImportError, match="no such library"), importing():
            _fail_to_import()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def _fail_to_import() -> None:
    assert not gc.isenabled()
    raise ImportError("no such library")


def test_a_process_that_has_its_libraries_keeps_its_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    before = gc.get_freeze_count()
    with importing():
        assert gc.isenabled()
    assert gc.get_freeze_count() == before


def test_without_a_card_no_compiler_is_brought_along_unless_somebody_wants_it() -> None:
    assert without_card({}) == {"TORCHDYNAMO_DISABLE": "1"}
    assert without_card({"TORCHDYNAMO_DISABLE": "0"}) == {}


def test_only_a_run_of_dpo_brings_trl_along() -> None:
    def imported(node: ast.AST) -> list[str]:
        if isinstance(node, ast.ImportFrom):
            return [node.module or ""]
        return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []

    found = {}
    for path in sorted((REPOSITORY / "core").rglob("*.py")):
        module = ast.parse(path.read_text("utf-8"))
        names = {name for node in module.body for name in imported(node)}
        if any(name.split(".")[0] == "trl" or name == "core.train.preference" for name in names):
            found[path.name] = names
    assert list(found) == ["preference.py"]
