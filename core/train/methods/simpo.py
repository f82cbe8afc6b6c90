"""SimPO (Meng et al. 2024, arXiv:2405.14734). With p the mean log-probability a token of an answer::

loss = -log σ(β (p_c - p_r) - γ)
"""

from dataclasses import dataclass

from core.train.methods.answers import Answers, Constants, Told
from core.train.methods.dpo import lead, rewards, smoothed


@dataclass(frozen=True)
class SimpoLoss:
    """``gamma`` is the margin that is to be reached."""

    beta: float
    gamma: float
    smoothing: float = 0.0
    prompt_trained = False

    def __call__(self, answers: Answers, _constants: Constants) -> Told:
        """Of pairs."""
        mean = answers.by_token(answers.sums)
        return Told(smoothed(self.beta * lead(mean) - self.gamma, self.smoothing), rewards(self.beta, mean))
