"""KTO (Ethayarajh et al. 2024, arXiv:2402.01306): answers that are marked good or bad, one by one.

With r an answer's log-ratio to the reference and z₀ the optimizer batch's estimate of the divergence from it::

    kto                 w_good (1 - σ(β (r - z₀)))    w_bad (1 - σ(β (z₀ - r)))
    apo_zero_unpaired   w_good (1 - σ(β r))           w_bad σ(β r)                (D'Oosterlinck et al. 2024)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from core.train.methods.answers import Answers, Constants, Told
from core.train.step.rows import MarkedRows


@dataclass(frozen=True)
class KtoLoss:
    """``compares_kl`` is False for the loss without z₀."""

    beta: float
    weights: tuple[float, float]
    """Of good and of bad answers."""
    compares_kl: bool = True
    prompt_trained = False

    def __call__(self, answers: Answers, constants: Constants) -> Told:
        """Of marked answers."""
        assert answers.good is not None
        ratios, good = answers.ratios[:, 0], answers.good.bool()
        moved = constants.kl if self.compares_kl and constants.kl is not None else torch.zeros_like(ratios[:1])
        signs = torch.where(good, 1.0, -1.0)
        weights = torch.where(good, *self.weights)
        reward = (self.beta * ratios).detach()
        chosen = torch.where(good, reward, 0.0) * constants.good_share
        rejected = torch.where(good, 0.0, reward) * constants.bad_share
        measures = {
            "kl": moved.expand_as(ratios),
            "margin": chosen - rejected,
            "chosen_reward": chosen,
            "rejected_reward": rejected,
        }
        return Told(weights * (1 - torch.sigmoid(self.beta * signs * (ratios - moved))), measures)


def weights_of(rows: MarkedRows, asked: Sequence[float]) -> tuple[float, float]:
    """The weights of good and bad answers: as asked, else such that both weigh as much together, none below 1.

    The paper's section 4.2 wants the ratio of these sums between 1 and 4/3.
    """
    good, bad = rows.good_rows, len(rows) - rows.good_rows
    proposed = (max(1.0, bad / good), max(1.0, good / bad)) if good and bad else (1.0, 1.0)
    return (asked[0] or proposed[0], asked[1] or proposed[1])
