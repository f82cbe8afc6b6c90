"""METHODS: the training methods, a row each. What differs between them is a column here and a file in
``core/train/methods``; all other code reads the row and no method's name. Names, settings and formats are TRL's."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from core.contract.tasks import DEFAULT_TASK, TASKS, Task, TaskName

Method = Literal["sft", "pretrain", "dpo", "orpo", "simpo", "cpo", "kto", "reward", "classify"]
AskedMethod = Literal["auto", Method]
"""What a person may ask for: ``auto`` leaves it to the data."""
RowKind = Literal["row.kto_false", "row.equal_pair"]
"""Codes of rows that only some methods learn from."""
BAD: RowKind = "row.kto_false"
EQUAL: RowKind = "row.equal_pair"
ReadAs = Literal["turns", "pairs", "marks", "labels"]
"""What is trained of a row: its turns as the choice says, two answers to one prompt, its last answer, which has a mark,
or the label of its text."""
DEFAULT_METHOD: Method = "sft"
"""For rows that no other method claims, and while the data is not read."""
_BASE = ("model.name", "model.revision", "model.quantization", "resume_from")
"""What the reference model is: its log-probabilities are part of a loss that compares with it."""


@dataclass(frozen=True)
class LearningMethod:
    """One way of learning from rows."""

    title: str
    reason: str
    """Why it suits the data that it claims."""
    layouts: tuple[str, ...] = ()
    """The layouts that it claims under ``auto``; it learns from no others. Empty: from any."""
    wants: str = ""
    """What rows of its layouts hold, in words."""
    answers: int = 1
    """Answers of a row that are learned from: two are a pair, chosen and rejected."""
    marked: bool = False
    """Whether it learns from answers with a mark, the bad ones too; others leave answers marked bad out."""
    labelled: bool = False
    """Whether it learns which label a text has."""
    reference: bool = False
    """Whether the loss compares with the model as it was before the run: one more forward pass for each row, once."""
    forwards: int = 0
    """Further forward passes a row and epoch, without a backward pass."""
    rows_at_least: int = 1
    """Rows of an optimizer batch, of which the loss needs more than one."""
    losses: tuple[str, ...] = ()
    """Values of ``train.loss_type``, TRL's names; the first is the usual one."""
    smoothed: tuple[str, ...] = ()
    """Those of them that label smoothing belongs to."""
    settings: tuple[str, ...] = ()
    """Settings of its loss."""
    usual_beta: float = 0.1
    usual_rate: float | None = None
    """The usual learning rate; None where it depends on the rows a step."""
    rate_below: float = 2.5
    """How many times lower than usual a learning rate may be without a warning."""
    measures: tuple[str, ...] = ()
    """Fields of ``Step`` and ``Evaluation`` that it measures beside the loss."""
    best_by: tuple[str, ...] = ()
    """Those of RANKED by which its best checkpoint is found, the first that is measured; none: by the held-out loss, as
    where answers are learned from pairs: of a few held-out pairs accuracy moves in leaps, and of ORPO and CPO it says
    nothing of how well the good answers are given."""
    compared: tuple[str, ...] = ()
    """Further settings that define the loss."""
    term: str = ""
    """Its word in the glossary, where that is not its name."""
    gives: TaskName = DEFAULT_TASK
    """What the model gives, a row of TASKS."""
    encoders: bool = False
    """Whether encoders of the BERT kind can learn so, too."""

    @property
    def task(self) -> Task:
        """The row of what the model gives."""
        return TASKS[self.gives]

    def takes(self, layout: str) -> bool:
        """Whether it learns from rows of this layout; any may under ``auto``."""
        return not self.layouts or layout in ("auto", *self.layouts)

    @property
    def of_tokens(self) -> bool:
        """Whether its loss is a mean over tokens, in nats."""
        return self.answers == 1 and not self.marked and not self.labelled

    @property
    def leaves_out(self) -> tuple[RowKind, ...]:
        """The kinds of rows that it cannot learn from, though another method can."""
        return (*(() if self.marked else (BAD,)), *((EQUAL,) if self.answers > 1 else ()))

    def reads(self, layout: str) -> ReadAs:
        """What a row of this layout is to it."""
        kinds: dict[ReadAs, bool] = {"pairs": self.answers > 1, "marks": self.marked, "labels": self.labelled}
        return next((kind for kind, has in kinds.items() if has and self.takes(layout)), "turns")

    @property
    def loss_of(self) -> tuple[str, ...]:
        """Settings that define the loss: where one differs, two losses cannot be compared."""
        return (*self.settings, *self.compared)


_on_pairs = partial(
    LearningMethod,
    reason="preference data",
    layouts=("preference",),
    wants="pairs of answers (chosen, rejected)",
    answers=2,
    rate_below=20,
    measures=("margin", "accuracy", "chosen_reward", "rejected_reward"),
)
METHODS: dict[Method, LearningMethod] = {
    "sft": LearningMethod(title="SFT", reason="examples of good answers"),
    # The same loss over every token of texts: continued pretraining (Gururangan et al. 2020, arXiv:2004.10964).
    "pretrain": LearningMethod(
        title="Continued pretraining",
        reason="raw text",
        layouts=("text",),
        wants="texts (raw text)",
        usual_rate=1e-4,
        rate_below=20,
    ),
    # Rafailov et al. 2023, arXiv:2305.18290. The loss is one of differences to a reference: the base, or the adapter
    # that the run goes on from.
    "dpo": _on_pairs(
        title="DPO",
        reference=True,
        losses=("sigmoid", "hinge", "ipo", "robust", "apo_zero", "apo_down", "sigmoid_norm"),
        smoothed=("sigmoid", "robust"),
        settings=("train.beta", "train.loss_type", "train.label_smoothing", "train.rpo_alpha"),
        usual_rate=2e-5,
        compared=_BASE,
    ),
    # Hong et al. 2024, arXiv:2403.07691: SFT on the chosen answer, and the odds ratio to the rejected one.
    "orpo": _on_pairs(
        title="ORPO",
        settings=("train.beta",),
        usual_rate=5e-5,
    ),
    # Meng et al. 2024, arXiv:2405.14734: mean log-probabilities a token, and a margin that is to be reached.
    "simpo": _on_pairs(
        title="SimPO",
        settings=("train.beta", "train.simpo_gamma", "train.label_smoothing"),
        usual_beta=2.0,
        usual_rate=2e-5,
    ),
    # Xu et al. 2024, arXiv:2401.08417: DPO without a reference, and SFT on the chosen answer.
    "cpo": _on_pairs(
        title="CPO",
        losses=("sigmoid", "hinge", "ipo"),
        smoothed=("sigmoid",),
        settings=("train.beta", "train.loss_type", "train.label_smoothing", "train.cpo_alpha"),
        usual_rate=2e-5,
    ),
    # Ethayarajh et al. 2024, arXiv:2402.01306. Beside the reference's pass, both models read each prompt with another
    # row's answer: the batch's estimate of how far the model has moved.
    "kto": LearningMethod(
        title="KTO",
        reason="answers that are marked good or bad",
        layouts=("kto",),
        wants="answers with a mark, good or bad",
        marked=True,
        reference=True,
        forwards=2,
        rows_at_least=2,
        losses=("kto", "apo_zero_unpaired"),
        settings=("train.beta", "train.loss_type", "train.desirable_weight", "train.undesirable_weight"),
        usual_rate=2e-5,
        rate_below=20,
        measures=("kl", "margin", "chosen_reward", "rejected_reward"),
        compared=_BASE,
    ),
    # Bradley and Terry 1952, as in Ouyang et al. 2022, arXiv:2203.02155: a score for a whole answer, not an answer.
    "reward": _on_pairs(
        title="Reward model",
        settings=("train.center_rewards_coefficient",),
        best_by=("accuracy",),
        usual_rate=1e-4,
        term="reward-model",
        gives="sequence-classification",
    ),
    "classify": LearningMethod(
        title="Classification",
        reason="texts with labels",
        layouts=("classification",),
        wants="texts with a label",
        labelled=True,
        settings=("train.problem_type", "train.class_weights"),
        measures=("accuracy", "mean_error"),
        best_by=("accuracy", "mean_error"),
        usual_rate=1e-4,
        term="classification",
        gives="sequence-classification",
        encoders=True,
    ),
}

MEASURES = tuple(dict.fromkeys(name for row in METHODS.values() for name in row.measures))
"""Of all methods, each once."""
HELD_OUT_MEASURES = (*MEASURES, "macro_f1")
"""What evaluations have of them, and of their own."""
RANKED: dict[str, Callable[..., float]] = {"accuracy": max, "macro_f1": max, "mean_error": min}
"""Measures that say which of two models is better, and how the best of several is found."""
SHARES = frozenset(name for name, best in RANKED.items() if best is max)
"""Those of them that are shares, 0 to 1."""
SETTINGS = tuple(dict.fromkeys(name for row in METHODS.values() for name in row.settings))
"""Settings that belong to a method's loss, each once."""


def methods_for(layout: str) -> tuple[Method, ...]:
    """The methods between which rows of this layout leave the choice: those made for it, then those for any rows,
    without one that reads these rows as the former do and so learns the same."""
    made = [name for name, row in METHODS.items() if layout in row.layouts]
    read = {METHODS[name].reads(layout) for name in made}
    return (*made, *(name for name, row in METHODS.items() if not row.layouts and row.reads(layout) not in read))


def method_for(layout: str) -> Method:
    """The method that rows of this layout are trained with where nobody chose one."""
    return next((name for name, row in METHODS.items() if layout in row.layouts), DEFAULT_METHOD)
