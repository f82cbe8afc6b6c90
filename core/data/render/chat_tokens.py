"""Conversations under a chat template as token ids and mask, for preview, training and Try; done by ``renderer``.

No second BOS is written, and the end of turn behind a trained answer is always trained. Needs a fast tokenizer of
transformers, which knows each token's characters.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.contract.config import DataChoice
from core.contract.data import Example, Message, RowProblem, TokenRow
from core.contract.errors import DataError, ModelError
from core.contract.methods import LearningMethod, ReadAs
from core.data.render.choosing import turn_enders
from core.data.render.labelled import encode_labelled, labelled_ids
from core.data.render.renderer import Choice, Renderer, reason_of, renderer
from core.data.render.template import TemplateChoice, layout_turns
from core.data.tokens.table import Encoded, TableMaker, TokenTable
from core.machine.limits import reading_model
from core.models.checks.claims import check_tokenizer
from core.models.checks.tokenizer import check_growth

Tokenizer = Any
_CHARACTERS_A_TOKEN = 16
"""Usually four; code with much white space has more."""


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model folder, from its files alone.

    Raises:
        DataError: there is none, or it cannot tell which token holds which character.
        ModelError: it brings code of its own, its files lead elsewhere, or they make gigabytes of a few letters.
    """
    if not folder.is_dir():
        raise DataError("data.tokenizer", folder=folder, found="no such folder")
    check_tokenizer(folder)
    check_growth(folder)
    from transformers import AutoTokenizer

    try:
        with reading_model(folder.name):
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except ModelError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise  # PanicException: the tokenizers library failed on these files
        raise DataError("data.tokenizer", folder=folder, found=reason_of(error)) from error
    if not tokenizer.is_fast:
        raise DataError("data.tokenizer_slow", folder=folder)
    return tokenizer


def resolve_template(tokenizer: Tokenizer, choice: Choice) -> TemplateChoice:
    """The template of a choice, tried. Raises DataError where there is none, or it fails."""
    return renderer(tokenizer, choice).choice


def apply_template_to(tokenizer: Tokenizer, choice: Choice) -> None:
    """Gives the tokenizer the template that was trained on, for export."""
    resolved = resolve_template(tokenizer, choice)
    if resolved.kind != "none":
        tokenizer.chat_template = resolved.source


def stop_token_ids(tokenizer: Tokenizer, choice: Choice) -> tuple[int, ...]:
    """The tokens at which an answer ends: the template's end of turn and the tokenizer's end of text. A model's own
    configs may name more (``core.model.generation``)."""
    ending = resolve_template(tokenizer, choice).ending.strip()
    ids = tokenizer(ending, add_special_tokens=False)["input_ids"] if ending else []
    ends = ids[-1:] if len(ids) == 1 or ending.endswith(turn_enders(tokenizer)) else []
    return tuple(dict.fromkeys([*ends, *([] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id])]))


def cut_pair(chosen: Encoded, rejected: Encoded, max_length: int) -> tuple[list[int], list[int], list[int]]:
    """Prompt, chosen and rejected ids of an encoded pair within the limit."""
    prompt = list(chosen.ids[: chosen.trained[0][0]])
    room = max(0, max_length - len(prompt))
    answers = [list(side.ids[side.trained[0][0] : side.trained[-1][1]])[:room] for side in (chosen, rejected)]
    return prompt[:max_length], answers[0], answers[1]


def tokenise(using: Renderer, examples: Iterable[Example], reads: ReadAs) -> TokenTable:
    """Rows as a table, uncut: ``pairs`` as their two sides, ``marks`` with their last answer trained, ``labels`` as
    their texts alone."""
    made = TableMaker()
    if reads == "labels":
        made.add(*encode_labelled(using.tokenizer, examples))
        return made.table()
    if reads != "pairs":
        made.add(*(using if reads == "turns" else using.of_last_answer()).encode_many(examples))
        return made.table()
    for example in examples:
        try:
            made.add(*using.pair(example))
        except DataError as error:
            made.add(RowProblem(row=example.row, code=error.code, text=error.message))
    return made.table()


def cut_rows(table: TokenTable, max_length: int, take: Callable[[TokenRow], object]) -> list[RowProblem]:
    """Calls ``take`` with each row to train within the limit; returns why others have nothing to learn there."""
    problems = []
    for item in table.items():
        kept = [row for row, _, _ in item.cut(max_length) if row.trained_tokens]
        for row in kept:
            take(row)
        if not item.trained:
            text = "nothing to learn: it holds no turn that is trained"
            problems.append(RowProblem(row=item.row, code="row.no_answer", text=text))
        elif not kept:
            text = f"nothing to learn within {max_length:,} tokens: the answer is cut away whole"
            problems.append(RowProblem(row=item.row, code="row.cut_away", text=text))
    return problems


def check_characters(messages: Iterable[Message], most: int) -> None:
    """Raises DataError where these turns are surely longer than ``most`` tokens, since tokenising a megabyte takes
    minutes."""
    count = sum(len(message.content) + len(message.tool_calls) for message in messages)
    if count > _CHARACTERS_A_TOKEN * most:
        raise DataError("question.long/characters", most=most, count=count)


def question_ids(tokenizer: Any, messages: tuple[Message, ...], choice: DataChoice, most: int) -> list[int]:
    """The conversation's token ids, ending where the answer begins: less than ``most``.

    Raises:
        DataError: the template refuses the conversation, or it is too long.
    """
    check_characters(messages, most)
    made = renderer(tokenizer, choice)
    text = question_text(made, messages, "" if choice.layout == "text" else "\n")
    ids: list[int] = tokenizer(text, add_special_tokens=made.choice.kind == "none")["input_ids"]
    if len(ids) >= most:  # no room for an answer
        raise DataError("question.long/tokens", most=most, count=len(ids))
    return ids


def question_text(using: Renderer, messages: Sequence[Message], behind: str = "\n") -> str:
    """The conversation as the model reads it, ending where the answer begins; without a template its texts in lines,
    with ``behind`` the last one. Raises DataError where the template refuses it."""
    turns = layout_turns(Example(row=1, messages=tuple(messages)), using.choice)
    if using.choice.kind == "none":
        return "\n".join(turn["content"] for turn in turns) + behind
    return using.ask(turns, generation=True)


@dataclass(frozen=True)
class ScoredText:
    """What is scored: the last question of a conversation, with a second text where sentences are compared, or the
    conversation's last answer."""

    messages: tuple[Message, ...]
    second: str = ""


def scored_ids(
    tokenizer: Any, asked: ScoredText, learning: LearningMethod, choice: DataChoice, max_length: int
) -> tuple[int, ...]:
    """The token ids of what is scored, laid out and cut as the method's rows are.

    Raises:
        DataError: there is no text or no answer, the template refuses the conversation, or nothing is left of the
            answer within ``max_length``.
    """
    if learning.labelled:
        text = next((turn.content for turn in reversed(asked.messages) if turn.role == "user"), "")
        return labelled_ids(tokenizer, (text, asked.second), max_length)
    if (last := asked.messages[-1]).role != "assistant" or not last.content:
        raise DataError("question.answer", role=f"a turn of {last.role}" if last.content else "an empty answer")
    check_characters(asked.messages, max_length)
    encoded = renderer(tokenizer, choice).of_last_answer().encoded(Example(row=1, messages=asked.messages))
    if not encoded.trained:
        raise DataError("data.template_answers/only_thoughts", name="last")
    prompt, answer, _ = cut_pair(encoded, encoded, max_length)
    if not answer:
        raise DataError("question.long/tokens", most=max_length, count=len(encoded.ids))
    return (*prompt, *answer)
