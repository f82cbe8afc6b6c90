"""How far the finetuned model moved from the base on general texts: divergence of its next-token probabilities and
loss, on the set that comes with the project and on a file of one's own.

KL(base ‖ finetuned) at a position is Σ_v p_base(v) (log p_base(v) − log p_finetuned(v)), over the whole vocabulary.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from core.contract.config import DataChoice
from core.contract.data import Example
from core.data.service.checked import checked
from core.machine.locations import ASSETS, Locations
from core.model.layers.peft_bnb import base_causal_model
from core.report.measure.budget import Slot
from core.report.measure.held_out import Loss, grouped, means
from core.report.measure.subject import Paired, Subject
from core.report.schema import Forgetting, TextLoss
from core.report.statistics import mean

GENERAL = ASSETS / "general.jsonl"
MOST_TOKENS = 256
"""Of a text; what is behind them is left out."""
OWN_TEXTS = 40
_LOOKED_AT = 2_000
_AT_ONCE = 32
"""Positions whose probabilities are held in 32 bits at a time."""
_HELD_BYTES = 512 << 20
"""Of one side's logits in host memory, where the sides change by copying all weights."""
_LISTED = 8
_SHOWN = 160


@dataclass(frozen=True)
class GeneralText:
    """One text, and what kind it is."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class _Apart:
    """One text under both sides: sums over its ``tokens``."""

    kl: float
    before: float
    after: float
    tokens: int


def general_texts() -> list[GeneralText]:
    """The set that comes with the project."""
    lines = GENERAL.read_text(encoding="utf-8").splitlines()
    return [GeneralText(**json.loads(line)) for line in lines if line.strip()]


def own_texts(path: Path, seed: int, safe_point: Callable[[], object]) -> list[GeneralText]:
    """Texts of a person's own file, drawn from its first rows; a conversation counts with all its turns.

    Args:
        safe_point: called while the file is read; what it raises ends that.

    Raises:
        DataError: the file cannot be read.
    """

    def cancelled() -> bool:
        safe_point()
        return False

    file = checked(path.expanduser(), DataChoice(), Locations.find(), cancelled=cancelled)
    texts = [_said(example) for example in islice(file.rows(), _LOOKED_AT)]
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    return [GeneralText(texts[place]) for place in order[:OWN_TEXTS]]


def _said(example: Example) -> str:
    turns = [turn.content for turn in example.messages if turn.content]
    return example.text or "\n\n".join([*turns, *([example.chosen] if example.chosen else [])])


def forgetting(
    subject: Subject, name: str, texts: Sequence[GeneralText], slot: Slot
) -> tuple[Forgetting | None, int, int]:
    """What was measured, how many texts of how many. Nothing for a model that gives scores."""
    if subject.scores:
        return None, 0, 0
    ids = [subject.tokenizer(one.text, add_special_tokens=True).input_ids[:MOST_TOKENS] for one in texts]
    places = [place for place in subject.drawn(len(texts)) if len(ids[place]) > 1]
    found: list[tuple[GeneralText, _Apart]] = []
    for group in _chunks(subject, places, ids):
        if not slot.fits():
            break
        found += [(texts[place], apart) for place, apart in _apart(subject, group, ids)]
        subject.tell.stage("measuring", f"Texts of {name}", len(found), len(places), "texts")
    if not found:
        return None, 0, len(places)
    measured = [apart for _, apart in found]
    tokens = [apart.tokens for apart in measured]
    pairs = [Paired(text, Loss(apart.after, apart.tokens), Loss(apart.before, apart.tokens)) for text, apart in found]
    worst = sorted(found, key=lambda one: -one[1].kl / one[1].tokens)[:_LISTED]
    part = Forgetting(
        name=name,
        texts=len(found),
        tokens=sum(tokens),
        kl=mean([one.kl for one in measured], tokens),
        groups=tuple(grouped("kind", pairs, lambda one: one.item.kind)),
        worst=tuple(_line(text, apart) for text, apart in worst),
        **means(pairs),
    )
    return part, len(found), len(places)


def _line(text: GeneralText, apart: _Apart) -> TextLoss:
    return TextLoss(
        text=" ".join(text.text.split())[:_SHOWN],
        kind=text.kind,
        tokens=apart.tokens,
        before=apart.before / apart.tokens,
        after=apart.after / apart.tokens,
        kl=apart.kl / apart.tokens,
    )


def _chunks(subject: Subject, places: Sequence[int], ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Texts whose logits are held together: one, or as many as fit where changing sides is dear."""
    if not subject.config.learns.base:
        return [[place] for place in places]
    vocabulary = base_causal_model(subject.model).config.get_text_config().vocab_size
    chunks: list[list[int]] = [[]]
    held = 0
    for place in places:
        size = 4 * vocabulary * len(ids[place])
        if chunks[-1] and held + size > _HELD_BYTES:
            chunks.append([])
            held = 0
        chunks[-1].append(place)
        held += size
    return [chunk for chunk in chunks if chunk]


def _apart(subject: Subject, chunk: Sequence[int], ids: Sequence[Sequence[int]]) -> list[tuple[int, _Apart]]:
    """Both sides of some texts; one that does not fit in memory is left out."""
    sides: list[list[Any]] = []
    for side in (nullcontext(), subject.trained.base()):
        with side:
            sides.append([subject.tried(lambda place: _logits(subject, ids[place]), place) for place in chunk])
    found = []
    for place, after, before in zip(chunk, *sides, strict=True):
        if after is None or before is None:
            continue
        one = subject.tried(lambda pair: _diverged(pair[:2], ids[pair[2]]), (after, before, place))
        found += [(place, one)] if one else []
    return found


def _logits(subject: Subject, ids: Sequence[int]) -> torch.Tensor:
    """``[T - 1, V]``: what predicts each token but the first; in host memory where many are held."""
    asked = torch.tensor([list(ids)], device=subject.device)
    made = base_causal_model(subject.model)(
        input_ids=asked, attention_mask=torch.ones_like(asked), use_cache=False
    ).logits[0, :-1]
    return made.cpu() if subject.config.learns.base else made


def _diverged(pair: tuple[torch.Tensor, torch.Tensor], ids: Sequence[int]) -> _Apart | None:
    """Sums over positions; None where a number is not finite."""
    targets = torch.tensor(list(ids[1:]), device=pair[0].device)
    sums = torch.zeros(3, dtype=torch.float64)
    for first in range(0, len(targets), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        after, before = (side[part].float().log_softmax(-1) for side in pair)
        told = targets[part, None]
        kl = (before.exp() * (before - after)).sum()
        sums += torch.stack([kl, -before.gather(1, told).sum(), -after.gather(1, told).sum()]).double().cpu()
    if not torch.isfinite(sums).all():
        return None
    kl_sum, earlier, later = sums.tolist()
    return _Apart(max(0.0, kl_sum), earlier, later, len(targets))
