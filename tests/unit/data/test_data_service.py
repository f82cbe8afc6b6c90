"""The window's data room: what it says of a file, and its faults in one line each."""

import json
from pathlib import Path

import pytest
from whole_rows import encode_rows

from core.contract.config import DataChoice
from core.contract.errors import DataError
from core.data.files.keep import keep_file
from core.data.read.examples import read_examples
from core.data.render.chat_tokens import load_tokenizer
from core.data.service.data_service import DataService


@pytest.fixture
def service(warm_service: DataService) -> DataService:
    return warm_service


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    made = [{"prompt": f"question {number}", "completion": "the answer " * (number + 1)} for number in range(30)]
    path.write_text("\n".join(json.dumps(row) for row in made) + "\nnothing\n")
    return path


def test_report_preview_and_facts(service: DataService, rows: Path, tokenizer_folder: Path) -> None:
    report = service.report(rows, DataChoice())
    assert (report.rows, report.usable, report.layout) == (31, 30, "prompt_completion")
    assert report.problems[0].row == 31
    page = service.preview(rows, DataChoice(), tokenizer_folder, 64, offset=5, limit=10)
    assert [row.row for row in page.rows] == list(range(6, 16))
    assert (page.total, page.template) == (30, "ChatML")
    found = service.preview(rows, DataChoice(), tokenizer_folder, 64, search="QUESTION 2")
    assert [row.row for row in found.rows] == [3, *range(21, 31)]
    assert found.total == 11
    assert service.preview(rows, DataChoice(), tokenizer_folder, 64, search="nowhere").total == 0
    some = service.preview(rows, DataChoice(), tokenizer_folder, 64, rows=(29, 4, 31, 7), offset=1, limit=1)
    assert ([row.row for row in some.rows], some.total) == ([7], 3)
    both = service.preview(rows, DataChoice(), tokenizer_folder, 64, rows=(3, 4), search="question 2")
    assert [row.row for row in both.rows] == [3]
    examples = list(read_examples(rows, DataChoice()))
    tokenizer = load_tokenizer(tokenizer_folder)
    for max_length in (40, 1000):
        known = service.facts(rows, DataChoice(), tokenizer_folder, max_length)
        whole = encode_rows(tokenizer, examples, DataChoice(), 10_000)
        cut = encode_rows(tokenizer, examples, DataChoice(), max_length)
        assert known.lengths == tuple(len(row.input_ids) for row in whole)
        assert known.trained == tuple(row.trained_tokens for row in cut)
        assert (known.rows, known.sampled, known.longest) == (30, False, max(known.lengths))


def test_facts_of_raw_text_are_those_of_its_rows(service: DataService, tmp_path: Path, tokenizer_folder: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("\n".join("the answer is here " * number for number in range(1, 40)))
    known = service.facts(path, DataChoice(), tokenizer_folder, 50)
    made = encode_rows(load_tokenizer(tokenizer_folder), list(read_examples(path, DataChoice())), DataChoice(), 50)
    assert known.lengths == tuple(len(row.input_ids) for row in made)
    assert known.trained == tuple(row.trained_tokens for row in made)
    assert known.rows == len(made) > 39


def test_large_files_are_sampled(
    service: DataService, rows: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.data.service.tokenising.ALL_ROWS", 20)
    monkeypatch.setattr("core.data.service.tokenising.SAMPLE_ROWS", 10)
    known = service.facts(rows, DataChoice(train_on="last_answer"), tokenizer_folder, 1000)
    assert (known.rows, len(known.lengths), known.sampled) == (30, 10, True)


def test_a_damaged_copy_is_not_shown_as_if_it_were_the_file(service: DataService, rows: Path) -> None:
    kept = keep_file(rows, service._locations)
    assert service.report(kept.path, DataChoice()).sha256 == kept.sha256
    kept.path.write_bytes(kept.path.read_bytes().replace(b"answer", b"anwser"))
    for ask in (service.report, service.first_look):
        with pytest.raises(DataError, match="as it was kept") as caught:
            ask(kept.path, DataChoice())
        assert caught.value.code == "data.damaged"
    keep_file(rows, service._locations)
    assert service.report(kept.path, DataChoice()).usable == 30


def test_errors_come_back_as_one_line(service: DataService, rows: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Expected a data file that can be read"):
        service.report(tmp_path / "absent.csv", DataChoice())
    broken = tmp_path / "broken.json"
    broken.write_text('[{"instruction": "a", "output": "b"},\n {"instruction": }]', "utf-8")
    with pytest.raises(
        DataError, match=r"broken\.json, found at line 2"
    ):  # a browser's path has the same words for all
        service.report(broken, DataChoice())
    with pytest.raises(DataError, match="Expected a tokenizer"):
        service.preview(rows, DataChoice(), tmp_path, 64)
    with pytest.raises(DataError, match="Expected tokens to train on"):
        service.facts(rows, DataChoice(), tokenizer_folder, 3)
    with pytest.raises(DataError, match="chat template"):
        service.preview(rows, DataChoice(template="model"), tokenizer_folder, 64)
    assert service.columns(rows) == ("prompt", "completion")
