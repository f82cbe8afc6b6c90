"""How a finished export is used, as its model card tells: each runtime with its lines, for this machine."""

import json
import re
import shlex
from itertools import takewhile
from pathlib import Path

from core.machine.disk import read_plain
from studio.pages.take_home.words import say

_CARD_BYTES = 1 << 20
_MOST = 20
_PART = re.compile(
    r"^## |^### (?P<title>.+)\n\n(?P<about>.*)\n\n(?P<fence>`{3,})(?P<language>\w+)\n(?P<code>(?:.*\n)*?)(?P=fence)$",
    re.M,
)
_PLAIN = re.compile(r"^```(?P<language>python)\n(?P<code>(?:.*\n)*?)```$", re.M)
"""The lines of a card that an earlier version wrote."""


def uses(export: Path) -> list[dict[str, str]]:
    """Title, about and code of each runtime; none where there is no card. Commands begin with the way into the
    folder."""
    try:
        card = read_plain(export / "README.md", _CARD_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    told = card.partition("\n## Use\n")[2] or card
    # To the next heading, unless a system prompt in a command holds that.
    parts = [part.groupdict() for part in takewhile(lambda part: part["title"], _PART.finditer(told))]
    parts = (
        parts or [{"title": say("home.python"), "about": "", **part.groupdict()} for part in _PLAIN.finditer(card)][:1]
    )
    return [
        {"title": part["title"], "about": part["about"], "code": _here(export, part["language"], part["code"].rstrip())}
        for part in parts[:_MOST]
    ]


def _here(export: Path, language: str, code: str) -> str:
    if language == "python":
        return code.replace('"this folder"', json.dumps(str(export), ensure_ascii=False))
    return f"cd {shlex.quote(str(export))}\n{code}"
