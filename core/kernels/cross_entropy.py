"""Cross-entropy of a block of logits, its gradient written over them.

Forward, a token with logits x and target y::

    z = cap · tanh(scale · x / cap)          (cap 0: z = scale · x)
    loss = log Σ_v exp(z_v) - z_y            (0 where y = -100)

Backward::

    dloss/dx_v = (exp(z_v - m) / Σ exp(z - m) - [v = y]) · (1 - (z_v / cap)²) · scale          m = max z

One program reads one token's vocabulary twice: for the running maximum and sum (Milakov and Gimelshein 2018,
arXiv:1805.02867), then backwards to write the gradient, so that it begins with what is still in the cache. Each lane
has its own maximum and sum, combined after the loop, so no thread waits inside it. Extra memory does not grow with V.
"""

import torch

from core.kernels import reference
from core.kernels.dispatch import block_of, jit, launch, rows_run, tl


@jit
def _tanh(x):  # type: ignore[no-untyped-def]
    """tanh, by Cephes' tanhf polynomial near 0, where 1 - 2 / (exp(2x) + 1) loses all digits."""
    square = x * x
    bent = -5.70498872745e-3
    bent = bent * square + 2.06390887954e-2
    bent = bent * square - 5.37397155531e-2
    bent = bent * square + 1.33314422036e-1
    bent = bent * square - 3.33332819422e-1
    return tl.where(tl.abs(x) < 0.625, x + x * square * bent, 1.0 - 2.0 * tl.sigmoid(-2.0 * x))


@jit
def _scores(  # type: ignore[no-untyped-def]
    start, columns, vocabulary, scale, softcap, CAPPED: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """z, -inf beyond the vocabulary. Without a mask loads are 16 bytes wide for any vocabulary."""
    if MASKED:
        z = tl.load(start + columns, mask=columns < vocabulary, other=-float("inf")).to(tl.float32) * scale
    else:
        z = tl.load(start + columns).to(tl.float32) * scale
    if CAPPED:
        z = softcap * _tanh(z / softcap)
    if MASKED:
        z = tl.where(columns < vocabulary, z, -float("inf"))
    return z


@jit
def _gathered(highest, total, z):  # type: ignore[no-untyped-def]
    """Each lane's maximum and sum of exp(z - maximum) after one more block ``z [PARTS, LANES]``."""
    higher = tl.maximum(highest, tl.max(z, axis=0))
    return higher, total * tl.exp(highest - higher) + tl.sum(tl.exp(z - higher[None, :]), axis=0)


@jit
def _write(  # type: ignore[no-untyped-def]
    start, columns, vocabulary, label, peak, share, scale, softcap, CAPPED: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """The gradient over the logits of one block; ``share`` is 1 / Σ exp(z - peak)."""
    z = _scores(start, columns, vocabulary, scale, softcap, CAPPED, MASKED)
    slope = scale
    if CAPPED:
        bent = z * (1.0 / softcap)
        slope = scale * (1.0 - bent * bent)  # tanh' = 1 - tanh²
    gradient = (tl.exp(z - peak) * share - tl.where(columns == label, 1.0, 0.0)) * slope
    if MASKED:
        tl.store(start + columns, gradient, mask=columns < vocabulary)
    else:
        tl.store(start + columns, gradient)


@jit(varying=("labels", "losses"))
def _kernel(  # type: ignore[no-untyped-def]
    logits, labels, losses, row_stride, vocabulary, scale, softcap,
    CAPPED: tl.constexpr, GRADIENT: tl.constexpr, IGNORED: tl.constexpr, PARTS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    start = logits + row.to(tl.int64) * row_stride
    label = tl.load(labels + row).to(tl.int32)
    columns = tl.arange(0, PARTS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    block = PARTS * LANES
    whole = vocabulary // block * block
    if label == IGNORED:
        tl.store(losses + row, 0.0)
        if GRADIENT:
            for begin in range(0, whole, block):
                tl.store(start + begin + columns, tl.zeros([PARTS, LANES], logits.dtype.element_ty))
            last = whole + columns
            tl.store(start + last, tl.zeros([PARTS, LANES], logits.dtype.element_ty), mask=last < vocabulary)
    else:
        # Finite: an empty lane then weighs exp(-huge) = 0, not exp(-inf + inf) = NaN.
        highest = tl.full([LANES], -3.0e38, tl.float32)
        total = tl.zeros([LANES], tl.float32)
        for begin in range(0, whole, block):
            z = _scores(start, begin + columns, vocabulary, scale, softcap, CAPPED, False)
            highest, total = _gathered(highest, total, z)
        z = _scores(start, whole + columns, vocabulary, scale, softcap, CAPPED, True)
        highest, total = _gathered(highest, total, z)
        peak = tl.max(highest, axis=0)
        all_of_it = tl.sum(total * tl.exp(highest - peak), axis=0)
        target = tl.load(start + label).to(tl.float32) * scale
        if CAPPED:
            target = softcap * _tanh(target / softcap)
        tl.store(losses + row, (peak - target) + tl.log(all_of_it))
        if GRADIENT:
            share = 1.0 / all_of_it
            # No thread may write over the target before all have read it.
            tl.debug_barrier()
            _write(start, whole + columns, vocabulary, label, peak, share, scale, softcap, CAPPED, True)
            for begin in range(block, whole + block, block):
                _write(start, whole - begin + columns, vocabulary, label, peak, share, scale, softcap, CAPPED, False)


def _shape(vocabulary: int) -> dict[str, int]:
    """Eight columns a thread and part; more warps where a larger vocabulary leaves fewer rows to fill the card."""
    warps = 8 if vocabulary <= 49_152 else 16 if vocabulary <= 200_000 else 32
    lanes = min(256 * warps, block_of(vocabulary))
    return {"PARTS": 2 if vocabulary > lanes else 1, "LANES": lanes, "num_warps": max(1, lanes // 256)}


def _run(logits: torch.Tensor, labels: torch.Tensor, scale: float, softcap: float, gradient: bool) -> torch.Tensor:
    tokens, vocabulary = logits.shape
    losses = torch.empty(tokens, dtype=torch.float32, device=logits.device)
    if tokens:
        launch(
            _kernel, (tokens,), logits, labels.contiguous(), losses, logits.stride(0), vocabulary,
            float(scale), float(softcap),
            CAPPED=bool(softcap), GRADIENT=gradient, IGNORED=reference.IGNORED, **_shape(vocabulary),
        )  # fmt: skip
    return losses


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0) -> torch.Tensor:
    """Losses ``[T]`` of ``logits [T, V]``, without autograd; see ``reference.cross_entropy``."""
    if not rows_run(logits):
        with torch.no_grad():
            return reference.cross_entropy(logits, labels, scale, softcap)
    return _run(logits, labels, scale, softcap, gradient=False)


def cross_entropy_gradient_(
    logits: torch.Tensor, labels: torch.Tensor, scale: float = 1.0, softcap: float = 0.0
) -> torch.Tensor:
    """Losses ``[T]`` of ``logits [T, V]``, which become the gradient of their sum in place.

    Rows may be strided; ``labels [T]`` are int64, -100 for none. See ``reference.cross_entropy_gradient_``.
    """
    if not rows_run(logits):
        return reference.cross_entropy_gradient_(logits, labels, scale, softcap)
    return _run(logits, labels, scale, softcap, gradient=True)
