"""A proof as a job: asked for once, followed, stopped, kept."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import until

from core.bench.__main__ import _parser
from core.bench.parity_eight import settings_of
from core.bench.setting import from_flags
from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.estimate import resolve
from core.machine.cards import CardLock
from core.machine.hardware import Gpu, Machine, read_machine
from core.machine.locations import Locations
from core.models.catalog import catalogue
from core.proof import __main__ as proof
from core.proof.__main__ import progress_of
from core.proof.store import COMMANDS, KINDS, Kind, Proofs, flags_for, proven
from core.runs.folder.job_folder import JobFolder
from core.runs.record.learned import speeds


def machine_with(gib: int) -> Machine:
    card = Gpu(0, "GPU-1", "RTX 4070", gib << 30, gib << 30, (8, 9))
    return replace(read_machine(), gpus=(card,))


@pytest.fixture
def home(tmp_path: Path) -> Locations:
    return Locations(tmp_path).make()


def test_progress_is_read_from_the_benchs_own_lines() -> None:
    assert progress_of("rung 3 of 13") == (2, 13)
    assert progress_of("plain 2x2: begins (3 of 4)") == (2, 4)
    assert progress_of("RMS norm, float32: begins (1 of 20)") == (0, 20)
    assert progress_of("AdamW in 8 bits: begins (1 of 1)") is None, "one alone is within its rung"
    assert progress_of("plain 2x2: step 3 of 20, 0.1 s") is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_for_can_be_measured(kind: Kind) -> None:
    for machine in (replace(read_machine(), gpus=()), machine_with(6), machine_with(80)):
        words = [COMMANDS[kind], *flags_for(kind, machine), "--json", "x"]
        _parser(words).parse_args(words)
    assert "random:tiny" in flags_for("ladder", replace(read_machine(), gpus=()))
    small, large = (flags_for("ladder", machine_with(gib)) for gib in (6, 80))
    assert (small[small.index("--layers") + 1], large[large.index("--layers") + 1]) == ("3", "32")


def test_eight_bits_are_proven_in_what_the_card_multiplies_and_only_on_one(home: Locations) -> None:
    flags = flags_for("eight", machine_with(8))
    assert flags[:2] == ("--arithmetic", "fp8,int8")
    turing = replace(machine_with(8), gpus=(replace(machine_with(8).gpus[0], compute_capability=(7, 5)),))
    assert flags_for("eight", turing)[:2] == ("--arithmetic", "int8")
    setting = from_flags(_parser(["parity", *flags]).parse_args(["parity", *flags]))
    assert len(settings_of(setting)) == 9
    with pytest.raises(RunError, match="multiplies 8-bit numbers"):
        Proofs(home).start("eight", replace(read_machine(), gpus=()))


def test_what_a_proof_finds_is_what_auto_goes_by(home: Locations, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in for the bench and a card; a proof that is deleted proves nothing any more."""
    machine, folder = machine_with(20), JobFolder(home.proofs / "2026-11-21_113000_eight_k3f9")
    folder.path.mkdir(parents=True)
    folder.proof_yaml.write_text("kind: eight\nflags: []\n")
    found = {"share": 0.001, "worst": 0.002, "spread": 0.01}
    verdicts = {"int8": {**found, "share": 0.03}, "fp8": found}
    (folder.path / "result.json").write_text(json.dumps({"steps": 300, "verdicts": verdicts}))
    monkeypatch.setattr(proof.Locations, "find", lambda: home)
    proof._keep(folder, machine)
    config = RunConfig.model_validate({"train": {"arithmetic": "auto"}})
    spec = next(spec for spec in catalogue() if spec.key == "mistral-7b")
    plan, _ = resolve(config, spec, None, machine, speeds(home))
    assert plan.train.arithmetic == "fp8"
    shutil.rmtree(folder.path)
    assert resolve(config, spec, None, machine, speeds(home))[0].train.arithmetic == "int8"
    lost = proven("p", {"steps": 3, "verdicts": {"fp8": dict.fromkeys(found)}}, machine, 0.0)
    assert lost[0].share == 1.0


def test_a_proof_waits_for_the_card_is_stopped_and_leaves_nothing(home: Locations) -> None:
    machine = read_machine()
    card = CardLock(home, machine.cards)
    assert card.acquire("run 2026-11-21_1130_x_k3f9")
    proofs = Proofs(home)
    name = proofs.start("ladder", machine)
    try:
        until(lambda: (stage := proofs.all()[0].record.stage) is not None and stage.stage == "waiting", 60)
        stage = proofs.all()[0].record.stage
        assert stage is not None
        assert "run 2026-11-21_1130_x_k3f9" in stage.text
        with pytest.raises(RunError, match="found one"):
            proofs.start("ladder", machine)
        for foreign in ("../runs", "x", "2026-11-21_113000_other_k3f9"):
            with pytest.raises(RunError, match="Expected a proof"):
                proofs.stop(foreign)
    finally:
        proofs.stop(name)
        until(lambda: proofs.all()[0].record.state == "stopped", 60)
        card.release()
    until(lambda: _deleted(proofs, name), 15)
    assert not (home.proofs / name).exists()


def _deleted(proofs: Proofs, name: str) -> bool:
    try:
        proofs.delete(name)
    except RunError as error:
        return error.code == "proof.unknown"
    return True


@pytest.mark.slow
def test_a_proof_goes_all_the_way_and_keeps_driver_and_versions(home: Locations) -> None:
    proofs = Proofs(home)
    proofs.start("kernels", read_machine())
    until(lambda: proofs.all()[0].record.state not in ("queued", "starting", "training"), 120)
    proof = proofs.all()[0]
    assert proof.record.state == "finished", proof.record.failure
    assert {"driver", "versions", "device"} <= proof.result.keys()
    assert proof.result["versions"]["torch"]
