"""A run's held-out rows: their questions and right answers.

Their numbers are in the run's ``rows.json``, since another version of this program might draw others. Where that cannot
be read the split is drawn again, a pure function of the rows, the run's choice and seed.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice, RunConfig
from core.contract.data import DataReport, Example, Message
from core.contract.errors import DataError, Fault
from core.contract.events import Plan
from core.contract.methods import Method
from core.data.deal.split import split_rows
from core.data.service.data_service import DataService
from core.runs.folder.held_out_rows import kept_draw
from studio.words.text import say

Read = Callable[[Path, DataChoice, Sequence[int]], list[Example]]


class HeldOut:
    """Held-out rows of runs; the last splits drawn again are cached."""

    def __init__(self, data: DataService) -> None:
        self._data = data
        self._split = lru_cache(maxsize=50)(self._drawn_again)

    def count(self, run: Path, config: RunConfig | None, plan: Plan | None) -> dict[str, Any]:
        """How many rows there are, as a number and in words; and what is asked (``asked_for``).

        0 where that is not sure: the file is unreadable or another one, or a run without a draw of its own left out
        rows that its template refused, so that its split differs from ours.
        """
        count, texts = 0, 1
        if config is not None and plan is not None:
            with contextlib.suppress(Fault):
                count = len(self._held(run, config, plan)[0])
                texts = 1 + bool(self._report(config).mapping.get("text_pair"))
        told = {"held_out": count, "held_out_words": say("try.rows", count=f"{count:,}")}
        return {**told, "asked": asked_for(config or RunConfig(), texts)}

    def row(self, run: Path, config: RunConfig, plan: Plan | None, at: int) -> dict[str, Any]:
        """Held-out row number ``at`` (wrapping around), as a question and its right answer.

        Raises:
            DataError: there is none, or the file is gone.
        """
        indices, read = self._held(run, config, plan)
        rows = read(Path(config.data.path), config.data, [indices[at % len(indices)]]) if indices else []
        if not rows:
            raise DataError("data.no_held_out")
        at, example = at % len(indices), rows[0]
        messages, answer = question_and_answer(example, config.data.system_prompt)
        prompt, second, told = messages[-1].content if messages else "", "", "try.row"
        if config.learning.labelled and example.texts:
            prompt, second = (*example.texts, "")[:2]
        elif config.learning.task.scores:
            second, told = answer, "try.row.scored"
        return {
            "at": at,
            "prompt": prompt,
            "second": second,
            "messages": [message.model_dump(exclude_defaults=True) for message in messages],
            "answer": answer,
            "rejected": example.rejected,
            "words": say(told, at=at + 1, count=len(indices), row=f"{example.row:,}"),
        }

    def _held(self, run: Path, config: RunConfig, plan: Plan | None) -> tuple[Sequence[int], Read]:
        """The held-out rows and their reader: of the run's own draw, else of one drawn again where its row count is the
        run's."""
        draw, report = kept_draw(run), self._report(config)
        if config.data.sha256 and report.sha256 != config.data.sha256:
            return [], self._data.numbered
        if draw and draw.numbers:
            return draw.numbers, self._data.numbered
        by_place = partial(self._data.examples, method=config.trained_method)
        if draw:
            return draw.held_out if draw.rows == report.usable else [], by_place
        held_out = self._split(config.data.model_dump_json(), config.train.seed, config.trained_method)
        sure = plan is not None and report.usable == plan.train_rows + plan.eval_rows
        return held_out if sure else [], by_place

    def _report(self, config: RunConfig) -> DataReport:
        return self._data.report(Path(config.data.path), config.data, config.trained_method)

    def _drawn_again(self, choice: str, seed: int, method: Method) -> list[int]:
        """The rows that a choice of data, as JSON, a seed and a method hold out."""
        data = DataChoice.model_validate_json(choice)
        path = Path(data.path)
        together = self._data.split_groups(path, data, method)
        return split_rows(self._data.report(path, data, method).usable, data, seed, together)[1]


def asked_for(config: RunConfig, texts: int = 1) -> dict[str, Any]:
    """What a run's model is asked, and how the fields are called: ``scores``: whether it answers with scores, of the
    trained side alone; ``kind``: "", "label" or "answer"; ``second``: the name of the second field, "" for none."""
    learning = config.learning
    kind = "" if not learning.task.scores else "label" if learning.labelled else "answer"
    second = say(f"try.second.{kind}") if kind == "answer" or (kind and texts > 1) else ""
    return {
        "scores": bool(kind),
        "kind": kind,
        "second": second,
        "prompt": say("try.text" if kind == "label" else "try.prompt"),
        "about": say(f"try.about.{kind}") if kind else "",
    }


def question_and_answer(example: Example, system_prompt: str = "") -> tuple[list[Message], str]:
    """The conversation up to the last answer, and that answer: none where it is marked bad, since the right one is not
    known. Raw text is cut in its middle, at a word."""
    if example.messages:
        turns = list(example.messages)
        answer = example.chosen or ""
        while turns and not answer and turns[-1].role == "assistant":
            answer = turns.pop().content
        if system_prompt and turns and turns[0].role != "system":
            turns.insert(0, Message(role="system", content=system_prompt))
        return turns, "" if example.mark is False else answer
    half = example.text.find(" ", len(example.text) // 2)
    cut = half if half > 0 else len(example.text) // 2
    return [Message(role="user", content=example.text[:cut])], example.text[cut:].strip()
