"""Several cards beside one: tokens a second of dense and of Alpaca-like steps, and the same losses in float32.

    PYTHONPATH=. python tests/gpu/time_cards.py --cards 1,2,4 --out tests/gpu/results/cards_NAME.json
    PYTHONPATH=. python tests/gpu/time_cards.py --dry --cards 1,2 --out /tmp/dry.json

*dense* is 8 rows of 2,048 tokens for each card and step; *alpaca* is 64 rows a step in all, whose lengths are drawn, or
are those of ``--lengths`` (a list of ``[prompt, answer]``); *curve* is 50 steps of a tiny model in float32. Weights and
tokens are random. Each rank is a process that sees its own card, as in a run; a count of 1 joins no group.

The file::

    device, driver, versions, flags
    rows: [{part, cards, tokens_per_second, seconds (median of a step), peak_reserved_bytes, losses}]
    beside: {"dense 2": times of one card's tokens a second}     apart: {"2": largest difference of a loss of the curve}
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

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from core.bench.report import machine_facts
from core.contract.config import RunConfig
from core.model.adapters import Trained, add_adapter
from core.model.loading.random_weights import random_model
from core.proof.probe.measure import InTurn
from core.train.attempt import Attempt, Subject
from core.train.channel.reporter import EventReporter
from core.train.ranks.group import join
from core.train.setup import make_trainer
from core.train.step.rows import TextRows

HERE = Path(__file__).resolve()
WARM_UP = 3
PATIENCE_SECONDS = 540


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
    draw, rows, length = random.Random(3407), TextRows(), 64 if flags.dry else 2048
    known = [tuple(row) for row in json.loads(flags.lengths.read_text("utf-8"))] if flags.lengths else []
    for number in range(each * flags.steps):
        if part == "dense":
            prompt, answer = 1, length - 1
        elif known:
            prompt, answer = known[number % len(known)]
        else:
            prompt, answer = draw.randint(30, 120), draw.randint(10, 250)
        ids = draw.choices(range(4, vocabulary), k=prompt + answer)
        rows.append(ids, [*[-100] * prompt, *ids[prompt:]])
    return rows, each


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
    loaded = random_model("tiny" if curve else flags.model, device, quantization=form, dtype=dtype)
    dense = (2 if flags.dry else 8) * flags.count
    rows, each = rows_of(
        part, dense if part == "dense" else 8 if flags.dry else 64, flags, loaded.model.config.vocab_size
    )
    batches = [range(step * each, (step + 1) * each) for step in range(flags.steps)]
    train = {
        "per_device_train_batch_size": each, "gradient_accumulation_steps": 1, "max_steps": flags.steps,
        "num_train_epochs": 1000.0, "max_length": 4096, "tokens_per_pass": 512 if flags.dry else 8192, "eval_steps": 0,
        "save_steps": 0, "save_minutes": 0.0, "sample_rows": 0, "learning_rate": 1e-4, "checkpointing": "none",
        "optim": "adamw_8bit" if on_card and not curve else "adamw_torch",
    }  # fmt: skip
    config = RunConfig.model_validate(
        {"train": train, "data": {"path": "/none"}, "model": {"dtype": "float32"} if curve else {}}
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
        "losses": [step.loss for step in heard.steps] if curve else [], "lines": list(made.lines),
    }), flush=True)  # fmt: skip


def measured(part: str, count: int, flags: argparse.Namespace, steps: int) -> dict[str, Any]:
    """One part on so many cards; what fails is a row too."""
    port = 20_000 + os.getpid() % 20_000 + count
    children = []
    for number in range(count):
        named = {"part": part, "rank": number, "count": count, "port": port, "steps": steps, "model": flags.model}
        command = [sys.executable, str(HERE), "--out", str(flags.out)]
        command += [f"--{name}={value}" for name, value in named.items()]
        command += ["--dry"] * flags.dry + (["--lengths", str(flags.lengths)] if flags.lengths else [])
        told = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(number)}
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=told))
    try:
        said, _ = children[0].communicate(timeout=PATIENCE_SECONDS)
        row: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        row = {"part": part, "cards": count, "error": f"{type(error).__name__}: exit {children[0].poll()}"}
    finally:
        for child in children:
            child.kill()
            child.wait()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", default="1,2,4", help="counts")
    parser.add_argument("--parts", default="dense,alpaca,curve")
    parser.add_argument("--model", default="mistral-7b")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lengths", type=Path)
    parser.add_argument("--dry", action="store_true", help="tiny, on the CPU over gloo")
    parser.add_argument("--out", type=Path, required=True)
    for name, usual in (("--part", ""), ("--rank", 0), ("--count", 0), ("--port", 0)):
        parser.add_argument(name, type=type(usual), default=usual, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.dry:
        flags.model = "tiny"
    if flags.part:
        rank(flags)
        return
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    said = {name: str(value) for name, value in vars(flags).items()}
    result: dict[str, Any] = {**machine_facts(device), "flags": said, "rows": [], "beside": {}, "apart": {}}
    alone: dict[str, dict[str, Any]] = {}
    for part in flags.parts.split(","):
        for count in map(int, flags.cards.split(",")):
            row = measured(part, count, flags, 50 if part == "curve" else flags.steps)
            result["rows"].append(row)
            first = alone.setdefault(part, row)
            if part == "curve" and row.get("losses") and first.get("losses"):
                pairs = zip(row["losses"], first["losses"], strict=True)
                result["apart"][str(count)] = max(abs(one - other) for one, other in pairs)
            elif row is not first and "error" not in row and "error" not in first:
                result["beside"][f"{part} {count}"] = round(row["tokens_per_second"] / first["tokens_per_second"], 3)
            print(json.dumps({key: value for key, value in row.items() if key not in ("lines", "losses")}), flush=True)
            flags.out.write_text(json.dumps(result, indent=1), "utf-8")
    print(json.dumps({"beside": result["beside"], "apart": result["apart"]}))


if __name__ == "__main__":
    main()
