"""What an arithmetic does to a trained model: how far it turns the gradients of each layer in one micro-batch, and how
many held-out questions it answers word for word as their rows do."""

import re
from typing import Any

import torch

from core.contract.config import DataChoice
from core.kernels.eightbit.arithmetics import ARITHMETICS, SIXTEEN, Arithmetic
from core.model.generation import Generator
from core.model.layers.peft_bnb import base_causal_model
from core.train.evaluate.sample import questions
from core.train.step.rows import TextRows

_LAYER = re.compile(r"\.layers\.(\d+)\.")


def cosines(trainer: Any, peft_model: Any, arithmetic: str) -> list[float]:
    """Of the adapters' gradients, a layer each, as the model stands now; changes nothing but the mode, to training."""
    peft_model.train()
    layers = [layer for layer in base_causal_model(peft_model).base_model.layers if hasattr(layer, "arithmetic")]
    chosen = trainer.cut(range(min(len(trainer.rows), trainer.sampler.rows_per_step)))[0]
    exact, found = (_gradients(trainer, layers, chosen, one) for one in (SIXTEEN, ARITHMETICS[arithmetic]))
    return [
        round(float(torch.cosine_similarity(exact[number].double(), found[number].double(), dim=0)), 6)
        for number in sorted(exact)
    ]


def right_answers(subject: Any, rows: TextRows) -> dict[str, int]:
    """Asks every row greedily, in 16 bits as all answers are.

    Args:
        subject: a model with its tokenizer, as an attempt trains it.
        rows: question and answer, ids ``[T]``; only the answer, its end token included, has labels.

    Returns:
        asked: the rows that were asked; right: those whose answer is the row's, token by token.
    """
    model = subject.trainer.trained.model
    generator, device = Generator(model, subject.tokenizer, DataChoice()), next(model.parameters()).device
    training, right, asked = model.training, 0, list(questions(rows, len(rows)))
    model.eval()
    try:
        with torch.no_grad():
            for question in asked:
                ids = torch.tensor([question.prompt], dtype=torch.long, device=device)
                grown = generator.generate(ids, len(question.right), lambda: False)[0, ids.shape[1] :]
                right += grown.tolist() == list(question.right)
    finally:
        model.train(training)
    return {"asked": len(asked), "right": right}


def _gradients(trainer: Any, layers: list[Any], chosen: list[int], arithmetic: Arithmetic) -> dict[int, torch.Tensor]:
    """Every layer's gradients in a row."""
    before = [layer.arithmetic for layer in layers]
    _compute_in(layers, [arithmetic] * len(layers))
    named = [(int(at[1]), parameter) for name, parameter in trainer.trained.named if (at := _LAYER.search(name))]
    try:
        loss = trainer.pass_loss(trainer.model, trainer.rows, chosen)
        gradients = torch.autograd.grad(loss, [parameter for _, parameter in named])
    finally:
        _compute_in(layers, before)
    parts: dict[int, list[torch.Tensor]] = {}
    for (number, _), gradient in zip(named, gradients, strict=True):
        parts.setdefault(number, []).append(gradient.detach().flatten().float())
    return {number: torch.cat(some) for number, some in parts.items()}


def _compute_in(layers: list[Any], arithmetics: list[Arithmetic]) -> None:
    for layer, arithmetic in zip(layers, arithmetics, strict=True):
        layer.arithmetic = arithmetic
        layer.parts.clear()  # made for the one before
