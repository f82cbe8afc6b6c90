"""A tokenizer with a decided template: rows in, token ids and mask out.

A row's turns are laid out (``template``) and rendered; ``mask`` says which characters each answer has,
``Renderer._wanted`` which answers are trained, and ``tokens.table`` which tokens hold these characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Example, Message, RowProblem
from core.contract.errors import DataError, Fault
from core.data.files.example_file import in_groups
from core.data.render.choosing import decide, tried, turn_enders, writes_bos
from core.data.render.marking import Turns
from core.data.render.mask import Ending, Opening, Ranges, Render, find_answers
from core.data.render.template import TemplateChoice, layout_turns, tools_of
from core.data.render.template_limits import limited_time, out_of_memory, require_short
from core.data.tokens.table import Encoded, token_range
from core.machine.textfile import one_line

Choice = DataChoice | TemplateChoice
Tokenizer = Any
BATCH, _BATCH_CHARACTERS = 256, 1_000_000
"""Rows tokenised in one call, fewer where they are long: its result takes a hundred bytes a token."""
Laid = tuple[Example, str, list[Ranges]]
"""A row, its text, and the character ranges of each of its answers."""
_ANSWER = "Xanswer0Q"
_KEPT_OPENINGS = 64
_made: list[tuple[tuple[Any, ...], Renderer]] = []
"""The last ``_KEPT`` renderers, newest last: trying a template costs a dozen renderings."""
_KEPT = 8
_LONGEST_FORMAT = 100


def renderer(tokenizer: Tokenizer, choice: Choice) -> Renderer:
    """The Renderer of a tokenizer and a choice; the last few are kept."""
    if isinstance(choice, TemplateChoice):
        key: tuple[Any, ...] = (choice,)
    else:
        raw = choice.layout == "text"
        key = (str(tokenizer.chat_template), choice.template, choice.train_on, choice.system_prompt, raw)
    kept = [one for known, one in _made if known == key and one.tokenizer is tokenizer]
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
        self.special_ids = frozenset(
            number for number, token in tokenizer.added_tokens_decoder.items() if token.special
        )
        self._openings: dict[tuple[str, str], Opening] = {}
        self.choice = choice
        if choice.kind != "none" and not choice.ending:
            self.choice = tried(choice, tokenizer, self.ask)
        self._ending = Ending(self.choice.ending, turn_enders(tokenizer))

    def ask(self, turns: Sequence[dict[str, Any]], *, tools: list[Any] | None = None, generation: bool = False) -> str:
        """The turns as transformers' ``apply_chat_template`` renders them.

        Raises:
            DataError: the template refuses these turns.
            UnfitTemplateError: the template takes too long or writes too much.
        """
        try:
            with limited_time():
                if "strftime_now" in self.choice.source:
                    from transformers.utils.chat_template_utils import _compile_jinja_template

                    # transformers caches the compiled template, so dates can be bounded here. A function handed to
                    # ``apply_chat_template`` would reach the template as text.
                    _compile_jinja_template(self.choice.source).environment.globals["strftime_now"] = _now
                rendered = self.tokenizer.apply_chat_template(
                    list(turns),
                    tools=[] if tools is None and self.choice.wants_tools else tools,
                    chat_template=self.choice.source,
                    tokenize=False,
                    add_generation_prompt=generation,
                )
            given = sum(len(value) for turn in turns for value in turn.values() if isinstance(value, str))
            return require_short(str(rendered), given)
        except Fault:
            raise
        except MemoryError as error:
            raise out_of_memory() from error
        except Exception as error:  # a template may raise anything
            raise DataError("data.template", reason=reason_of(error)) from error

    def encoded(self, example: Example) -> Encoded:
        """One row, uncut. Raises DataError where the template refuses it."""
        item = next(self._batch([example]))
        assert isinstance(item, Encoded)
        return item

    def of_last_answer(self) -> Renderer:
        """The renderer of this template that trains the last answer only."""
        if self.choice.train_on == "last_answer":
            return self
        return renderer(self.tokenizer, replace(self.choice, train_on="last_answer"))

    def pair(self, example: Example) -> tuple[Encoded, Encoded]:
        """A preference row with its chosen and with its rejected answer, of which only that last answer is trained: one
        range of tokens on each side.

        Raises:
            DataError: the template refuses the row, or leaves one of the two answers out.
        """
        sides = self.of_last_answer()._batch([with_answer(example), with_answer(example, "rejected")])
        chosen, rejected = (side for side in sides if isinstance(side, Encoded))
        for name, side in (("chosen", chosen), ("rejected", rejected)):
            if not side.trained:
                raise DataError("data.template_answers/only_thoughts", name=name)
        return chosen, rejected

    def encode_many(self, examples: Iterable[Example]) -> Iterator[Encoded | RowProblem]:
        """Every row in order, tokenised in batches; a RowProblem for a row that the template refuses.

        While one group is tokenised, which releases the GIL, the next one is rendered.
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
        # The backend, set up as a plain call of the tokenizer does, but without that call's copies of lists.
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = self.tokenizer.split_special_tokens
        encodings: dict[int, Any] = {}
        for special in (False, True):
            rows = [item for item in laid if not isinstance(item, RowProblem) and self._is_plain(item[0]) == special]
            made = backend.encode_batch([text for _, text, _ in rows], add_special_tokens=special) if rows else []
            encodings.update((id(item[0]), encoding) for item, encoding in zip(rows, made, strict=True))
        return encodings

    def _joined(self, laid: list[Laid | RowProblem], encodings: dict[int, Any]) -> Iterator[Encoded | RowProblem]:
        for item in laid:
            yield item if isinstance(item, RowProblem) else self._encoded(*item, encodings[id(item[0])])

    def _is_plain(self, example: Example) -> bool:
        return bool(example.text) or self.choice.kind == "none"

    def _spans(self, example: Example) -> tuple[str, list[Ranges]]:
        if self._is_plain(example):
            return self._plain(example)
        turns, tools = layout_turns(example, self.choice), tools_of(example, self.choice)
        render = partial(self.ask, tools=tools)
        system = turns[:1] if turns[0]["role"] == "system" else []
        key = (system[0]["content"] if system else "", example.tools)
        if key not in self._openings:
            if len(self._openings) > _KEPT_OPENINGS:
                self._openings.clear()
            self._openings[key] = _opening(render, system)
        return find_answers(render, turns, self._openings[key], self._ending)

    def _plain(self, example: Example) -> tuple[str, list[Ranges]]:
        """Without a template: raw text as it is, or a line for each turn with end-of-text behind answers."""
        if example.text:
            return example.text, [[(0, len(example.text))]]
        text = ""
        spans: list[Ranges] = []
        for turn in layout_turns(example, self.choice):
            start = len(text)
            text += turn["content"]
            if turn["role"] == "assistant":
                text += self.tokenizer.eos_token or ""
                spans.append([(start, len(text))])
            text += "\n"
        return text, spans

    def _encoded(self, example: Example, text: str, spans: list[Ranges], encoding: Any) -> Encoded:
        ids = list(encoding.ids)
        answers = [[token_range(encoding, span, len(text)) for span in answer] for answer in spans]
        eos = self.tokenizer.eos_token_id
        closed = self.choice.kind == "none" or bool(self.choice.ending.strip())
        said_last = bool(spans) and bool(spans[-1]) and not text[spans[-1][-1][1] :].strip()
        ended = (bool(example.text) or (not closed and said_last)) and eos is not None and ids[-1:] != [eos]
        if ended:
            # Nothing may stand between the answer and its end token, or the model would never write that token.
            start, stop = answers[-1][-1]
            ids = [*ids[:stop], eos]
            answers[-1][-1] = (start, len(ids))
        trained = self._wanted(example, answers, len(ids))
        bos = int(self._is_plain(example) and ids[:1] == [self.tokenizer.bos_token_id] and writes_bos(self.tokenizer))
        merged = tuple(span for span in trained if span[0] < span[1])
        said = (example.mark, example.margin, example.labels)
        return Encoded(example.row, text, tuple(ids), merged, encoding, bos, bool(example.text), ended, *said)

    def _wanted(self, example: Example, answers: list[Ranges], size: int) -> Ranges:
        """The token ranges that are trained of a row of ``size`` tokens; ``answers`` are in the order of the turns."""
        if example.text:
            return [(0, size)]
        made = [message for message in with_answer(example).messages if message.role == "assistant"]
        said = list(zip(answers, made, strict=True))
        if self.choice.train_on == "everything":
            unlearned = [span for spans, message in said if not message.trained for span in spans]
            starts, stops = [0, *(stop for _, stop in unlearned)], [*(start for start, _ in unlearned), size]
            return list(zip(starts, stops, strict=True))
        if self.choice.train_on == "last_answer":
            said = said[-1:]
        wants_calls = self.choice.train_on == "tool_calls"
        kept = [spans for spans, message in said if message.trained and (message.tool_calls or not wants_calls)]
        return [span for spans in kept for span in spans]


def _opening(render: Render, system: Turns) -> Opening:
    turns = [*system, {"role": "user", "content": "Hello"}]
    closed, asking = render(turns), render(turns, generation=True)
    if asking != closed:
        return Opening(asking[len(closed) :] if asking.startswith(closed) else "")
    answered = render([*turns, {"role": "assistant", "content": _ANSWER}])
    return Opening("", answered[len(closed) :].partition(_ANSWER)[0] if answered.startswith(closed) else "")


def with_answer(example: Example, side: str = "chosen") -> Example:
    """A preference row as the conversation that ends with one of its two answers; other rows as they are."""
    if not example.chosen:
        return example
    answer = Message(role="assistant", content=example.chosen if side == "chosen" else example.rejected)
    return example.model_copy(update={"messages": (*example.messages, answer), "chosen": "", "rejected": ""})


def _now(form: str) -> str:
    """Today's date for a template. A long format is refused, since no signal interrupts ``strftime``."""
    if len(form) > _LONGEST_FORMAT:
        raise ValueError(f"a date's format of {len(form):,} characters")
    return datetime.now().strftime(form)


def reason_of(error: BaseException) -> str:
    """What an error says, as one short line without a full stop."""
    return (one_line(str(error), 200) or type(error).__name__).rstrip(".")
