"""On a card: 8-bit values bit for bit those of the definition, products near it, and a model that trains by them.

pytest -m gpu tests/gpu/test_eightbit_gpu.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

UNIT = Path(__file__).parents[1] / "unit"
sys.path[:0] = [str(UNIT / "kernels"), str(UNIT / "model")]

from model_tiny import adapt, build, gradients, packed_batch  # noqa: E402
from nf4_cases import draw  # noqa: E402

from core.kernels import rms_norm, swiglu  # noqa: E402
from core.kernels.eightbit import reference, rows, weights  # noqa: E402
from core.kernels.eightbit.formats import FORMATS, Format  # noqa: E402
from core.kernels.eightbit.kept import Kept  # noqa: E402
from core.kernels.eightbit.product import by_library, product  # noqa: E402
from core.kernels.eightbit.reference import Besides, Quantised  # noqa: E402
from core.kernels.eightbit.table import table_of  # noqa: E402
from core.kernels.lora import Projection  # noqa: E402
from core.kernels.weights.forms import HELD_FORMS, PLAIN  # noqa: E402
from core.kernels.weights.nf4_reference import Nf4  # noqa: E402
from core.model.layers import surgery  # noqa: E402
from core.model.layers.checkpointing import set_checkpointing  # noqa: E402
from core.model.layers.loss import LossModel  # noqa: E402
from core.model.layers.trial import milliseconds_a_layer  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA card"),
]
CARD = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
FORMS = [pytest.param(form, id=form.name) for form in FORMATS.values() if form.capability <= CARD]
DTYPE = torch.bfloat16 if CARD >= (8, 0) else torch.float16
COSINE = {"fp8": 0.99, "int8": 0.999}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [64, 100, 4096, 14336, 28672])
def test_rows_are_those_of_the_definition(form: Format, width: int) -> None:
    torch.manual_seed(0)
    x = (torch.randn(65, width + 72, device="cuda") * torch.rand(65, 1, device="cuda") * 9).to(DTYPE)
    x[3], x[5, 20], x[6, 21] = 0.0, float("nan"), float("inf")
    view = x[:, 8 : 8 + width]
    found, wanted = rows.quantise_rows(view, form), reference.quantise_rows(view, form)
    sound = wanted.scales.isfinite()
    assert sound.sum() == 63
    assert found.scales[~sound].isnan().all()
    assert torch.equal(found.scales[sound], wanted.scales[sound])
    assert torch.equal(found.values.float()[sound], wanted.values.float()[sound])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [64, 1040, 4096, 14336, 28672])
def test_norms_and_gates_write_the_rows_of_the_definition(form: Format, width: int) -> None:
    """What they make in 16 bits, quantised; the same from kept gates and from recomputed ones."""
    torch.manual_seed(4)
    x, residual, dy = ((torch.randn(65, width + 8, device="cuda") * 3).to(DTYPE)[:, :width] for _ in range(3))
    x[3], residual[3] = 0.0, 0.0
    w, made = torch.rand(width, device="cuda").to(DTYPE), Quantised.room(x, form)
    y, h, s = rms_norm.normalize(x, w, 1e-5, 0.0, residual, eight=made)
    assert same(made, y)
    assert same(made, rms_norm.normalize_backward(dy, h, w, s, 0.0, residual, eight=made))
    both = torch.randn(65, 2 * width + 8, device="cuda").to(DTYPE)[:, : 2 * width]
    kept, of_both = Kept.room(both), Quantised.room(both, form)
    swiglu.gate(both, "silu", torch.empty_like(dy), kept)
    found, d, again = torch.empty_like(both), dy.clone(), dy.clone()
    swiglu.gate_backward_(d, found, "silu", kept, eight=of_both)
    assert same(of_both, found)
    of_both = Quantised.room(both, form)
    swiglu.gate_backward_(again, both, "silu", rounded=True, eight=of_both)
    assert same(of_both, found)
    assert torch.equal(both, found)
    assert torch.equal(again, d)


def same(made: Quantised, rows_made: torch.Tensor) -> bool:
    """Bit for bit, but for the sign of a zero."""
    wanted = reference.quantise_rows(rows_made, made.form)
    return torch.equal(made.scales, wanted.scales) and torch.equal(made.values.float(), wanted.values.float())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(4096, 4096), (1024, 4096), (2048, 1032), (304, 5760)], ids=str)
def test_weights_are_those_of_the_definition(form: Format, shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    for held in (draw(shape, DTYPE, device="cuda").weight, torch.randn(shape, device="cuda").to(DTYPE)):
        extent, form_of = weights.extent_of(held), HELD_FORMS["nf4"] if isinstance(held, Nf4) else PLAIN
        table = table_of([Projection(held, None, None, None, 1.0, shape, form_of)], extent.rows.device)
        assert (table.like is None) == (form_of is PLAIN)
        for turned in (False, True):
            told = (reference.inverse(extent.of(turned), form), form, turned)
            room = torch.zeros(shape[1], shape[0] + 16) if turned else torch.zeros(shape[0], shape[1] + 16)
            room = room.to("cuda", form.dtype)
            weights.quantise_stack([held], table, *told, room[:, 16:])
            assert torch.equal(room[:, 16:].float(), reference.quantise_weight(held, *told).float())
            assert not room[:, :16].float().any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sizes", [(300, 528, 1040, 48), (1, 4096, 4096, 64), (517, 1024, 14336, 0)], ids=str)
def test_products_are_those_of_the_definition(form: Format, sizes: tuple[int, int, int, int]) -> None:
    """With and without additions, each in its tile; e4m3 is summed with fewer bits than float32 on some cards."""
    torch.manual_seed(2)
    tokens, outputs, width, rank = sizes
    x = torch.randn(tokens, width + rank, device="cuda").to(DTYPE)
    left = rows.quantise_rows(x[:, :width], form)
    right = reference.quantise_rows(torch.randn(outputs, width, device="cuda"), form)
    up, bias, residual = (
        torch.randn(*n, device="cuda").to(DTYPE) for n in ((rank, outputs), (outputs,), (tokens, outputs))
    )
    low = x[:, width:], up.T
    for besides in (
        Besides(*low),
        Besides(*low, bias),
        Besides(*low, residual=residual),
        Besides(*low, bias, residual),
    ):
        wanted = reference.product(left, right, besides, torch.float32)
        ways = [product(left, right, besides, DTYPE)]
        if form.whole:
            ways.append(by_library(left, right, besides, torch.empty_like(ways[0])))
        for found in ways:
            assert (found.float() - wanted).norm() <= 4e-3 * wanted.norm()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_a_model_s_gradients_point_where_those_of_sixteen_bits_do(form: Format, family: str) -> None:
    """Kept, and the same bits recomputed with inputs in host memory."""
    batch = {name: value.cuda() if torch.is_tensor(value) else value for name, value in packed_batch([70, 120]).items()}
    found: dict[str, Any] = {}
    for arithmetic in ("16-bit", form.name):
        model = adapt(build(family)).to("cuda", DTYPE)
        model.train()
        surgery.apply(model, surgery.plan(model, arithmetic=arithmetic))
        for policy in ("none", "offload"):
            set_checkpointing(model, policy)  # type: ignore[arg-type]
            LossModel(model)(**batch).sum().backward()
            found[f"{arithmetic} {policy}"] = torch.cat([one.float().flatten() for one in gradients(model).values()])
        assert torch.equal(found[f"{arithmetic} none"], found[f"{arithmetic} offload"])
    wanted, given = found["16-bit none"], found[f"{form.name} none"]
    assert torch.cosine_similarity(wanted, given, dim=0) > COSINE[form.name]


def test_a_trial_times_every_arithmetic_of_this_card_within_seconds() -> None:
    """All but compiling; what it found is positive, and the model is as it was."""
    model = adapt(build("llama")).to("cuda", DTYPE)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    names = ("16-bit", *(param.values[0].name for param in FORMS))
    milliseconds_a_layer(model, 512, names, DTYPE)  # compiles
    begun = time.monotonic()
    found = milliseconds_a_layer(model, 512, names, DTYPE)
    assert time.monotonic() - begun < 4
    assert tuple(found) == names
    assert all(0 < milliseconds < 1000 for milliseconds in found.values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
