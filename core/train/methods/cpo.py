"""CPO (Xu et al. 2024, arXiv:2401.08417): DPO's loss without a reference, and SFT on the chosen answer.

With s the log-probabilities of answers, over their tokens for ``ipo``::

    loss = L(β, s_c - s_r) + cpo_alpha · nll(chosen)          L: a loss of ``core.train.methods.dpo``
"""

from dataclasses import dataclass

from core.train.methods.answers import Answers, Constants, Told
from core.train.methods.dpo import LOSSES, rewards


@dataclass(frozen=True)
class CpoLoss:
    """``kind`` is one of DPO's ``LOSSES`` that need no reference."""

    beta: float
    kind: str = "sigmoid"
    smoothing: float = 0.0
    sft: float = 1.0
    prompt_trained = False

    def __call__(self, answers: Answers, constants: Constants) -> Told:
        """Of pairs."""
        sums, mean = answers.sums, answers.by_token(answers.sums)
        losses = LOSSES[self.kind](sums, mean, self.beta, self.smoothing)
        nll = -constants.sft_share * sums[:, 0]
        return Told(losses + self.sft * nll, rewards(self.beta, mean if self.kind == "ipo" else sums))
