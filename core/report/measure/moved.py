"""What changed in the weights: norms by layer and projection, and how many directions hold the change.

Of LoRA's ΔW = B A the singular values come from two small QRs, B = Q R and Aᵀ = P S: those of R Sᵀ, ``r × r``; ΔW
itself is never made. Of a trained matrix the largest ones come from a randomised SVD (Halko et al. 2011).
"""

import re
from collections.abc import Iterator, Sequence
from math import exp, isfinite, log

import torch
from safetensors import safe_open

from core.model.layers.peft_bnb import Update, as_it_is, updates_of
from core.report.measure.budget import Slot
from core.report.measure.subject import Subject
from core.report.schema import Matrix, Moved

MOST_SINGULAR = 32
_POWER_STEPS = 2
_LAYER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)\.")
_SECOND = re.compile(r"\.lora_(?:embedding_)?B\b")
_HELD = 0.9
_TINY = 1e-6
"""A relative update below this changes no 16-bit digit of a weight."""
_NEARLY = 0.8
"""Share of the squared norm that is told where one layer or projection holds it."""


def moved(subject: Subject, slot: Slot) -> tuple[Moved | None, int, int]:
    """What was measured, how many matrices of how many."""
    updates = _whole(subject) if subject.config.learns.base else updates_of(subject.model)
    if subject.scores:  # its head is drawn anew: there is nothing that it moved from
        updates = [update for update in updates if _LAYER.search(f".{update.name}.")]
    matrices, done = [], 0
    total = len(updates)
    for number in subject.drawn(total):
        if not slot.fits():
            break
        matrix = subject.tried(_measured, updates[number])
        done += 1
        if matrix is not None:
            matrices.append((number, matrix))
        subject.tell.stage("measuring", "What moved in the weights", done, total, "matrices")
    if not matrices:
        return None, done, total
    ordered = tuple(matrix for _, matrix in sorted(matrices, key=lambda one: one[0]))
    norm = sum(one.norm**2 for one in ordered) ** 0.5
    known = [one for one in ordered if one.relative]
    base = sum((one.norm / (one.relative or 1.0)) ** 2 for one in known) ** 0.5
    part = Moved(
        norm=norm,
        relative=norm / base if base and len(known) == len(ordered) else None,
        matrices=ordered,
        others=_trained_tensors(subject) - total,
        told=tuple(told_of(ordered)) if done == total else (),
    )
    return part, done, total


def _trained_tensors(subject: Subject) -> int:
    """How many tensors were trained, A and B of a matrix as one."""
    if subject.config.learns.base:
        return sum(1 for _ in subject.model.parameters())
    with safe_open(subject.checkpoint / subject.config.learns.folder / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
    return sum(not _SECOND.search(name) for name in names)


def _whole(subject: Subject) -> list[Update]:
    """Every matrix of a model whose weights were all trained, beside the base's."""
    base = dict(subject.untrained().named_parameters())
    named = ((name, parameter) for name, parameter in subject.model.named_parameters() if parameter.ndim == 2)
    return [
        Update(name.removesuffix(".weight"), before=as_it_is(base[name]), after=parameter.detach())
        for name, parameter in named
        if name in base and base[name].shape == parameter.shape
    ]


def _measured(update: Update) -> Matrix | None:
    base = update.before().detach()
    if update.left is not None and update.right is not None:
        small = torch.linalg.qr(update.left, mode="r").R @ torch.linalg.qr(update.right.T, mode="r").R.T
        singular = torch.linalg.svdvals(small.double().cpu())
        square, rank = float(singular.square().sum()), len(singular)
    elif update.after is not None:
        difference = update.after.float() - base.to(update.after.device).float()
        rank = min(difference.shape)
        square = float(torch.linalg.vector_norm(difference, dtype=torch.float64) ** 2)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _, singular, _ = torch.svd_lowrank(difference, min(MOST_SINGULAR, rank), _POWER_STEPS)
        singular = singular.double().cpu()
    else:
        return None
    weight = float(torch.linalg.vector_norm(base, dtype=torch.float32))
    layer = _LAYER.search(f".{update.name}.")
    norm = square**0.5
    if not isfinite(norm):
        return None
    return Matrix(
        module=update.name,
        layer=int(layer[1]) if layer else None,
        projection=update.name.rsplit(".", 1)[-1],
        norm=norm,
        relative=norm / weight if weight else None,
        rank=rank,
        effective_rank=effective_rank(singular.tolist(), square, rank),
        directions=directions(singular.tolist(), square),
        singular=tuple(round(value, 8) for value in singular[:MOST_SINGULAR].tolist()),
    )


def effective_rank(singular: Sequence[float], square: float, rank: int) -> float:
    """exp of the entropy of σ²/Σσ²; what the given σ leave of ``square`` counts as spread evenly over the rest."""
    if square <= 0.0:
        return 0.0
    shares = [value**2 / square for value in singular]
    rest, others = max(0.0, 1.0 - sum(shares)), rank - len(shares)
    entropy = -sum(share * log(share) for share in shares if share > 0)
    if others > 0 and rest > 1e-9:
        entropy -= rest * log(rest / others)
    return exp(entropy)


def directions(singular: Sequence[float], square: float) -> int | None:
    """The fewest singular values with nine tenths of ``square``; None where all given ones hold less."""
    held = 0.0
    for count, value in enumerate(sorted(singular, reverse=True), start=1):
        held += value**2
        if held >= _HELD * square * (1 - 1e-9):
            return count if square > 0 else 0
    return None


def told_of(matrices: Sequence[Matrix]) -> Iterator[str]:
    """In sentences what a picture of it would not say by itself."""
    square = sum(one.norm**2 for one in matrices)
    relative = [one.relative for one in matrices if one.relative is not None]
    if square == 0.0 or (relative and max(relative) < _TINY):
        yield "Nothing moved: every update is smaller than the last digit of the weights."
        return
    still = [one for one in matrices if one.norm == 0.0]
    if still:
        yield f"{len(still)} of {len(matrices)} matrices did not move at all, {still[0].module} among them."
    for words, of in (("layer", lambda one: one.layer), ("projection", lambda one: one.projection)):
        shares: dict[object, float] = {}
        for one in matrices:
            shares[of(one)] = shares.get(of(one), 0.0) + one.norm**2 / square
        name = max(shares, key=lambda key: shares[key])
        if len(shares) > 2 and shares[name] >= _NEARLY and name is not None:
            yield f"Nearly all of the change ({100 * shares[name]:.0f}%) is in {words} {name}."
