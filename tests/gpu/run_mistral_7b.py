"""Measures today's training speed on a model of Mistral-7B's shape, made here with random weights.

    PYTHONPATH=. python tests/gpu/run_mistral_7b.py --work /tmp/mistral

It makes the model folder (config, bf16 safetensors, a tokenizer in which every word is one token) and raw-text rows of
exactly 2,048 tokens, writes one run.yaml for each accumulation, runs ``python -m core.worker`` on each, and prints what
the runs' own events say as JSON. Nothing in the worker knows of it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.machine.locations import REPOSITORY
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config
from core.runs.log.events_log import EventTail

SHAPE = {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32768, "max_position_embeddings": 32768,
}  # fmt: skip


def make_model(folder: Path, layers: int) -> None:
    """Random bf16 weights in shards, and a tokenizer of as many words as the model has rows."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

    if (folder / "config.json").exists():
        return
    words = {"</s>": 0, "<unk>": 1} | {f"w{number}": number for number in range(2, SHAPE["vocab_size"])}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="</s>")
    config = MistralConfig(
        **{**SHAPE, "num_hidden_layers": layers},
        rms_norm_eps=1e-5, sliding_window=None, bos_token_id=None, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = MistralForCausalLM(config)
    model.save_pretrained(folder.with_suffix(".part"), max_shard_size="2GB")
    fast.save_pretrained(folder.with_suffix(".part"))
    folder.with_suffix(".part").rename(folder)


def make_rows(path: Path, rows: int, tokens: int) -> Path:
    """Rows of ``tokens - 1`` words; the end token that raw text gets makes each exactly ``tokens`` long."""
    draw = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(rows):
            text = " ".join(f"w{draw.randrange(2, SHAPE['vocab_size'])}" for _ in range(tokens - 1))
            file.write(json.dumps({"text": text}) + "\n")
    return path


def config_of(options: argparse.Namespace, model: Path, data: Path, accumulation: int) -> RunConfig:
    """What a person would write: QLoRA at rank 16, everything else as it is by default."""
    return RunConfig.model_validate(
        {
            "name": f"mistral-shape x{accumulation}",
            "model": {"source": "folder", "name": str(model), "quantization": options.quantization},
            "data": {"path": str(data), "layout": "text", "eval_fraction": 0.0},
            "train": {
                "max_length": options.tokens, "num_train_epochs": 1, "max_steps": options.steps,
                "per_device_train_batch_size": options.batch, "gradient_accumulation_steps": accumulation,
                "tokens_per_pass": options.batch * options.tokens, "kernels": options.kernels,
                "checkpointing": options.checkpointing, "save_steps": 10**6, "save_minutes": 0,
            },
        }
    )  # fmt: skip


def measure(folder: JobFolder, warm_up: int) -> dict[str, Any]:
    """Runs the worker on the folder and sums up its events."""
    begun = time.time()
    ended = subprocess.run([sys.executable, "-m", "core.worker", str(folder.path)], cwd=REPOSITORY, check=False)
    events: list[Any] = list(EventTail(folder.events).read())
    steps = [event for event in events if event.kind == "step"]
    plan = next((event for event in events if event.kind == "plan"), None)
    steady = [event.tokens_per_second for event in steps[warm_up:] if event.tokens_per_second]
    return {
        "exit": ended.returncode,
        "end": events[-1].model_dump(include={"kind", "code", "message", "hint"}) if events else None,
        "steps": len(steps),
        "tokens_a_step": steps[-1].tokens if steps else 0,
        "tokens_per_second_median": round(statistics.median(steady), 1) if steady else None,
        "peak_allocated_gib": round(max(event.memory_bytes for event in steps) / 2**30, 2) if steps else None,
        "peak_reserved_gib": round(max(event.reserved_bytes or 0 for event in steps) / 2**30, 2) if steps else None,
        "estimated_gib": round(plan.estimated_bytes / 2**30, 2) if plan else None,
        "first_and_last_loss": [steps[0].loss, steps[-1].loss] if steps else None,
        "seconds_to_first_step": round(steps[0].at - begun, 1) if steps else None,
        "plan": list(plan.lines) if plan else [],
    }


def main() -> None:
    """Makes what is missing, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for model, data and runs (needs 16 GB)")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--accumulation", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    parser.add_argument("--quantization", choices=["nf4", "none"], default="nf4")
    parser.add_argument("--kernels", choices=["auto", "plain"], default="auto")
    parser.add_argument("--checkpointing", choices=["auto", "none", "recompute", "offload", "budget"], default="auto")
    options = parser.parse_args()
    model = options.work / f"mistral-shape-{options.layers}"
    options.work.mkdir(parents=True, exist_ok=True)
    make_model(model, options.layers)
    table = []
    for accumulation in options.accumulation:
        rows = options.steps * options.batch * accumulation
        data = make_rows(options.work / f"rows-{rows}.jsonl", rows, options.tokens)
        path = options.work / "runs" / f"{options.kernels}-x{accumulation}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        (path / "run.yaml").write_text(dump_config(config_of(options, model, data, accumulation)), encoding="utf-8")
        table.append({"accumulation": accumulation, **measure(JobFolder(path), options.warm_up)})
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
