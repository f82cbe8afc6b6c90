"""A proof as a job: asked for once, followed, stopped, kept; and how the window tells of it."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from core.bench.children import Outcome
from core.bench.parity import compare
from core.bench.report import MACHINE
from core.bench.setting import Setting
from core.contract.errors import RunError
from core.contract.events import Failed, Finished, Hello, Queued, Stage, Starting
from core.machine.cards import CardLock
from core.machine.hardware import Gpu, Machine, read_machine
from core.machine.locations import Locations
from core.proof.__main__ import progress_of
from core.proof.store import KINDS, Kind, Proof, Proofs, flags_for
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter
from core.runs.record.job_record import fold
from studio.pages.proof.view import shown


def machine_with(gib: int) -> Machine:
    card = Gpu(0, "GPU-1", "RTX 4070", gib << 30, gib << 30, (8, 9))
    return replace(read_machine(), gpus=(card,))


@pytest.fixture
def home(tmp_path: Path) -> Locations:
    return Locations(tmp_path).make()


def write(home: Locations, kind: Kind, *events: object, result: dict[str, object] | None = None) -> JobFolder:
    folder = JobFolder(home.proofs / f"2026-11-21_113000_{kind}_k3f9")
    folder.path.mkdir(parents=True)
    folder.proof_yaml.write_text(f"kind: {kind}\nflags: [--steps, '20']\n")
    writer = EventWriter(folder.events, 1)
    for event in events:
        writer.write(event)  # type: ignore[type-var]
    writer.close()
    if result is not None:
        (folder.path / "result.json").write_text(json.dumps(result))
    return folder


def test_progress_is_read_from_the_benchs_own_lines() -> None:
    assert progress_of("rung 3 of 13") == (2, 13)
    assert progress_of("plain 2x2: begins (3 of 4)") == (2, 4)
    assert progress_of("RMS norm, float32: begins (1 of 20)") == (0, 20)
    assert progress_of("AdamW in 8 bits: begins (1 of 1)") is None, "one alone is within its rung"
    assert progress_of("plain 2x2: step 3 of 20, 0.1 s") is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_asked_for_can_be_measured(kind: Kind) -> None:
    from core.bench.__main__ import _parser

    for machine in (replace(read_machine(), gpus=()), machine_with(6), machine_with(80)):
        _parser().parse_args([kind, *flags_for(kind, machine), "--json", "x"])
    assert "random:tiny" in flags_for("ladder", replace(read_machine(), gpus=()))
    small, large = (flags_for("ladder", machine_with(gib)) for gib in (6, 80))
    assert (small[small.index("--layers") + 1], large[large.index("--layers") + 1]) == ("3", "32")


def test_a_proof_waits_for_the_card_is_stopped_and_leaves_nothing(home: Locations) -> None:
    machine = read_machine()
    card = CardLock(home, machine.cards)
    assert card.acquire("run 2026-11-21_1130_x_k3f9")
    proofs = Proofs(home)
    name = proofs.start("ladder", machine)
    try:
        until(lambda: (stage := proofs.all()[0].record.stage) is not None and stage.stage == "waiting", 60)
        told = shown(proofs.all()[0], time.time())
        assert told["living"]
        assert "run 2026-11-21_1130_x_k3f9" in told["progress"]["text"]
        with pytest.raises(RunError, match="found one"):
            proofs.start("ladder", machine)
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


def test_a_proof_whose_process_is_gone_is_lost_and_says_so(home: Locations) -> None:
    write(home, "parity", Queued(), Starting(), Hello(), Stage(stage="verifying"))
    told = shown(Proofs(home).all()[0], time.time())
    assert (told["verdict"], told["living"], told["rows"]) == ("Interrupted", False, [])
    assert told["cause"]


def test_a_failure_is_said_and_a_foreign_name_is_no_proof(home: Locations) -> None:
    write(home, "ladder", Queued(), Starting(), Failed(message="Expected room, found the card full."))
    assert shown(Proofs(home).all()[0], 0.0)["cause"] == "Expected room, found the card full."
    for name in ("../runs", "x", "2026-11-21_113000_other_k3f9"):
        with pytest.raises(RunError, match="Expected a proof"):
            Proofs(home).stop(name)


def test_unknown_figures_are_a_dash_and_a_bad_verdict_is_said(home: Locations) -> None:
    rung = {"name": "plain", "status": "failed", "reason": "memory"}
    unknown = ("seconds_a_step", "tokens_per_second", "saved_per_cent", "saved_per_cent_vs_plain", "loss",
               "peak_allocated_gib")  # fmt: skip
    result = {"rungs": [{**rung, **dict.fromkeys(unknown)}], "versions": None, "driver": None, "device": None}
    proof = Proof("x", "ladder", (), fold([Queued(), Starting(), Finished()]), result)
    told = shown(proof, 0.0)
    assert told["rows"] == [["plain (memory)", *["–"] * 6]]
    assert [value for _, value in told["facts"]][:3] == ["–", "–", "–"]
    differs = replace(proof, kind="parity", result={"agrees": False, "losses": {}, "table": []})
    assert shown(differs, 0.0)["verdict"] == "differs"
    assert shown(differs, 0.0)["tone"] == "bad"


def judged(nearer: int, error: str = "", held: bool = True) -> dict[str, Any]:
    """A parity whose fast side lies outside at step 10, as the bench writes it."""
    row = {"step": 10, "losses": {"fast": 10.53, "plain 2x8": 10.59}, "spread": 0.002, "distance": 0.06,
           "judge": None if error else 10.51, "fast_nearer": None if error else bool(nearer)}  # fmt: skip
    ends = {"fast": 5.9, "plain_mean": 5.9, "plain_spread": 0.0, "agrees": held, "losses": {"fast": 5.9}}
    return {
        "agrees": False, "losses": {"fast": [], "plain 2x8": []}, "outside": [10], "outside_and_nearer": nearer,
        "judge": {"command": "c", "losses": [], "error": error}, "held_out": ends, "table": [row],
    }  # fmt: skip


def test_where_fast_lies_outside_it_is_said_who_is_nearer_to_float32() -> None:
    record = fold([Queued(), Starting(), Finished()])
    near = shown(Proof("x", "parity", (), record, judged(1)), 0.0)
    assert (near["verdict"], near["tone"]) == ("nearer to float32", "good")
    assert "At step 10 " in near["note"]
    assert "at 1 of 1 such steps" in near["note"]
    assert near["head"][-1] == "Plain in float32"
    assert [row[-1] for row in near["rows"]] == ["10.51000", "–"]
    assert all(len(row) == len(near["head"]) for row in near["rows"])
    for result in (judged(0), judged(1, held=False)):
        assert shown(Proof("x", "parity", (), record, result), 0.0)["verdict"] == "differs"
    failed = shown(Proof("x", "parity", (), record, judged(0, "the card was full")), 0.0)
    assert failed["verdict"] == "differs"
    assert failed["note"].endswith("could not be found out: the card was full")


def test_a_fast_side_whose_losses_are_gone_is_never_called_nearer() -> None:
    record, result = fold([Queued(), Starting(), Finished()]), judged(1)
    gone = {"step": 20, "losses": {"fast": None, "plain 2x8": 4.0}, "spread": None, "distance": None, "judge": None}
    lost = {"fast": None, "plain_mean": None, "agrees": None, "losses": {"fast": None, "plain 2x8": 5.9}}
    for bad in ({**result, "table": [*result["table"], gone]}, {**result, "held_out": lost}):
        told = shown(Proof("x", "parity", (), record, bad), 0.0)
        assert (told["verdict"], told["tone"]) == ("differs", "bad")
        assert "rounds once" not in told["note"]
    unasked = {**result, "held_out": {**lost, "losses": {"fast": None}}}
    assert shown(Proof("x", "parity", (), record, unasked), 0.0)["verdict"] == "nearer to float32"


def test_a_parity_that_needed_no_judge_is_shown_as_the_bench_writes_it() -> None:
    outcomes = {
        name: Outcome({**dict.fromkeys((*MACHINE, "plan")), "losses": [4.0] * 20, "held_out_loss": 3.9})
        for name in ("fast", "plain 2x1", "plain 1x2")
    }
    result = compare({name: Setting(rows="dense:8") for name in outcomes}, outcomes)
    assert "judge" not in result
    told = shown(Proof("x", "parity", (), fold([Queued(), Starting(), Finished()]), result), 0.0)
    assert (told["verdict"], told["tone"], told["note"]) == ("agrees", "good", "")
    assert [row[0] for row in told["rows"]] == ["10", "20", "Held-out loss"]
    assert all(len(row) == len(told["head"]) == 6 for row in told["rows"])
