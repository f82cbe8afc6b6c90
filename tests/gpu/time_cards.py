"""Several cards beside one: tokens a second of dense and of Alpaca-like steps, and the same losses in float32.

    PYTHONPATH=. python tests/gpu/time_cards.py --cards 1,2,4 --out tests/gpu/results/cards_NAME.json
    PYTHONPATH=. python tests/gpu/time_cards.py --dry --cards 1,2 --out /tmp/dry.json

*dense* is 8 rows of 2,048 tokens for each card and step; *alpaca* is 64 rows a step in all, whose lengths are drawn, or
are those of ``--lengths`` (a list of ``[prompt, answer]``); *curve* is 50 steps of a tiny model in float32; *larger* is
a 70B (``--larger``) in NF4, a row of 8,192 tokens for each card and step: one card without a limit, and several held to
``--cap`` GiB each by torch's allocator, context counted, each planned as a person's run would be. What several cannot
hold streams from memory that they share. Weights and tokens are random. Each rank is a process that sees its own card,
as in a run; a count of 1 joins no group.

The file::

    device, driver, versions, flags
    rows: [{part, cards, tokens_per_second, seconds (median of a step), peak_reserved_bytes, losses; and of larger:
            streamed (layers), forecast (tokens a second, of all), host_weights_bytes and what of it lies in
            shared_bytes, load_seconds}]
    beside: {"dense 2": times of one card's tokens a second, "larger 4": share of four times those of one without limit}
    apart: {"2": largest difference of a loss of the curve}
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
import torch.distributed as dist
from measure_memory import cap
from transformers import TrainerCallback

from core.bench.report import machine_facts
from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.estimate import estimate, resolve
from core.machine.children.shared_memory import SharedMemory
from core.machine.hardware import read_machine
from core.model.adapters import Trained, add_adapter
from core.model.loading.random_weights import find_shape, random_model
from core.model.loading.together import Together
from core.proof.probe.measure import InTurn
from core.train.attempt import Attempt, Subject
from core.train.channel.reporter import EventReporter
from core.train.ranks.group import join
from core.train.setup import make_trainer
from core.train.step.rows import TextRows

HERE = Path(__file__).resolve()
WARM_UP = 3
PATIENCE_SECONDS = 540
LARGER_STEPS = 8
"""Of the 70B, at most: a step takes ten seconds."""


class Clock(TrainerCallback):
    """The time at which each step ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_arguments: Any, **_objects: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


class Heard:
    """Keeps the steps of a run."""

    def __init__(self) -> None:
        self.steps: list[Any] = []

    def write(self, event: Any) -> Any:
        if event.kind == "step":
            self.steps.append(event)
        return event


def rows_of(part: str, each: int, flags: argparse.Namespace, vocabulary: int) -> tuple[TextRows, int]:
    """The rows of every step, and how many a step has."""
    whole = 8192 if part == "larger" else 2048
    draw, rows, length = random.Random(3407), TextRows(), 64 if flags.dry else whole
    known = [tuple(row) for row in json.loads(flags.lengths.read_text("utf-8"))] if flags.lengths else []
    for number in range(each * flags.steps):
        if part in ("dense", "larger"):
            prompt, answer = 1, length - 1
        elif known:
            prompt, answer = known[number % len(known)]
        else:
            prompt, answer = draw.randint(30, 120), draw.randint(10, 250)
        ids = draw.choices(range(4, vocabulary), k=prompt + answer)
        rows.append(ids, [*[-100] * prompt, *ids[prompt:]])
    return rows, each


def planned(count: int, flags: argparse.Namespace, steps: int) -> dict[str, Any]:
    """The part *larger* on so many cards, before anything is loaded: its whole config, and what is forecast of it."""
    length, each, cards = 64 if flags.dry else 8192, 2 * count, ",".join(map(str, range(count)))
    gib = 0.0 if count == 1 or flags.dry else round(0.9 * flags.cap, 2)
    train = {
        "per_device_train_batch_size": each, "gradient_accumulation_steps": 1, "max_length": length, "cards": cards,
        "memory_gib": gib, "learning_rate": 1e-4, "sample_rows": 0, "max_steps": steps,
    }  # fmt: skip
    here, spec = read_machine().choosing(cards), find_shape(flags.larger)
    spec = spec.model_copy(update={"folder": "", "cached": False})
    lengths = (length,) * (each * steps)
    facts = DataFacts(rows=len(lengths), lengths=lengths, trained=tuple(one - 1 for one in lengths),
                      max_length=length, longest=length, mean=float(length))  # fmt: skip
    asked = RunConfig.model_validate({"train": train, "data": {"path": "/none", "eval_fraction": 0.0}})
    config, found = resolve(asked, spec, facts, here)[0], estimate(asked, spec, facts, here)
    raw = config.model_dump(mode="json")
    raw["train"] |= {"eval_steps": 0, "save_steps": 0, "save_minutes": 0.0}
    if flags.dry and count > 1:
        raw["model"]["streamed_layers"] = 2
    return {
        "config": raw, "streamed": raw["model"]["streamed_layers"], "forecast": found.tokens_per_second,
        "forecast_peak_bytes": found.peak_bytes, "host_weights_bytes": found.host_weights_bytes,
        "said": [found.sentence, *found.notes],
    }  # fmt: skip


def rank(flags: argparse.Namespace) -> None:
    """One rank of one part; rank 0 prints its row."""
    part, on_card = flags.part, torch.cuda.is_available()
    device = torch.device("cuda", 0) if on_card else torch.device("cpu")
    torch.manual_seed(3407)
    curve = part == "curve"
    if flags.count > 1:
        store = dist.TCPStore("127.0.0.1", flags.port, is_master=not flags.rank, timeout=timedelta(seconds=120),
                              wait_for_workers=False)  # fmt: skip
        join(store, flags.rank, flags.count, device)
    form, dtype = ("nf4", "auto") if on_card and not curve else ("none", "float32" if curve else "auto")
    told, larger = json.loads(flags.settings or "{}"), part == "larger"
    if larger and flags.count > 1:
        cap(device, flags.cap)
    begun, name = time.perf_counter(), "tiny" if curve else flags.larger if larger else flags.model
    together = Together(flags.count, not flags.rank, SharedMemory.inherited(flags.shared, writes=not flags.rank))
    streamed = told.get("model", {}).get("streamed_layers", 0)
    loaded = random_model(name, device, quantization=form, dtype=dtype, streamed=streamed, together=together)
    load_seconds = time.perf_counter() - begun
    sizes = {"dense": (2 if flags.dry else 8) * flags.count, "larger": 2 * flags.count}
    rows, each = rows_of(part, sizes.get(part, 8 if flags.dry else 64), flags, loaded.model.config.vocab_size)
    batches = [range(step * each, (step + 1) * each) for step in range(flags.steps)]
    train = {
        "per_device_train_batch_size": each, "gradient_accumulation_steps": 1, "max_steps": flags.steps,
        "num_train_epochs": 1000.0, "max_length": 4096, "tokens_per_pass": 512 if flags.dry else 8192, "eval_steps": 0,
        "save_steps": 0, "save_minutes": 0.0, "sample_rows": 0, "learning_rate": 1e-4, "checkpointing": "none",
        "optim": "adamw_8bit" if on_card and not curve else "adamw_torch",
    }  # fmt: skip
    config = RunConfig.model_validate(
        told or {"train": train, "data": {"path": "/none"}, "model": {"dtype": "float32"} if curve else {}}
    )
    trained, clock, heard = Trained(add_adapter(loaded.model, config.lora, 3407)), Clock(), Heard()
    with tempfile.TemporaryDirectory() as place:
        tokenizer = SimpleNamespace(pad_token_id=0)
        made = make_trainer(config, Path(place), trained, (loaded, tokenizer), rows, InTurn(tuple(batches)))
        made.trainer.add_callback(clock)
        Attempt.unsteered(Subject(config, made.trainer, tokenizer, rows.take([])), EventReporter(heard)).train()
    if flags.rank:
        return
    seconds = [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)][WARM_UP - 1 :]
    tokens = sum(sum(map(rows.tokens, batch)) for batch in batches[WARM_UP:])
    peak = torch.cuda.max_memory_reserved() if on_card else None
    print(json.dumps({
        "part": part, "cards": flags.count, "tokens_per_second": round(tokens / sum(seconds), 1),
        "seconds": round(statistics.median(seconds), 4), "peak_reserved_bytes": peak,
        "losses": [step.loss for step in heard.steps] if curve or larger else [],
        "lines": [loaded.line, *made.lines], "load_seconds": round(load_seconds, 1),
    }), flush=True)  # fmt: skip


def measured(part: str, count: int, flags: argparse.Namespace, steps: int) -> dict[str, Any]:
    """One part on so many cards; what fails is a row too."""
    port = 20_000 + os.getpid() % 20_000 + count
    plan = planned(count, flags, steps) if part == "larger" else {}
    shared = SharedMemory.made() if part == "larger" and count > 1 else None
    inherited = tuple(map(int, shared.words.split(","))) if shared else ()
    children = []
    for number in range(count):
        named = {"part": part, "rank": number, "count": count, "port": port, "steps": steps, "model": flags.model}
        command = [sys.executable, str(HERE), "--out", str(flags.out)]
        command += [f"--{name}={value}" for name, value in named.items()]
        command += ["--dry"] * flags.dry + (["--lengths", str(flags.lengths)] if flags.lengths else [])
        command += [f"--larger={flags.larger}", f"--cap={flags.cap}", f"--shared={shared.words if shared else ''}"]
        command += [f"--settings={json.dumps(plan['config'])}"] if plan else []
        told = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(number)}
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=told, pass_fds=inherited))
    try:
        said, _ = children[0].communicate(timeout=PATIENCE_SECONDS)
        row: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        row = {"part": part, "cards": count, "error": f"{type(error).__name__}: exit {children[0].poll()}"}
    finally:
        for child in children:
            child.kill()
            child.wait()
    if shared:
        row["shared_bytes"] = os.fstat(inherited[0]).st_blocks * 512
        shared.close()
    return row | {key: value for key, value in plan.items() if key != "config"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", default="1,2,4", help="counts")
    parser.add_argument("--parts", default="dense,alpaca,curve", help="and larger")
    parser.add_argument("--model", default="mistral-7b")
    parser.add_argument("--larger", default="llama-3.3-70b", help="the model of the part larger")
    parser.add_argument("--cap", type=float, default=16.0, help="GiB of each of several cards in it")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lengths", type=Path)
    parser.add_argument("--dry", action="store_true", help="tiny, on the CPU over gloo")
    parser.add_argument("--out", type=Path, required=True)
    internal = (("--part", ""), ("--rank", 0), ("--count", 0), ("--port", 0), ("--settings", ""), ("--shared", ""))
    for name, usual in internal:
        parser.add_argument(name, type=type(usual), default=usual, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.dry:
        flags.model = flags.larger = "tiny"
    if flags.part:
        rank(flags)
        return
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    said = {name: str(value) for name, value in vars(flags).items()}
    result: dict[str, Any] = {**machine_facts(device), "flags": said, "rows": [], "beside": {}, "apart": {}}
    alone: dict[str, dict[str, Any]] = {}
    for part in flags.parts.split(","):
        for count in map(int, flags.cards.split(",")):
            few = min(flags.steps, LARGER_STEPS) if part == "larger" else flags.steps
            row = measured(part, count, flags, 50 if part == "curve" else few)
            result["rows"].append(row)
            first = alone.setdefault(part, row)
            if part == "curve" and row.get("losses") and first.get("losses"):
                pairs = zip(row["losses"], first["losses"], strict=True)
                result["apart"][str(count)] = max(abs(one - other) for one, other in pairs)
            elif row is not first and "error" not in row and "error" not in first:
                times = row["tokens_per_second"] / first["tokens_per_second"]
                result["beside"][f"{part} {count}"] = round(times / count if part == "larger" else times, 3)
            shown = {key: value for key, value in row.items() if key not in ("lines", "losses", "said")}
            print(json.dumps(shown), flush=True)
            flags.out.write_text(json.dumps(result, indent=1), "utf-8")
    print(json.dumps({"beside": result["beside"], "apart": result["apart"]}))


if __name__ == "__main__":
    main()
