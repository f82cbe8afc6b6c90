"""The script that measures memory on a card, run dry: what it writes, that a full card is a row, and what it covers."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from core.contract.config import RunConfig
from core.machine.hardware import Gpu, Machine
from core.probe.longest import longest_step

GIB = 2**30
H200 = Machine(
    gpus=(Gpu(0, "GPU-1", "NVIDIA H200", 141 * GIB, 140 * GIB, (9, 0)),),
    cpu_count=16, ram_total_bytes=128 * GIB, ram_free_bytes=120 * GIB, disk_free_bytes=64 * GIB, system="Linux",
    wsl=False,
)  # fmt: skip


def run(script: ModuleType, out: Path, *more: str) -> dict[str, object]:
    script.run(script.parser("").parse_args(["--dry", "--out", str(out), *more]), script.DRY)
    found: dict[str, object] = json.loads(out.read_text("utf-8"))
    return found


def test_a_dry_run_writes_what_was_reckoned_beside_what_was_seen(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "SECONDS", 600.0)  # a busy machine takes all its steps too
    out = tmp_path / "memory.json"
    [row] = run(script, out, "--only", "short")["rows"]  # type: ignore[misc]
    assert row["status"] == "measured", row["error"]
    seen, asked = row["measured"], RunConfig.model_validate(row["asked"])
    assert asked.train.tokens_per_pass == 0 < row["resolved"]["train"]["tokens_per_pass"]
    assert row["estimate"]["peak_bytes"] > sum(row["estimate"]["terms"][key] for key in ("weights", "context")) > 0
    assert seen["peak_allocated_bytes"] > 0
    assert len(seen["seconds"]) == script.LONG
    [case] = [case for case in script.DRY if case.name == row["name"]]
    longest = longest_step(RunConfig.model_validate(row["resolved"]), script.facts_of(case))
    assert seen["tokens_a_step"] == sum(longest)
    assert seen["tokens_per_second"] == pytest.approx(sum(longest) / seen["seconds_a_step"], rel=0.3)
    assert "plain layers: no GPU" in seen["lines"]


def test_a_full_card_is_a_row_and_what_stands_is_not_measured_again(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    import core.probe.measure as room
    from core.train.loop import Loop

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nmore")

    monkeypatch.setattr(Loop, "step_begins", full)
    rows = run(script, tmp_path / "memory.json", "--only", "16-bit")["rows"]
    assert [row["status"] for row in rows] == ["out_of_memory"]  # type: ignore[attr-defined]
    assert rows[0]["error"] == "CUDA out of memory. Tried to allocate 20.00 MiB."  # type: ignore[index]
    monkeypatch.setattr(room, "measure_steps", full)
    again = run(script, tmp_path / "memory.json", "--only", "16-bit", "--again")["rows"]
    assert again == rows


def test_no_time_left_ends_it_with_what_there_is(script: ModuleType, tmp_path: Path) -> None:
    chosen = script.parser("").parse_args(["--dry", "--out", str(tmp_path / "none.json"), "--seconds", "-1"])
    assert script.run(chosen, script.DRY)["rows"] == []


def test_the_cases_cover_every_axis_and_each_is_reckoned_beforehand(script: ModuleType) -> None:
    cases = script.CASES
    assert len({case.name for case in cases}) == len(cases) >= 36
    specs = [case.spec() for case in cases]
    sizes = [spec.shape.parameters / 1e9 for spec in specs]
    assert min(sizes) < 0.6
    assert max(sizes) > 14
    vocabularies = {spec.shape.vocab_size for spec in specs}
    assert min(vocabularies) == 32000
    assert max(vocabularies) > 256_000
    assert {case.length for case in cases} >= {512, 1024, 2048, 4096, 8192, 16384}
    assert {case.rank for case in cases} >= {8, 16, 32, 64, 128}
    assert {case.policy for case in cases} == {"none", "recompute", "offload", "budget", "auto"}
    assert {case.quantization for case in cases} == {"nf4", "none"}
    assert {case.rows for case in cases} == {"full", "short"}
    for case in cases:
        row = script.reckoned(case, H200)
        assert row["estimate"]["verdict"] in ("fits", "tight"), case.name
        assert RunConfig.model_validate(row["resolved"]).train.checkpointing != "auto"
