"""A checkpoint stands whole or not at all, is verified before it is used, and never costs the one before it.

Every harm to every file of a real one: test_train_harm.py.
"""

import errno
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.contract.errors import MachineError
from core.train.keep import checkpoint


def write(draft: Path) -> None:
    (draft / "adapter").mkdir()
    (draft / "adapter" / "model.bin").write_text("weights")
    (draft / "state.json").write_text("{}")


def save(root: Path, step: int, eval_loss: float | None = None) -> Path:
    return checkpoint.save(root, step, write, {"eval_loss": eval_loss}, 100).path


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_what_is_saved_verifies_and_names_its_files(tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path, 200, write, {"eval_loss": 1.5}, 100)
    assert saved.path.name == "step-000200"
    assert checkpoint.verify(saved.path) == ""
    manifest = checkpoint.read_manifest(saved.path)
    assert (manifest["step"], manifest["eval_loss"]) == (200, 1.5)
    assert set(manifest["files"]) == {"adapter/model.bin", "state.json"}
    assert saved.bytes == sum(path.stat().st_size for path in saved.path.rglob("*") if path.is_file())


def test_last_two_and_best_stay(tmp_path: Path) -> None:
    for step, loss in [(1, 2.0), (2, 1.0), (3, 3.0), (4, None), (5, 1.5)]:
        save(tmp_path, step, loss)
        checkpoint.prune(tmp_path)
    assert names(tmp_path) == ["step-000002", "step-000004", "step-000005"]
    assert checkpoint.best(tmp_path) == tmp_path / "step-000002"
    (tmp_path / "step-000002" / "state.json").write_text("harmed")
    assert checkpoint.best(tmp_path) == tmp_path / "step-000005"


def test_without_a_measure_the_newest_is_best(tmp_path: Path) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    assert checkpoint.best(tmp_path) == newest
    assert checkpoint.best(tmp_path / "none") is None


def test_a_killed_writers_draft_and_a_manifest_without_files_are_no_checkpoints(tmp_path: Path) -> None:
    good = save(tmp_path, 1)
    shutil.copytree(good, tmp_path / ".tmp-step-000002")
    (tmp_path / "step-000009").mkdir()
    (tmp_path / "step-000009" / "MANIFEST.json").write_text(json.dumps({"step": 9, "files": {}}))
    assert checkpoint.latest_good(tmp_path) == good
    save(tmp_path, 3)
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_full_disk_is_said_before_and_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = save(tmp_path, 1)

    def fill(draft: Path) -> None:
        (draft / "half").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(MachineError, match="for a checkpoint"):
        checkpoint.save(tmp_path, 2, fill, {}, 10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=5_000_000))
    with pytest.raises(MachineError, match=r"317 MB.*5 MB") as caught:
        checkpoint.save(tmp_path, 2, write, {}, 300_000_000)
    assert caught.value.code == "disk.full"
    assert names(tmp_path) == [good.name], "and no draft is left"


@pytest.mark.parametrize("name", ["adapter/model.bin", "MANIFEST.json"])
def test_every_flipped_bit_is_noticed(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 2, 1.25) / name
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        assert checkpoint.verify(tmp_path / "step-000002"), place
    file.write_bytes(whole)
    assert not checkpoint.verify(tmp_path / "step-000002")


def test_what_the_manifest_does_not_name_is_noticed(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "adapter" / "more.bin").write_text("more")
    assert "more.bin" in checkpoint.verify(path)
    (path / "adapter" / "more.bin").unlink()
    (path / "state.json").rename(tmp_path / "state.json")
    (path / "state.json").symlink_to(tmp_path / "state.json")
    assert "state.json" in checkpoint.verify(path)


def test_facts_added_later_are_sealed_too_and_leave_nothing_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 1)
    checkpoint.add_facts(path, {"eval_loss": 0.5})
    assert checkpoint.verify(path) == ""
    assert checkpoint.read_manifest(path)["eval_loss"] == 0.5

    def killed(_self: Path, _target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.add_facts(path, {"eval_loss": 0.25})
    assert checkpoint.verify(path) == ""
    save(tmp_path, 2)
    assert names(tmp_path) == ["step-000001", "step-000002"]


def test_bad_ones_of_later_steps_go_when_a_new_one_stands(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        save(tmp_path, step)
    (tmp_path / "step-000008" / "state.json").write_text("[]")
    save(tmp_path, 7)
    checkpoint.prune(tmp_path, newest=7)
    assert names(tmp_path) == ["step-000006", "step-000007"]


def test_whoever_is_killed_while_deleting_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (2, 4, 6):
        save(tmp_path, step)

    def killed(_path: Path, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.prune(tmp_path, newest=6)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-000004", "step-000006"]
    save(tmp_path, 8)
    assert not list(tmp_path.glob(".tmp-*"))
