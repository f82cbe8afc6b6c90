"""A written GGUF file, loaded by llama.cpp, against transformers on the run's finished weights.

a. token ids of texts and chats under the template;
b. logits behind prompts, and the greedy answers: transformers reads each answer of llama.cpp in one pass, and must find
   every token of it the likeliest;
c. the loss on held-out rows, beside the finished weights' in 32 bits and the base's: what training brought must be
   there still.

How many tokens are computed follows from the model's size: a few minutes on eight cores for 8 billion weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.contract.errors import ModelError
from core.contract.forms import Quantisation
from core.export.gguf.mixtures import MIXTURES
from core.export.gguf.proof.material import Material, Row, Text, within
from core.export.gguf.proof.streamed import Streamed
from core.export.llama.client import Llama, llama
from core.export.llama.model import Room
from core.export.weights import FinishedWeights

ANSWER = 32
"""Tokens of a greedy answer."""
MOST_ANSWERS_APART = 0.05
"""Of a 16-bit form: which share of greedy answers may differ."""
MOST_TEXTS_APART = 0.025
"""Odd texts may be read otherwise: llama.cpp joins no combining marks (NFC)."""
LEAST_KEPT = 0.9
"""Of what training brought on held-out rows, below which an export warns."""
LEAST_LIKE = 0.9
"""Cosine of the logits of any form, below which an export warns: four bits stay above."""
_OPERATIONS = 5e13
_TOKENS = (900, 6_000)
TIE = 4.0
"""Times the largest difference of a prompt's logits: two tokens so near each other may change places by rounding."""
_LAST = 4
"""Positions of a prompt whose logits are compared."""


@dataclass(frozen=True)
class Verified:
    """Sentences: what was compared, and what a person must know before using the file."""

    checks: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tried:
    """A file to try: ``adapter`` where it is an adapter's, over the base model's ``file``. ``finished`` and ``base``:
    the weights that it was written of, and those before training."""

    file: Path
    config: Any
    finished: FinishedWeights
    base: FinishedWeights
    quantisation: Quantisation
    adapter: Path | None = None

    @property
    def alike(self) -> float:
        """The least cosine of its logits; 0 of a form that loses more than rounding."""
        return MIXTURES[self.quantisation].alike


@dataclass(frozen=True)
class _Answers:
    """What llama.cpp said: each prompt with its answer, the logits behind the prompt's last tokens, losses' sum and
    count over rows."""

    prompts: tuple[tuple[int, ...], ...]
    whole: tuple[tuple[int, ...], ...]
    logits: torch.Tensor
    rows: tuple[Row, ...]
    loss: float


def affordable(weights: FinishedWeights) -> int:
    """How many tokens may be computed for one model."""
    size = sum(entry.elements for entry in weights.entries.values())
    least, most = _TOKENS
    return int(min(most, max(least, _OPERATIONS / (2 * size))))


def verify(tried: Tried, material: Material, check: Callable[[], None]) -> Verified:
    """Compares. ``check`` is called all along, and may raise.

    Raises:
        ModelError: llama.cpp cannot load the file, reads texts otherwise (``gguf.tokens``), or a 16-bit form answers
            otherwise (``gguf.apart``).
    """
    tokens = affordable(tried.finished)
    prompts = tuple(one for one in material.prompts if len(one) >= _LAST)[: max(4, tokens // 2 // 96)]
    rows = within(material.held_out, tokens // 3)
    together = sum(len(one) + ANSWER for one in prompts)
    room = Room(max([together, *(len(row.ids) for row in rows)]), len(prompts))
    with llama(tried.file, tried.adapter, room, check) as asked:
        read, warned = _tokens(asked, material.texts)
        answers = _asked(asked, prompts, rows)
    same, least, tuned = _compared(tried, answers, check)
    said, lost = _lost(tried, answers, tuned, check)
    if least < LEAST_LIKE and not lost:
        lost = (f"Logits are far from the finished weights' (cosine {least:.2f}). Take a form with more bits.",)
    return Verified((*read, *same, *said), (*warned, *lost))


def _tokens(asked: Llama, texts: Sequence[Text]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    apart = []
    for special in (False, True):
        these = [text for text in texts if text.special is special]
        found = asked.tokens([text.text for text in these], special)
        apart += [text for text, ids in zip(these, found, strict=True) if tuple(ids) != text.ids]
    if len(apart) > len(texts) * MOST_TEXTS_APART:
        raise ModelError("gguf.tokens", apart=len(apart), texts=len(texts), text=repr(apart[0].text[-80:]))
    said = f"llama.cpp gives {len(texts) - len(apart)} of {len(texts)} texts and chats the ids that transformers gives"
    odd = (f"llama.cpp reads {len(apart)} of {len(texts)} texts otherwise: {apart[0].text[-80:]!r}",) if apart else ()
    return (said,), odd


def _asked(asked: Llama, prompts: Sequence[tuple[int, ...]], rows: tuple[Row, ...]) -> _Answers:
    answers, logits = asked.answers(prompts, ANSWER, _LAST)
    whole = tuple((*prompt, *answer) for prompt, answer in zip(prompts, answers, strict=True))
    summed = sum(asked.loss(row.ids, row.trained)[0] for row in rows)
    mean = summed / max(1, sum(row.counted for row in rows))
    return _Answers(tuple(prompts), whole, torch.from_numpy(logits), rows, mean)


def _compared(tried: Tried, answers: _Answers, check: Callable[[], None]) -> tuple[tuple[str, ...], float, float]:
    """Sentences about logits and answers, the least cosine, and the finished weights' own loss on the rows."""
    model, count = Streamed(tried.config, tried.finished, check), len(answers.prompts)
    states = model.hidden([*answers.whole, *(row.ids for row in answers.rows)])
    ends = [state[len(prompt) - 1 : -1] for prompt, state in zip(answers.prompts, states, strict=False)]
    behind = _behind(model, ends, [whole[-ANSWER:] for whole in answers.whole])
    lasts = [state[len(prompt) - _LAST : len(prompt)] for prompt, state in zip(answers.prompts, states, strict=False)]
    wanted = model.logits(torch.cat(lasts)).split(_LAST)
    cosines, same, tied = [], 0, 0
    for one, other, short in zip(wanted, answers.logits.split(_LAST), behind, strict=True):
        cosines.append(float(torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)))
        same += short == 0
        tied += 0 < short <= TIE * float((one - other).abs().max())
    apart = count - same - tied
    unlike = tried.alike and (min(cosines) < tried.alike or apart > max(1, count * MOST_ANSWERS_APART))
    if unlike or not all(map(math.isfinite, cosines)):
        least = tried.alike or LEAST_LIKE
        same += tied if min(cosines) >= least else 0  # of logits that are far apart nothing is a tie
        raise ModelError("gguf.apart", cosine=min(cosines), least=least, same=same, count=count)
    ties = f"; {tied} part where two tokens are as likely, to within rounding" if tied and tried.alike else ""
    said = (
        f"logits behind {count} prompts against transformers on the finished weights: cosine {min(cosines):.6f} or "
        "above",
        f"greedy answers of {ANSWER} tokens: {same} of {count} are transformers' own, token for token{ties}",
    )
    return said, min(cosines), _loss(model, answers.rows, states[count:]) if answers.rows else 0.0


def _behind(model: Streamed, states: Sequence[torch.Tensor], answers: Sequence[Sequence[int]]) -> list[float]:
    """Of each answer, by how much its first token that is not the likeliest is behind; 0 where all of them are."""
    targets = torch.tensor([token for answer in answers for token in answer])
    _, margins = model.scored(torch.cat(list(states)), targets)
    return [next((margin for margin in one.tolist() if margin > 0), 0.0) for one in margins.split(ANSWER)]


def _lost(
    tried: Tried, answers: _Answers, tuned: float, check: Callable[[], None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences about the loss on held-out rows, and a warning where training's gain is gone."""
    if not answers.rows:
        return ("no held-out rows to measure: the run held none out, or its data file is gone",), ()
    model = Streamed(tried.config, tried.base, check)
    before = _loss(model, answers.rows, model.hidden([row.ids for row in answers.rows]))
    counted = sum(row.counted for row in answers.rows)
    told = (
        f"perplexity on {len(answers.rows)} held-out rows ({counted:,} tokens): {math.exp(answers.loss):.4g}; the same "
        f"weights in 32 bits {math.exp(tuned):.4g} ({math.expm1(answers.loss - tuned):+.1%}), the base model "
        f"{math.exp(before):.4g}"
    )
    gain = before - tuned
    if gain <= 0:
        return (told,), (
            f"Training brought nothing on the held-out rows: the loss was {before:.4f}, behind training it is "
            f"{tuned:.4f}, and here {answers.loss:.4f}.",
        )
    kept = (before - answers.loss) / gain
    if kept >= LEAST_KEPT:
        return (told,), ()
    share = "nothing" if kept <= 0 else f"{kept:.0%}"
    return (told,), (
        f"This form keeps {share} of what training brought: the held-out loss fell from {before:.4f} to {tuned:.4f}, "
        f"and here it is {answers.loss:.4f}. Take a form with more bits.",
    )


def _loss(model: Streamed, rows: Sequence[Row], states: Sequence[torch.Tensor]) -> float:
    """The mean loss over the tokens that count."""
    places = [[at for start, stop in row.trained for at in range(max(start, 1), stop)] for row in rows]
    targets = torch.tensor([row.ids[at] for row, own in zip(rows, places, strict=True) for at in own])
    before = [state[torch.tensor(own) - 1] for state, own in zip(states, places, strict=True)]
    losses, _ = model.scored(torch.cat(before), targets)
    return float(losses.double().mean())
