"""How long a question to a model may be: what it can look back on, and beside a run no more than the run's own rows.

Tokenising a megabyte and reading it takes minutes in which a run stands still. So characters are counted before there
are tokens, and tokens before the model sees them. Light: the door asks too.
"""

from __future__ import annotations

from collections.abc import Iterable

from core.contract.data import Message
from core.contract.errors import DataError

__all__ = ["check_characters", "check_tokens"]

_CHARACTERS_A_TOKEN = 16
"""Four as a rule; code with much white space has more."""
_HINT = "Ask a shorter one."


def check_characters(messages: Iterable[Message], most: int) -> None:
    """Raises DataError where these turns cannot be ``most`` tokens, whatever the vocabulary."""
    count = sum(len(message.content) + len(message.tool_calls) for message in messages)
    if count > _CHARACTERS_A_TOKEN * most:
        raise DataError(
            "question.long", f"Expected a question of at most {most:,} tokens here, found {count:,} characters.", _HINT
        )


def check_tokens(count: int, most: int) -> None:
    """Raises DataError for more tokens than leave room for an answer."""
    if count >= most:
        raise DataError(
            "question.long", f"Expected a question of less than {most:,} tokens here, found {count:,}.", _HINT
        )
