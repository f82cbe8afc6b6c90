"""Rows of a data file read, encoded and shown in one go, in the test's own process: by the same parts as in the data
room's children, for tests of what comes out."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Checkup, DataReport, Example, PreviewRow, RowProblem, TokenRow
from core.contract.methods import Method
from core.data.doctor.examine import Examination
from core.data.read.examples import Tally, open_reading, read_examples
from core.data.render.chat_tokens import Choice, cut_pair, cut_rows, tokenise
from core.data.render.preview import encoded_sides, shown_rows
from core.data.render.renderer import Renderer, renderer, with_answer
from core.data.render.template import layout_turns, tools_of
from core.data.service.data_service import DataService
from core.machine.disk import file_sha256


def read_report(path: Path, choice: DataChoice) -> DataReport:
    """Reads the whole file once and says what is in it."""
    tally = Tally(open_reading(path, choice))
    for row in tally.reading.rows():
        tally.add(row)
    return tally.report(file_sha256(path))


def read(
    tmp_path: Path, rows: list[Any], choice: DataChoice | None = None, method: Method | None = None
) -> tuple[DataReport, list[Example]]:
    """These rows as a JSONL file: what is said of them, and what is left to train on by the method."""
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows))
    choice = choice or DataChoice()
    return read_report(path, choice).under(method), list(read_examples(path, choice, method))


def peak_bytes(service: DataService) -> int:
    """The most memory that the reader's child ever held above its idle size."""
    lines = Path(f"/proc/{service.reader.pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    return peak - service.reader._idle_bytes


def text_of(using: Renderer, example: Example) -> str:
    """What the model sees of a row of turns, as text; of a preference with its chosen answer."""
    example = with_answer(example)
    return using.ask(layout_turns(example, using.choice), tools=tools_of(example, using.choice))


def encode_rows(
    tokenizer: Any,
    examples: Iterable[Example],
    choice: Choice,
    max_length: int,
    refused: list[RowProblem] | None = None,
) -> list[TokenRow]:
    """All rows in the order of ``examples``; ``refused`` takes one line for each that is left out."""
    rows: list[TokenRow] = []
    table = tokenise(renderer(tokenizer, choice), list(examples), reads="turns")
    problems = [*table.refused, *cut_rows(table, max_length, rows.append)]
    if refused is not None:
        refused += sorted(problems, key=lambda one: one.row)
    return rows


def encode_pair(
    tokenizer: Any, example: Example, choice: Choice, max_length: int
) -> tuple[list[int], list[int], list[int]]:
    """A preference row as prompt, chosen and rejected ids, cut together at ``max_length``."""
    return cut_pair(*renderer(tokenizer, choice).pair(example), max_length)


def preview_rows(using: Renderer, example: Example, max_length: int) -> list[PreviewRow]:
    """One row as it is shown; both answers of a preference; the first few rows of a long raw text."""
    return shown_rows(using, encoded_sides(using, example, reads="pairs"), max_length)


def examine(examples: Iterable[Example], choice: DataChoice | None = None, seed: int = 0) -> Checkup:
    """The whole examination at once."""
    examination = Examination()
    for example in examples:
        examination.add(example)
    list(examination.steps())
    return examination.checkup(choice or DataChoice(), seed)


def encode(tokenizer: Any, example: Example, choice: Choice, max_length: int) -> TokenRow:
    """One row as ids and labels, cut at ``max_length``; a preference row with its chosen answer."""
    return renderer(tokenizer, choice).encoded(example).cut(max_length)[0][0]
