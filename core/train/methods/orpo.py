"""ORPO (Hong et al. 2024, arXiv:2403.07691): SFT on prompt and chosen answer, and the odds ratio to the rejected one.

With p the mean log-probability a token of an answer::

    loss = nll(prompt, chosen) - β log σ(p_c - p_r - (log(1 - exp p_c) - log(1 - exp p_r)))
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import logsigmoid

from core.train.methods.answers import Answers, Constants, Told
from core.train.methods.dpo import rewards

_LEAST = 2.0**-24
"""Log-probabilities nearer to 0 are float32's rounding of 1."""


@dataclass(frozen=True)
class OrpoLoss:
    """As in TRL the SFT term counts the prompt's tokens too, in a mean over all tokens of the optimizer batch."""

    beta: float
    prompt_trained = True

    def __call__(self, answers: Answers, constants: Constants) -> Told:
        """Of pairs."""
        mean = answers.by_token(answers.sums)
        # A certain answer has the log-probability 0, and the odds of one would be infinite.
        sure = mean.clamp(max=-_LEAST)
        odds = sure - torch.log(-torch.expm1(sure))
        nll = -constants.sft_share * (answers.prompts[:, 0] + answers.sums[:, 0])
        return Told(nll - self.beta * logsigmoid(odds[:, 0] - odds[:, 1]), rewards(self.beta, mean))
