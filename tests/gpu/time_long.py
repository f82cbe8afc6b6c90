"""Long rows: one row a step in tiles, held to a card's size, in memory and seconds, each beside its forecast.

    PYTHONPATH=. python tests/gpu/time_long.py --seconds 560 --out tests/gpu/results/long_NAME.json
    PYTHONPATH=. python tests/gpu/time_long.py --dry --out /tmp/dry.json

Weights are random; all layers are there. Every case is a process of its own, planned as a person's run would be
(``core.estimate``) for a card of that size of which nine tenths are used, and held to the whole of it by torch's
allocator, context counted; the pass before the long ones is of ``SHORT`` tokens, so that the peak is the row's own.
``exact`` runs ``test_tiles_gpu.py``. The file is written anew after each part, its figures in one line of JSON; what
there is no time for is left out. ``--only WORD`` takes the parts with that word.

The file::

    device, driver, command, seconds
    parts: {name: {...}}
        exact       rc and last lines of pytest
        a case      the row of ``measure_memory.py``, and: tile_tokens, streamed (layers), forecast_tokens_per_second
                    (low, high), forecast_peak_bytes, peak_bytes (reserved + context), pinned_bytes
    beside: {case: its tokens a second over those of the same row whole}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import measure_memory as base
from memory_cases import Case

from core.contract.catalogue import ModelSpec

GIB, HERE = 2**30, Path(__file__).resolve()
LEAST_SECONDS = 45.0
TOLD_GIB = 120
"""What the machine is said to have free where it grows only as it is used."""
SHORT = 512
"""Tokens of the pass before: a budget keeps all of it, and takes less than for a long row."""
TWICE = 131_072
"""Longer rows have one step, which takes the host memory for its inputs as well; others a second, which is timed."""


class Long(Case):
    """A shape whose positions reach any row: what is measured is the layer, not what it learns."""

    def spec(self) -> ModelSpec:
        found = super().spec()
        return found.model_copy(update={"shape": found.shape.model_copy(update={"max_position_embeddings": 2**20})})


def capped(length: int, card: float, *more: tuple[str, Any], model: str = "llama-3.1-8b") -> Long:
    """A card of so many GiB, of which the plan uses nine tenths; the allocator has all of it."""
    limit = ("train.memory_gib", round(0.9 * card, 2))
    return Long(model, length, policy="auto", tokens=0, card=card, more=(limit, *more))  # type: ignore[arg-type]


def whole(length: int) -> Long:
    """Recomputed in one piece with inputs in host memory, on a card that takes it."""
    more = (("train.tile_tokens", 0),)
    return Long("llama-3.1-8b", length, policy="offload", tokens=length, more=more)


CASES: dict[str, Case] = {
    "8b 131072 in 24": capped(131_072, 24),
    "8b 65536 in 12": capped(65_536, 12),
    "8b 65536 whole": whole(65_536),
    "8b 200000 in 24 streamed": capped(200_000, 24, ("model.streamed_layers", 32)),
    "8b 131072 whole": whole(131_072),
    "8b 200000 in 24": capped(200_000, 24),
    "8b 60000 in 24 (Unsloth's longest)": capped(60_000, 24),
    "8b 78000 in 24 (Unsloth's table)": capped(78_000, 24),
    "8b 22000 in 12 (Unsloth's table)": capped(22_000, 12),
    "8b 20000 in 12 (Unsloth's longest)": capped(20_000, 12),
}
BESIDE = {"8b 131072 in 24": "8b 131072 whole", "8b 65536 in 12": "8b 65536 whole"}
DRY: dict[str, Case] = {
    "tiny tiles": Long("tiny", 128, rank=4, policy="recompute", more=(("train.tile_tokens", 48),)),
    "tiny whole": Long("tiny", 128, rank=4, policy="recompute", more=(("train.tile_tokens", 0),)),
}


def case(name: str, dry: bool, once: bool = False) -> dict[str, Any]:
    """One case, in this process; ``once``: of one step, which takes the host memory for its inputs as well."""
    import torch

    from core.contract.config import RunConfig
    from core.estimate import estimate
    from core.machine.hardware import read_machine
    from core.machine.host import Host
    from core.proof.probe import measure

    chosen, machine = (DRY if dry else CASES)[name], read_machine()
    measure.SHORT = max(measure.SHORT, chosen.length // SHORT)
    base.SHORT, base.LONG, base.SECONDS = 1, 1 if once or chosen.length > TWICE else 2, 60.0
    told = machine.gpu is not None and machine.ram_free_bytes < TOLD_GIB * GIB
    if told:
        machine = replace(machine, ram_free_bytes=TOLD_GIB * GIB)
        Host.memory = lambda _self: (TOLD_GIB * GIB, TOLD_GIB * GIB)  # type: ignore[method-assign]
    row = base.reckoned(chosen, machine)
    found = estimate(chosen.config(), chosen.spec(), base.facts_of(chosen), machine)
    config = RunConfig.model_validate(row["resolved"])
    row |= {
        "tile_tokens": config.train.tile_tokens,
        "streamed": config.model.streamed_layers,
        "forecast_peak_bytes": found.peak_bytes,
        "forecast_tokens_per_second": found.tokens_per_second,
        "pinned_bytes": found.pinned_bytes,
        "memory_told": told,
    }
    device = torch.device("cuda", 0) if torch.cuda.is_available() and not dry else torch.device("cpu")
    begun = time.perf_counter()
    row = base.measured(chosen, row, device, lambda text: print(f"  {text}", flush=True))
    row["took_seconds"] = round(time.perf_counter() - begun, 1)
    if row["measured"] and device.type == "cuda":
        seen = row["measured"]
        row["peak_bytes"] = seen["peak_reserved_bytes"] + (seen["context_bytes"] or 0)
    return row


def part_of(name: str, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """One part; a case's JSON is its process's last line."""
    if name == "exact":
        words = ["-q", "--override-ini", "addopts=", "-p", "no:cacheprovider", "-m", "gpu", "-s"]
        command = [sys.executable, "-m", "pytest", *words, str(HERE.with_name("test_tiles_gpu.py"))]
        status, said = base.said_in_time(command, seconds)
        return {"rc": status, "said": said[-4000:]}
    flags = [*(["--dry"] if options.dry else []), *(["--once"] if options.once else [])]
    status, said = base.said_in_time([sys.executable, str(HERE), "--out", os.devnull, "--part", name, *flags], seconds)
    return base.last_object(said) or {"status": "no time" if status is None else "failed", "said": said[-3000:]}


def beside(parts: dict[str, Any]) -> dict[str, float]:
    """Each case's tokens a second over those of the whole row."""
    rates = {name: part["measured"]["tokens_per_second"] for name, part in parts.items() if part.get("measured")}
    return {one: rates[one] / rates[other] for one, other in BESIDE.items() if one in rates and other in rates}


def shown(name: str, part: dict[str, Any]) -> str:
    """One part in a line of JSON."""
    seen = part.get("measured")
    if not seen:
        return json.dumps({"part": name, **part})[-900:]
    line = {key: part[key] for key in ("tile_tokens", "streamed", "forecast_tokens_per_second", "took_seconds")}
    line |= {key: seen[key] for key in ("tokens_per_second", "seconds", "load_seconds")}
    peaks = {"peak": part.get("peak_bytes", 0), "forecast_peak": part["forecast_peak_bytes"]}
    return json.dumps({"part": name, **line, **{f"{key}_gib": round(size / GIB, 2) for key, size in peaks.items()}})


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, required=True)
    flags.add_argument("--seconds", type=float, default=560.0)
    flags.add_argument("--only", nargs="*", default=[], metavar="WORD")
    flags.add_argument("--dry", action="store_true")
    flags.add_argument("--once", action="store_true", help="one step a case")
    flags.add_argument("--part", default="", help=argparse.SUPPRESS)
    options = flags.parse_args()
    if options.part:
        print(json.dumps(case(options.part, options.dry, options.once)), flush=True)
        return
    begun = time.monotonic()

    from core.machine.hardware import read_machine

    card = read_machine().gpu
    result: dict[str, Any] = {
        "device": card.name if card else "cpu", "driver": card.driver if card else None,
        "command": " ".join(sys.argv), "seconds": 0.0, "parts": {}, "beside": {},
    }  # fmt: skip
    for name in DRY if options.dry else ["exact", *CASES]:
        if options.only and not any(word in name for word in options.only):
            continue
        left = options.seconds - (time.monotonic() - begun)
        part = {"status": "no time"} if left < LEAST_SECONDS else part_of(name, options, left - 5)
        result["parts"][name] = part
        result["beside"], result["seconds"] = beside(result["parts"]), round(time.monotonic() - begun, 1)
        base.write(result, options.out)
        print(shown(name, part), flush=True)
    print(json.dumps({"beside": result["beside"], "seconds": result["seconds"]}), flush=True)


if __name__ == "__main__":
    main()
