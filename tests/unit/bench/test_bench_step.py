"""One setting: fast and plain agree, whatever the switches; the result says what was asked and nothing invented."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from core.bench.__main__ import main
from core.bench.children import own_process
from core.bench.setting import Setting, flags_of
from core.bench.step import measure
from core.contract.errors import Fault
from core.model.layers import decoder_layer

SIDES: dict[str, dict[str, Any]] = {
    "plain": {"plain": True},
    "plain, recomputed": {"plain": True, "checkpointing": "recompute"},
    "plain, one batch": {"plain": True, "batch": 4, "accumulation": 1},
    "plain, eager, upcast": {"plain": True, "attention": "eager", "upcast": True},
    "plain, packed with a mask": {"plain": True, "rows_as": "packed"},
    "plain, packed with bounds": {"plain": True, "rows_as": "packed", "attention": "packed"},
    "fast layers on plain torch": {"kernels": "twins"},
    "fast layers, recomputed": {"kernels": "twins", "checkpointing": "recompute"},
    "fast layers, plain loss": {"kernels": "twins", "loss": "plain"},
    "padded": {"rows_as": "padded"},
    "in small passes": {"tokens_per_pass": 40},
    "in 4 bits": {"quantization": "nf4"},
    "streamed layers": {"kernels": "twins", "checkpointing": "recompute", "streamed": 2},
}


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """Results that several tests compare with."""
    return {}


@pytest.fixture
def fast_layers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with every pass of a fast layer: a mask would send it home, and a rung would measure the plain ones."""
    seen: list[int] = []
    inner: Callable[..., Any] = decoder_layer.lora_mlp
    monkeypatch.setattr(decoder_layer, "lora_mlp", lambda *a: seen.append(1) or inner(*a))
    return seen


REPEATED = {"plain, one batch": "test_bench_parity.py", "fast layers, recomputed": "streamed layers"}
"""Sides whose path another one takes as well."""


@pytest.mark.parametrize(
    "side", [pytest.param(side, marks=[pytest.mark.slow] if side in REPEATED else []) for side in SIDES]
)
def test_every_side_trains_the_same_steps(
    side: str, setting: Setting, known: dict[str, Any], fast_layers: list[int]
) -> None:
    changes = SIDES[side]
    key = changes.get("quantization", "none")
    if key not in known:
        known[key] = measure(replace(setting, quantization=key, plain=key == "nf4"))
    wanted, result = known[key], measure(replace(setting, **changes))
    assert len(wanted["losses"]) == 3
    assert result["losses"] == pytest.approx(wanted["losses"], rel=2e-6)
    assert result["grad_norms"] == pytest.approx(wanted["grad_norms"], rel=1e-4)
    assert min(result["grad_norms"]) > 0
    assert result["held_out_loss"] == pytest.approx(wanted["held_out_loss"], rel=2e-6)
    for count in ("trained_tokens", "tokens_a_step"):  # real ones, padding apart
        assert result[count] == wanted[count]
    assert bool(fast_layers) == (changes.get("kernels") == "twins")


def test_plain_may_end_early_on_the_schedule_of_all(setting: Setting) -> None:
    whole = replace(setting, plain=True, steps=6, warm_up=0, held_out=0)
    result, all_six = measure(replace(whole, until=2)), measure(whole)
    assert result["losses"] == pytest.approx(all_six["losses"][:2], rel=1e-7)
    assert len(result["seconds"]) == 2
    assert result["tokens_a_step"] == pytest.approx(all_six["tokens_a_step"], rel=0.5)
    assert 0 < result["trained_tokens"] < all_six["trained_tokens"]
    assert result["held_out_loss"] is None


def test_the_result_says_what_was_measured_and_leaves_unknown_empty(
    setting: Setting, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "out" / "result.json"
    assert main(["step", *flags_of(setting), "--json", str(place), "--every", "1"]) == 0
    said = capsys.readouterr()
    assert "real tokens a second" in said.out
    assert "step 3 of 3" in said.err
    result = json.loads(place.read_text(), parse_constant=pytest.fail)
    assert result["setting"] == asdict(setting)
    assert result["command"].split()[:4] == ["python", "-m", "core.bench", "step"]
    assert len(result["seconds"]) == 2
    assert len(result["seconds_warm_up"]) == 1
    assert min(result["seconds"]) <= result["seconds_a_step"] <= max(result["seconds"])
    assert result["tokens_per_second"] > 0
    assert (result["rows"]["count"], result["rows"]["held_out"]) == (20, 3)
    for name in ("capability", "driver", "peak_allocated_gib", "peak_reserved_gib", "context_gib"):
        assert result[name] is None, name  # there is no card here
    assert {"torch", "triton", "transformers", "peft", "bitsandbytes"} <= set(result["versions"])
    for word in ("loss", "activations"):
        assert any(word in line for line in result["plan"])


@pytest.mark.slow
def test_a_process_of_its_own_measures_the_same(setting: Setting) -> None:
    heard: list[str] = []
    outcome = own_process(replace(setting, kernels="twins"), heard.append, 1)
    assert outcome.result is not None, outcome.error
    assert outcome.result["losses"] == pytest.approx(measure(setting)["losses"], rel=2e-6)
    assert [line.split(",")[0] for line in heard] == [f"step {number} of 3" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"rows": "sparse:9"}, "dense:N"),
        ({"rows": "dense:1"}, "dense:N"),
        ({"rows": "file:/nowhere/rows.jsonl"}, "/nowhere/rows.jsonl"),
        ({"model": "mistral"}, "random:NAME or a model folder"),
        ({"plain": True, "checkpointing": "offload"}, "none or recompute"),
        ({"plain": True, "kernels": "twins"}, "not with --plain"),
        ({"upcast": True}, "only with --plain"),
        ({"checkpointing": "sometimes"}, "sometimes"),
        ({"steps": 0}, "--steps"),
        ({"vram_gb": -1.0}, "--vram-gb"),
        ({"vram_gb": 8.0}, "found none"),
        ({"model": "random:no-such-model"}, "no-such-model"),
        ({"batch": 30}, "found 23"),
    ],
)
def test_what_cannot_be_measured_is_one_line(
    changes: dict[str, Any], word: str, setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(setting, **changes)
    with pytest.raises(Fault):
        measure(wrong)
    assert main(["step", *flags_of(wrong)]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert word in said[0]


@pytest.mark.parametrize("command", ["step", "ladder", "parity"])
def test_help_fits_a_screen(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert "--json" in said
    assert len(said.splitlines()) < 80
    assert ("(300)" in said) is (command == "parity")  # its own default for --steps


def test_a_drawn_b_gives_a_a_gradient(setting: Setting) -> None:
    """With B at zero the gradient of every A is zero in the first step: the drawn one must be larger."""
    drawn, zero = measure(setting), measure(replace(setting, draw_b=False))
    assert drawn["grad_norms"][0] > zero["grad_norms"][0] > 0
    assert not math.isclose(drawn["losses"][0], zero["losses"][0], rel_tol=1e-6)
