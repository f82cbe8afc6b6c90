"""A checkpoint stands whole or not at all, is verified before it is used, and never costs the one before it."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from core.contract.errors import MachineError
from core.train import checkpoint


def write(text: str = "weights") -> Callable[[Path], None]:
    def put(draft: Path) -> None:
        (draft / "adapter").mkdir()
        (draft / "adapter" / "model.bin").write_text(text)
        (draft / "state.json").write_text("{}")

    return put


def save(root: Path, step: int, eval_loss: float | None = None) -> Path:
    return checkpoint.save(root, step, write(f"{step}"), {"eval_loss": eval_loss}, 100).path


def test_what_is_saved_verifies_and_names_its_files(tmp_path: Path) -> None:
    saved = checkpoint.save(tmp_path, 200, write(), {"eval_loss": 1.5}, 100)
    assert saved.path.name == "step-000200"
    assert checkpoint.verify(saved.path) == ""
    manifest = checkpoint.read_manifest(saved.path)
    assert manifest["step"] == 200
    assert manifest["eval_loss"] == 1.5
    assert set(manifest["files"]) == {"adapter/model.bin", "state.json"}
    assert saved.bytes == sum(path.stat().st_size for path in saved.path.rglob("*") if path.is_file())


@pytest.mark.parametrize("harm", ["flip", "cut", "lose", "manifest", "no manifest"])
def test_a_damaged_one_is_named_and_the_one_before_is_used(tmp_path: Path, harm: str) -> None:
    before, newest = save(tmp_path, 1), save(tmp_path, 2)
    file = newest / "adapter" / "model.bin"
    match harm:
        case "flip":
            file.write_text("3")
        case "cut":
            file.write_text("")
        case "lose":
            file.unlink()
        case "manifest":
            (newest / "MANIFEST.json").write_text("{]")
        case "no manifest":
            (newest / "MANIFEST.json").unlink()
    told: list[tuple[str, str]] = []
    assert checkpoint.latest_good(tmp_path, lambda path, problem: told.append((path.name, problem))) == before
    assert [name for name, _ in told] == ["step-000002"]
    assert all(problem for _, problem in told)


def test_last_two_and_best_stay(tmp_path: Path) -> None:
    for step, loss in [(1, 2.0), (2, 1.0), (3, 3.0), (4, None), (5, 1.5)]:
        save(tmp_path, step, loss)
        checkpoint.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000004", "step-000005"]
    assert checkpoint.best(tmp_path) == tmp_path / "step-000002"
    (tmp_path / "step-000002" / "state.json").write_text("harmed")
    assert checkpoint.best(tmp_path) == tmp_path / "step-000005"


def test_without_a_measure_the_newest_is_best(tmp_path: Path) -> None:
    save(tmp_path, 1)
    newest = save(tmp_path, 2)
    assert checkpoint.best(tmp_path) == newest
    assert checkpoint.best(tmp_path / "none") is None


def test_a_killed_writers_draft_is_no_checkpoint_and_is_cleared(tmp_path: Path) -> None:
    good = save(tmp_path, 1)
    shutil.copytree(good, tmp_path / ".tmp-step-000002")
    assert checkpoint.latest_good(tmp_path) == good
    save(tmp_path, 3)
    assert not list(tmp_path.glob(".tmp-*"))


def test_a_full_disk_is_said_before_and_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = save(tmp_path, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=5_000_000))
    with pytest.raises(MachineError) as caught:
        checkpoint.save(tmp_path, 2, write(), {}, 300_000_000)
    assert caught.value.code == "disk.full"
    assert "317 MB" in caught.value.message
    assert "5 MB" in caught.value.message
    assert checkpoint.latest_good(tmp_path) == good


def test_a_disk_that_fills_while_writing_leaves_no_draft(tmp_path: Path) -> None:
    good = save(tmp_path, 1)

    def fill(draft: Path) -> None:
        (draft / "half").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(MachineError, match="for a checkpoint"):
        checkpoint.save(tmp_path, 2, fill, {}, 10)
    assert [path.name for path in tmp_path.iterdir()] == [good.name]


def test_a_manifest_without_files_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "step-000009").mkdir()
    (tmp_path / "step-000009" / "MANIFEST.json").write_text(json.dumps({"step": 9, "files": {}}))
    assert checkpoint.latest_good(tmp_path) is None
