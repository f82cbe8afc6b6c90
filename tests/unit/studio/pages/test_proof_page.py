"""How the window tells of proofs: verdicts, unknown figures, and results that are none of ours."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from core.bench import parity_eight
from core.bench.children import Outcome
from core.bench.parity import compare
from core.bench.report import MACHINE
from core.bench.setting import Setting
from core.contract.events import Event, Failed, Finished, Hello, Queued, Stage, Starting
from core.machine.hardware import Gpu, read_machine
from core.machine.locations import Locations
from core.proof.store import KINDS, Kind, Proof, Proofs
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter
from core.runs.record.job_record import fold
from studio.pages.proof.page import page, routes
from studio.pages.proof.view import shown
from studio.services.services import Studio

BEGUN: tuple[Event, ...] = (Queued(), Starting(), Hello(), Stage(stage="verifying"))
DONE = fold([Queued(), Starting(), Finished()])


@pytest.fixture
def home(tmp_path: Path) -> Locations:
    return Locations(tmp_path / "home").make()


def write(home: Locations, kind: Kind, *events: Event, number: int = 30) -> Path:
    """A proof's folder with these events; where its result belongs."""
    folder = JobFolder(home.proofs / f"2026-11-21_11{number:02}00_{kind}_k3f9")
    folder.path.mkdir(parents=True)
    folder.proof_yaml.write_text(f"kind: {kind}\nflags: [--steps, '20']\n")
    writer = EventWriter(folder.events, 1)
    for event in events:
        writer.write(event)
    writer.close()
    return folder.path / "result.json"


def test_a_proof_whose_process_is_gone_is_lost_and_says_so(home: Locations) -> None:
    write(home, "parity", *BEGUN)
    told = shown(Proofs(home).all()[0], time.time())
    assert (told["verdict"], told["living"], told["rows"]) == ("Interrupted", False, [])
    assert told["cause"]


def test_a_failure_is_said(home: Locations) -> None:
    write(home, "ladder", Queued(), Starting(), Failed(message="Expected room, found the card full."))
    assert shown(Proofs(home).all()[0], 0.0)["cause"] == "Expected room, found the card full."


def test_unknown_figures_are_a_dash_and_a_bad_verdict_is_said(home: Locations) -> None:
    rung = {"name": "plain", "status": "failed", "reason": "memory"}
    unknown = ("seconds_a_step", "tokens_per_second", "saved_per_cent", "saved_per_cent_vs_plain", "loss",
               "peak_allocated_gib")  # fmt: skip
    result = {"rungs": [{**rung, **dict.fromkeys(unknown)}], "versions": None, "driver": None, "device": None}
    proof = Proof("x", "ladder", (), DONE, result)
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
    record = DONE
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
    record, result = DONE, judged(1)
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
    told = shown(Proof("x", "parity", (), DONE, result), 0.0)
    assert (told["verdict"], told["tone"], told["note"]) == ("agrees", "good", "")
    assert [row[0] for row in told["rows"]] == ["10", "20", "Held-out loss"]
    assert all(len(row) == len(told["head"]) == 6 for row in told["rows"])


def of_eight_bits(**ends: tuple[float | None, ...]) -> dict[str, Any]:
    """A result as the bench writes it: each side's held-out losses at the end of three draws."""
    known = {"16-bit": (2.0, 2.01, 1.99), **ends}
    settings = parity_eight.settings_of(Setting(rows="dense:8", arithmetic=",".join(ends), steps=300, warm_up=0))
    outcomes = {}
    for name, one in settings.items():
        loss = known[one.arithmetic][one.draw]
        values = {"losses": [3.0] * 300, "held_out_loss": loss, "held_out_curve": [[150, 2.5], [300, loss]],
                  "answers": {"asked": 40, "right": 38 - (name == "fp8 1")},
                  "cosines": [] if one.arithmetic == "16-bit" else [0.9999, 0.998]}  # fmt: skip
        outcomes[name] = Outcome({**dict.fromkeys((*MACHINE, "plan", "seconds_a_step")), **values})
    return parity_eight.compare(settings, outcomes)


def test_eight_bits_are_told_in_a_sentence_a_picture_and_figures() -> None:
    result = of_eight_bits(fp8=(2.002, 2.004, 2.04), int8=(2.001, 2.009, 1.991))
    told = shown(Proof("x", "eight", ("--arithmetic", "fp8,int8"), DONE, json.loads(json.dumps(result))), 0.0)
    assert (told["verdict"], told["tone"]) == ("int8 proven", "good")
    assert told["note"] == (
        "fp8 is not proven: after 300 steps its held-out loss is 0.77% higher than in 16 bits; 0.50% is allowed. "
        "Of 40 held-out questions it answers 37 to 38 word for word as the samples do, 16 bits 38.\n"
        "int8 is proven on this card: after 300 steps its held-out loss is 0.02% higher than in 16 bits, whose own "
        "seeds lie 1.00% apart. Of 40 held-out questions it answers 38 word for word as the samples do, 16 bits 38."
    )
    assert told["command"] == "python -m core.bench parity --arithmetic fp8,int8"
    assert told["head"][:2] == ["Held-out loss at step", "fp8 1"]
    assert [row[0] for row in told["rows"]] == ["150", "300"]
    assert all(len(row) == len(told["head"]) == 10 for row in told["rows"])
    picture = told["picture"]
    assert [kind for kind, _ in picture["legend"]] == ["band", "side-0", "side-1"]
    assert "turned by 3.6° at most (cosine 0.9980)" in picture["layers"][0]["words"]
    kinds = [shape[1].get("class") for shape in picture["lines"][2:]]
    assert kinds[:3] == ["allowed", "zero", "allowed"]
    assert kinds.count("dot side-0") == kinds.count("dot side-1") == 3
    one_out = of_eight_bits(fp8=(2.0, 2.0, 2.03))
    note = shown(Proof("x", "eight", (), DONE, one_out), 0.0)["note"]
    assert "on average its held-out loss is 0.50% higher" in note
    assert "with one seed the two lie 2.01% apart" in note


def test_eight_bits_whose_loss_is_gone_are_not_proven() -> None:
    told = shown(Proof("x", "eight", (), DONE, of_eight_bits(fp8=(2.0, None, 2.0))), 0.0)
    assert (told["verdict"], told["tone"]) == ("not proven", "bad")
    assert told["note"] == "fp8 is not proven: its loss was no number any more."
    assert told["picture"] is not None, "up to there it can be drawn"


def test_eight_bits_are_offered_on_cards_that_multiply_them(home: Locations) -> None:
    def page_on(*gpus: Gpu) -> str:
        studio = Studio(home, store=None, data=None)  # type: ignore[arg-type]
        object.__setattr__(studio, "machine", lambda: replace(read_machine(), gpus=gpus))
        return str(page(studio))

    card = Gpu(0, "GPU-1", "RTX 4070", None, None, (8, 9))
    assert 'data-start="eight"' in page_on(card)
    for html in (page_on(), page_on(replace(card, compute_capability=(7, 0)))):
        assert 'data-start="eight"' not in html
        assert "It needs a graphics card: an RTX 20 or newer." in html


ROW = {"op": "x", "dtype": "y", "error": 1, "plain_error": 1, "allowed": 1, "agrees": True}
RESULTS: dict[str, Any] = {
    "wrong kinds": {"rows": 5, "rungs": "x", "table": {"a": 1}, "losses": [], "versions": [], "outside": 7, "judge": 3},
    "texts for numbers": {"rows": [{**ROW, "error": "a"}], "rungs": [{"name": 1}], "table": [{"step": {}}]},
    "rows of nothing": {"rows": [None], "rungs": [[]], "table": [0], "losses": {"a": 1}},
    "no text": {"rows": [{**ROW, "op": "\ud800"}], "device": "\ud800", "rungs": [], "table": []},
    "no numbers": {
        "rows": [{**ROW, "error": float("nan")}],
        "rungs": [],
        "table": [],
        "held_out": {"fast": float("inf")},
    },
    "long": {"rows": [{**ROW, "op": "x" * 1_000_000}] * 3, "device": "d" * 1_000_000, "rungs": [], "table": []},
    "endless": {"rows": [{**ROW, "error": 10**400}], "rungs": [], "table": [], "outside": [], "agrees": [[]]},
}
FILES: dict[str, Callable[[Path], object]] = {
    "deep": lambda path: path.write_text("[" * 100_000),
    "deep object": lambda path: path.write_text('{"a":' * 100_000),
    "huge": lambda path: (path.write_text("{"), os.truncate(path, 6 << 30)),
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "no text at all": lambda path: path.write_bytes(b"\xff\xfe\0"),
}


def test_no_result_closes_the_list(home: Locations) -> None:
    number = 0
    for kind in KINDS:
        for result in RESULTS.values():
            write(home, kind, *BEGUN, Finished(), number=(number := number + 1)).write_text(json.dumps(result))
        for make in FILES.values():
            make(write(home, kind, *BEGUN, Finished(), number=(number := number + 1)))
    app = FastAPI()
    app.include_router(routes(Studio(home, store=None, data=None)))  # type: ignore[arg-type]
    answer = TestClient(app).get("/studio/proofs")
    assert answer.status_code == 200
    told = json.loads(answer.content, parse_constant=pytest.fail)
    assert len(told["proofs"]) == number
    assert len(answer.content) < 200_000
    unreadable = [proof for proof in told["proofs"] if proof["verdict"] == "Unreadable"]
    assert len(unreadable) >= 6
    assert all(proof["note"] and not proof["rows"] for proof in unreadable)
