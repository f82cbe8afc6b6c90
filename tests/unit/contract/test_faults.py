"""Every sentence that an error says, held against every place that raises one."""

import ast
import pickle
import re
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

from core.contract import errors
from core.contract.errors import ConfigError, DataError, Fault
from core.contract.events import Failed
from core.contract.faults import TEXTS

ROOT = Path(__file__).parents[3]
KINDS = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Fault)}
KINDS |= {"UnfitTemplateError"}
CALLS = re.compile(rf"\b({'|'.join(KINDS)})\s*\(")
"""Where a fault may be made: most files need not be parsed."""


def keys(node: ast.expr) -> list[str]:
    """The keys that a first argument can be: both of ``a if … else b``."""
    if isinstance(node, ast.IfExp):
        return keys(node.body) + keys(node.orelse)
    assert isinstance(node, ast.Constant), ast.unparse(node)
    return [str(node.value)]


@cache
def raised() -> list[tuple[str, str, set[str]]]:
    """(where, key, names of the values) of every place that makes a fault from the table."""
    places = []
    for path in [*ROOT.glob("core/**/*.py"), *ROOT.glob("studio/**/*.py"), ROOT / "launcher.py"]:
        text = path.read_text(encoding="utf-8")
        if not CALLS.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
                given = {word.arg for word in node.keywords if word.arg and word.arg != "problems"}
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                places += [(where, key, given) for key in keys(node.args[0])]
    return places


def named(key: str) -> set[str]:
    return {field for text in TEXTS[key] for _, field, _, _ in Formatter().parse(text) if field}


def test_every_fault_has_its_sentence_and_its_values():
    places = raised()
    assert len(places) > 200
    assert [(where, key) for where, key, _ in places if key not in TEXTS] == []
    assert [(where, key, given ^ named(key)) for where, key, given in places if given != named(key)] == []


def test_every_sentence_is_said_somewhere():
    used = {key for _, key, _ in raised()} | {"hub.stopped"}  # its class says it itself
    assert set(TEXTS) - used == set()


@pytest.mark.parametrize(
    "error",
    [DataError("data.empty/file", name="a {b}.jsonl"), ConfigError("config.faults/run", count=2, problems=["a", "b"])],
)
def test_a_fault_is_the_same_in_another_process(error: Fault):
    for again in (pickle.loads(pickle.dumps(error)), type(error).told_by(error.told())):
        assert (type(again), again.told(), str(again)) == (type(error), error.told(), str(error))
    assert error.told()["code"] == error.key.partition("/")[0]


def test_the_event_of_a_fault_names_its_problems_after_the_hint():
    error = ConfigError.told_by({"code": "config.faults", "message": "2 faults:", "problems": ["a: wrong", "b: wrong"]})
    assert Failed.by(error) == Failed(
        code="config.faults", message="2 faults:", hint="a: wrong b: wrong", key="config.faults"
    )
    error = DataError.told_by({"code": "data.empty", "message": "Found none.", "hint": "Choose another file."})
    assert Failed.by(error) == Failed(
        code="data.empty", message="Found none.", hint="Choose another file.", key="data.empty"
    )
