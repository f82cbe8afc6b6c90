"""The run's data file, tokenised by the code that the preview shows rows with: what is seen there is trained here.

Done before a model is loaded: data that trains nothing must not cost a download or a minute of loading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.data import DataFacts, Example, RowProblem
from core.contract.errors import DataError
from core.data.examples import read_examples, read_report
from core.data.render import encode_pair, encode_rows
from core.data.split import split_rows
from core.train.guard import require_targets
from core.train.orders import Orders
from core.train.rows import PairRows, TextRows
from core.train.tell import Teller

__all__ = ["RunData", "read_data"]

GROUP = 512
"""Rows tokenised between two seams."""
_SHOWN = 3
AnyRows = TextRows | PairRows


@dataclass(frozen=True)
class RunData:
    """What is trained on and what is held out."""

    train: AnyRows
    held_out: AnyRows
    facts: DataFacts

    @property
    def tokens(self) -> int:
        """Real tokens of one epoch."""
        return sum(self.train.tokens(row) for row in range(len(self.train)))

    @property
    def trained_tokens(self) -> int:
        """Targets of one epoch."""
        return sum(self.train.trained(row) for row in range(len(self.train)))


def read_data(config: RunConfig, tokenizer: Any, tell: Teller, orders: Orders) -> RunData:
    """Reads, tokenises and splits the run's file.

    Raises:
        DataError: the file cannot be read, or nothing in it can be trained on.
        Leave: somebody asked to pause or stop.
    """
    refused: list[RowProblem] = []
    rows = _tokenise(config, tokenizer, tell, orders, refused)
    if refused:
        shown = "; ".join(f"row {problem.row}: {problem.text}" for problem in refused[:_SHOWN])
        tell.note("data.refused", f"{len(refused)} rows are left out ({shown}{' …' if len(refused) > _SHOWN else ''}).")
    trained = sum(rows.trained(row) for row in range(len(rows)))
    require_targets(trained, len(rows) + len(refused), config.train.max_length)
    train, held_out = split_rows(len(rows), config.data, config.train.seed)
    return RunData(rows.take(train), rows.take(held_out), _facts(rows, config.train.max_length))


def _tokenise(config: RunConfig, tokenizer: Any, tell: Teller, orders: Orders, refused: list[RowProblem]) -> AnyRows:
    path = Path(config.data.path)
    tell.stage("preparing", "Reading the data")
    total = read_report(path, config.data).usable
    rows: AnyRows = PairRows() if config.method == "dpo" else TextRows()
    done = 0
    examples = iter(read_examples(path, config.data))
    while group := list(islice(examples, GROUP)):
        orders.check()
        tell.stage("preparing", "Tokenising rows", done, total, "rows")
        _add(rows, group, config, tokenizer, refused)
        done += len(group)
    tell.stage("preparing", "Tokenising rows", done, done, "rows")
    return rows


def _add(rows: AnyRows, group: list[Example], config: RunConfig, tokenizer: Any, refused: list[RowProblem]) -> None:
    length = config.train.max_length
    if isinstance(rows, TextRows):
        for row in encode_rows(tokenizer, group, config.data, length, refused=refused):
            rows.append(row.input_ids, row.labels)
        return
    for prompt, chosen, rejected in _pairs(group, config, tokenizer, refused):
        rows.append(prompt, chosen, rejected)


def _pairs(
    group: list[Example], config: RunConfig, tokenizer: Any, refused: list[RowProblem]
) -> Iterator[tuple[list[int], list[int], list[int]]]:
    for example in group:
        try:
            prompt, chosen, rejected = encode_pair(tokenizer, example, config.data, config.train.max_length)
        except DataError as error:
            refused.append(RowProblem(row=example.row, code=error.code, text=error.message))
            continue
        if prompt and chosen and rejected:
            yield prompt, chosen, rejected
        else:
            text = f"no answer is left of it within {config.train.max_length:,} tokens"
            refused.append(RowProblem(row=example.row, code="row.cut_away", text=text))


def _facts(rows: AnyRows, max_length: int) -> DataFacts:
    numbers = range(len(rows))
    pair = 2 if isinstance(rows, PairRows) else 1
    lengths = tuple(rows.length(row) // pair for row in numbers)
    return DataFacts(
        rows=len(rows),
        lengths=lengths,
        trained=tuple(rows.trained(row) for row in numbers),
        max_length=max_length,
        longest=max(lengths),
        mean=sum(lengths) / len(lengths),
    )
