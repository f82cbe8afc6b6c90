"""Seconds a step of every method beside SFT over as many tokens, and of TRL's DPOTrainer over plain PEFT.

    PYTHONPATH=. python tests/gpu/time_methods.py --lengths PAIRS.json --out tests/gpu/results/methods_NAME.json
    PYTHONPATH=. python tests/gpu/time_methods.py --model tiny --steps 2 --pairs 2 --out /tmp/dry.json

PAIRS.json: a list of token counts ``[prompt, chosen, rejected]`` of real pairs; without it they are drawn. Weights and
tokens are random. Every side trains the same sequences step by step: SFT and KTO take the two of a pair as two rows.
A label belongs to a text, so classification takes them as two rows, too, and pretraining learns all of their tokens.
Each step has rows of its own, as in a first epoch; ``later`` repeats them, when the reference's sums are known.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")

import torch
from transformers import TrainerCallback

from core.bench.report import machine_facts
from core.contract.config import RunConfig
from core.contract.methods import METHODS
from core.contract.tasks import REWARD, Outputs
from core.model.adapters import Trained, add_adapter
from core.model.loading.random_weights import random_model
from core.model.scores import with_scores
from core.proof.probe.measure import InTurn
from core.train.attempt import Attempt, Subject
from core.train.channel.reporter import EventReporter
from core.train.setup import make_trainer
from core.train.step.rows import MarkedRows, PairRows, rows_for

LABELS = Outputs(("a", "b"))
WARM_UP = 2
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")
Pair = tuple[list[int], list[int], list[int]]


class Clock(TrainerCallback):
    """The time at which each step ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_arguments: Any, **_objects: Any) -> None:
        if CUDA:
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


class Heard:
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def write(self, event: Any) -> Any:
        self.events.append(event)
        return event


def pairs_of(flags: argparse.Namespace, vocabulary: int) -> list[Pair]:
    draw, count = random.Random(3407), flags.pairs * flags.steps
    if flags.lengths:
        lengths = [list(map(int, row)) for row in json.loads(flags.lengths.read_text("utf-8"))]
    else:
        lengths = [[draw.randint(20, 60), draw.randint(20, 90), draw.randint(20, 90)] for _ in range(count)]
    chosen = [lengths[number % len(lengths)] for number in range(count)]
    return [tuple(draw.choices(range(4, vocabulary), k=size) for size in row) for row in chosen]  # type: ignore[misc]


def rows_of(method: str, pairs: list[Pair]) -> Any:
    rows: Any = rows_for(METHODS[method], LABELS)  # type: ignore[index]
    for prompt, chosen, rejected in pairs:
        if isinstance(rows, PairRows):
            rows.append(prompt, chosen, rejected)
        elif isinstance(rows, MarkedRows):
            rows.append(prompt, chosen, True)
            rows.append(prompt, rejected, False)
        elif method == "sft":
            for answer in (chosen, rejected):
                rows.append([*prompt, *answer], [*[-100] * len(prompt), *answer])
        else:
            for answer in (chosen, rejected):
                rows.append_made([*prompt, *answer])
    return rows


def model_of(flags: argparse.Namespace, attention: str = "") -> Any:
    quantization = "nf4" if CUDA else "none"
    return random_model(flags.model, DEVICE, quantization=quantization, attn_implementation=attention)


def adapted(config: RunConfig, loaded: Any) -> Any:
    """The model with an adapter, and a head of scores where the method has one."""
    learning = config.learning
    if learning.task.scores:
        loaded = replace(loaded, model=with_scores(loaded.model, LABELS if learning.labelled else REWARD, seed=3407))
    return loaded, Trained(add_adapter(loaded.model, config.lora, 3407, task=learning.task))


def ours(flags: argparse.Namespace, method: str) -> dict[str, Any]:
    """Steps of one method by a run's own trainer."""
    loaded = model_of(flags)
    pairs = pairs_of(flags, int(loaded.model.config.vocab_size))
    rows = rows_of(method, pairs)
    each = len(rows) // flags.steps
    first = [range(step * each, (step + 1) * each) for step in range(flags.steps)]
    later = first if METHODS[method].reference else []  # type: ignore[index]
    train = {
        "per_device_train_batch_size": each, "gradient_accumulation_steps": 1, "max_steps": flags.steps + len(later),
        "num_train_epochs": 1000.0, "max_length": 4096, "tokens_per_pass": flags.tokens, "eval_steps": 0,
        "save_steps": 0, "save_minutes": 0.0, "sample_rows": 0, "learning_rate": 1e-5,
        "checkpointing": "budget" if CUDA else "none", "memory_gib": flags.gib if CUDA else 0.0,
        "optim": "adamw_8bit" if CUDA else "adamw_torch",
    }  # fmt: skip
    config = RunConfig.model_validate({"method": method, "train": train, "data": {"path": "/none"}})
    (loaded, trained), clock, heard = adapted(config, loaded), Clock(), Heard()
    with tempfile.TemporaryDirectory() as place:
        tokenizer = SimpleNamespace(pad_token_id=0)
        made = make_trainer(config, Path(place), trained, (loaded, tokenizer), rows, InTurn((*first, *later)))
        made.trainer.add_callback(clock)
        attempt = Attempt.unsteered(Subject(config, made.trainer, tokenizer, rows.take([])), EventReporter(heard))
        attempt.train()
    said = [event for event in heard.events if event.kind == "step"]
    seconds = [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)]
    tokens = [sum(map(rows.tokens, batch)) for batch in first]
    timed = slice(WARM_UP - 1, flags.steps - 1)
    return {
        "method": method, "lines": list(made.lines), "first_loss": said[0].loss, "tokens": sum(tokens[WARM_UP:]),
        "seconds": round(sum(seconds[timed]), 4), "median": round(statistics.median(seconds[timed]), 4),
        "later_seconds": round(sum(seconds[flags.steps - 1 + WARM_UP :]), 4) if later else None,
        **memory(),
    }  # fmt: skip


def memory() -> dict[str, Any]:
    return {"peak_reserved_bytes": torch.cuda.max_memory_reserved()} if CUDA else {}


def trl(flags: argparse.Namespace, batch: int, recompute: bool) -> dict[str, Any]:
    """TRL's DPOTrainer over PEFT's layers, padded, as they come."""
    from datasets import Dataset
    from peft import prepare_model_for_kbit_training
    from trl import DPOConfig, DPOTrainer

    class Untouched(DPOTrainer):  # type: ignore[misc]
        def _prepare_dataset(self, dataset: Any, *_arguments: Any, **_options: Any) -> Any:
            return dataset

        def _get_train_sampler(self, *_arguments: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    if CUDA:
        share = flags.gib * 2**30 / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(share)
    loaded = model_of(flags, "sdpa")
    pairs = pairs_of(flags, int(loaded.model.config.vocab_size))
    model = prepare_model_for_kbit_training(loaded.model, use_gradient_checkpointing=recompute)
    model = add_adapter(model, RunConfig().lora, 3407)
    table = [
        {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected} for prompt, chosen, rejected in pairs
    ]
    with tempfile.TemporaryDirectory() as place:
        from core.data.render.chat_tokens import load_tokenizer
        from core.model.loading.load import ensure_padding
        from core.models.catalog import STARTER

        recipe = DPOConfig(
            output_dir=place, per_device_train_batch_size=batch, gradient_accumulation_steps=flags.pairs // batch,
            max_steps=flags.steps, learning_rate=1e-5, optim="adamw_8bit" if CUDA else "adamw_torch", bf16=CUDA,
            gradient_checkpointing=recompute, gradient_checkpointing_kwargs={"use_reentrant": False}, report_to="none",
            save_strategy="no", logging_strategy="no", disable_tqdm=True, max_length=4096, use_cpu=not CUDA,
            remove_unused_columns=False,
        )  # fmt: skip
        trainer = Untouched(model=model, args=recipe, train_dataset=Dataset.from_list(table),
                            processing_class=ensure_padding(load_tokenizer(STARTER)))  # fmt: skip
        clock = Clock()
        trainer.add_callback(clock)
        trainer.train()
    seconds = [end - begin for begin, end in zip(clock.ends, clock.ends[1:], strict=False)][WARM_UP - 1 :]
    tokens = sum(2 * len(p) + len(c) + len(r) for p, c, r in pairs[WARM_UP * flags.pairs :])
    return {"method": "dpo", "by": "TRL over PEFT", "batch": batch, "recompute": recompute, "tokens": tokens,
            "seconds": round(sum(seconds), 4), "median": round(statistics.median(seconds), 4), **memory()}  # fmt: skip


def measured(work: Any, *arguments: Any) -> dict[str, Any]:
    """One side; what it left behind is freed. Out of memory is a row too."""
    if CUDA:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.reset_peak_memory_stats()
    try:
        row: dict[str, Any] = work(*arguments)
    except Exception as error:
        row = {"asked": [str(part) for part in arguments[1:]], "error": f"{type(error).__name__}: {error}"[:400]}
    gc.collect()
    if CUDA:
        torch.cuda.empty_cache()
    print(json.dumps({key: value for key, value in row.items() if key != "lines"}), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mistral-7b")
    parser.add_argument("--lengths", type=Path)
    parser.add_argument("--pairs", type=int, default=16, help="a step")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=8192, help="a micro-batch of ours")
    parser.add_argument("--gib", type=float, default=24.0)
    parser.add_argument("--methods", default="sft,dpo,orpo,simpo,cpo,kto,reward,classify,pretrain,sft")
    parser.add_argument("--trl", default="4:1,8:1,2:0", help="batch:recompute, ...")
    parser.add_argument("--out", type=Path, required=True)
    flags = parser.parse_args()
    result: dict[str, Any] = {**machine_facts(DEVICE), "flags": {k: str(v) for k, v in vars(flags).items()}, "rows": []}
    sides: list[tuple[Any, ...]] = [(ours, flags, method) for method in flags.methods.split(",") if method]
    for part in filter(None, flags.trl.split(",")):
        batch, recompute = part.split(":")
        sides.append((trl, flags, int(batch), recompute == "1"))
    for side in sides:
        result["rows"].append(measured(*side))
        flags.out.write_text(json.dumps(result, indent=1), "utf-8")


if __name__ == "__main__":
    main()
