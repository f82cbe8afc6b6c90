"""Greedy answers of both sides to prompts of held-out rows, and what the person's checks say of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from core.model.generation import Generator, context_of
from core.model.scores import Scored, score
from core.report.measure.budget import Slot
from core.report.measure.subject import Subject
from core.report.schema import Answers, AnswersPart
from core.train.evaluate.sample import readable
from core.train.step.rows import Rows

PROMPTS = 20
FEWEST_TOKENS, MOST_TOKENS = 32, 256
"""Bounds of what an answer may have: a quarter more than the longest right one."""
AT_LEAST = 8
"""Prompts that answers are kept short for."""
_TRIED_TOKENS = 8
TOGETHER = 4
"""Answers before the sides change where every weight was trained."""
_CONTINUED = 128
"""Most tokens of a raw text that its continuation is asked for."""
_HALF = 0.5
_SHOWN = 8_000


@dataclass(frozen=True)
class Asked:
    """A prompt's tokens and those of the row's own answer."""

    place: int
    prompt: list[int]
    right: list[int]


@dataclass(frozen=True)
class Given:
    """An answer's tokens and text; ``cut``: it was not ended by the model."""

    ids: tuple[int, ...]
    text: str
    cut: bool
    scores: str = ""


@dataclass(frozen=True)
class Reply:
    """What both sides answered to one prompt."""

    asked: Asked
    after: Given
    before: Given | None


def prompts(subject: Subject, rows: Rows, most: int, least_right: int = 0) -> list[Asked]:
    """Rows with a prompt, drawn; of a raw text its beginning. Bad answers are no reference, so their rows come last;
    before them prompts longer than the run's tiles: a prompt is computed whole, and may not fit.

    Args:
        least_right: fewest tokens of the row's own answer.
    """
    whole, long, tile = list[Asked](), list[Asked](), subject.config.train.tile_tokens
    for place in sorted(subject.drawn(len(rows)), key=lambda place: not rows.good(place)):
        prompt, right = rows.question(place)
        if len(prompt) < 2 and not subject.scores:  # all of it is learned: raw text
            half = min(_CONTINUED, int(_HALF * len(right)))
            prompt, right = [*prompt, *right[:half]], right[half:]
        if len(prompt) > 1 and len(right) >= least_right:
            group = long if 0 < tile < len(prompt) else whole
            if len(group) < most:
                group.append(Asked(place, prompt, right))
        if len(whole) == most:
            break
    return sorted([*whole, *long], key=lambda one: not rows.good(one.place))[:most]


def replies(subject: Subject, asked: Sequence[Asked], most_tokens: int, slot: Slot, what: str) -> list[Reply]:
    """Both sides' answers while there is time."""
    generator = Generator(subject.model, subject.tokenizer, subject.config.data)
    found: list[Reply] = []
    subject.tell.stage("measuring", what, 0, len(asked), "prompts")

    def measure(group: Sequence[Asked]) -> list[Given | None]:
        return [_given(subject, generator, each, most_tokens) for each in group]

    for one in subject.paired([[each] for each in asked], measure, slot, TOGETHER):
        found.append(Reply(one.item, one.after, one.before))
        subject.tell.stage("measuring", what, len(found), len(asked), "prompts")
    return found


def _given(subject: Subject, generator: Generator, asked: Asked, most_tokens: int) -> Given | None:
    if subject.trained.outputs:
        scored = score(subject.model, [*asked.prompt, *asked.right], subject.trained.outputs, subject.dtype)
        return Given((), _label(scored), False, scored.text)
    if len(asked.prompt) >= context_of(subject.model):
        return None

    def safe_point() -> bool:
        subject.safe_point()
        return False

    ids = torch.tensor([asked.prompt], dtype=torch.long, device=subject.device)
    grown = generator.generate(ids, most_tokens, safe_point)[0, len(asked.prompt) :].tolist()
    text: str = subject.tokenizer.decode(grown, skip_special_tokens=True)
    return Given(tuple(grown), text, len(grown) >= most_tokens)


def _label(scored: Scored) -> str:
    """What a head of scores says: its likeliest label, all that are likely, or its numbers."""
    values = scored.scores
    return {
        "single_label_classification": lambda: max(values, key=lambda one: one[1])[0],
        "multi_label_classification": lambda: ", ".join(name for name, value in values if value > _HALF),
        "regression": lambda: scored.text,
    }[scored.problem]()


def answers(subject: Subject, slot: Slot) -> tuple[AnswersPart | None, list[Reply], int]:
    """The answers, as tokens too, and to how many prompts they were to be. A reward model is asked nothing: a score
    alone says nothing without another one."""
    data = subject.data
    if data is None or not len(data.held_out) or (subject.scores and data.held_out.sides > 1):
        return None, [], 0
    rows = data.held_out
    asked = prompts(subject, rows, PROMPTS)
    longest = max((len(one.right) for one in asked), default=0)
    natural = min(MOST_TOKENS, max(FEWEST_TOKENS, longest * 5 // 4))
    most = natural if subject.scores else min(natural, _affordable(subject, asked, slot))
    found = replies(subject, asked, most, slot, "Answers to held-out prompts")
    if not found:
        return None, [], len(asked)
    told = tuple(_told(subject, rows, reply) for reply in found)
    return AnswersPart(rows=told, most_tokens=most), found, len(asked)


def _affordable(subject: Subject, asked: Sequence[Asked], slot: Slot) -> int:
    """Tokens of an answer with which ``AT_LEAST`` prompts fit, by the time that the first few tokens of one take."""
    generator, begun = Generator(subject.model, subject.tokenizer, subject.config.data), slot.seconds
    tried = subject.tried(lambda one: _given(subject, generator, one, _TRIED_TOKENS), asked[0]) if asked else None
    if tried is None or not tried.ids:
        return MOST_TOKENS
    a_token = (slot.seconds - begun) / len(tried.ids)
    answers_due = 2 * min(AT_LEAST, len(asked))
    return max(FEWEST_TOKENS, int(slot.left / max(1e-9, answers_due * a_token)))


def reply_again(subject: Subject, row: Answers) -> Reply | None:
    """An answer of a report that stands, as tokens."""
    if row.row not in subject.numbers:
        return None

    def given(text: str) -> Given:
        ids = subject.tokenizer(text, add_special_tokens=False).input_ids
        return Given(tuple(ids), text, cut=False)

    asked = Asked(subject.numbers.index(row.row), [], [])
    return Reply(asked, given(row.after), None if row.before is None else given(row.before))


def _told(subject: Subject, rows: Rows, reply: Reply) -> Answers:
    asked, tokenizer = reply.asked, subject.tokenizer
    prompt, right = (readable(tokenizer, part)[:_SHOWN] for part in (asked.prompt, asked.right))
    good: Any = rows.good(asked.place)
    return Answers(
        row=subject.numbers[asked.place],
        prompt=prompt,
        reference=rows.label(asked.place) or (right if good else ""),
        before=reply.before and reply.before.text[:_SHOWN],
        after=reply.after.text[:_SHOWN],
        cut_before=bool(reply.before and reply.before.cut),
        cut_after=reply.after.cut,
        scores=reply.after.scores,
    )
