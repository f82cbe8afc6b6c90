"""Results as JSON and as tables; what is not known is null."""

import json
import platform
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from core.bench.children import Outcome
from core.bench.setting import Setting, flags_of
from core.bench.watch import GIB, Watch
from core.machine.disk import write_whole
from core.machine.hardware import read_machine
from core.machine.imports import version_of
from core.train.channel.meter import context_bytes

MACHINE = ("device", "capability", "driver", "vram_total_gib", "python", "versions", "rows")
"""What a result of several settings states once for all of them."""
LIBRARIES = ("torch", "triton", "transformers", "peft", "bitsandbytes", "accelerate", "trl")


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Device, driver and versions; null where unknown."""
    card = read_machine().gpu if device.type == "cuda" else None
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else _processor(),
        "capability": list(torch.cuda.get_device_capability(device)) if cuda else None,
        "driver": card.driver or None if card else None,
        "vram_total_gib": gib(torch.cuda.mem_get_info(device)[1]) if cuda else None,
        "python": platform.python_version(),
        "versions": _versions(),
    }


def measured_here(result: dict[str, Any]) -> bool:
    """Whether a result is of this device, driver and versions. Creates no CUDA context, which would take memory."""
    card = read_machine().gpu
    now = (card.name, card.driver or None) if card else (_processor(), None)
    return (result["device"], result["driver"], result["versions"]) == (*now, _versions())


def _processor() -> str:
    return platform.processor() or platform.machine()


def _versions() -> dict[str, str | None]:
    return {name: version_of(name) or None for name in LIBRARIES}


def figures(setting: Setting, watch: Watch, tokens: Sequence[int], device: torch.device) -> dict[str, Any]:
    """Speed and memory; ``tokens`` are the real tokens of each step, warm-up included."""
    timed, timed_tokens = watch.seconds[setting.warm_up :], tokens[setting.warm_up :]
    rates = [count / seconds for count, seconds in zip(timed_tokens, timed, strict=True) if seconds > 0]
    return {
        "seconds_a_step": round(statistics.median(timed), 6) if timed else None,
        "seconds": [round(value, 6) for value in timed],
        "seconds_warm_up": [round(value, 6) for value in watch.seconds[: setting.warm_up]],
        "tokens_per_second": round(statistics.median(rates), 1) if rates else None,
        "tokens_a_step": round(sum(timed_tokens) / len(timed_tokens), 1) if timed_tokens else None,
        "peak_allocated_gib": gib(watch.peak.get("allocated")),
        "peak_reserved_gib": gib(watch.peak.get("reserved")),
        "whole_run_peak_allocated_gib": gib(watch.whole_run_peak.get("allocated")),
        "whole_run_peak_reserved_gib": gib(watch.whole_run_peak.get("reserved")),
        "context_gib": gib(context_bytes(device)),
    }


def rung_of(name: str, setting: Any, outcome: Outcome | None, keys: Sequence[str]) -> dict[str, Any]:
    """A ladder's row: how a rung came out, and these values of its result."""
    result = outcome.result if outcome else None
    return {
        "name": name,
        "status": "not measured" if outcome is None else "failed" if result is None else "measured",
        "reason": outcome.error if outcome and result is None else None,
        "command": command_of(setting),
        **{key: result[key] if result else None for key in keys},
    }


def title_of(rung: dict[str, Any]) -> str:
    """A rung's name, and why it has no figures."""
    return rung["name"] + (f" ({rung['status']}: {rung['reason']})" if rung["reason"] else "")


def command_of(setting: Any) -> str:
    """The command line that measures this setting."""
    return shlex.join(["python", "-m", "core.bench", *setting.command, *flags_of(setting)])


def summary(result: dict[str, Any]) -> str:
    """One result as text."""
    memory = "not known: no card"
    if result["peak_allocated_gib"] is not None:
        peak, reserved, beside = (result[f"{what}_gib"] for what in ("peak_allocated", "peak_reserved", "context"))
        memory = f"{peak:.2f} GiB allocated, {reserved:.2f} GiB reserved at peak, {beside:.2f} GiB beside it"
    return "\n".join(
        [
            *(f"plan      {line}" for line in result["plan"]),
            f"step      {shown(result['seconds_a_step'], 4)} s (median of {len(result['seconds'])}), "
            f"first {shown(result['first_step_seconds'], 2)} s, loading {shown(result['load_seconds'], 1)} s",
            f"tokens    {shown(result['tokens_per_second'], 0)} real tokens a second",
            f"memory    {memory}",
            f"loss      {shown(result['losses'][0], 4)} at first, {shown(result['losses'][-1], 4)} at last"
            + (f", held out {result['held_out_loss']:.5f}" if result["held_out_loss"] is not None else ""),
        ]
    )


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; None is an empty cell."""
    cells = [list(header), ["---"] * len(header), *([shown(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in cells)


def shown(value: Any, digits: int = 4) -> str:
    """A value as text; None is empty."""
    if value is None:
        return ""
    return f"{value:,.{digits}f}" if isinstance(value, float) else str(value)


def gib(size: int | None) -> float | None:
    """Bytes as GiB."""
    return None if size is None else round(size / GIB, 3)


def write_json(result: dict[str, Any], path: str) -> None:
    """Writes the result atomically; an empty path writes nothing."""
    if path:
        place = Path(path).expanduser()
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, json.dumps(result, indent=1) + "\n", mode=0o666)
