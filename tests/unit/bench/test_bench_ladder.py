"""The ladder climbs rung by rung and invents no number."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.bench.__main__ import _earlier
from core.bench.children import Outcome
from core.bench.ladder import RUNGS, climb, settings_of, table
from core.bench.report import machine_facts
from core.bench.setting import Setting
from core.contract.errors import ConfigError


def landings(*names: str) -> dict[str, dict[str, Any]]:
    """A ladder that stops at these rungs only: each changes what it and those that are left out before it change."""
    made: dict[str, dict[str, Any]] = {}
    changes: dict[str, Any] = {}
    for name, more in RUNGS.items():
        changes = {**changes, **more}
        if name in names:
            made[name], changes = changes, {}
    assert [*made] == [*names]
    return made


FEW = landings(
    next(iter(RUNGS)),
    "AdamW in 8 bits",
    "recomputed, layer inputs in host memory",
    "recomputed only as far as memory asks (auto)",
)
"""The plain one, and those whose optimiser or recomputing no side of ``test_bench_step.py`` has."""


@pytest.mark.parametrize("ladder", [FEW, pytest.param(RUNGS, marks=pytest.mark.slow)], ids=["few rungs", "all"])
def test_a_ladder_is_climbed(
    setting: Setting, in_process: Callable[..., Outcome], ladder: dict[str, dict[str, Any]]
) -> None:
    heard: list[str] = []
    result = climb(setting, in_process, heard.append, ladder)
    json.dumps(result, allow_nan=False)
    rungs = result["rungs"]
    assert [rung["name"] for rung in rungs] == list(ladder)
    for rung in rungs:
        assert rung["status"] == "measured"
        assert len(rung["seconds"]) == 2
        assert rung["losses"] == pytest.approx(rungs[0]["losses"], rel=3e-6)  # the mathematics stays
        assert rung["command"].startswith("python -m core.bench step")
    assert rungs[0]["saved_per_cent"] is None
    assert len(heard) == 3 * len(ladder)
    assert len(table(result).splitlines()) == 2 + len(ladder)


def test_rungs_change_one_thing_at_a_time(setting: Setting) -> None:
    settings = list(settings_of(setting).values())
    assert settings[0].plain
    assert settings[-1] == replace(
        setting, batch=4, accumulation=1, optim="adamw_8bit"
    )  # all of ours, nothing recomputed
    assert len({json.dumps(str(one)) for one in settings}) == len(settings)
    assert {one.rows_a_step for one in settings} == {4}


def first(count: int) -> dict[str, dict[str, Any]]:
    return dict(list(RUNGS.items())[:count])


def fake(seconds: float | None, peak: float | None = None) -> Outcome:
    if seconds is None:
        return Outcome(None, "the card was full")
    figures: dict[str, Any] = {
        "seconds_a_step": seconds, "seconds": [seconds], "tokens_per_second": 1 / seconds, "losses": [1.0],
        "peak_allocated_gib": peak, "peak_reserved_gib": peak, "plan": [], "device": "d", "capability": None,
        "driver": None, "vram_total_gib": None, "python": "3", "versions": {}, "rows": {},
    }  # fmt: skip
    return Outcome(figures)


def test_savings_are_against_the_row_before_and_the_first() -> None:
    outcomes = iter([fake(4.0, 10.0), fake(None), fake(2.0, 8.0), fake(1.0), fake(3.0, 4.0)])
    result = climb(
        Setting(rows="dense:8"), lambda *_: next(outcomes), lambda _: None,
        first(5),
    )  # fmt: skip
    one, failed, two, three, four = result["rungs"]
    assert (one["saved_per_cent"], one["saved_per_cent_vs_plain"]) == (None, None)
    assert (failed["status"], failed["reason"], failed["seconds_a_step"]) == ("failed", "the card was full", None)
    assert (two["saved_per_cent"], two["memory_saved_per_cent"]) == (50.0, 20.0)
    assert (three["saved_per_cent"], three["saved_per_cent_vs_plain"]) == (50.0, 75.0)
    assert three["memory_saved_per_cent"] is None  # its memory is not known
    assert (four["saved_per_cent"], four["saved_per_cent_vs_plain"]) == (-200.0, 25.0)
    assert "failed: the card was full" in table(result)
    failures = climb(Setting(rows="dense:8"), lambda *_: fake(None), lambda _: None, first(2))
    assert failures["device"] is None
    assert all(rung["seconds_a_step"] is None for rung in failures["rungs"])


def test_every_rung_is_kept_as_soon_as_it_is_measured() -> None:
    rungs = first(3)
    outcomes: list[Outcome] = [fake(2.0), fake(4.0)]
    kept: list[dict[str, Any]] = []

    def run(*_: Any) -> Outcome:
        if not outcomes:
            raise KeyboardInterrupt  # somebody has waited long enough
        return outcomes.pop()

    with pytest.raises(KeyboardInterrupt):
        climb(Setting(rows="dense:8"), run, lambda _: None, rungs, kept.append)
    assert [[rung["seconds_a_step"] for rung in result["rungs"]] for result in kept] == [
        [4.0, None, None], [4.0, 2.0, None],
    ]  # fmt: skip
    assert [rung["status"] for rung in kept[-1]["rungs"]] == ["measured", "measured", "not measured"]


def test_a_ladder_that_was_cut_off_goes_on_where_it_ended() -> None:
    rungs = first(4)
    base = Setting(rows="dense:8")
    whole = climb(base, lambda *_: fake(2.0, 4.0), lambda _: None, rungs)
    cut = {**whole, "rungs": [*whole["rungs"][:2], *[{**row, "status": "failed"} for row in whole["rungs"][2:]]]}
    heard: list[str] = []
    result = climb(base, lambda *_: fake(1.0, 4.0), heard.append, rungs, earlier=cut)
    assert [rung["seconds_a_step"] for rung in result["rungs"]] == [2.0, 2.0, 1.0, 1.0]
    assert [rung["saved_per_cent"] for rung in result["rungs"]] == [None, 0.0, 50.0, 0.0]
    assert [line for line in heard if line.startswith("rung")] == ["rung 3 of 4", "rung 4 of 4"]
    other = climb(replace(base, steps=9), lambda *_: fake(1.0, 4.0), heard.append, rungs, earlier=cut)
    assert [rung["seconds_a_step"] for rung in other["rungs"]] == [1.0] * 4, "another command is another measurement"
    rows = climb(base, lambda *_: fake(1.0), heard.append, rungs, earlier={**cut, "rows": {"sha256": "another"}})
    assert [rung["seconds_a_step"] for rung in rows["rungs"]] == [1.0] * 4
    assert any("other rows" in line for line in heard)


def test_only_a_ladder_of_this_machine_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "ladder.json"
    assert _earlier(str(place)) is None
    with pytest.raises(ConfigError, match="--json with --again"):
        _earlier("")
    now = machine_facts(torch.device("cpu"))
    place.write_text(json.dumps({"bench": "ladder", **now, "rungs": []}))
    kept = _earlier(str(place))
    assert kept is not None
    assert kept["rungs"] == []
    place.write_text(json.dumps({"bench": "ladder", **now, "driver": "1.2", "rungs": []}))
    assert _earlier(str(place)) is None
    assert "measured anew" in capsys.readouterr().err
    for other in ("{", "[]", json.dumps({"bench": "parity", **now}), json.dumps({"bench": "ladder", **now})):
        place.write_text(other)
        with pytest.raises(ConfigError, match=r"ladder's JSON in ladder\.json"):
            _earlier(str(place))
