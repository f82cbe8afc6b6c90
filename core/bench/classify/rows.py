"""Rows of a text and a label: read, tokenised, split, and laid out as a step's tensors."""

import csv
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from core.bench.classify.reviews import reviews
from core.bench.classify.setting import ClassifySetting
from core.contract.errors import DataError
from core.data.deal.packing import epoch_batches
from core.machine.locations import REPOSITORY

MADE_UP = 3200
"""Reviews, where there is no file."""
TEXTS = ("text", "sentence", "review")


@dataclass(frozen=True)
class ClassRows:
    """Token ids and label numbers of the rows to train on and of those held out; ``labels`` are their names."""

    labels: tuple[str, ...]
    train: list[tuple[list[int], int]]
    held_out: list[tuple[list[int], int]]


def tokenizer_of(setting: ClassifySetting) -> Any:
    """The named tokenizer, the model's own, or the starter model's."""
    from transformers import AutoTokenizer

    own = REPOSITORY / "assets" / "starter" if setting.shape else Path(setting.model).expanduser()
    place = Path(setting.tokenizer).expanduser() if setting.tokenizer else own
    return AutoTokenizer.from_pretrained(str(place), trust_remote_code=False, local_files_only=True)


def read_rows(setting: ClassifySetting, tokenizer: Any, longest: int) -> ClassRows:
    """All rows, split by the seed; each begins and ends with a special token, as the family's tokenizers do it.

    Raises:
        DataError: the file cannot be read, or has too few rows or labels.
    """
    pairs = _read(Path(setting.data).expanduser()) if setting.data else reviews(MADE_UP, setting.seed)
    names = sorted({label for _, label in pairs})
    if len(names) < 2:
        raise DataError("bench.labels", name=Path(setting.data).name, found=f"{len(names)}")
    wanted = setting.batch + setting.held_out
    if len(pairs) < wanted:
        raise DataError("bench.rows", wanted=wanted, count=len(pairs))
    marks = (tokenizer.cls_token_id, tokenizer.bos_token_id), (tokenizer.sep_token_id, tokenizer.eos_token_id)
    first, last = (next((mark for mark in (*kind, tokenizer.eos_token_id) if mark is not None), 0) for kind in marks)
    texts = tokenizer([text for text, _ in pairs], add_special_tokens=False)["input_ids"]
    rows = [
        ([first, *ids[: longest - 2], last], names.index(label))
        for ids, (_, label) in zip(texts, pairs, strict=True)
    ]  # fmt: skip
    random.Random(f"held:{setting.seed}").shuffle(rows)  # noqa: S311 - no secret
    return ClassRows(tuple(names), rows[setting.held_out :], rows[: setting.held_out])


def dealt(count: int, setting: ClassifySetting) -> list[list[int]]:
    """The row numbers of each step, whole steps only; an epoch's last rows that fill none are left out."""
    an_epoch = count // setting.batch
    epochs = -(-setting.steps // an_epoch) if setting.steps else setting.epochs
    whole = an_epoch * setting.batch
    steps = [step for epoch in range(epochs) for step in epoch_batches(whole, setting.batch, epoch, setting.seed)]
    return steps[: setting.steps or len(steps)]


def padded(rows: Sequence[tuple[list[int], int]], pad_id: int, pinned: bool) -> dict[str, Any]:
    """``input_ids`` and ``attention_mask`` ``[rows, longest]``, and ``labels``, on the host."""
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([[*ids, *[pad_id] * (longest - len(ids))] for ids, _ in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows])
    return _ready({"input_ids": ids, "attention_mask": mask, "labels": _labels(rows)}, pinned)


def packed(rows: Sequence[tuple[list[int], int]], pinned: bool) -> dict[str, Any]:
    """``input_ids`` and ``position_ids`` ``[1, T]``, row bounds, and ``labels``, on the host."""
    lengths = [len(ids) for ids, _ in rows]
    batch = {
        "input_ids": torch.tensor([[token for ids, _ in rows for token in ids]]),
        "position_ids": torch.cat([torch.arange(length) for length in lengths])[None],
        "cu_seq_lens_q": torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        "max_length_q": max(lengths),
        "labels": _labels(rows),
    }
    return _ready(batch, pinned)


def _labels(rows: Sequence[tuple[list[int], int]]) -> torch.Tensor:
    return torch.tensor([label for _, label in rows])


def _ready(batch: dict[str, Any], pinned: bool) -> dict[str, Any]:
    return {name: value.pin_memory() if pinned and torch.is_tensor(value) else value for name, value in batch.items()}


def _read(path: Path) -> list[tuple[str, str]]:
    """Texts and labels of a file: named columns, or the first two."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix in (".json", ".jsonl"):
            lines = [line for line in text.splitlines() if line.strip()]
            rows = [json.loads(line) for line in lines] if path.suffix == ".jsonl" else json.loads(text)
            table = [list(rows[0]), *([row.get(name) for name in rows[0]] for row in rows)]
        else:
            if path.suffix == ".csv":
                read = csv.reader(io.StringIO(text))
            else:  # tabs; quotes are part of the text
                read = csv.reader(io.StringIO(text), delimiter="\t", quoting=csv.QUOTE_NONE)
            table = [row for row in read if row]
    except (OSError, ValueError, csv.Error, AttributeError, IndexError, KeyError, TypeError) as error:
        raise DataError("bench.file/no_json", name=path.name, reason=error) from error
    head = [str(cell).strip().lower() for cell in table[0]] if table else []
    text_at, label_at = 0, 1
    if "label" in head:  # the first line names the columns
        label_at = head.index("label")
        text_at = next((head.index(name) for name in TEXTS if name in head), 0 if label_at else 1)
        table = table[1:]
    short = [row for row in table if len(row) <= max(text_at, label_at)]
    if short or not table:
        raise DataError("bench.labels", name=path.name, found=f"a row of {len(short[0])}" if short else "none")
    return [(str(row[text_at]), str(row[label_at]).strip()) for row in table]
