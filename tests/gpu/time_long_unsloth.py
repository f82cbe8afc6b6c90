"""The longest row that Unsloth trains on a card held to a size, and its tokens a second: beside ``time_long.py``.

    python tests/gpu/time_long_unsloth.py --tokenizer FILE --cap 24 --lengths 131072,78000,60000

One row a step of Llama-3-8B's shape with random weights, NF4, rank 16, Unsloth's own checkpointing, AdamW in 8 bits;
lengths are tried in the order in which they are named until one fits. The allocator is held to ``--cap`` GiB, context
counted. The model is written once into the temporary folder (16 GB); ``--tokenizer`` is a sentencepiece file, which
Unsloth asks for and nothing reads. ``--tiled`` has it compute its MLP in tiles.

Lines of JSON: what was loaded, and for each length ``{tokens, cap, seconds (a step each), tokens_per_second (of the
quickest), loss, allocated_gib, reserved_gib}``, or ``oom`` in place of them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

GIB = 2**30
FOLDER = Path(tempfile.gettempdir()) / "llama-3-8b-shape"
SHAPE = {
    "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 262_144, "rope_theta": 500_000.0,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def written(tokenizer: Path) -> None:
    """The model's folder; made by a process of its own, which has not imported Unsloth."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaTokenizer

    with tempfile.TemporaryDirectory() as place:
        shutil.copy(tokenizer, Path(place) / "tokenizer.model")
        made = LlamaTokenizer.from_pretrained(place, legacy=False)
    made.pad_token = made.unk_token
    made.save_pretrained(str(FOLDER))
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    model.save_pretrained(str(FOLDER), max_shard_size="4GB")


def say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


def loaded(longest: int, cap: float, tiled: bool) -> Any:
    """Unsloth's model with its adapter, and the allocator held."""
    begun = time.perf_counter()
    from unsloth import FastLanguageModel  # before torch: it patches what comes after it

    # isort: split

    import torch

    more = {"unsloth_tiled_mlp": True} if tiled else {}
    model, _ = FastLanguageModel.from_pretrained(
        str(FOLDER), max_seq_length=longest, dtype=torch.bfloat16, load_in_4bit=True, local_files_only=True, **more
    )
    model = FastLanguageModel.get_peft_model(
        model, r=16, lora_alpha=16, lora_dropout=0, bias="none", target_modules=TARGETS,
        use_gradient_checkpointing="unsloth", random_state=3407, max_seq_length=longest,
    )  # fmt: skip
    model.train()
    gc.collect()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    context = total - free - torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((cap * GIB - context) / total)
    say(load_seconds=round(time.perf_counter() - begun, 1), context_gib=round(context / GIB, 2),
        weights_gib=round(torch.cuda.memory_allocated() / GIB, 2))  # fmt: skip
    return model


def stepped(model: Any, optimizer: Any, tokens: int, steps: int) -> dict[str, Any]:
    """So many steps over one row each.

    Raises:
        torch.OutOfMemoryError: the row does not fit.
    """
    import torch

    torch.cuda.reset_peak_memory_stats()
    ids, seconds, loss = torch.randint(3, 32_000, (1, tokens), device="cuda"), [], 0.0
    for _ in range(steps):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            found = model(input_ids=ids, labels=ids).loss
        found.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss = float(found)
        seconds.append(round(time.perf_counter() - begun, 2))
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {
        "seconds": seconds, "tokens_per_second": round(tokens / min(seconds), 1), "loss": round(loss, 3),
        "allocated_gib": round(peaks[0] / GIB, 2), "reserved_gib": round(peaks[1] / GIB, 2),
    }  # fmt: skip


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--tokenizer", type=Path, required=True)
    flags.add_argument("--cap", type=float, required=True)
    flags.add_argument("--lengths", required=True)
    flags.add_argument("--steps", type=int, default=2)
    flags.add_argument("--tiled", action="store_true")
    flags.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    chosen = flags.parse_args()
    if chosen.write:
        written(chosen.tokenizer)
        return
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
    if not (FOLDER / "config.json").is_file():
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--write"], check=True)
    lengths = [int(length) for length in chosen.lengths.split(",")]
    model = loaded(max(lengths), chosen.cap, chosen.tiled)
    import bitsandbytes
    import torch

    optimizer = bitsandbytes.optim.AdamW8bit([one for one in model.parameters() if one.requires_grad], lr=2e-4)
    for tokens in lengths:
        case = {"tokens": tokens, "cap": chosen.cap, "tiled": chosen.tiled}
        try:
            say(**case, **stepped(model, optimizer, tokens, chosen.steps))
            break
        except torch.OutOfMemoryError as error:
            say(**case, oom=str(error).split(".")[0])
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
