"""What may be asked of a running job: one line each in ``commands.jsonl``.

A command carries an id and the attempt that it is meant for; what was acknowledged or meant for an earlier attempt is
never obeyed again.
"""

import json
import uuid
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Verb = Literal["pause", "save", "stop", "stop_now", "sample"]


class Command(BaseModel):
    """``stop`` saves first; ``stop_now`` is the supervisor's and ends the tree; ``sample`` carries a question.

    Going on after a pause is no command, since no process listens then: ``core.runs`` puts the job in the queue.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    verb: Verb
    attempt: int = 0
    at: float = 0.0
    prompt: str = ""
    max_new_tokens: int = 128


def parse_command(line: str | bytes) -> Command | None:
    """One line of the mailbox; None where it is no command of ours."""
    try:
        return Command.model_validate(json.loads(line))
    except (ValueError, ValidationError):
        return None
