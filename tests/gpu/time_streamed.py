"""Models larger than the card: streamed layers beside resident ones, in memory and seconds, each beside its forecast.

    PYTHONPATH=. python tests/gpu/time_streamed.py --seconds 560 --out tests/gpu/results/streamed_NAME.json
    PYTHONPATH=. python tests/gpu/time_streamed.py --dry --out /tmp/dry.json

Weights are random; all layers are there, each with weights of its own. Every case is a process of its own, planned
as a person's run would be (``core.estimate``) for a card of that size of which nine tenths are used, and held to the
whole of it by torch's allocator, context counted. ``copy`` measures the bus, ``exact`` runs ``test_streamed_gpu.py``.
The file is written anew after each part, its figures in one line of JSON; what there is no time for is left out.
``--only WORD`` takes the parts with that word.

The file::

    device, driver, versions, command, seconds
    parts: {name: {...}}
        copy        pinned and plain bytes a second, one layer of the 70B at a time
        exact       rc and last lines of pytest
        a case      the row of ``measure_memory.py``, and: streamed (layers), forecast_tokens_per_second (low, high),
                    forecast_peak_bytes, peak_bytes (reserved + context), host_weights_bytes, copy_seconds (what
                    streaming is forecast to add to a pass)
    beside: {streamed case: share of the resident one's tokens a second}
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

GIB = 2**30
HERE = Path(__file__).resolve()
LEAST_SECONDS = 25.0
TOLD_GIB = 110
"""What the machine is said to have free where it grows only as it is used."""


def capped(model: str, length: int, card: float, rank: int = 16, **more: Any) -> Case:
    """A card of so many GiB, of which the plan uses nine tenths; the allocator has all of it."""
    limit = (("train.memory_gib", round(0.9 * card, 2)), *more.pop("more", ()))
    return Case(model, length, rank=rank, policy="auto", tokens=0, card=card, more=limit, **more)  # type: ignore[arg-type]


def resident(model: str, length: int, batch: int = 1, **more: Any) -> Case:
    """All layers on the card, recomputed with their inputs in host memory, as the streamed ones are."""
    here = (("model.streamed_layers", 0),)
    return Case(model, length, batch=batch, policy="offload", tokens=batch * length, more=here, **more)


CASES: dict[str, Case] = {
    "70b in 12": capped("llama-3.3-70b", 8192, 12),
    "70b resident": resident("llama-3.3-70b", 8192),
    "8b r64 in 6": capped("llama-3.1-8b", 2048, 6, rank=64, batch=4),
    "34b in 10": capped("codellama-34b", 4096, 10, batch=2),
    "70b in 24": capped("llama-3.3-70b", 8192, 24),
    "70b head too in 8": capped("llama-3.3-70b", 8192, 8),
    "34b resident": resident("codellama-34b", 4096, batch=2),
    "8b r64 resident": resident("llama-3.1-8b", 2048, batch=4, rank=64),
    "8b 16-bit in 12": capped(
        "llama-3.1-8b", 2048, 12, batch=4, quantization="none", more=(("model.streamed_layers", 24),)
    ),
}
BESIDE = {"70b in 12": "70b resident", "70b in 24": "70b resident", "34b in 10": "34b resident",
          "70b head too in 8": "70b resident",
          "8b r64 in 6": "8b r64 resident"}  # fmt: skip
DRY = {
    "tiny streamed": Case("tiny", 64, batch=2, rank=4, policy="recompute", more=(("model.streamed_layers", 2),)),
    "tiny resident": Case("tiny", 64, batch=2, rank=4, policy="recompute", more=(("model.streamed_layers", 0),)),
}


def case(name: str, dry: bool) -> dict[str, Any]:
    """One case, in this process."""
    import torch

    from core.contract.config import RunConfig
    from core.contract.data import DataFacts
    from core.estimate import estimate
    from core.machine.hardware import read_machine
    from core.machine.host import Host

    chosen, machine = (DRY if dry else CASES)[name], read_machine()
    base.SECONDS = 16.0
    told = machine.gpu is not None and machine.ram_free_bytes < TOLD_GIB * GIB
    if told:
        machine = replace(machine, ram_free_bytes=TOLD_GIB * GIB)
        Host.memory = lambda _self: (TOLD_GIB * GIB, TOLD_GIB * GIB)  # type: ignore[method-assign]
    row = base.reckoned(chosen, machine)
    facts: DataFacts = base.facts_of(chosen)
    found = estimate(chosen.config(), chosen.spec(), facts, machine)
    config = RunConfig.model_validate(row["resolved"])
    row |= {
        "streamed": config.model.streamed_layers,
        "tokens_per_pass": config.train.tokens_per_pass,
        "forecast_peak_bytes": found.peak_bytes,
        "forecast_tokens_per_second": found.tokens_per_second,
        "host_weights_bytes": found.host_weights_bytes,
        "copy_seconds": found.copy_seconds,
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


def copy() -> dict[str, Any]:
    """Bytes a second of one layer of the 70B, pinned and not."""
    import torch

    from core.model.streaming.host_pages import HostPages
    from core.model.streaming.ring import Ring

    size, device, rates = 441 * 2**20, torch.device("cuda", 0), {}
    for name, refused in (("pinned", False), ("plain", True)):
        pages = HostPages(pin=True, refused=refused)
        ring = Ring([pages.span(size), pages.span(size)], device)
        rates[name], rates[f"{name}_refused"] = ring.rate(), pages.refused
    return rates


def grown() -> dict[str, Any]:
    """Uses 56 GiB once: some machines' memory grows as it is used, and must have grown before it is pinned."""
    import psutil

    begun, held = time.perf_counter(), []
    while len(held) < 56 and time.perf_counter() - begun < 45:
        part = bytearray(GIB)
        part[::4096] = b"\1" * len(part[::4096])
        held.append(part)
    del held
    memory = psutil.virtual_memory()
    seconds = round(time.perf_counter() - begun, 1)
    return {"total_gib": memory.total / GIB, "free_gib": memory.available / GIB, "seconds": seconds}


def child(words: list[str], seconds: float) -> dict[str, Any]:
    """A part in a process of its own, ended in time; its JSON is its last line."""
    status, said = base.said_in_time([sys.executable, str(HERE), "--out", os.devnull, *words], seconds)
    return base.last_object(said) or {"status": "no time" if status is None else "failed", "said": said[-3000:]}


def exact(seconds: float) -> dict[str, Any]:
    """The tests on the card."""
    words = ["-q", "--override-ini", "addopts=", "-p", "no:cacheprovider", "-m", "gpu"]
    command = [sys.executable, "-m", "pytest", *words, str(HERE.with_name("test_streamed_gpu.py"))]
    status, said = base.said_in_time(command, seconds)
    return {"rc": status, "said": said[-4000:]}


def beside(parts: dict[str, Any]) -> dict[str, float]:
    """Each streamed case's tokens a second over those of the resident one."""
    rates = {name: part["measured"]["tokens_per_second"] for name, part in parts.items() if part.get("measured")}
    return {one: rates[one] / rates[other] for one, other in BESIDE.items() if one in rates and other in rates}


def shown(name: str, part: dict[str, Any]) -> str:
    """One part in a line of JSON."""
    seen = part.get("measured")
    if not seen:
        return json.dumps({"part": name, **part})[-900:]
    told = ("streamed", "tokens_per_pass", "forecast_tokens_per_second", "host_weights_bytes", "took_seconds")
    line = {key: part[key] for key in told} | {key: seen[key] for key in ("tokens_per_second", "seconds_a_step")}
    peaks = {"peak": part.get("peak_bytes", 0), "forecast_peak": part["forecast_peak_bytes"]}
    line |= {f"{key}_gib": round(size / GIB, 2) for key, size in peaks.items()}
    return json.dumps({"part": name, **line, "load_seconds": seen["load_seconds"]})


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, required=True)
    flags.add_argument("--seconds", type=float, default=560.0)
    flags.add_argument("--only", nargs="*", default=[], metavar="WORD")
    flags.add_argument("--dry", action="store_true")
    flags.add_argument("--part", default="", help=argparse.SUPPRESS)
    options = flags.parse_args()
    if options.part:
        print(json.dumps(copy() if options.part == "copy" else case(options.part, options.dry)), flush=True)
        return
    begun = time.monotonic()

    def left() -> float:
        return options.seconds - (time.monotonic() - begun)

    from core.machine.hardware import read_machine

    card = read_machine().gpu
    result: dict[str, Any] = {
        "device": card.name if card else "cpu", "driver": card.driver if card else None,
        "command": " ".join(sys.argv), "seconds": 0.0, "parts": {}, "beside": {},
    }  # fmt: skip
    parts = ["tiny streamed", "tiny resident"] if options.dry else ["memory", "copy", "exact", *CASES]
    for name in parts:
        if options.only and not any(word in name for word in options.only):
            continue
        if left() < LEAST_SECONDS and not options.dry:
            result["parts"][name] = {"status": "no time"}
            continue
        if name == "memory":
            part = grown()
        elif name == "exact":
            part = exact(min(150.0, left() - 5))
        else:
            part = child(["--part", name, *(["--dry"] if options.dry else [])], left() - 5)
        result["parts"][name] = part
        result["beside"], result["seconds"] = beside(result["parts"]), round(time.monotonic() - begun, 1)
        base.write(result, options.out)
        print(shown(name, part), flush=True)
    base.write(result, options.out)
    print(json.dumps({"beside": result["beside"], "seconds": result["seconds"]}), flush=True)


if __name__ == "__main__":
    main()
