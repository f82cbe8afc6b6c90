"""A chat template as Ollama's Go template, found by looking at what the Jinja one writes.

A conversation of marked texts is rendered, and what stands between the marks are the pieces of the template:

    begins QUESTION answer ANSWER again QUESTION ends
    system_begins SYSTEM system_ends QUESTION …     with a system prompt; or, ``late``, right before the last question

That such pieces are all there is to a template is a claim, so it is checked on fifty conversations; where it does not
hold there is no Go template. Ollama renders with ``text/template`` of Go, on ``.System`` and ``.Messages``.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.contract.errors import DataError
from core.data.render.template import turn_of
from core.export.guides.conversations import Turn, conversations

Write = Callable[[Sequence[Turn]], str]
"""Renders turns that end in a question, through the place where the answer begins, without the start token; raises
DataError where the template refuses them."""
_SYSTEM, _FIRST, _ANSWER, _SECOND = "Xsystem0Q", "Xfirst1Q", "Xanswer2Q", "Xsecond3Q"


@dataclass(frozen=True)
class Pieces:
    """What a template writes around the texts of a conversation."""

    begins: str
    answer: str
    again: str
    ends: str
    system_begins: str
    system_ends: str
    late: bool = False
    """The system prompt stands before the last question instead of the first."""

    def render(self, turns: Sequence[Turn]) -> str:
        """What the template writes for questions and answers in turn, the first behind a system prompt or none."""
        system = turns[0]["content"] if turns[0]["role"] == "system" else ""
        rest = turns[1:] if system else turns
        shown = f"{self.system_begins}{system}{self.system_ends}"
        text = shown if system and not self.late else self.begins
        for number, turn in enumerate(rest):
            last = number == len(rest) - 1
            text += shown if system and self.late and last else ""
            behind = (self.ends if last else self.answer) if turn["role"] == "user" else self.again
            text += turn["content"] + behind
        return text

    def go(self) -> str:
        """The same as a Go template for Ollama. An answer that comes last is to be gone on with, so nothing ends it;
        one that comes first, since Ollama drops the oldest turns of a long chat, stands behind an empty question."""
        system = f"{_plain(self.system_begins)}{{{{ $.System }}}}{_plain(self.system_ends)}"
        head, before = _either(".System", system, _plain(self.begins)), ""
        if self.late:
            head, before = _plain(self.begins), _either("and $.System $last", system)
        ends, answer, again = (_plain(piece) for piece in (self.ends, self.answer, self.again))
        return (
            head
            + "{{ $asked := false }}{{ range $i, $turn := .Messages }}{{ $last := eq (len (slice $.Messages $i)) 1 }}"
            + '{{ if eq $turn.Role "user" }}{{ $asked = true }}'
            + f"{before}{{{{ $turn.Content }}}}{_either('$last', ends, answer)}"
            + '{{ else if eq $turn.Role "assistant" }}'
            + f"{_either('not $asked', answer)}{{{{ $asked = false }}}}"
            + f"{{{{ $turn.Content }}}}{_either('not $last', again)}"
            + "{{ end }}{{ end }}"
        )


def pieces_of(write: Write) -> Pieces | None:
    """The pieces of a template; None where it is more than such pieces, which fifty conversations decide."""
    asked = [turn_of("user", _FIRST), turn_of("assistant", _ANSWER), turn_of("user", _SECOND)]
    try:
        plain = _between(write(asked), (_FIRST, _ANSWER, _SECOND))
        told = write([turn_of("system", _SYSTEM), *asked])
        early = _between(told, (_SYSTEM, _FIRST, _ANSWER, _SECOND))
        late = _between(told, (_FIRST, _ANSWER, _SYSTEM, _SECOND))
        if plain is None or (early is None and late is None):
            return None
        begins, answer, again, ends = plain
        if early is not None:
            made = Pieces(begins, answer, again, ends, early[0], early[1])
        else:
            assert late is not None
            made = Pieces(begins, answer, again, ends, late[2].removeprefix(again), late[3], late=True)
        return made if all(made.render(turns) == write(turns) for turns in conversations()) else None
    except DataError:
        return None


def cuts_blanks(write: Write) -> bool:
    """Whether a template cuts blanks off the ends of a question, which a Go template cannot."""
    try:
        return f"\n{_FIRST}  " not in write([turn_of("user", f"\n{_FIRST}  ")])
    except DataError:
        return False


def _between(text: str, marks: Sequence[str]) -> list[str] | None:
    """What stands before, between and behind these marks; None where one is missing, repeated or elsewhere."""
    parts, rest = [], text
    for mark in marks:
        before, found, rest = rest.partition(mark)
        if not found or any(other in before for other in marks):
            return None
        parts.append(before)
    return None if any(mark in rest for mark in marks) else [*parts, rest]


def _either(asked: str, then: str, other: str = "") -> str:
    """``then`` where the Go condition holds, else ``other``."""
    if then == other:
        return then
    return f"{{{{ if {asked} }}}}{then}" + (f"{{{{ else }}}}{other}" if other else "") + "{{ end }}"


def _plain(text: str) -> str:
    """Text as part of a Go template between Modelfile's triple quotes; as a quoted string where it could be read as
    anything else."""
    risky = any(sign in text for sign in ("{{", '"""', "\r")) or '"' in (text[:1], text[-1:])
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}" if risky else text
