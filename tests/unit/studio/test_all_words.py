"""Words: looked up once, told apart from a page's own, and there for every key that a module asks for."""

import ast
import importlib
from pathlib import Path

import pytest

from core.machine.locations import REPOSITORY
from studio.texts import PARTS
from studio.words.runs import STATES
from studio.words.text import Words, say

PAGES = ("doctor", "glossary", "history", "new_run", "proof", "report", "settings", "take_home", "try_it", "watch")


def test_a_key_is_looked_up_filled_in_and_missed_at_once() -> None:
    assert say("stage.since", time="3 s") == "for 3 s"
    with pytest.raises(KeyError):
        say("no.such.word")
    own = say.with_words({"mine": "Mine: {x}"})
    assert (own("mine", x=1), own("nav.watch"), say.get("mine")) == ("Mine: 1", "Watch", "")
    with pytest.raises(ValueError, match="twice"):
        say.with_words({"nav.watch": "Again"})
    assert Words({"a.b": "c", "a.d": "e", "x": "y"}).under("a") == {"b": "c", "d": "e"}
    ended = {"finished", "stopped", "failed", "lost", "unreadable"}
    assert set(STATES) == {"queued", "starting", "training", "paused"} | ended


def test_the_texts_that_are_printed_hold_those_of_every_page() -> None:
    assert set(PAGES) <= PARTS.keys()
    assert [page for page in PAGES if not list(PARTS[page]())] == []


def asked(path: Path) -> set[str]:
    """The keys that a module asks for by name."""
    calls = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call) and node.args)
    says = (call.args[0] for call in calls if ast.unparse(call.func) == "say")
    return {key.value for key in says if isinstance(key, ast.Constant)}


def test_every_word_that_is_asked_for_is_known_where_it_is_asked() -> None:
    words = {page: importlib.import_module(f"studio.pages.{page}.words").say for page in PAGES}
    assert {path.parent.name for path in (REPOSITORY / "studio/pages").glob("*/words.py")} == set(PAGES)
    for path in (REPOSITORY / "studio").rglob("*.py"):
        known = next((words[folder.name] for folder in path.parents if folder.name in words), say)
        assert [f"{path.name}: {key}" for key in asked(path) if not known.get(key) and key != "doctor.fine"] == []
