"""The script that measures presets: which card it reckons with, and what it lets a preset claim."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from core.estimate.inputs.work import GIB
from core.machine.hardware import Gpu, Machine
from core.models.catalog import evidence_key, presets


def row_of(proposal: Any, reserved_gib: float, status: str = "measured") -> dict[str, Any]:
    """A row as the script writes it, of what the evidence is made of."""
    seen = {"peak_reserved_bytes": round(reserved_gib * GIB), "context_bytes": GIB // 2}
    return {
        "name": proposal.name, "model": proposal.card.model, "capped_gib": proposal.cap_gib, "max_row": proposal.length,
        "status": status, "measured": seen if status == "measured" else None,
    }  # fmt: skip


def test_every_proposal_of_every_preset_is_a_case(evidence: ModuleType) -> None:
    cases = evidence.proposals()
    wanted = {evidence_key(recipe, card) for recipe in presets() for card in recipe.cards}
    assert {case.name for case in cases} == wanted
    assert len(cases) == len(wanted) >= 30
    assert [case.card.gib for case in cases] == sorted(case.card.gib for case in cases)
    case = next(case for case in cases if case.preset.key == "long-context")
    assert set(case.lengths()) == {case.length} == {8192}
    assert case.config().data.eval_fraction == 0.0
    assert case.spec().folder == ""


def test_a_card_of_the_proposals_size_stands_in_for_the_large_one(evidence: ModuleType) -> None:
    large = Machine((Gpu(0, "GPU-1", "NVIDIA H200", 141 * GIB, 140 * GIB, (9, 0)),), 8, 9, 9, 9, "Linux", wsl=False)
    proposal = evidence.proposals()[0]
    small = evidence.as_card(proposal, large)
    assert small.gpu is not None
    assert (small.gpu.total_bytes, small.gpu.name) == (6 * GIB, "NVIDIA H200")
    assert small.gpu.free_bytes == int(5.3 * GIB)
    without = Machine((), 8, 9, 9, 9, "Linux", wsl=False)
    assert evidence.as_card(proposal, without) == without


def test_only_what_was_measured_within_its_card_is_claimed(evidence: ModuleType) -> None:
    fits, beyond, full, *_ = evidence.proposals()
    rows = [row_of(fits, 4.1), row_of(beyond, 5.6), row_of(full, 0.0, "out_of_memory")]
    found = evidence.evidence_of({"device": "NVIDIA H200", "rows": rows})
    assert set(found) == {fits.name}
    assert found[fits.name] == {
        "evidence": "Qwen3 0.6B, rows of 512 tokens: 4.6 of 6 GB, memory measured on an H200 capped to 6 GB",
        "peak_bytes": round(4.1 * GIB) + GIB // 2,
    }
    [line] = evidence.evidence_of({"device": "NVIDIA GeForce RTX 3060", "rows": rows}).values()
    assert line["evidence"].endswith("on a GeForce RTX 3060 capped to 6 GB")
