"""A tokenizer with a decided template: examples in, token ids and mask out. What ``render`` offers is done here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Example, Message, RowProblem
from core.contract.errors import DataError, StudioError
from core.data.choosing import decide, turn_enders, warned, words_on_bos, writes_bos
from core.data.example_file import in_groups
from core.data.patience import limited_time, out_of_memory, require_short
from core.data.spans import Ending, find_answers
from core.data.template import TemplateChoice, layout_turns, tools_of, tried
from core.data.textfile import one_line
from core.data.tokens import Encoded, token_range

__all__ = ["Choice", "Renderer", "reason_of", "renderer", "with_answer"]

Choice = DataChoice | TemplateChoice
Tokenizer = Any
BATCH, _BATCH_CHARACTERS = 256, 1_000_000
"""Rows tokenised in one call, fewer where they are long: what a call returns takes a hundred bytes a token."""
Laid = tuple[Example, str, list[tuple[int, int]]]
"""A row as text, and the character ranges of its answers."""


_made: list[tuple[tuple[Any, ...], Renderer]] = []
"""The last few renderers, newest last: trying a template out costs a dozen renderings."""
_KEPT = 8


def renderer(tokenizer: Tokenizer, choice: Choice) -> Renderer:
    """The Renderer of a tokenizer and a choice, tried out once and kept for a while."""
    if isinstance(choice, TemplateChoice):
        key: tuple[Any, ...] = (choice,)
    else:
        raw = choice.layout == "text"
        key = (str(tokenizer.chat_template), choice.template, choice.train_on, choice.system_prompt, raw)
    kept = [found for known, found in _made if known == key and found.tokenizer is tokenizer]
    if kept:
        return kept[-1]
    made = Renderer(tokenizer, decide(tokenizer, choice))
    _made.append((key, made))
    del _made[:-_KEPT]
    return made


class Renderer:
    """A tokenizer and a decided template: rows in, Encoded out."""

    def __init__(self, tokenizer: Tokenizer, choice: TemplateChoice) -> None:
        self.tokenizer = tokenizer
        self._specials = turn_enders(tokenizer)
        self.special_ids = frozenset(
            number for number, token in tokenizer.added_tokens_decoder.items() if token.special
        )
        self._headers: dict[str, str] = {}
        self.choice = choice
        if choice.kind != "none" and not choice.ending:
            made = warned(tried(choice, self.ask, self._specials), self._specials)
            self.choice = replace(made, notes=(*made.notes, *words_on_bos(tokenizer, self.ask)))
        self._ending = Ending(self.choice.ending, self._specials)

    def ask(self, turns: Sequence[dict[str, Any]], *, tools: list[Any] | None = None, generation: bool = False) -> str:
        """The turns as transformers' own ``apply_chat_template`` renders them.

        Raises:
            DataError: the template refuses these turns.
            UnfitTemplateError: the template takes too long or writes too much, whatever the turns.
        """
        try:
            with limited_time():
                rendered = self.tokenizer.apply_chat_template(
                    list(turns),
                    tools=tools,
                    chat_template=self.choice.source,
                    tokenize=False,
                    add_generation_prompt=generation,
                )
            return require_short(str(rendered), sum(len(turn["content"]) for turn in turns))
        except StudioError:
            raise
        except MemoryError as error:
            raise out_of_memory() from error
        except Exception as error:  # a template is somebody's program: it may raise anything
            raise DataError(
                "data.template",
                f"The chat template refuses this row: {reason_of(error)}.",
                "Choose the template ChatML.",
            ) from error

    def encoded(self, example: Example) -> Encoded:
        """One row, uncut. Raises DataError where the template refuses it."""
        item = next(self._batch([example]))
        assert isinstance(item, Encoded)
        return item

    def pair(self, example: Example) -> tuple[Encoded, Encoded]:
        """A preference row with its chosen and with its rejected answer; only that last answer is trained."""
        last = self if self.choice.train_on == "last_answer" else self._for_pairs()
        sides = last._batch([with_answer(example), with_answer(example, "rejected")])
        chosen, rejected = (side for side in sides if isinstance(side, Encoded))
        return chosen, rejected

    def _for_pairs(self) -> Renderer:
        return renderer(self.tokenizer, replace(self.choice, train_on="last_answer"))

    def encode_many(self, examples: Iterable[Example]) -> Iterator[Encoded | RowProblem]:
        """Every row in order, tokenised in batches; a RowProblem for a row that the template refuses.

        While one group is tokenised, which holds no lock of Python's, the template writes the next one.
        """
        with ThreadPoolExecutor(1) as beside:
            waiting: tuple[list[Laid | RowProblem], Future[dict[int, Any]]] | None = None
            for group in in_groups(examples, BATCH, _BATCH_CHARACTERS):
                laid = self._laid(group)
                begun = beside.submit(self._tokenised, laid)
                if waiting:
                    yield from self._joined(waiting[0], waiting[1].result())
                waiting = laid, begun
            if waiting:
                yield from self._joined(waiting[0], waiting[1].result())

    def _batch(self, examples: Sequence[Example]) -> Iterator[Encoded | RowProblem]:
        laid = self._laid(examples, raises=True)
        return self._joined(laid, self._tokenised(laid))

    def _laid(self, examples: Sequence[Example], raises: bool = False) -> list[Laid | RowProblem]:
        laid: list[Laid | RowProblem] = []
        for example in examples:
            try:
                laid.append((example, *self._spans(with_answer(example))))
            except DataError as error:
                if raises:
                    raise
                laid.append(RowProblem(row=example.row, code=error.code, text=error.message))
        return laid

    def _tokenised(self, laid: list[Laid | RowProblem]) -> dict[int, Any]:
        """The tokenizer's record of each row, by the identity of its Example."""
        plain = {id(item[0]): self._is_plain(item[0]) for item in laid if not isinstance(item, RowProblem)}
        encodings: dict[int, Any] = {}
        for special in set(plain.values()):
            group = [item for item in laid if not isinstance(item, RowProblem) and plain[id(item[0])] == special]
            texts = [text for _, text, _ in group]
            made = self._backend().encode_batch(texts, add_special_tokens=special)
            encodings.update((id(item[0]), found) for item, found in zip(group, made, strict=True))
        return encodings

    def _backend(self) -> Any:
        """The tokenizer's own core, set as a plain call of the tokenizer sets it; asked at once, it copies no lists."""
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = self.tokenizer.split_special_tokens
        return backend

    def _joined(self, laid: list[Laid | RowProblem], encodings: dict[int, Any]) -> Iterator[Encoded | RowProblem]:
        for item in laid:
            yield item if isinstance(item, RowProblem) else self._encoded(*item, encodings[id(item[0])])

    def _is_plain(self, example: Example) -> bool:
        return bool(example.text) or self.choice.kind == "none"

    def _spans(self, example: Example) -> tuple[str, list[tuple[int, int]]]:
        if self._is_plain(example):
            return self._plain(example)
        turns, tools = layout_turns(example, self.choice), tools_of(example, self.choice)
        system = turns[0]["content"] if turns[0]["role"] == "system" else ""
        return find_answers(lambda some: self.ask(some, tools=tools), turns, self._header(system), self._ending)

    def _header(self, system: str) -> str:
        """What the template writes where the model is to begin (the generation prompt), under this system prompt."""
        if system not in self._headers:
            if len(self._headers) > 64:
                self._headers.clear()
            opening = [{"role": "system", "content": system}] if system else []
            turns = [*opening, {"role": "user", "content": "Hello"}]
            closed, asking = self.ask(turns), self.ask(turns, generation=True)
            self._headers[system] = asking.removeprefix(closed) if asking.startswith(closed) else ""
        return self._headers[system]

    def _plain(self, example: Example) -> tuple[str, list[tuple[int, int]]]:
        """Without a template: raw text as it is; turns a line each, answers closed by the end-of-text token."""
        if example.text:
            return example.text, [(0, len(example.text))]
        text, spans = "", []
        for turn in layout_turns(example, self.choice):
            start = len(text)
            text += turn["content"]
            if turn["role"] == "assistant":
                text += self.tokenizer.eos_token or ""
                spans.append((start, len(text)))
            text += "\n"
        return text, spans

    def _encoded(self, example: Example, text: str, spans: list[tuple[int, int]], encoding: Any) -> Encoded:
        ids = list(encoding.ids)
        answers = [token_range(encoding, span, len(text)) for span in spans]
        eos = self.tokenizer.eos_token_id
        ended = self._ends_open(example, text, spans) and eos is not None and ids[-1:] != [eos]
        if ended:
            # Nothing may stand between the answer and its end, or the model would never come to write that end.
            ids = [*ids[: answers[-1][1]], eos]
            answers[-1] = (answers[-1][0], len(ids))
        trained = self._wanted(example, answers)
        if example.text or self.choice.train_on == "everything":
            trained = [(0, len(ids))]
        bos = int(self._is_plain(example) and ids[:1] == [self.tokenizer.bos_token_id] and writes_bos(self.tokenizer))
        merged = tuple(span for span in trained if span[0] < span[1])
        return Encoded(example.row, text, tuple(ids), merged, encoding, bos, bool(example.text), ended)

    def _wanted(self, example: Example, answers: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Of the answers' ranges those that are trained. Turns are laid out one for one, so answers are in order."""
        if self.choice.train_on == "last_answer":
            return answers[-1:]
        if self.choice.train_on == "tool_calls" and not example.text:
            made = [message for message in with_answer(example).messages if message.role == "assistant"]
            return [span for span, message in zip(answers, made, strict=True) if message.tool_calls]
        return answers

    def _ends_open(self, example: Example, text: str, spans: list[tuple[int, int]]) -> bool:
        if example.text:
            return True
        closed = self.choice.kind == "none" or bool(self.choice.ending.strip())
        return not closed and bool(spans) and not text[spans[-1][1] :].strip()


def with_answer(example: Example, side: str = "chosen") -> Example:
    """A preference row as the conversation that ends with one of its two answers; other rows as they are."""
    if not example.chosen:
        return example
    answer = Message(role="assistant", content=example.chosen if side == "chosen" else example.rejected)
    return example.model_copy(update={"messages": (*example.messages, answer), "chosen": "", "rejected": ""})


def reason_of(error: BaseException) -> str:
    """What an error says, as one short line without a full stop."""
    return (one_line(str(error), 200) or type(error).__name__).rstrip(".")
