"""What may be asked of a running job, a line each in ``commands.jsonl``. A command that was acknowledged, or is meant
for an earlier attempt, is not obeyed again."""

import json
import uuid
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Verb = Literal["pause", "save", "stop", "stop_now", "sample"]


class Command(BaseModel):
    """``stop`` saves first; ``stop_now`` is for the supervisor, which ends the process tree; ``sample`` carries a
    question. Resuming is no command, since no process listens then: ``core.runs`` queues the job again."""

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
