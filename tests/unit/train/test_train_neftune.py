"""NEFTune: transformers' noise on one row, and the same on a row in whatever micro-batch it is computed."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.integrations.neftune import neftune_post_forward_hook

from core.model.adapters import Trained
from core.model.attention.packed import bounds_mask
from core.train.step.batches import pack, pad
from core.train.step.neftune import _Noise, add_noise
from core.train.step.rows import TextRows
from tests.unit.model.model_tiny import adapt, build

CPU = torch.device("cpu")


@pytest.fixture
def trainer() -> Any:
    rows = TextRows()
    for length in (5, 9, 3, 7):
        rows.append(range(3, 3 + length), range(3, 3 + length))
    model = adapt(build("llama")).train()
    return SimpleNamespace(trained=Trained(model), rows=rows, in_pass=(), step=3)


def embedded(trainer: Any, chosen: list[int], packed: bool = True) -> dict[int, torch.Tensor]:
    """What leaves the embedding, by row."""
    seen: list[torch.Tensor] = []
    base, trainer.in_pass = trainer.trained.model.get_base_model(), chosen
    handle = base.base_model.layers[0].register_forward_pre_hook(
        lambda _layer, inputs, named: seen.append((inputs or (named["hidden_states"],))[0].detach()), with_kwargs=True
    )
    read = [trainer.rows.sequences(row)[0] for row in chosen]
    batch = pack(read, CPU) if packed else pad(read, 0, CPU)
    labels = batch.pop("labels")
    assert isinstance(labels, torch.Tensor)
    if packed:
        batch["attention_mask"] = bounds_mask(CPU)
    base.base_model(**batch, use_cache=False)
    handle.remove()
    lengths = [trainer.rows.length(row) for row in chosen]
    if packed:
        return dict(zip(chosen, seen[0][0].split(lengths), strict=True))
    return {row: seen[0][place, :length] for place, (row, length) in enumerate(zip(chosen, lengths, strict=True))}


def test_one_row_has_the_noise_of_transformers(trainer: Any) -> None:
    (plain,) = embedded(trainer, [1]).values()
    assert add_noise(trainer, 5.0, seed=7) == ("embeddings: NEFTune noise of alpha 5 while training",)
    (ours,) = embedded(trainer, [1]).values()
    torch.manual_seed(_Noise(trainer, 5.0, 7)._seed_of(1, 0))
    theirs = neftune_post_forward_hook(SimpleNamespace(training=True, neftune_noise_alpha=5.0), None, plain[None])
    torch.testing.assert_close(ours, theirs[0], rtol=0, atol=1e-7)
    assert 0 < (ours - plain).abs().max() <= 5.0 / (9 * 64) ** 0.5


def test_a_row_has_one_noise_a_step_however_it_is_cut(trainer: Any) -> None:
    plain = embedded(trainer, [0, 1, 2, 3])
    add_noise(trainer, 5.0, seed=7)
    together, padded = embedded(trainer, [2, 0, 3, 1]), embedded(trainer, [0, 1, 2, 3], packed=False)
    for row in range(4):
        (alone,) = embedded(trainer, [row]).values()
        assert torch.equal(alone, together[row])
        assert torch.equal(alone, padded[row])
        most = (alone - plain[row]).abs().max()
        assert most == pytest.approx(5.0 / (len(alone) * 64) ** 0.5, rel=0.05), "by its own length"
    trainer.step = 4
    assert not torch.equal(embedded(trainer, [1])[1], together[1]), "another step, another noise"


def test_nothing_is_added_where_nothing_is_learned(trainer: Any) -> None:
    plain = embedded(trainer, [0, 1])
    assert add_noise(trainer, 0.0, seed=7) == ()
    add_noise(trainer, 5.0, seed=7)
    with torch.no_grad():
        assert torch.equal(embedded(trainer, [0, 1])[0], plain[0])
    trainer.trained.model.eval()
    assert torch.equal(embedded(trainer, [0, 1])[1], plain[1])
