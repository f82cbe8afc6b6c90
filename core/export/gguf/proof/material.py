"""What a GGUF file is tried on: texts with the ids that transformers gives them, prompts, and rows of the run.

texts     200: the run's own rows, conversations under its template, and odd texts as questions
prompts   20: rows without their last answer
held out  the run's held-out rows, with the tokens that count
seen      rows of the data that are not held out, for the importance matrix
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.contract.config import RunConfig
from core.contract.data import Example
from core.data.render.renderer import renderer
from core.data.tokens.table import Encoded
from core.export.guides.conversations import conversations
from core.export.guides.talk import Talk
from core.export.parts import examples_of
from core.runs.folder.held_out_rows import kept_draw

TEXTS, PROMPTS, ROWS, SEEN = 200, 20, 64, 256
_PROMPT_TOKENS, _ROW_TOKENS = 64, 512
ODD_TEXTS = (
    "I'll say it's 3.14159 or 1,234,567; WE'RE at 50%!",
    "def f(x):\n\treturn {'a': x**2}\n\n\n# done",
    "  two  blanks ",
    "\ttab\n\n\nlines\r\nend",
    "naïve café — “quotes” … €5 ½",
    "Привет, как дела?",
    "日本語のテキストと漢字。",
    "한국어 문장입니다",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902",
    "\U0001f642\U0001f44d\U0001f3fd\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "https://example.org/a?b=c&d=%20#e",
    "<b>bold</b> &amp; [x](y)",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "ÀÉÎÕÜ ß Ⅳ",
    "x=1;y=-2.5e-3",
    "CamelCaseAndsnake_case",
    "''\"\"``",
    "0 00 000 0000 00000",
    "\\n \\t \\\\",
)


@dataclass(frozen=True)
class Text:
    """A text and its ids; ``special``: with what a tokenizer adds at the ends."""

    text: str
    ids: tuple[int, ...]
    special: bool = False


@dataclass(frozen=True)
class Row:
    """Ids of a row, and the ranges of tokens that count."""

    ids: tuple[int, ...]
    trained: tuple[tuple[int, int], ...]

    def cut(self, most: int) -> Row:
        """The row within ``most`` tokens."""
        ranges = tuple((start, min(stop, most)) for start, stop in self.trained if start < most)
        return Row(self.ids[:most], ranges)

    @property
    def counted(self) -> int:
        """How many tokens count; the first of a row is never one."""
        return sum(stop - max(start, 1) for start, stop in self.trained if stop > max(start, 1))


@dataclass(frozen=True)
class Material:
    """See the module."""

    texts: tuple[Text, ...]
    prompts: tuple[tuple[int, ...], ...]
    held_out: tuple[Row, ...]
    seen: tuple[Row, ...]


def material_of(run: Path, config: RunConfig, talk: Talk) -> Material:
    """Of a run's data as it is now; without rows where the file is gone."""
    draw = kept_draw(run)
    apart = set(draw.numbers if draw else ())
    held, seen = _sought(examples_of(config), apart)
    encoded_held, encoded_seen = _encoded(held, talk, config), _encoded(seen, talk, config)
    rows = [row.cut(_ROW_TOKENS) for row in map(_row, encoded_held)]
    known = [*encoded_held, *encoded_seen]
    asked = [_asked(talk, turns) for turns in conversations()]
    texts = [*(_text(row) for row in known[: TEXTS // 2]), *asked]
    texts += [_asked(talk, [{"role": "user", "content": odd}]) for odd in ODD_TEXTS]
    texts += [_asked(talk, [{"role": "user", "content": f"{one} {other}"}]) for one in ODD_TEXTS for other in ODD_TEXTS]
    prompts = [_prompt(row) for row in known]
    prompts = [prompt for prompt in prompts if prompt] + [text.ids[-_PROMPT_TOKENS:] for text in asked]
    return Material(
        tuple(texts[:TEXTS]),
        tuple(prompts[:PROMPTS]),
        tuple(row for row in rows if row.counted),
        tuple(_row(row).cut(_ROW_TOKENS) for row in encoded_seen),
    )


def within(rows: Sequence[Row], tokens: int) -> tuple[Row, ...]:
    """The first rows that fit into so many tokens; of the first one, as much as does."""
    kept: list[Row] = []
    for row in rows:
        row = row.cut(tokens)
        tokens -= len(row.ids)
        if not row.counted or (kept and tokens < 0):
            break
        kept.append(row)
    return tuple(kept)


def _sought(examples: Iterable[Example], apart: set[int]) -> tuple[list[Example], list[Example]]:
    """Held-out rows and others. Of a large file the held-out ones are few and far between."""
    held: list[Example] = []
    seen: list[Example] = []
    for example in examples:
        found, most = (held, min(ROWS, len(apart))) if example.row in apart else (seen, SEEN)
        if len(found) < most:
            found.append(example)
        if len(seen) == SEEN and len(held) == min(ROWS, len(apart)):
            break
    return held, seen


def _encoded(examples: Sequence[Example], talk: Talk, config: RunConfig) -> list[Encoded]:
    made = renderer(talk.tokenizer, config.data).encode_many(examples)
    return [row for row in made if isinstance(row, Encoded) and row.ids]


def _row(row: Encoded) -> Row:
    return Row(row.ids, row.trained)


def _text(row: Encoded) -> Text:
    """A row as it was tokenised, without an end token that was put behind it."""
    return Text(row.text, row.ids[: len(row.ids) - row.ended], bool(row.bos))


def _asked(talk: Talk, turns: Sequence[dict[str, str]]) -> Text:
    """A conversation as it is asked; a start token that the template leaves out is left out here as well."""
    text = talk.write(turns)
    return Text(text, tuple(talk.tokenizer(text, add_special_tokens=False).input_ids))


def _prompt(row: Encoded) -> tuple[int, ...]:
    """The row up to its last answer; half of one that is answer from its beginning."""
    start = row.trained[-1][0] if row.trained else 0
    return row.ids[: start or len(row.ids) // 2][-_PROMPT_TOKENS:]
