"""Exports that cannot be, or that begin where a killed one ended: what is said, and what is left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from dying_log import Letters, Said

from core.contract.errors import MachineError, ModelError, RunError
from core.export import opening, verify
from core.export import run as export_room
from core.export.forms import merge
from core.export.gguf.proof.check import Verified
from core.export.run import export
from core.machine.locations import ASSETS
from core.model.pissa import CORRECTED
from core.models.checks.weights import fingerprint
from core.runs.folder.job_folder import JobFolder
from core.train.channel.command_queue import CommandQueue
from core.train.channel.reporter import EventReporter
from core.train.keep.checkpoint import add_facts

VERIFY = export_room._verify
Ask = Callable[..., JobFolder]


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reloaded export is checked elsewhere."""
    monkeypatch.setattr(export_room, "_verify", lambda *_: Verified(()))


def done(job: JobFolder) -> tuple[Path, Said]:
    said = Said()
    export(job, said, CommandQueue(Letters(), EventReporter(said)))  # type: ignore[arg-type]
    return job.exports / job.name, said


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["asked", "checked"])
def test_weights_as_they_were_trained_beside_are_checked_against_bitsandbytes(
    ask_for: Ask, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """The check itself on a small model: ``test_export_weights``."""

    def ask(command: list[str], _check: object) -> Any:
        request = json.loads(Path(command[-1]).read_text("utf-8"))
        assert (request["held"], request["corrected"]) == ("bfloat16", CORRECTED)
        if not whole:
            return {"checks": ["base in 4 bits + adapter on a prompt of the data: cosine 0.9999"]}
        with redirect_stdout(StringIO()) as written:
            verify.main(command[-1:])
        return json.loads(written.getvalue().splitlines()[-1])

    monkeypatch.setattr(export_room, "_verify", VERIFY)
    monkeypatch.setattr(export_room, "_ask", ask)
    out, said = done(ask_for("beside", "merged", weights="trained_on"))
    [exported] = said.of("exported")
    assert any("base in 4 bits + adapter on a prompt of the data: cosine 0.9999" in check for check in exported.checks)
    assert "exactly what it was trained beside" in (out / "README.md").read_text("utf-8")


def test_a_killed_export_goes_on_and_says_so(run: JobFolder, ask_for: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ask_for("mine", "merged")
    with pytest.MonkeyPatch.context() as patch:  # a killed process deletes nothing
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        patch.setattr(merge, "read_header", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            done(job)
    computed = list[str]()
    before = merge._write_tensor
    monkeypatch.setattr(merge, "_write_tensor", lambda *of: (computed.append(of[1].name), before(*of)))
    out, said = done(job)
    [note] = said.of("note")
    assert "goes on" in note.text
    assert computed == []
    assert merge.WRITTEN not in {path.name for path in out.iterdir()}
    assert said.of("exported")


def test_what_killed_exports_left_makes_room(run: JobFolder, ask_for: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    left = run.export_draft("other")
    left.mkdir(parents=True)
    (left / merge.WRITTEN).write_text("{}")
    (left / "model.safetensors").write_bytes(bytes(30_000_000))
    usage = shutil.disk_usage(run.path)
    free = lambda: (1 << 30) if not left.exists() else 1 << 20  # noqa: E731
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free()))
    _, said = done(ask_for("mine", "adapter"))
    [note] = said.of("note")
    assert "0.03 GB" in note.text
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    with pytest.raises(MachineError) as caught:
        done(ask_for("more", "merged"))
    assert caught.value.code == "disk.room"


def test_another_base_model_in_its_place_is_refused(run: JobFolder, ask_for: Ask, tmp_path: Path) -> None:
    checkpoint = run.checkpoints / "step-000012"
    add_facts(checkpoint, {"depends": {"base": fingerprint(ASSETS / "starter")}})
    done(ask_for("same", "adapter"))
    add_facts(checkpoint, {"depends": {"base": "f" * 64}})
    with pytest.raises(RunError, match="another one in its place") as caught:
        done(ask_for("other", "adapter"))
    assert caught.value.code == "export.base"
    assert not run.export_draft("other").exists()


def test_a_revision_that_is_gone_is_named(run: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache's "main" may have moved on since: the commit that was trained on counts."""
    from core.contract.errors import HubError

    asked = list[tuple[str, ...]]()

    def find(*of: str) -> Any:
        asked.append(of)
        raise HubError("hub.unreachable/no_answer", endpoint="here", name="a/b", kind="E")

    monkeypatch.setattr(opening, "find_model", find)
    config = run.config()
    hub = config.model_copy(update={"model": config.model.model_copy(update={"source": "hub", "name": "a/b"})})
    with pytest.raises(ModelError, match="a/b at revision 0123") as caught:
        opening._base_of(hub, "0123456789" * 4)
    assert caught.value.code == "export.base"
    assert asked == [("hub", "a/b", "0123456789" * 4)]
    monkeypatch.undo()
    gone = config.model_copy(update={"model": config.model.model_copy(update={"source": "folder", "name": "/gone"})})
    with pytest.raises(ModelError, match="in /gone, found it gone"):
        opening._base_of(gone, "")


def test_a_run_over_16_bits_has_no_other_weights_to_take(run: JobFolder, ask_for: Ask) -> None:
    from core.runs.folder.run_yaml import dump_config

    config = run.config()
    plain = config.model_copy(update={"model": config.model.model_copy(update={"quantization": "none"})})
    run.run_yaml.write_text(dump_config(plain), encoding="utf-8")
    with pytest.raises(RunError) as caught:
        done(ask_for("beside", "merged", weights="trained_on"))
    assert caught.value.code == "export.weights"
