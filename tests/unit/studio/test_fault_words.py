"""What a page says of a fault: a cause in a person's words, of the same values as the log's sentence."""

import re
import string

import pytest

from core.contract.config import RunConfig
from core.contract.errors import DataError, RunError
from core.contract.events import Failed
from core.contract.faults import TEXTS
from core.contract.knobs import knobs
from studio.texts import PARTS
from studio.words.faults import SAID, in_one, said, told

MOST = 240
LOGS = re.compile(r"^Expected\b|, found\b|\brun\.yaml\b|\btraceback\b", re.IGNORECASE)
"""How the log and the command line speak."""
IN_FILES = {"/", "data", "name: value"}
"""Quoted as they stand in a file or a path, not on a page."""


def names(*sentences: str) -> set[str]:
    fields = (name for text in sentences for _, name, _, _ in string.Formatter().parse(text) if name)
    return {re.split(r"[.\[]", name)[0] for name in fields}


@pytest.mark.parametrize("key", sorted(SAID))
def test_a_page_has_words_of_its_own_for_a_fault(key: str) -> None:
    words = SAID[key]
    cause, *cure = (words,) if isinstance(words, str) else words
    assert names(cause, *cure) <= names(*TEXTS[key]), "values that the fault does not have"
    for text in (cause, *cure):
        assert not LOGS.search(text), text
        assert len(text) <= MOST
        assert text == text.strip()
    assert cause, key
    assert cause[0] in "{'" or cause[0].upper() == cause[0]


def test_what_is_to_be_pressed_or_set_stands_on_a_page_in_these_words() -> None:
    shown = {text for name, lines in PARTS.items() if name not in ("faults", "knobs") for _, text in lines()}
    shown |= {knob.label for knob in knobs(RunConfig).values()}
    parts = (part for words in SAID.values() for part in ((words,) if isinstance(words, str) else words))
    named = {label for part in parts for label in re.findall(r"“([^”{]*)”", part)}
    assert named
    assert named - IN_FILES <= shown


def test_a_page_has_words_for_every_fault_and_for_none_that_nobody_raises() -> None:
    assert SAID.keys() == TEXTS.keys()


def test_an_event_is_said_as_its_fault_and_an_old_one_in_its_own_words() -> None:
    fault = DataError("data.cache/disk", problems=("a: one", "b: two"), reason="no room")
    event = Failed.by(fault)
    assert said(event)[0] == said(fault)[0]
    assert in_one(event).endswith("a: one b: two")
    assert told(fault)["message"] == said(fault)[0]
    old = Failed(message="Expected 2 GB free, found 1.", hint="Make room.")
    assert said(old) == ("Expected 2 GB free, found 1.", "Make room.")
    assert said(event.model_copy(update={"values": {}})) == (event.message, event.hint)


def test_a_foreign_name_is_said_with_its_unseen_letters_written_out() -> None:
    fault = RunError("run.unknown/none", run_id="a\ud800\u202e\x00b")
    assert said(fault)[0] == r"There is no run called a\ud800\u202e\x00b."
    assert told(fault)["message"].encode(), "half a letter is no UTF-8"
    assert "5\u00a0%" in said(RunError("supervisor.failed", reason="5\u00a0% left"))[0]
