"""The lines between client and child: one JSON object each, over the child's stdin and stdout.

::

    client                                    child
    Setup                                 →
                                          ←   {"ready": true}   or a fault
    Ask                                   →
                                          ←   Piece … Piece(done=True)  for base, then for tuned; scores: for tuned
    {"cancel": id}                        →
    (stdin closes)                            the child ends
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from core.contract.config import DataChoice, ModelChoice
from core.contract.data import Message
from core.contract.methods import DEFAULT_METHOD, METHODS, LearningMethod, Method
from core.contract.tasks import DEFAULT_LEARNS, LearnsName
from core.machine.cards import CardSet

Side = Literal["base", "tuned"]
StopSequence = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setup(_Line):
    """What is loaded, once. ``trained`` is a checkpoint's folder of what was trained, or empty for the base alone;
    texts to be scored are cut at ``max_length`` tokens, as rows were."""

    folder: str
    model: ModelChoice
    data: DataChoice
    learns: LearnsName = DEFAULT_LEARNS
    trained: str = ""
    home: str
    cards: CardSet = CardSet()
    method: Method = DEFAULT_METHOD
    max_length: int = Field(2048, ge=1)

    @property
    def learning(self) -> LearningMethod:
        """The row of the method that trained."""
        return METHODS[self.method]


class Sampling(_Line):
    """How an answer is drawn, in the terms of transformers' ``generate``. Temperature 0 is greedy, whatever
    ``top_p`` and ``seed`` say.

    ``top_p``: of the likeliest tokens the fewest that together have this probability (nucleus sampling, Holtzman et
    al. 2019, arXiv:1904.09751). ``stop``: texts that end an answer and are no part of it.
    """

    max_new_tokens: int = Field(128, ge=1, le=8192)
    temperature: float = Field(0.0, ge=0.0, le=5.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    seed: int = Field(0, ge=0, le=2**63 - 1)
    stop: tuple[StopSequence, ...] = Field((), max_length=8)


class Ask(Sampling):
    """One question to both sides, or to those named.

    ``trained`` and ``data``: another checkpoint's adapter over the same base, and how its rows were laid out, in place
    of Setup's. Where scores are given, they are of the last user's turn (and a ``second`` text, of a pair of sentences)
    or, of a reward model, of the last turn, an assistant's.
    """

    id: str
    messages: tuple[Message, ...] = Field(min_length=1)
    second: str = ""
    sides: tuple[Side, ...] = Field(("base", "tuned"), min_length=1)
    trained: str = ""
    data: DataChoice | None = None


class Piece(_Line):
    """A further piece of one side's answer; ``done`` closes that side. ``scores``: names and values in the order of
    ``Plan.labels``, probabilities or numbers, which ``text`` says in a line."""

    id: str
    side: Side
    text: str = ""
    scores: tuple[tuple[str, float], ...] = ()
    done: bool = False
