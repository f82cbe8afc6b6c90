"""Tokens kept by content: what an entry depends on, what is done twice and what is not; a table loses nothing."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from core.contract.config import DataChoice
from core.contract.data import Example, RowProblem
from core.contract.errors import DataError
from core.data.files.example_file import ExampleFile
from core.data.service.data_service import DataService
from core.data.tokens import cache as token_cache
from core.data.tokens.cache import Entry, Source, clear_cached, list_cached, slices
from core.data.tokens.table import Encoded, TableMaker, TokenTable
from core.machine.locations import Locations


@st.composite
def encoded(draw: st.DrawFn) -> Encoded:
    ids = draw(st.lists(st.integers(0, 2**31 - 1), max_size=30))
    edges = sorted(draw(st.sets(st.integers(0, len(ids)), max_size=6)))
    spans = tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=False))
    flags = draw(st.tuples(st.sampled_from([0, 1]), st.booleans(), st.booleans()))
    return Encoded(draw(st.integers(1, 10**9)), "", tuple(ids), spans, None, *flags)


@given(st.lists(st.one_of(encoded(), st.builds(RowProblem, row=st.integers(1, 9), code=st.just("c"), text=st.text()))))
@draws(15)
def test_a_table_gives_back_what_was_put_in(tmp_path_factory: Any, items: list[Encoded | RowProblem]) -> None:
    made = TableMaker()
    made.add(*items)
    path = tmp_path_factory.mktemp("table") / "part.npz"
    made.table().save(path)
    table = TokenTable.load(path)
    assert table is not None
    assert list(table.items()) == [item for item in items if isinstance(item, Encoded)]
    assert list(table.refused) == [item for item in items if isinstance(item, RowProblem)]
    for length in (1, 7, 100):
        for item, kept in zip((i for i in items if isinstance(i, Encoded)), table.items(), strict=True):
            if item.ids:
                assert kept.cut(length) == item.cut(length)


@pytest.mark.parametrize("texts", [None, [[1, 4, 0, 0]], [[1, 2]], [[-1, 2, 0, 0]]])
def test_a_table_without_the_ranges_of_its_texts_is_made_again(tmp_path: Path, texts: Any) -> None:
    """One of an older version, or with ranges beyond its rows."""
    made = TableMaker()
    made.add(Encoded(1, "", (1, 2, 3), (), None, classed=True, texts=((1, 2),)))
    made.table().save(tmp_path / "part.npz")
    assert TokenTable.load(tmp_path / "part.npz") is not None
    with np.load(tmp_path / "part.npz") as stored:
        arrays = {name: stored[name] for name in stored if name != "texts"}
    np.savez(tmp_path / "part.npz", **arrays, **({"texts": np.array(texts, "<i4")} if texts else {}))
    assert TokenTable.load(tmp_path / "part.npz") is None


@pytest.fixture
def source(tokenizer_folder: Path, tmp_path: Path) -> Source:
    folder = tmp_path / "model"
    shutil.copytree(tokenizer_folder, folder)
    return Source("ab" * 32, "rows.jsonl", DataChoice(layout="messages"), folder)


def test_an_entry_is_of_all_that_decides_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    choice = source.choice
    others = [
        replace(source, sha256="cd" * 32),
        replace(source, name="rows.csv"),
        replace(source, reads="pairs"),
        replace(source, left_out=("row.kto_false",)),
        *(
            replace(source, choice=choice.model_copy(update=changed))
            for changed in (
                {"layout": "sharegpt"}, {"columns": {"messages": "talk"}}, {"template": "chatml"},
                {"train_on": "last_answer"}, {"system_prompt": "Be kind."},
            )
        ),
    ]  # fmt: skip
    keys = {one.key() for one in (source, *others)}
    for file, content in (("chat_template.jinja", "{{ 1 }}"), ("tokenizer_config.json", "{}")):
        (source.tokenizer_folder / file).write_text(content)
        keys.add(source.key())
    assert len(keys) == len(others) + 3
    same = replace(source, name="another name.jsonl", choice=choice.model_copy(update={"eval_fraction": 0.2}))
    assert same.key() == source.key()
    before = source.key()
    monkeypatch.setattr(token_cache, "code_digest", lambda *_, **__: "another version")
    assert source.key() != before


def test_parts_are_cut_by_the_rows_alone() -> None:
    small = [Example(row=row, text="x") for row in range(1, 2502)]
    assert [len(part) for part in slices(small)] == [1000, 1000, 501]
    large = [Example(row=row, text="x" * 1_500_000) for row in range(1, 6)]
    assert [len(part) for part in slices(large)] == [3, 2]
    assert list(slices([])) == []


def made_entry(locations: Locations, name: str) -> Entry:
    """An entry of one row."""
    made = TableMaker()
    made.add(Encoded(1, "", (1, 2, 3), ((1, 2),), None))
    entry = Entry(locations.cache / "tokens" / name).open()
    made.table().save(entry.part(0))
    entry.finish([0], {"file": name})
    return entry


def test_old_entries_make_room(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, name in enumerate(("first", "second", "third", "fourth")):
        entry = made_entry(locations, name)
        os.utime(entry.folder, (time.time() - 1000 + age,) * 2)
        if name == "first":
            monkeypatch.setattr(token_cache, "LIMIT_BYTES", int(2.5 * list_cached(locations)[0].bytes))
    assert [one.file for one in list_cached(locations)] == ["fourth", "third"]


def test_rows_are_read_where_nothing_may_be_written(locations: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = made_entry(locations, "key")

    def forbidden(_: Path) -> None:
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr("core.data.tokens.cache.os.utime", forbidden)
    assert [len(table) for table in entry.tables() or ()] == [1]


def test_clearing_touches_nothing_else(locations: Locations, tmp_path: Path) -> None:
    beside = locations.cache / "data" / "report.json"
    beside.parent.mkdir(parents=True)
    beside.write_text("kept")
    elsewhere = tmp_path / "precious"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("precious")
    root = locations.cache / "tokens"
    root.mkdir()
    (root / "link").symlink_to(elsewhere)
    (root / "entry").mkdir()
    (root / "entry" / "part-00000000.npz").write_bytes(b"x" * 100)
    assert clear_cached(locations) == 100
    assert (elsewhere / "file").read_text() == "precious"
    assert beside.read_text() == "kept"
    assert clear_cached(locations) == 0


@pytest.fixture
def service(warm_service: DataService) -> DataService:
    clear_cached(warm_service._locations)
    return warm_service


@pytest.fixture
def rows(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "rows.jsonl"
    count = getattr(request, "param", 2_010)
    made = [{"prompt": f"question {number}", "completion": "the answer"} for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


@pytest.fixture
def tokenise(service: DataService, rows: Path, tokenizer_folder: Path) -> Any:
    def tokenised(told: Any = lambda *_: None, cancelled: Any = lambda: False) -> bool:
        return service.tokenise(rows, DataChoice(), tokenizer_folder, told, cancelled)

    return tokenised


def test_who_was_interrupted_goes_on(service: DataService, rows: Path, tokenizer_folder: Path, tokenise: Any) -> None:
    told: list[tuple[int, int]] = []

    def tell(*done: int) -> None:
        told.append(done)

    assert tokenise(tell, lambda: len(told) >= 2) is False
    (entry,) = list_cached(service._locations)
    assert (entry.whole, told) == (False, [(0, 2010), (1000, 2010)])
    parts = sorted((service._locations.cache / "tokens" / entry.key).glob("part-*"))
    before = [part.stat().st_mtime_ns for part in parts]
    assert len(parts) == 2
    assert tokenise(tell) is True
    assert [part.stat().st_mtime_ns for part in parts] == before
    (entry,) = list_cached(service._locations)
    assert (entry.whole, entry.rows, told[-1]) == (True, 2010, (2010, 2010))
    known = service.facts(rows, DataChoice(), tokenizer_folder, 512)
    assert (len(known.lengths), sum(known.lengths)) == (2010, entry.tokens)


@pytest.mark.parametrize("rows", [1_010], indirect=True)
def test_what_is_cleared_away_while_it_is_made_is_told_and_made_again(service: DataService, tokenise: Any) -> None:
    def clear(done: int, _total: int) -> None:
        if done == 1_000:
            clear_cached(service._locations)

    with pytest.raises(DataError, match="found them cleared away"):
        tokenise(clear)
    assert tokenise() is True


@pytest.mark.parametrize("rows", [20], indirect=True)
def test_a_full_disk_at_the_end_is_one_line(tokenise: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("core.data.tokens.cache.write_whole", full)
    with pytest.raises(DataError, match="No space left") as caught:
        tokenise()
    assert "Free some disk space" in caught.value.hint


@pytest.mark.parametrize("rows", [1_100], indirect=True)
def test_what_is_kept_otherwise_than_shown_is_thrown_away(
    service: DataService, rows: Path, tokenizer_folder: Path, tokenise: Any
) -> None:
    tokenise()
    (kept,) = list_cached(service._locations)
    entry = Entry(service._locations.cache / "tokens" / kept.key)
    service.preview(rows, DataChoice(), tokenizer_folder, 512, offset=1050)
    assert entry.manifest() is not None
    table = TokenTable.load(entry.part(1000))
    assert table is not None
    table.ids[-1] += 1
    table.save(entry.part(1000))
    service.preview(rows, DataChoice(), tokenizer_folder, 512, offset=1000)
    assert entry.manifest() is not None  # these rows are as they should be
    service.preview(rows, DataChoice(), tokenizer_folder, 512, offset=1090)
    assert entry.manifest() is None


@pytest.mark.parametrize("rows", [20], indirect=True)
def test_a_file_without_a_trained_token_says_so(service: DataService, rows: Path, tokenizer_folder: Path) -> None:
    with pytest.raises(DataError, match="no row holds a turn of the kind"):
        service.facts(rows, DataChoice(train_on="tool_calls"), tokenizer_folder, 512)
    with pytest.raises(DataError, match="within 2 tokens of any row"):
        service.facts(rows, DataChoice(), tokenizer_folder, 2)


@pytest.mark.parametrize("rows", [20], indirect=True)
def test_a_tokenizer_that_is_put_back_to_an_older_one_is_read_anew(
    service: DataService, rows: Path, tokenizer_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tokenizer_folder, folder)
    with_chatml = service.facts(rows, DataChoice(), folder, 512)
    template = folder / "chat_template.jinja"
    template.write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}<eos>{% endfor %}")
    os.utime(template, (1e9, 1e9))  # as a copy that keeps its times
    shown = service.preview(rows, DataChoice(), folder, 512, limit=1)
    assert shown.template == "the model's own"
    assert "".join(span.text for span in shown.rows[0].spans).startswith("[user]question 0<eos>[assistant]")
    assert service.facts(rows, DataChoice(), folder, 512).lengths != with_chatml.lengths
    template.unlink()
    assert service.facts(rows, DataChoice(), folder, 512) == with_chatml
    assert service.preview(rows, DataChoice(), folder, 512, limit=1).template == "ChatML"
    shutil.rmtree(folder)
    with pytest.raises(DataError, match=r"found: no such folder\. Choose"):
        service.preview(rows, DataChoice(), folder, 512)


def test_search_looks_at_what_rows_say(tmp_path: Path) -> None:
    rows = [
        {
            "row": 3,
            "messages": [{"role": "user", "content": 'He said "Grüße"\n'}, {"role": "assistant", "content": "a"}],
        },
        {"row": 7, "messages": [{"role": "user", "content": "role"}], "chosen": "GRÜSSE", "rejected": "x"},
        {"row": 8, "text": "tab\there \\ there"},
    ]
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(Example.model_validate(row).model_dump_json(exclude_defaults=True) + "\n" for row in rows))
    file = ExampleFile(path)

    def found(search: str, numbers: tuple[int, ...] = ()) -> list[int]:
        return [example.row for example in file.at(file.matching(search, numbers))]

    assert found("") == [3, 7, 8]
    assert found("grüsse") == [3, 7]
    assert found('"grüsse"\n') == [3]
    assert found("user") == found("content") == []
    assert found("role") == [7]
    assert found("TAB\tHERE \\") == [8]
    assert found("grüsse", (7, 8, 9, 7)) == [7]
    assert found("", (8, 3, 5)) == [3, 8]
