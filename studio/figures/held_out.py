"""The rows that a run kept aside: their questions, and the right answers to lay beside a model's own.

Which rows these are stands in the run's own ``rows.json``: another version of this program might draw others. Only
where there is none that can be read is the split drawn again, a pure function of the rows, the run's choice and seed.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataReport, Example, Message
from core.contract.errors import DataError, Fault
from core.contract.events import Plan
from core.data.deal.split import split_rows
from core.runs.folder.held_out_rows import kept_draw
from studio.words.text import say

Read = Callable[[Path, DataChoice, Sequence[int]], list[Example]]


class Reader(Protocol):
    """``core.data.service.data_service.DataService``, as far as it is used here."""

    def report(self, path: Path, choice: DataChoice) -> DataReport:
        """Reads the file's facts."""

    def split_groups(self, path: Path, choice: DataChoice) -> tuple[tuple[int, ...], ...]:
        """Groups of usable rows, counted from 0, that stay on one side of the split."""

    def examples(self, path: Path, choice: DataChoice, indices: Sequence[int]) -> list[Example]:
        """The usable rows with these numbers, counted from 0."""

    def numbered(self, path: Path, choice: DataChoice, numbers: Sequence[int]) -> list[Example]:
        """The usable rows that have these numbers in the file, from 1."""


class HeldOut:
    """Held-out rows of runs. The split of the runs asked last is remembered."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._splits: dict[tuple[str, ...], tuple[int, list[int]]] = {}

    def count(self, run: Path, config: RunConfig | None, plan: Plan | None) -> dict[str, Any]:
        """How many rows there are, and the words that say it.

        None where that is not sure: the file cannot be read any more or is another one, or a run without a draw of its
        own left out rows that its template refused, so that its split counted others than ours does.
        """
        count = 0
        if config is not None and plan is not None:
            with contextlib.suppress(Fault):
                count = len(self._held(run, config, plan)[0])
        return {"held_out": count, "held_out_words": say("try.rows", count=f"{count:,}")}

    def row(self, run: Path, config: RunConfig, plan: Plan | None, at: int) -> dict[str, Any]:
        """Row number ``at`` of the held-out ones (wrapping around), as a question and its right answer.

        Raises:
            DataError: there is none, or the file is gone.
        """
        indices, read = self._held(run, config, plan)
        found = read(Path(config.data.path), config.data, [indices[at % len(indices)]]) if indices else []
        if not found:
            raise DataError("data.no_held_out")
        at, example = at % len(indices), found[0]
        messages, answer = question_and_answer(example, config.data.system_prompt)
        shown = messages[-1].content if messages else ""
        words = say("try.row", at=at + 1, count=len(indices), row=f"{example.row:,}")
        return {
            "at": at,
            "prompt": shown,
            "messages": [message.model_dump(exclude_defaults=True) for message in messages],
            "answer": answer,
            "words": words,
        }

    def _held(self, run: Path, config: RunConfig, plan: Plan | None) -> tuple[Sequence[int], Read]:
        """The held-out rows, and what reads them: those of the run's own draw, else of one that is made again where it
        counts as many rows as the run did."""
        draw, report = kept_draw(run), self._reader.report(Path(config.data.path), config.data)
        if config.data.sha256 and report.sha256 != config.data.sha256:
            return [], self._reader.numbered
        if draw and draw.numbers:
            return draw.numbers, self._reader.numbered
        if draw:
            return draw.held_out if draw.rows == report.usable else [], self._reader.examples
        usable, held_out = self._split(config)
        sure = plan is not None and usable == plan.train_rows + plan.eval_rows
        return held_out if sure else [], self._reader.examples

    def _split(self, config: RunConfig) -> tuple[int, list[int]]:
        """Number of usable rows, and which of them are held out."""
        key = (config.data.model_dump_json(), str(config.train.seed))
        if key not in self._splits:
            path = Path(config.data.path)
            usable = self._reader.report(path, config.data).usable
            kin = self._reader.split_groups(path, config.data)
            if len(self._splits) > 50:
                self._splits.clear()
            self._splits[key] = usable, split_rows(usable, config.data, config.train.seed, kin)[1]
        return self._splits[key]


def question_and_answer(example: Example, system_prompt: str = "") -> tuple[list[Message], str]:
    """The conversation up to the last answer, and that answer; raw text is cut in its middle, at a word."""
    if example.messages:
        turns = list(example.messages)
        answer = example.chosen or ""
        while turns and not answer and turns[-1].role == "assistant":
            answer = turns.pop().content
        if system_prompt and turns and turns[0].role != "system":
            turns.insert(0, Message(role="system", content=system_prompt))
        return turns, answer
    half = example.text.find(" ", len(example.text) // 2)
    cut = half if half > 0 else len(example.text) // 2
    return [Message(role="user", content=example.text[:cut])], example.text[cut:].strip()
