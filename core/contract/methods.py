"""METHODS: the ways of learning, a row each. What differs between them is a column here and a file in
``core/train/methods``; window, planner, training, comparison and command line read the row and no method's name.
"""

from dataclasses import dataclass
from typing import Literal

Method = Literal["sft", "dpo"]
AskedMethod = Literal["auto", "sft", "dpo"]
"""What a person may ask for: ``auto`` leaves it to the data."""
DEFAULT_METHOD: Method = "sft"
"""What learns from rows that no other method claims, and what stands as long as nobody has read the data."""


@dataclass(frozen=True)
class LearningMethod:
    """One way of learning from rows."""

    title: str
    reason: str
    """Why it suits the data that it claims."""
    layouts: tuple[str, ...] = ()
    """The layouts that it claims where the choice is left to the data; it learns from no others. Empty: from any."""
    wants: str = ""
    """What rows of its layouts hold, in words."""
    answers: int = 1
    """Answers of a row that are learned from: two are a pair, chosen and rejected, of which each brings its tokens."""
    packs: bool = True
    """Whether rows of a step lie side by side without padding, and our fast layers take them."""
    own_loss: bool = True
    """Whether the loss is ours, which reads the head itself where it can; else TRL's."""
    reference: bool = False
    """Whether the loss compares with the model without what is trained: one more forward pass a row."""
    usual_rate: float | None = None
    """The learning rate that is usual, whatever the rows a step; None where it goes with them."""
    rate_below: float = 2.5
    """How many times lower than usual a learning rate may be before a word is said."""
    measures: tuple[str, ...] = ()
    """What is measured beside the loss, by the fields of ``Step`` and ``Evaluation`` that carry it."""
    loss_of: tuple[str, ...] = ()
    """Settings that say what the loss is, beside the rows: where one differs, two losses are different quantities."""

    def takes(self, layout: str) -> bool:
        """Whether it learns from rows of this layout, as far as that is known (``auto`` is not)."""
        return not self.layouts or layout in ("auto", *self.layouts)


METHODS: dict[Method, LearningMethod] = {
    "sft": LearningMethod(title="SFT", reason="rows that are no pairs of answers"),
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
"""All of them, each once."""


def method_for(layout: str) -> Method:
    """The method that rows of this layout are trained with where nobody chose one."""
    return next((name for name, row in METHODS.items() if layout in row.layouts), DEFAULT_METHOD)
