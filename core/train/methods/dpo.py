"""DPO (Rafailov et al. 2023, arXiv:2305.18290) and the losses over the same log-ratios.

With r the log-ratios of answer and reference, c chosen and r rejected, and ``d = r_c - r_r``::

    sigmoid       -(1 - ε) log σ(β d) - ε log σ(-β d)                 ε: label smoothing
    hinge         max(0, 1 - β d)                                     Zhao et al. 2023, arXiv:2305.10425
    ipo           (r_c / n_c - r_r / n_r - 1 / 2β)²                   Azar et al. 2023, arXiv:2310.12036; n: tokens
    robust        ((1 - ε) · -log σ(β d) + ε log σ(-β d)) / (1 - 2ε)  Chowdhury et al. 2024, arXiv:2403.00409
    apo_zero      1 - σ(β r_c) + σ(β r_r)                             D'Oosterlinck et al. 2024, arXiv:2408.06266
    apo_down      σ(β r_c) + 1 - σ(β d)
    sigmoid_norm  -log σ(β (r_c / n_c - r_r / n_r))                   Lambert et al. 2024, arXiv:2411.15124

and, times ``rpo_alpha``, the chosen answers' own loss a token (Pang et al. 2024, arXiv:2404.19733).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.functional import logsigmoid

from core.train.methods.answers import Answers, Constants, Told


def smoothed(scores: torch.Tensor, smoothing: float) -> torch.Tensor:
    """``-log σ`` of scores, of which a share has the wrong sign."""
    return -(1 - smoothing) * logsigmoid(scores) - smoothing * logsigmoid(-scores)


def lead(scores: torch.Tensor) -> torch.Tensor:
    """``[R]``: by how much chosen answers lead, of scores ``[R, 2]``."""
    return scores[:, 0] - scores[:, 1]


LOSSES: dict[str, Callable[[torch.Tensor, torch.Tensor, float, float], torch.Tensor]] = {
    "sigmoid": lambda scores, _mean, beta, smoothing: smoothed(beta * lead(scores), smoothing),
    "hinge": lambda scores, _mean, beta, _smoothing: torch.relu(1 - beta * lead(scores)),
    "ipo": lambda _scores, mean, beta, _smoothing: (lead(mean) - 1 / (2 * beta)) ** 2,
    "robust": lambda scores, _mean, beta, smoothing: (
        (smoothing * logsigmoid(-beta * lead(scores)) - (1 - smoothing) * logsigmoid(beta * lead(scores)))
        / (1 - 2 * smoothing)
    ),
    "apo_zero": lambda scores, _mean, beta, _smoothing: (
        1 - torch.sigmoid(beta * scores[:, 0]) + torch.sigmoid(beta * scores[:, 1])
    ),
    "apo_down": lambda scores, _mean, beta, _smoothing: (
        torch.sigmoid(beta * scores[:, 0]) + 1 - torch.sigmoid(beta * lead(scores))
    ),
    "sigmoid_norm": lambda _scores, mean, beta, _smoothing: -logsigmoid(beta * lead(mean)),
}
"""From log-ratios ``[R, 2]``, these a token, beta and label smoothing to losses ``[R]``."""


def rewards(beta: float, scores: torch.Tensor) -> dict[str, torch.Tensor]:
    """What is measured of pairs with these scores ``[R, 2]``. A tie is half right: before training a model leads its
    own reference by nothing, and prefers neither answer."""
    chosen, rejected = (beta * scores).unbind(1)
    return {
        "margin": chosen - rejected,
        "accuracy": (chosen > rejected).float() + 0.5 * (chosen == rejected).float(),
        "chosen_reward": chosen,
        "rejected_reward": rejected,
    }


@dataclass(frozen=True)
class DpoLoss:
    """``kind`` is one of ``LOSSES``."""

    beta: float
    kind: str = "sigmoid"
    smoothing: float = 0.0
    sft: float = 0.0
    prompt_trained = False

    def __call__(self, answers: Answers, constants: Constants) -> Told:
        """Of pairs."""
        ratios = answers.ratios
        losses = LOSSES[self.kind](ratios, answers.by_token(ratios), self.beta, self.smoothing)
        if self.sft:
            losses = losses - self.sft * constants.sft_share * answers.sums[:, 0]
        return Told(losses, rewards(self.beta, ratios))
