"""A made data set reads back as the Examples it was written from, and is kept like a chosen file."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from draws import draws
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from whole_rows import read_report

from core.contract.config import DataChoice
from core.contract.data import Example, Message
from core.contract.errors import DataError
from core.data.files.made import ORIGIN, as_row, origin_of, write_rows
from core.data.read.examples import read_examples
from core.machine.locations import Locations

TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20).filter(str.strip)
HARD = TEXT | st.sampled_from(
    ['[{"role": "user", "content": "no turn"}]', '{"a": 1}', "line\u2028end\x85\n\r\n", "\x00", "null", "[]", "🦜"]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
ARGUMENTS = st.dictionaries(TEXT, SCALAR, max_size=3) | st.sampled_from(["[]", "123", '"x"', [1, {}]])
CALLS = st.lists(st.builds(lambda name, given: {"name": name, "arguments": given}, TEXT, ARGUMENTS), min_size=1)


def as_text(values: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    return values.map(lambda value: json.dumps(value, ensure_ascii=False))


SAYS = st.just("assistant")
ANSWER = st.builds(Message, role=SAYS, content=HARD) | st.builds(
    Message, role=SAYS, content=st.just("") | HARD, tool_calls=as_text(CALLS)
)
ASKED = st.builds(Message, role=st.sampled_from(["user", "tool", "system"]), content=HARD)
TURNS = st.lists(ASKED | ANSWER, max_size=4)
TOOLS = st.just("") | as_text(st.lists(st.dictionaries(TEXT, SCALAR, max_size=3), min_size=1, max_size=3))
PLAIN = st.builds(Example, row=st.just(1), text=HARD)
CHATS = st.builds(lambda turns, last, tools: Example(row=1, messages=(*turns, last), tools=tools), TURNS, ANSWER, TOOLS)
PAIRS = st.builds(
    lambda turns, asked, pair: Example(
        row=1, messages=(*turns, Message(role="user", content=asked)), chosen=pair[0], rejected=pair[1]
    ),
    TURNS,
    HARD,
    st.lists(HARD, min_size=2, max_size=2, unique=True),
)
ROWS = st.one_of(*(st.lists(kind, min_size=1, max_size=4) for kind in (PLAIN, CHATS, PAIRS)))


@given(ROWS)
@draws(25, HealthCheck.function_scoped_fixture)
def test_what_is_written_reads_back_equal(locations: Locations, examples: list[Example]) -> None:
    kept = write_rows(map(as_row, examples), "mine.csv", {"how": "made"}, locations)
    read = list(read_examples(kept.path, DataChoice()))
    assert read == [example.model_copy(update={"row": row}) for row, example in enumerate(examples, start=1)]
    assert [as_row(example) for example in read] == [as_row(example) for example in examples]


def test_it_is_kept_under_its_content_with_its_origin(locations: Locations) -> None:
    examples = [Example(row=7, text="one"), Example(row=9, text="two")]
    kept = write_rows(map(as_row, examples), "my rows.json", {"from": ["rows.json"], "dropped": 3}, locations)
    assert kept.path == locations.data / kept.sha256 / "my_rows.jsonl"
    assert kept.sha256 == hashlib.sha256(kept.path.read_bytes()).hexdigest()
    assert kept.path.read_text() == '{"text": "one"}\n{"text": "two"}\n'
    assert sorted(entry.name for entry in kept.path.parent.iterdir()) == [ORIGIN, "my_rows.jsonl"]
    assert origin_of(kept.path) == {"from": ["rows.json"], "dropped": 3}
    assert write_rows(map(as_row, examples), "my rows.json", {}, locations) == kept
    assert read_report(kept.path, DataChoice()).usable == 2


def test_rows_that_were_made_before_keep_their_origin(locations: Locations) -> None:
    examples = [Example(row=1, text="one")]
    first = write_rows(map(as_row, examples), "rows-mended", {"made": "mended", "done": ["cleaned"]}, locations)
    again = write_rows(map(as_row, examples), "rows-mended-mended", {"made": "mended", "done": []}, locations)
    assert again.path.parent == first.path.parent
    assert origin_of(again.path) == {"made": "mended", "done": ["cleaned"]}
    first.path.with_name(ORIGIN).write_text('{"made": ')  # torn: said anew
    again = write_rows(map(as_row, examples), "rows-mended", {"made": "again"}, locations)
    assert origin_of(again.path) == {"made": "again"}


def test_nothing_is_kept_of_nothing(locations: Locations, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found none"):
        write_rows([], "empty", {}, locations)
    assert list(locations.data.iterdir()) == []
    assert origin_of(tmp_path / "chosen.csv") == {}
