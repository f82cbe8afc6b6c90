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

Ratios = tuple[torch.Tensor, torch.Tensor]
"""Of chosen and rejected answers, ``[R]`` each."""


def smoothed(scores: torch.Tensor, smoothing: float) -> torch.Tensor:
    """``-log σ`` of scores, of which a share has the wrong sign."""
    return -(1 - smoothing) * logsigmoid(scores) - smoothing * logsigmoid(-scores)


def _robust(scores: torch.Tensor, smoothing: float) -> torch.Tensor:
    return (smoothing * logsigmoid(-scores) - (1 - smoothing) * logsigmoid(scores)) / (1 - 2 * smoothing)


def _difference(ratios: Ratios) -> torch.Tensor:
    return ratios[0] - ratios[1]


LOSSES: dict[str, Callable[[Ratios, Ratios, float, float], torch.Tensor]] = {
    "sigmoid": lambda ratios, _mean, beta, smoothing: smoothed(beta * _difference(ratios), smoothing),
    "hinge": lambda ratios, _mean, beta, _smoothing: torch.relu(1 - beta * _difference(ratios)),
    "ipo": lambda _ratios, mean, beta, _smoothing: (_difference(mean) - 1 / (2 * beta)) ** 2,
    "robust": lambda ratios, _mean, beta, smoothing: _robust(beta * _difference(ratios), smoothing),
    "apo_zero": lambda ratios, _mean, beta, _smoothing: (
        1 - torch.sigmoid(beta * ratios[0]) + torch.sigmoid(beta * ratios[1])
    ),
    "apo_down": lambda ratios, _mean, beta, _smoothing: (
        torch.sigmoid(beta * ratios[0]) + 1 - torch.sigmoid(beta * _difference(ratios))
    ),
    "sigmoid_norm": lambda _ratios, mean, beta, _smoothing: -logsigmoid(beta * _difference(mean)),
}
"""From log-ratios, these a token, beta and label smoothing to losses ``[R]``."""


def rewards(beta: float, scores: torch.Tensor) -> dict[str, torch.Tensor]:
    """What is measured of pairs with these scores ``[R, 2]``."""
    chosen, rejected = (beta * scores).unbind(1)
    return {
        "margin": chosen - rejected,
        "accuracy": (chosen > rejected).float(),
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
        ratios, mean = answers.ratios, answers.ratios / answers.tokens.clamp(min=1)
        losses = LOSSES[self.kind]((ratios[:, 0], ratios[:, 1]), (mean[:, 0], mean[:, 1]), self.beta, self.smoothing)
        if self.sft:
            losses = losses - self.sft * constants.sft_share * answers.sums[:, 0]
        return Told(losses, rewards(self.beta, ratios))
