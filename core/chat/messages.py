"""The lines between client and child: one JSON object each, over the child's stdin and stdout.

::

    client                                    child
    Setup                                 →
                                          ←   {"ready": true}   or a fault
    Ask                                   →
                                          ←   Piece … Piece(done=True)  for base, then for tuned
    {"cancel": id}                        →
    (stdin closes)                            the child ends
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core.contract.config import DataChoice, ModelChoice
from core.contract.data import Message
from core.contract.tasks import DEFAULT_LEARNS, LearnsName
from core.machine.cards import CardSet

Side = Literal["base", "tuned"]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setup(_Line):
    """What is loaded, once. ``trained`` is a checkpoint's folder of what was trained, or empty for the base alone."""

    folder: str
    model: ModelChoice
    data: DataChoice
    learns: LearnsName = DEFAULT_LEARNS
    trained: str = ""
    home: str
    cards: CardSet = CardSet()


class Ask(_Line):
    """One question to both sides, or to those named. Temperature 0 is greedy."""

    id: str
    messages: tuple[Message, ...] = Field(min_length=1)
    max_new_tokens: int = Field(128, ge=1, le=8192)
    temperature: float = Field(0.0, ge=0.0, le=5.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    seed: int = 0
    sides: tuple[Side, ...] = Field(("base", "tuned"), min_length=1)


class Piece(_Line):
    """A further piece of one side's answer; ``done`` closes that side."""

    id: str
    side: Side
    text: str = ""
    done: bool = False
