"""The rows to train on: random tokens of one length, or a file under the Alpaca template.

Every token is trained, as in the benchmarks of other projects, except the first, which nothing predicts; its label is
-100, so that every trainer counts the same targets. ``epoch_batches`` deals whole steps by the seed, the same to both
sides.
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.bench.setting import Setting
from core.contract.errors import DataError
from core.data.deal.packing import epoch_batches
from core.train.step.rows import TextRows

PROMPT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n{output}"
)
"""The prompt of Stanford Alpaca (Taori et al. 2023)."""
ANSWER = "### Response:\n"
"""What its answer follows."""
LOWEST_ID = 3
"""Many vocabularies have special tokens below it."""


@dataclass(frozen=True)
class BenchRows:
    """Rows to train on, rows held out, and how many did not fill a step; and the held-out rows that end in an answer,
    of which that answer alone has labels."""

    train: TextRows
    held_out: TextRows
    left_over: int
    asked: TextRows


def read_rows(setting: Setting, vocabulary: int, tokenizer: Any = None) -> BenchRows:
    """Makes or reads the rows.

    Args:
        vocabulary: token ids lie below it.
        tokenizer: the model's own, where ``setting.tokenizer`` names none.

    Raises:
        DataError: the file cannot be read, has too few rows, or there is no tokenizer for it.
    """
    ids: list[list[int]]
    answers: list[int] = []
    if setting.dense_tokens:
        draw = torch.Generator().manual_seed(setting.seed)
        shape = (setting.rows_a_step * setting.total_steps + setting.held_out, setting.dense_tokens)
        ids = torch.randint(LOWEST_ID, vocabulary, shape, generator=draw).tolist()
    else:
        ids, answers = _tokenised(setting, _tokenizer(setting, tokenizer))
    if any(max(row) >= vocabulary for row in ids):
        highest = max(max(row) for row in ids)
        raise DataError("bench.ids", vocabulary=vocabulary, highest=highest)
    aside = set(random.Random(f"held:{setting.seed}").sample(range(len(ids)), min(setting.held_out, len(ids))))  # noqa: S311 - no secret
    kept = [row for number, row in enumerate(ids) if number not in aside]
    whole = len(kept) // setting.rows_a_step * setting.rows_a_step
    if not whole:
        raise DataError("bench.rows", wanted=setting.rows_a_step + setting.held_out, count=len(ids))
    asked = TextRows()
    for number in sorted(aside) if answers else ():
        if 1 < answers[number] < len(ids[number]):
            asked.append(ids[number], [*[-100] * answers[number], *ids[number][answers[number] :]])
    held_out = _text_rows([ids[number] for number in sorted(aside)])
    return BenchRows(_text_rows(kept[:whole]), held_out, len(kept) - whole, asked)


def dealt(n_rows: int, setting: Setting) -> list[list[int]]:
    """The rows of each step, as the trainer's sampler deals them."""
    a_epoch = n_rows // setting.rows_a_step
    epochs = range(-(-setting.total_steps // a_epoch))
    steps = [step for epoch in epochs for step in epoch_batches(n_rows, setting.rows_a_step, epoch, setting.drawn)]
    return steps[: setting.total_steps]


def render(row: Any) -> str:
    """The text of a row with Alpaca columns, prompt and completion, messages, or a text.

    Raises:
        DataError: none of these columns is there.
    """
    if isinstance(row, dict):
        if "instruction" in row and "output" in row:
            return _prompt(row["instruction"], row.get("input"), row["output"])
        if "prompt" in row and "completion" in row:
            return _prompt(row["prompt"], "", row["completion"])
        if isinstance(row.get("messages"), list):
            return _conversation(row["messages"])
        if isinstance(row.get("text"), str):
            return str(row["text"])
    columns = ", ".join(sorted(row)) if isinstance(row, dict) else type(row).__name__
    raise DataError("bench.columns", found=columns)


def _prompt(instruction: Any, more: Any, output: Any) -> str:
    return PROMPT.format(instruction=instruction, input=more or "", output=output)


def _conversation(messages: list[Any]) -> str:
    """Each question and answer under the template, joined; the system message goes under Input."""
    latest = {str(part.get("role")): "" for part in messages}
    turns = []
    for part in messages:
        latest[str(part.get("role"))] = str(part.get("content") or "")
        if part.get("role") == "assistant":
            turns.append(_prompt(latest.get("user", ""), latest.get("system", ""), latest["assistant"]))
    return "\n\n".join(turns)


def _tokenised(setting: Setting, tokenizer: Any) -> tuple[list[list[int]], list[int]]:
    """The rows, and where the last answer of each begins; 0: nowhere, or a token lies across its beginning."""
    rows, answers = list[list[int]](), list[int]()
    for row in _read(setting.rows_file):
        text = render(row)
        # By id: a tokenizer may split the text of its end token.
        ids = [*tokenizer(text)["input_ids"], tokenizer.eos_token_id][: setting.max_length]
        if len(ids) > 1:
            before, marker, _ = text.rpartition(ANSWER)
            prompt = tokenizer(before + marker)["input_ids"]
            rows.append(ids)
            answers.append(len(prompt) if marker and ids[: len(prompt)] == prompt else 0)
    return rows, answers


def _read(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if line.strip()]
        rows = list(map(json.loads, lines)) if path.suffix == ".jsonl" else json.loads(text)
    except (OSError, ValueError) as error:
        raise DataError("bench.file/no_json", name=path.name, reason=error) from error
    if not isinstance(rows, list):
        raise DataError("bench.file/no_list", name=path.name)
    return rows


def _tokenizer(setting: Setting, own: Any) -> Any:
    from transformers import AutoTokenizer

    place = Path(setting.tokenizer).expanduser()
    if not setting.tokenizer:
        if own is None:
            raise DataError("bench.tokenizer/not_named")
        return own
    if place.is_dir():
        return AutoTokenizer.from_pretrained(str(place), trust_remote_code=False)
    if not place.is_file():
        raise DataError("bench.tokenizer/missing", place=place)
    return _Pieces(place)


class _Pieces:
    """A tokenizer of a sentencepiece file, without BOS."""

    def __init__(self, place: Path) -> None:
        from sentencepiece import SentencePieceProcessor

        self._processor = SentencePieceProcessor(model_file=str(place))
        self.eos_token_id = self._processor.eos_id()

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": self._processor.encode(text)}


def _text_rows(ids: list[list[int]]) -> TextRows:
    rows = TextRows()
    for row in ids:
        rows.append(row, [-100, *row[1:]])
    return rows
