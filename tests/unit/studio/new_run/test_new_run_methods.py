"""The choice of a method in the Data block: what is offered for which rows, in which words, and what a press asks."""

import re

import pytest
from made_window import MACHINE, asked_by, report_of

from core.contract.config import RunConfig
from core.contract.glossary.words import GLOSSARY
from core.contract.methods import METHODS, AskedMethod, method_for, methods_for
from core.data.read.layouts import LAYOUT_NAMES
from studio.pages.new_run.data.chips import methods_view
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say


def offered(layout: str, method: AskedMethod = "auto") -> str:
    report = report_of("/x.jsonl", layout=layout, method=method_for(layout))
    return methods_view(View(RunConfig(method=method), MACHINE, report=report)) or ""


@pytest.mark.parametrize("layout", LAYOUT_NAMES)
def test_only_methods_that_take_the_rows_are_offered_each_with_words(layout: str) -> None:
    """The rows' own method gives the choice back to the data."""
    suited, fitting = method_for(layout), methods_for(layout)
    drawn = offered(layout)
    assert fitting[0] == suited
    assert all(METHODS[name].takes(layout) for name in fitting)
    if len(fitting) == 1:
        assert drawn == ""
        return
    others = fitting[1:]
    assert {asked["method"] for asked in asked_by(drawn)} == {"auto", *others}
    for name in (suited, *others):
        chosen = offered(layout, name)
        assert chosen.count('aria-pressed="true"') == 1
        assert re.search(rf'aria-pressed="true"[^>]*>{METHODS[name].title}<', chosen)
        assert f'href="/glossary#{METHODS[name].term or name}"' in chosen


def test_pairs_allow_six_and_a_text_nothing_that_makes_no_difference() -> None:
    assert methods_for("preference") == ("dpo", "orpo", "simpo", "cpo", "reward", "sft")
    assert methods_for("classification") == ("classify", "sft")
    assert methods_for("kto") == ("kto", "sft")
    assert methods_for("text") == ("pretrain",)
    assert offered("text", "sft") == ""


def test_a_method_that_wants_other_rows_is_led_away_from() -> None:
    drawn = offered("messages", "kto")
    assert asked_by(drawn) == [{"method": "auto"}]
    assert 'aria-pressed="true"' not in drawn


def test_every_method_has_its_words() -> None:
    """In its choice, beside it, and as it is named in History and Compare."""
    for name, row in METHODS.items():
        assert say.get(f"choice.method.{name}"), name
        assert say.get(f"method.{name}").count(".") >= 1, name
        assert row.title
        assert (row.term or name) in GLOSSARY
