"""What every preset takes of a card of every size, measured under a cap of that size; presets claim nothing else.

    PYTHONPATH=. python tests/gpu/preset_evidence.py --out tests/gpu/results/preset_evidence_DATE.json
    PYTHONPATH=. python tests/gpu/preset_evidence.py --out tests/gpu/results/preset_evidence_DATE.json --write

The first measures on a large card: each proposal of ``presets/recipes`` is resolved as on a card of its size of which a
desktop holds ``DESKTOP_GIB``, and trained for a few steps of full rows with random weights, torch's allocator held to
what such a card has beside the CUDA context. The second, without a card, writes what was measured to
``presets/evidence.yaml``, from which the presets tell it. The file is like ``measure_memory.py``'s, and its rows are
named by ``core.models.catalog.evidence_key``: a preset that is changed afterwards has no evidence any more.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import measure_memory as memory
import yaml
from memory_cases import DESKTOP_GIB

from core.contract.catalogue import ModelSpec, Preset, PresetCard
from core.contract.config import RunConfig
from core.estimate.inputs.work import GIB
from core.machine.hardware import Machine
from core.machine.locations import REPOSITORY
from core.model.loading.random_weights import TINY
from core.models.catalog import EVIDENCE, apply_preset, catalogue, evidence_key, presets

STEPS = 4
SPOKEN_WITH_AN = "AEFHILMNORSX8"


@dataclass(frozen=True)
class Proposal:
    """A preset on a card; as ``memory_cases.Case`` for the code that measures."""

    preset: Preset
    card: PresetCard
    dry: bool = False

    @property
    def name(self) -> str:
        """Preset, card and a mark of all values."""
        return evidence_key(self.preset, self.card)

    @property
    def cap_gib(self) -> float:
        """The card's size."""
        return float(self.card.gib)

    @property
    def length(self) -> int:
        """Tokens of the longest example."""
        return self.config().train.max_length

    def spec(self) -> ModelSpec:
        """The shape, as if it were not here: random weights are drawn."""
        if self.dry:
            return TINY
        [found] = [spec for spec in catalogue() if spec.key == self.card.model]
        return found.model_copy(update={"folder": "", "cached": False})

    def lengths(self) -> tuple[int, ...]:
        """Full rows, which take the most."""
        config = apply_preset(RunConfig(), self.preset, self.card)
        return (config.train.max_length,) * (config.rows_per_step * STEPS)

    def config(self) -> RunConfig:
        """As the preset fills the form."""
        chosen = apply_preset(RunConfig(), self.preset, self.card)
        return chosen.model_copy(update={"data": chosen.data.model_copy(update={"eval_fraction": 0.0})})


def proposals(dry: bool = False) -> list[Proposal]:
    """Every preset on every card that it has a word for; smallest cards first."""
    found = [Proposal(preset, card, dry) for preset in presets() for card in preset.cards]
    return sorted(found, key=lambda one: one.card.gib)


def as_card(proposal: Proposal, machine: Machine) -> Machine:
    """This machine with a card of the proposal's size in place of its own."""
    if machine.gpu is None:
        return machine
    size, free = proposal.card.gib * GIB, (proposal.card.gib - DESKTOP_GIB) * GIB
    return replace(machine, gpus=(replace(machine.gpu, total_bytes=size, free_bytes=int(free)),))


def evidence_of(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A line for each row that was measured and stayed within its card."""
    titles = {spec.key: spec.title for spec in catalogue()}
    device = result["device"].removeprefix("NVIDIA ")
    article = "an" if device[:1] in SPOKEN_WITH_AN else "a"
    lines = {}
    for row in result["rows"]:
        gib, seen = round(row["capped_gib"]), row["measured"]
        peak = 0 if seen is None else seen["peak_reserved_bytes"] + (seen["context_bytes"] or 0)
        if 0 < peak <= gib * GIB:
            rows = f"rows of {row['max_row']:,} tokens"
            text = f"{titles[row['model']]}, {rows}: {peak / GIB:.1f} of {gib} GB, memory measured on {article} "
            lines[row["name"]] = {"evidence": f"{text}{device} capped to {gib} GB", "peak_bytes": peak}
    return lines


def write_evidence(path: Path) -> int:
    """``presets/evidence.yaml`` from a results file of this repository; the number of lines."""
    lines = evidence_of(json.loads(path.read_text(encoding="utf-8")))
    head = "# Written by tests/gpu/preset_evidence.py --write; measured, never typed.\n"
    said = {"results": str(path.resolve().relative_to(REPOSITORY)), "rows": lines}
    EVIDENCE.write_text(head + yaml.safe_dump(said, sort_keys=True, width=1000), encoding="utf-8")
    return len(lines)


def main(chosen: argparse.Namespace) -> None:
    """Measures, or writes what was measured."""
    if chosen.write:
        print(f"{write_evidence(chosen.out)} lines of evidence in {EVIDENCE.relative_to(REPOSITORY)}")
        return
    result = memory.run(chosen, proposals(chosen.dry), as_card)
    beyond = [row["name"] for row in result["rows"] if row["status"] != "measured"]
    print("every proposal fits" if not beyond else f"do not fit: {', '.join(beyond)}")


def parser() -> argparse.ArgumentParser:
    """``measure_memory``'s flags and one more."""
    flags = memory.parser(__doc__)
    flags.add_argument("--write", action="store_true", help="no measuring: --out goes into presets/evidence.yaml")
    return flags


if __name__ == "__main__":
    main(parser().parse_args())
