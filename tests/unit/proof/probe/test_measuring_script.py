"""The scripts that measure memory on a card, run dry: what they write, a full card as a row, and what they cover."""

import json
import sys
from pathlib import Path

import pytest
import torch

from core.contract.config import RunConfig
from core.machine.hardware import Gpu, Machine
from core.machine.locations import REPOSITORY
from core.models.catalog import presets
from core.proof.probe.longest import longest_step
from core.train.loop import Loop

sys.path.insert(0, str(REPOSITORY / "tests" / "gpu"))
import measure_memory as script
import preset_evidence
import time_cards

GIB = 2**30
H200 = Machine((Gpu(0, "GPU-1", "NVIDIA H200", 141 * GIB, 140 * GIB, (9, 0)),), 16, 128 * GIB, 120 * GIB, 64 * GIB,
               "Linux", wsl=False)  # fmt: skip


def run(out: Path, *more: str) -> list[dict[str, object]]:
    script.run(script.parser("").parse_args(["--dry", "--out", str(out), *more]), script.DRY)
    rows: list[dict[str, object]] = json.loads(out.read_text("utf-8"))["rows"]
    return rows


def test_a_dry_run_writes_what_was_reckoned_beside_what_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "SECONDS", 600.0)  # a busy machine takes all its steps too
    [row] = run(tmp_path / "memory.json", "--only", "short")
    seen, resolved = row["measured"], RunConfig.model_validate(row["resolved"])
    [case] = [case for case in script.DRY if case.name == row["name"]]
    assert seen["tokens_a_step"] == sum(longest_step(resolved, script.facts_of(case)))  # type: ignore[index]
    assert len(seen["seconds"]) == script.LONG  # type: ignore[index]
    assert seen["peak_allocated_bytes"] > 0  # type: ignore[index]


@pytest.mark.parametrize("method", ["reward", "classify"])
def test_models_with_scores_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A reward model has one score and a classifier several; four pairs in a pass of two."""
    monkeypatch.setattr(script, "SECONDS", 600.0)
    [row] = run(tmp_path / "memory.json", "--only", method)
    assert (row["status"], row["error"]) == ("measured", "")


def test_a_full_card_is_a_row_and_what_stands_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nmore")

    monkeypatch.setattr(Loop, "step_begins", full)
    rows = run(tmp_path / "memory.json", "--only", "16-bit")
    assert [row["status"] for row in rows] == ["out_of_memory"]
    assert rows[0]["error"] == "CUDA out of memory. Tried to allocate 20.00 MiB."
    monkeypatch.setattr("core.proof.probe.measure.measure_steps", full)
    assert run(tmp_path / "memory.json", "--only", "16-bit", "--again") == rows


def test_every_case_and_every_presets_proposal_is_reckoned_beforehand() -> None:
    proposals = preset_evidence.proposals()
    assert len(proposals) == sum(len(preset.cards) for preset in presets())
    assert len({case.name for case in script.CASES}) == len(script.CASES)
    for case in (*script.CASES, *proposals[:3]):
        machine = H200 if case in script.CASES else preset_evidence.as_card(case, H200)
        row = script.reckoned(case, machine)
        assert row["estimate"]["verdict"] in ("fits", "tight"), case.name
        assert RunConfig.model_validate(row["resolved"]).train.checkpointing != "auto"


def test_cases_of_several_cards_that_had_no_time_are_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where none was measured, and behind the last that was."""
    out = tmp_path / "cards.json"
    flags = ["time_cards.py", "--parts", "dense,start", "--cards", "1", "--out", str(out)]
    monkeypatch.setattr(time_cards, "measured", lambda part, count, *_: {"part": part, "cards": count} | TOOK)
    for seconds, left in (("1", ["dense 1", "start 1"]), ("62", ["start 1"])):
        monkeypatch.setattr(sys, "argv", [*flags, "--seconds", seconds])
        monkeypatch.setattr(time_cards, "EXPECTED_SECONDS", {"dense": 60.0, "start": 90.0})
        time_cards.main()
        told = json.loads(out.read_text("utf-8"))
        assert (told["left"], len(told["rows"])) == (left, 2 - len(left))


TOOK = {"took_seconds": 40.0, "tokens_per_second": 1.0}
