"""What training takes of a card, measured beside what was reckoned beforehand; the estimator is held to the result.

    PYTHONPATH=. python tests/gpu/measure_memory.py --out tests/gpu/results/memory_NAME.json

Every case of ``memory_cases.py`` is one model of a catalogue entry's shape with random weights, built, trained for a
few steps by a run's own trainer (``core.proof.probe.measure``), and freed again, all in one process. What a case adds
to the file is written when it ends, so that a cut-off loses nothing; ``--again`` goes on where such a file ends. What
finds the card full is a row, too. A case that leaves memory behind, or the card unusable, is followed by a fresh
process. ``--drawn 44`` measures settings that nobody chose instead; ``--dry`` trains the tiny shape on the CPU: the
same code, no figures of use.

The file is one JSON object::

    device, driver, versions    names, as ``core.bench.report.machine_facts``
    machine                     ``core.machine.hardware.Machine`` as a dict, read before CUDA was there
    context_bytes               on the card beside torch's allocator when nothing was loaded (fresh process)
    command, seconds
    rows: [{
      name, model               the case, and the key of its shape in presets/models
      asked, resolved           RunConfig as asked, and without automatic values; both for ``RunConfig.model_validate``
      lengths                   uncut token counts of the data's rows: ``DataFacts.lengths``, and ``trained`` as well
      max_row                   the longest of them
      capped_gib                0, or the allocator was held to this card size: context and all
      estimate                  made beforehand on ``machine``: {peak_bytes, allocated_bytes, reserved_bytes (0: not
                                told), terms: {key: bytes}, verdict, free_bytes, seconds_a_step: [low, high] or
                                null, sentence}
      status                    "measured", "out_of_memory" or "failed"; ``error`` says why
      measured                  null, or {peak_allocated_bytes, peak_reserved_bytes, context_bytes (beside the
                                allocator after the steps; kernels of earlier cases in it), loading_peak_bytes,
                                load_seconds, seconds_a_step (median), seconds: [...], first_seconds, tokens_a_step,
                                tokens_per_second, lines: [...]}
      left_bytes, took_seconds  allocated after the case was freed; the case's time, all of it
    }]

A run takes ``peak_reserved_bytes + context_bytes`` of a card: what ``estimate.peak_bytes`` is held against. Tensors
alone are ``peak_allocated_bytes`` and ``estimate.allocated_bytes``.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # as workers are told, before torch is there

sys.path.insert(0, str(Path(__file__).resolve().parent))

from memory_cases import CASES, DRY, drawn

from core.contract.data import DataFacts
from core.contract.errors import Fault
from core.contract.optimisers import optimiser_of
from core.estimate import estimate, resolve
from core.estimate.inputs.work import GIB
from core.machine.hardware import Machine, read_machine

SHORT, LONG, SECONDS = 1, 3, 5.0
"""Steps of a case: a short one, three long ones, and none of those begins after five seconds."""
FIRST_CASE, SLOWER = 20.0, 1.5
"""No case is begun with fewer seconds left than the first may take, or 1.5 times the slowest so far."""
UNKNOWN = 2**62
SMALL = 64 * 2**20
"""What may stay allocated after a case: tables that kernels keep for the process."""


def facts_of(case: Any) -> DataFacts:
    """The data of a case, as the planner would be told."""
    lengths, answers = case.lengths(), case.config().learning.answers
    return DataFacts(
        rows=len(lengths), lengths=lengths, trained=tuple(answers * length for length in lengths),
        max_length=case.length, longest=max(lengths),
        mean=sum(lengths) / len(lengths),
    )  # fmt: skip


def reckoned(case: Any, machine: Machine) -> dict[str, Any]:
    """The case before anything is loaded: config, resolved config, estimate."""
    spec, config, facts = case.spec(), case.config(), facts_of(case)
    resolved, _ = resolve(config, spec, facts, machine)
    found = estimate(config, spec, facts, machine)
    steps, terms = max(1, found.total_steps), {term.key: term.bytes for term in found.terms}
    return {
        "name": case.name,
        "model": spec.key,
        "asked": config.model_dump(mode="json"),
        "resolved": resolved.model_dump(mode="json"),
        "lengths": list(facts.lengths),
        "max_row": facts.longest,
        "capped_gib": case.cap_gib,
        "estimate": {
            "peak_bytes": found.peak_bytes,
            "allocated_bytes": found.allocated_bytes or found.peak_bytes - terms["context"],
            "reserved_bytes": found.reserved_bytes,
            "terms": terms,
            "verdict": found.verdict,
            "free_bytes": found.free_bytes,
            "seconds_a_step": [part / steps for part in found.seconds] if found.seconds else None,
            "sentence": found.sentence,
        },
    }


def measured(case: Any, row: dict[str, Any], device: Any, note: Any = None) -> dict[str, Any]:
    """The row with what was seen; never raises for what a card or a model may do."""
    import torch

    from core.contract.config import RunConfig
    from core.proof.probe.longest import longest_step
    from core.proof.probe.measure import Steps, measure_steps

    config = RunConfig.model_validate(row["resolved"])
    say = (lambda stage, text: note(f"{case.name}: {stage} {text}")) if note else (lambda _stage, _text: None)
    try:
        cap(device, case.cap_gib)
        seen = measure_steps(
            config, case.spec(), longest_step(config, facts_of(case)), device, Steps(SHORT, LONG, SECONDS), say
        )
    except (Fault, torch.OutOfMemoryError, RuntimeError, ValueError, TypeError) as error:
        full = isinstance(error, torch.OutOfMemoryError) or getattr(error, "code", "") in (
            "probe.memory",
            "model.memory",
        )
        cause = error.__cause__ or error
        why = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return row | {"status": "out_of_memory" if full else "failed", "error": why[:500], "measured": None}
    long = [step.seconds for step in seen.long]
    return row | {
        "status": "measured",
        "error": "",
        "measured": {
            "peak_allocated_bytes": seen.peak_allocated_bytes,
            "peak_reserved_bytes": seen.peak_reserved_bytes,
            "context_bytes": seen.context_bytes,
            "loading_peak_bytes": seen.loading_peak_bytes,
            "load_seconds": round(seen.load_seconds, 3),
            "seconds_a_step": round(seen.seconds_a_step, 5),
            "seconds": [round(value, 5) for value in long],
            "first_seconds": round(seen.short[0].seconds, 3),
            "tokens_a_step": seen.timed[0].tokens,
            "tokens_per_second": round(seen.tokens_per_second, 1),
            "lines": seen.lines,
        },
    }


def cap(device: Any, gib: float) -> None:
    """Lets the allocator have no more than a card of ``gib`` would leave it; 0 lifts the cap."""
    import torch

    from core.train.channel.meter import context_bytes

    if device.type == "cuda":
        total = torch.cuda.mem_get_info(device)[1]
        allowed = gib * GIB - (context_bytes(device) or 0) if gib else total
        torch.cuda.set_per_process_memory_fraction(max(0.001, min(1.0, allowed / total)), device)


def free(device: Any) -> int:
    """Lets everything of a case go; bytes that stay allocated."""
    import torch

    gc.collect()
    if device.type != "cuda":
        return 0
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:  # a fault of the card: this process can do nothing more with it
        return UNKNOWN
    torch._C._cuda_clearCublasWorkspaces()
    if hasattr(torch._C, "_host_emptyCache"):
        torch._C._host_emptyCache()  # pinned buffers of offloaded layers
    gc.collect()
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_allocated(device))


def line(row: dict[str, Any]) -> str:
    """One row for people: GiB, and the error of the estimate's tensors (context apart) against what was allocated."""
    found, tensors = row["measured"], row["estimate"]["allocated_bytes"]
    head = f"{row['name'][:46]:46} {row['resolved']['train']['checkpointing']:9} {tensors / GIB:7.2f}"
    if found is None:
        return f"{head} {row['status']}: {row['error'][:60]}"
    peak, held = found["peak_allocated_bytes"], found["peak_reserved_bytes"]
    off = (tensors - peak) / peak
    beside = f"{found['context_bytes'] / GIB:.2f}" if found["context_bytes"] is not None else "-"
    return (
        f"{head} {peak / GIB:7.2f} {held / GIB:7.2f} {beside:>5} {off:+7.1%} {(tensors - peak) / 2**20:+8.0f} MiB "
        f"{found['seconds_a_step']:7.3f} s {found['tokens_per_second']:9,.0f} tok/s"
    )


HEAD = (
    f"{'case':46} {'policy':9} {'reckon':>7} {'alloc':>7} {'reserv':>7} {'beside':>5} {'error':>7} {'':>12} "
    f"{'a step':>9} {'speed':>15}"
)


def summary(rows: list[dict[str, Any]]) -> str:
    """Mean and worst error over the rows that were measured."""
    errors = []
    for row in rows:
        if row["measured"] is not None:
            tensors, peak = row["estimate"]["allocated_bytes"], row["measured"]["peak_allocated_bytes"]
            errors.append((abs(tensors - peak) / peak, abs(tensors - peak), row["name"]))
    if not errors:
        return "nothing was measured"
    worst = max(errors)
    mean = sum(error for error, _, _ in errors) / len(errors)
    return (
        f"{len(errors)} measured of {len(rows)}; mean error {mean:.2%}; worst {worst[0]:.2%} "
        f"({worst[1] / 2**20:.0f} MiB, {worst[2]})"
    )


def begin(machine: Machine, device: Any, command: str) -> dict[str, Any]:
    """The file's head."""
    import torch

    from core.bench.report import machine_facts
    from core.train.channel.meter import context_bytes

    if device.type == "cuda":
        torch.zeros(1, device=device) @ torch.zeros(1, device=device)
    facts = machine_facts(device)
    return {
        "device": facts["device"],
        "driver": facts["driver"],
        "versions": {**facts["versions"], "cuda": torch.version.cuda, "python": facts["python"]},
        "machine": asdict(machine),
        "context_bytes": context_bytes(device),
        "command": command,
        "seconds": 0.0,
        "rows": [],
    }


def run(
    options: argparse.Namespace, cases: Sequence[Any], machine_of: Callable[[Any, Machine], Machine] | None = None
) -> dict[str, Any]:
    """Measures every case there is time for.

    Args:
        machine_of: the machine that a case is reckoned on, where it is not this one.
    """
    machine = read_machine()
    import torch

    from core.proof.probe.measure import measure_steps  # noqa: F401 - imported before the clock runs

    begun = time.monotonic()
    if machine.gpu is None and torch.cuda.is_available() and not options.dry:
        raise SystemExit(f"Expected NVML to tell of the card, found: {machine.gpu_problem}.")
    device = torch.device("cuda", 0) if torch.cuda.is_available() and not options.dry else torch.device("cpu")
    command = f"PYTHONPATH=. python tests/gpu/{Path(sys.argv[0]).name}"
    result = begin(machine, device, command + (" --dry" if options.dry else ""))
    cases = left(options, cases, result)
    print(HEAD, flush=True)
    for number, case in enumerate(cases):
        slowest = max((row["took_seconds"] for row in result["rows"]), default=FIRST_CASE / SLOWER)
        if options.seconds - (time.monotonic() - begun) < (0 if options.dry else SLOWER * slowest):
            print(f"out of time: {len(cases) - number} cases are left", flush=True)
            break
        started = time.monotonic()
        row = measured(case, reckoned(case, machine_of(case, machine) if machine_of else machine), device)
        row["left_bytes"] = free(device)
        row["took_seconds"] = round(time.monotonic() - started, 2)
        result["rows"].append(row)
        result["seconds"] = round(time.monotonic() - begun, 1)
        write(result, options.out)
        print(f"{line(row)}   [{row['took_seconds']:.0f} s]", flush=True)
        if row["left_bytes"] > SMALL or (row["measured"] and leaves_pages(row)):
            print(f"{row['left_bytes'] / 2**20:.0f} MiB stayed allocated, or pages: on in a fresh process", flush=True)
            afresh(options, options.seconds - (time.monotonic() - begun))
    print(summary(result["rows"]), flush=True)
    return result


def leaves_pages(row: dict[str, Any]) -> bool:
    """Whether bitsandbytes leaves its paged state on the card, where it stands beside torch's allocator to the end."""
    return optimiser_of(row["resolved"]["train"]["optim"], gpu=True).paged


def left(options: argparse.Namespace, cases: Sequence[Any], result: dict[str, Any]) -> list[Any]:
    """The cases that are asked for and not measured yet; what is kept of an earlier file goes into the result."""
    if options.again and options.out.is_file():
        earlier = json.loads(options.out.read_text(encoding="utf-8"))
        names = {case.name for case in cases}
        kept = [row for row in earlier["rows"] if row["name"] in names]
        kept = [row for row in kept if options.keep_failed or row["status"] != "failed"]
        result |= {"rows": kept, "context_bytes": earlier["context_bytes"]}
    done = {row["name"] for row in result["rows"]}
    asked = [case for case in cases if not options.only or any(word in case.name for word in options.only)]
    return [case for case in asked if case.name not in done]


def afresh(options: argparse.Namespace, seconds: float) -> None:
    """This process becomes a new one, which goes on behind the last case."""
    only = ["--only", *options.only] if options.only else []
    only += ["--drawn", str(options.drawn)] if getattr(options, "drawn", 0) else []
    flags = ["--out", str(options.out), "--seconds", f"{seconds:.0f}", "--again", "--keep-failed", *only]
    os.execv(sys.executable, [sys.executable, str(Path(sys.argv[0]).resolve()), *flags])


def said_in_time(command: list[str], seconds: float) -> tuple[int | None, str]:
    """Exit status and output of a process of its own; None where it was ended in time. It is not waited for then: one
    with much pinned memory takes its time to go."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        status = None
        try:
            status = process.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
        output.seek(0)
        return status, output.read().strip()


def last_object(said: str) -> dict[str, Any] | None:
    """The last line that is a JSON object, where there is one: warnings may stand behind it."""
    for line in reversed(said.splitlines()):
        if line.startswith("{"):
            with suppress(ValueError):
                return dict(json.loads(line))
    return None


def write(result: dict[str, Any], path: Path) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def parser(about: str | None) -> argparse.ArgumentParser:
    """The flags that measuring scripts share."""
    flags = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--out", type=Path, required=True, help="the JSON file")
    flags.add_argument("--seconds", type=float, default=570.0, help="no case begins when this is nearly over")
    flags.add_argument("--only", nargs="*", default=[], metavar="WORD", help="cases whose name has one of these")
    flags.add_argument("--again", action="store_true", help="keep what --out has already, and measure the rest")
    flags.add_argument("--keep-failed", action="store_true", help="with --again: what failed is not tried again")
    flags.add_argument("--dry", action="store_true", help="the tiny shape on the CPU")
    return flags


if __name__ == "__main__":
    flags = parser(__doc__)
    flags.add_argument("--drawn", type=int, default=0, metavar="N", help="N drawn settings instead")
    chosen = flags.parse_args()
    run(chosen, DRY if chosen.dry else drawn(chosen.drawn) if chosen.drawn else CASES)
