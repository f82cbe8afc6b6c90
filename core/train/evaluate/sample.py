"""A question put to a running job: answered by the model without and with the adapter, in the middle of a step.

Greedy, so that both answers differ by what was learned and by nothing else. A question that cannot be answered is said
to be so, and never ends the run.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from core.contract.commands import Command
from core.contract.config import DataChoice
from core.contract.data import Message
from core.contract.errors import first_line
from core.contract.events import Sample
from core.data.render.rendering import question_ids, stop_token_ids
from core.model.adapters import Trained
from core.model.faults import is_card_fault, is_named
from core.model.generation import context_of, ends_of
from core.train.channel.channel import Channel
from core.train.channel.command_queue import CommandQueue

_HEADERS = frozenset({"assistant", "model", "bot", "gpt"})


@dataclass(frozen=True)
class Laid:
    """How a run's rows are laid out, and the tokens of its longest: memory and time are planned for that much."""

    data: DataChoice = field(default_factory=DataChoice)
    longest: int = 2048


class StopWhen(StoppingCriteria):
    """Ends an answer early once ``asked()``."""

    def __init__(self, asked: Callable[[], bool]) -> None:
        self._asked = asked

    def __call__(self, input_ids: torch.Tensor, *_scores: Any, **_options: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._asked(), device=input_ids.device)


def answer(trained: Trained, tokenizer: Any, laid: Laid, channel: Channel, command: Command) -> None:
    """Says one ``Sample`` a side, an empty one where there is no answer; the model's mode is left as it was.

    Args:
        laid: how the run's rows were laid out, as the question is too, and how long they may be.

    Raises:
        RuntimeError: the card faulted, and this process cannot go on.
    """
    model = trained.model
    training, failed = model.training, False
    model.eval()
    try:
        for side in ("base", "tuned"):
            text = ""
            try:
                if not failed:
                    turns = (Message(role="user", content=command.prompt),)
                    most = min(context_of(model), laid.longest)
                    asked = (list(question_ids(tokenizer, turns, laid.data, most)), command.max_new_tokens)
                    text = continued(trained, tokenizer, asked, channel.commands, laid.data, side)
            except Exception as error:  # whatever it is, a question must not end a run
                if is_card_fault(error):
                    raise
                failed = True
                said = f"The question could not be answered: {fault_line(error)}."
                channel.reporter.note("sample.failed", said, "Ask another one.")
            channel.reporter.say(Sample(command_id=command.id, side=side, prompt=command.prompt, text=text, done=True))
    finally:
        model.train(training)


def continued(
    trained: Trained, tokenizer: Any, asked: tuple[list[int], int], commands: CommandQueue, data: DataChoice, side: str
) -> str:
    """What the model says after these tokens, so many at most, greedily; cut short when the run is to leave."""
    model = trained.model
    stops = list(dict.fromkeys((*stop_token_ids(tokenizer, data), *ends_of(model))))
    ids = torch.tensor([asked[0]], dtype=torch.long, device=next(model.parameters()).device)
    with torch.no_grad(), trained.base() if side == "base" else contextlib.nullcontext():
        grown = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max(1, min(asked[1], context_of(model) - ids.shape[1])),
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            use_cache=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=stops or None,
            stopping_criteria=StoppingCriteriaList([StopWhen(lambda: commands.leaving)]),
        )
    text: str = tokenizer.decode(grown[0, ids.shape[1] :], skip_special_tokens=True)
    return text


def readable(tokenizer: Any, ids: list[int]) -> str:
    """Tokens of a conversation as text for a person: a blank line where special tokens part what was said.

    Special tokens themselves are not shown; nor is the header that only names who is to answer.
    """
    special = set(tokenizer.all_special_ids) | {
        number for number, token in tokenizer.added_tokens_decoder.items() if token.special
    }
    parts = [tokenizer.decode(list(run)).strip() for said, run in groupby(ids, lambda one: one not in special) if said]
    parts = [part for part in parts if part]
    if len(parts) > 1 and parts[-1] in _HEADERS:
        parts.pop()
    return "\n\n".join(parts)


def fault_line(error: Exception) -> str:
    """A fault in one line."""
    if is_named(error, "OutOfMemoryError"):
        return "the card's memory ran out"
    return first_line(error).rstrip(".")
