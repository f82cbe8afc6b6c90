"""How many held-out questions a trained model answers word for word as their rows do."""

from typing import Any

import torch

from core.contract.config import DataChoice
from core.model.generation import Generator
from core.train.evaluate.sample import questions
from core.train.step.rows import TextRows


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
