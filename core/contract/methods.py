"""METHODS: the training methods, a row each. What differs between them is a column here and a file in
``core/train/methods``; all other code reads the row and no method's name."""

from dataclasses import dataclass
from typing import Literal

Method = Literal["sft", "pretrain", "dpo"]
AskedMethod = Literal["auto", "sft", "pretrain", "dpo"]
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
    packs: bool = True
    """Whether rows of a step are packed without padding, as our fast layers need it."""
    own_loss: bool = True
    """Whether the loss is ours; else TRL's."""
    reference: bool = False
    """Whether the loss compares with the untrained model: one more forward pass a row."""
    usual_rate: float | None = None
    """The usual learning rate; None where it depends on the rows a step."""
    rate_below: float = 2.5
    """How many times lower than usual a learning rate may be without a warning."""
    measures: tuple[str, ...] = ()
    """Fields of ``Step`` and ``Evaluation`` that it measures beside the loss."""
    loss_of: tuple[str, ...] = ()
    """Settings that define the loss: where one differs, two losses cannot be compared."""

    def takes(self, layout: str) -> bool:
        """Whether it learns from rows of this layout; any may under ``auto``."""
        return not self.layouts or layout in ("auto", *self.layouts)

    @property
    def leaves_out(self) -> tuple[RowKind, ...]:
        """The kinds of rows that it cannot learn from, though another method can."""
        return (*(() if self.marked else (BAD,)), *((EQUAL,) if self.answers > 1 else ()))

    def reads(self, layout: str) -> ReadAs:
        """What a row of this layout is to it."""
        kinds: dict[ReadAs, bool] = {"pairs": self.answers > 1, "marks": self.marked, "labels": self.labelled}
        return next((kind for kind, has in kinds.items() if has and self.takes(layout)), "turns")


METHODS: dict[Method, LearningMethod] = {
    "sft": LearningMethod(title="SFT", reason="rows that are no pairs of answers"),
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
    "dpo": LearningMethod(
        title="DPO",
        reason="preference data",
        layouts=("preference",),
        wants="pairs of answers (chosen, rejected)",
        answers=2,
        packs=False,
        own_loss=False,
        reference=True,
        usual_rate=2e-5,
        rate_below=20,
        measures=("margin", "accuracy"),
        loss_of=("train.beta", "model.name", "model.revision", "model.quantization", "resume_from"),
    ),
}

MEASURES = tuple(dict.fromkeys(name for row in METHODS.values() for name in row.measures))
"""Of all methods, each once."""


def method_for(layout: str) -> Method:
    """The method that rows of this layout are trained with where nobody chose one."""
    return next((name for name, row in METHODS.items() if layout in row.layouts), DEFAULT_METHOD)
