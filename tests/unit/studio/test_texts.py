"""``python -m studio.texts``: every text of the window, to be read at a sitting."""

from importlib import import_module
from pkgutil import iter_modules

import pytest

from studio import pages, texts
from studio.words.faults import SAID
from studio.words.text import say


def test_every_text_of_every_page_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert texts.main([]) == 0
    printed = capsys.readouterr().out
    for page in iter_modules(pages.__path__):
        for key, text in import_module(f"studio.pages.{page.name}.words").say.every().items():
            assert text.strip() in printed, key
    for words in SAID.values():
        assert (words if isinstance(words, str) else words[1]) in printed


def test_a_part_is_printed_alone_and_an_unknown_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert texts.main(["watch"]) == 0
    printed = capsys.readouterr().out
    assert "Stop this run?" in printed
    assert say("door.title") not in printed
    assert texts.main(["nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
