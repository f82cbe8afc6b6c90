"""A question put to a running job: answered by the model without and with the adapter, in the middle of a step.

Greedy, so that both answers differ by what was learned and by nothing else.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from core.contract.commands import Command
from core.contract.events import Sample
from core.train.orders import Orders
from core.train.tell import Teller

__all__ = ["answer", "prompt_ids"]


class _Asked(StoppingCriteria):
    """Ends an answer early when the run is to leave."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    def __call__(self, input_ids: torch.Tensor, *_scores: Any, **_options: Any) -> Any:
        return torch.full((input_ids.shape[0],), self._orders.leaving, device=input_ids.device)


def answer(peft_model: Any, tokenizer: Any, command: Command, tell: Teller, orders: Orders, system: str = "") -> None:
    """Says one ``Sample`` a side; the model's mode is left as it was."""
    ids = prompt_ids(tokenizer, command.prompt, system).to(next(peft_model.parameters()).device)
    training = peft_model.training
    peft_model.eval()
    try:
        for side, adapter in (("base", peft_model.disable_adapter()), ("tuned", contextlib.nullcontext())):
            with torch.no_grad(), adapter:
                text = _generate(peft_model, tokenizer, ids, command.max_new_tokens, orders)
            tell.say(Sample(command_id=command.id, side=side, prompt=command.prompt, text=text))
    finally:
        peft_model.train(training)


def prompt_ids(tokenizer: Any, prompt: str, system: str = "") -> torch.Tensor:
    """``[1, T]``: the prompt under the tokenizer's chat template, or as it is where there is none."""
    if not tokenizer.chat_template:
        return _ids(tokenizer(prompt, return_tensors="pt"))
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return _ids(tokenizer(text, return_tensors="pt", add_special_tokens=False))


def _ids(encoded: Any) -> torch.Tensor:
    ids: torch.Tensor = encoded["input_ids"]
    return ids


def _generate(model: Any, tokenizer: Any, ids: torch.Tensor, max_new_tokens: int, orders: Orders) -> str:
    grown = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        use_cache=True,
        pad_token_id=tokenizer.pad_token_id,
        stopping_criteria=StoppingCriteriaList([_Asked(orders)]),
    )
    text: str = tokenizer.decode(grown[0, ids.shape[1] :], skip_special_tokens=True)
    return text
