"""Every file of a checkpoint × every harm: all are noticed, and the one before is used."""

from __future__ import annotations

from pathlib import Path

from core.train.keep import checkpoint

from .harm import HARMS, harmed
from .kills import make_life
from .small import train


def test_every_harm_to_every_file_is_noticed(tmp_path: Path) -> None:
    folder, ledger = make_life(tmp_path, "run", steps=8, weight_bytes=4_000)
    train(folder, ledger)
    told = list(harmed(folder.checkpoints))
    assert {harm for _, harm in told} == set(HARMS)
    files = {name for name, _ in told}
    assert {checkpoint.MANIFEST, "position.json", "adapter/adapter_model.safetensors", "optimizer.json"} <= files
    assert len(told) >= 6 * len(files)


def test_a_whole_checkpoint_under_another_steps_name_is_noticed(tmp_path: Path) -> None:
    folder, ledger = make_life(tmp_path, "run", steps=8, weight_bytes=4_000)
    train(folder, ledger)
    before, newest = sorted(folder.checkpoints.glob("step-*"))[-2:]
    newest.rename(tmp_path / "away")
    before.rename(newest)
    bad: list[str] = []
    used = checkpoint.latest_good(folder, lambda path, _why: bad.append(path.name))
    assert bad == [newest.name]
    assert used != newest
