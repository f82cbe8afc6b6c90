"""Messages between client and child of a probe: one JSON object a line over the child's stdin and stdout.

::

    client                                    child
    Setup                                 →
                                          ←   Said … Said
                                          ←   Probe, or a fault, and the child ends
    (stdin closes: cancelled)                 the child ends
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from core.contract.catalogue import ModelSpec
from core.contract.config import RunConfig
from core.machine.cards import CardSet

Stage = Literal["starting", "loading", "stepping"]


class _Word(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Setup(_Word):
    """What to measure: a config without automatic values, and what each row of its longest step computes."""

    config: RunConfig
    spec: ModelSpec
    lengths: tuple[int, ...]
    seconds: float
    home: str
    cards: CardSet = CardSet()


class Said(_Word):
    """A stage, with a text for people."""

    stage: Stage
    text: str = ""
