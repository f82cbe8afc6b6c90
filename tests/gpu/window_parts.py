"""What ``window_on_card`` does in processes of their own: writes a model's folder, and loads results as others do."""

from __future__ import annotations

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

GIB = 2**30
SHARD_BYTES = 4 * GIB
WRITERS = 4
QUESTION = "What is the capital of France?"


def make_model(folder: Path, shape: str, layers: int, share: float, tokenizer: Path) -> dict[str, Any]:
    """Writes the model's folder; what was drawn of it."""
    import torch

    from core.model.loading.assemble import auto_class
    from core.model.loading.random_weights import find_shape, random_config
    from core.models.checks.weights import INDEX_NAME

    shutil.copytree(tokenizer, folder, ignore=shutil.ignore_patterns("*.safetensors", "*.py", "config.json", "gen*"))
    config = random_config(find_shape(shape), layers)
    ids = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    config.vocab_size, config.dtype = max(config.vocab_size, math.ceil((max(ids.values()) + 9) / 64) * 64), "bfloat16"
    config.architectures, config.eos_token_id = [f"{config.model_type.title()}ForCausalLM"], 2
    config.save_pretrained(folder)
    with torch.device("meta"):
        named = [(name, tuple(one.shape)) for name, one in auto_class().from_config(config).named_parameters()]
    shards: list[list[tuple[str, tuple[int, ...]]]] = [[]]
    for one in named:
        if sum(2 * math.prod(shape) for _, shape in shards[-1]) > SHARD_BYTES:
            shards.append([])
        shards[-1].append(one)
    files = [folder / f"model-{number + 1:05}-of-{len(shards):05}.safetensors" for number in range(len(shards))]
    with ThreadPoolExecutor(WRITERS) as pool:
        drawn = sum(pool.map(lambda pair: write_shard(*pair, share), zip(files, shards, strict=True)))
    places = {name: file.name for file, shard in zip(files, shards, strict=True) for name, _ in shard}
    size = sum(2 * math.prod(shape) for _, shape in named)
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (folder / INDEX_NAME).write_text(json.dumps(index), encoding="utf-8")
    disk = sum(512 * file.stat().st_blocks for file in files)
    return {"shape": shape, "layers": config.num_hidden_layers, "bytes": size, "drawn_share": share,
            "drawn_bytes": drawn, "disk_bytes": disk}  # fmt: skip


def write_shard(file: Path, tensors: list[tuple[str, tuple[int, ...]]], share: float) -> int:
    """One file: norms are ones, of a layer's matrix the first rows are drawn, all else is a hole. Bytes written."""
    import torch

    from core.model.loading.tensor_stream import header_of

    device, written = torch.device("cuda" if torch.cuda.is_available() else "cpu"), 0
    header = header_of((name, torch.bfloat16, shape) for name, shape in tensors)
    with file.open("wb") as out:
        out.write(header)
        for name, shape in tensors:
            begin, rows = out.tell(), math.ceil((share if ".layers." in name else 1.0) * shape[0])
            if len(shape) == 1:
                values = torch.ones(shape, dtype=torch.bfloat16)
            else:
                values = torch.empty((rows, *shape[1:]), dtype=torch.bfloat16, device=device).normal_(0.0, 0.02)
            written += out.write(values.cpu().view(torch.uint8).numpy().data)
            out.seek(begin + 2 * math.prod(shape))
        out.truncate()
    return written


def grow(gib: int) -> None:
    """Uses so much of the machine's memory once."""
    held = []
    for _ in range(gib):
        held.append(bytearray(GIB))
        held[-1][::4096] = b"\1" * len(held[-1][::4096])


def reloaded(folder: Path, base: Path) -> dict[str, Any]:
    """What plain libraries make of the result: a merged model answers; an adapter's tensors each find their place."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if not (folder / "adapter_config.json").exists():
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", local_files_only=True).to(device).eval()
        turns = [{"role": "user", "content": QUESTION}]
        asked = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.inference_mode():
            logits = model(**asked.to(device)).logits
            ids = model.generate(**asked, max_new_tokens=12, do_sample=False, pad_token_id=0)
        new = ids[0, asked["input_ids"].shape[1] :]
        told = {"by": "plain transformers", "dtype": str(model.dtype), "device": device, "question": QUESTION}
        return {**told, "answer": tokenizer.decode(new), "finite": bool(logits.isfinite().all())}
    from peft import PeftConfig, get_peft_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base, local_files_only=True))
        model = get_peft_model(model, PeftConfig.from_pretrained(folder), low_cpu_mem_usage=True)
    tensors = load_file(folder / "adapter_model.safetensors")
    found = set_peft_model_state_dict(model, tensors, low_cpu_mem_usage=True)
    numbers, finite = (
        sum(one.numel() for one in tensors.values()),
        all(one.isfinite().all() for one in tensors.values()),
    )
    return {
        "by": "plain peft, onto the base's shape without weights",
        "layers": model.config.num_hidden_layers,
        "tensors": len(tensors),
        "numbers": numbers,
        "finite": finite,
        "moved": sum(bool(one.any()) for name, one in tensors.items() if "lora_B" in name),
        "without_a_place": len(found.unexpected_keys),
        "places_left_empty": sum("lora_" in name for name in found.missing_keys),
    }
