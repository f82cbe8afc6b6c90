"""Times loading a 7B from 16-bit safetensors to NF4 on the card, ours beside transformers' own, and compares the bits.

    PYTHONPATH=. python tests/gpu/time_loading.py --work /tmp/mistral-7b

It makes the model folder (see ``life_on_card``), reads every file once so that the page cache is warm, and takes each
way in a process of its own: imports, CUDA's context and bitsandbytes' first kernel are not counted. One JSON line each:
seconds of the first load and of a second one in the same process, peak and final memory on the card, peak on the host.
Counted beforehand: 14.5 GB are 0.3 to 0.6 s over PCIe at 25 to 50 GB/s, and 0.5 s out of the page cache with eight
threads at 4 GB/s each; what is more than 2 s is Python.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

WAYS = ("read", "ours", "transformers", "store", "cached", "random", "same")


def main() -> None:
    """Makes the folder, then every way, one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/tmp/mistral-7b"))
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--ways", default=",".join(WAYS), help="which, in this order")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.way:
        print(json.dumps({"way": chosen.way, **run(chosen.way, chosen.work, chosen.layers)}), flush=True)
        return
    make(chosen.work, chosen.layers)
    for way in chosen.ways.split(","):
        warm(chosen.work)
        here = [sys.executable, __file__, "--work", str(chosen.work), "--layers", str(chosen.layers), "--way", way]
        subprocess.run(here, check=True)


def make(folder: Path, layers: int) -> None:
    """The model folder, in a process of its own, whose memory goes with it."""
    code = "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[3]); "
    code += "from life_on_card import make_model; make_model(Path(sys.argv[1]), int(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, folder, str(layers), Path(__file__).parent], check=True)


def warm(folder: Path) -> None:
    """Every weight file once through the page cache."""
    block = bytearray(64 * 2**20)
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(block):
                pass


def run(way: str, folder: Path, layers: int) -> dict[str, Any]:
    """One way, measured."""
    from core.model.loading.random_weights import random_model

    device = torch.device("cuda", 0)
    random_model("tiny", device, dtype="bfloat16")  # CUDA's context, bitsandbytes' kernels, transformers' modules
    ways = {
        "read": lambda: read(folder, device),
        "ours": lambda: ours(folder, device, None),
        "transformers": lambda: by_transformers(folder, device),
        "store": lambda: ours(folder, device, folder.with_suffix(".cache")),
        "cached": lambda: ours(folder, device, folder.with_suffix(".cache")),
        "random": lambda: (random_model("mistral-7b", device, layers=layers).model, ""),
    }
    if way == "same":
        return compare(folder, device)
    return {**timed(ways[way], "first"), **({} if way == "store" else timed(ways[way], "second"))}


def timed(load: Callable[[], tuple[Any, str]], word: str) -> dict[str, Any]:
    """Seconds and memory of one load; the model is thrown away."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    model, line = load()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    gib = 2**30
    facts = {
        f"{word}_seconds": round(seconds, 2),
        f"{word}_peak_gib": round(torch.cuda.max_memory_allocated() / gib, 3),
        f"{word}_kept_gib": round(torch.cuda.memory_allocated() / gib, 3),
        f"{word}_reserved_gib": round(torch.cuda.memory_reserved() / gib, 3),
        f"{word}_peak_reserved_gib": round(torch.cuda.max_memory_reserved() / gib, 3),
        f"{word}_host_peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / gib, 2),
        f"{word}_line": line,
    }
    del model
    return facts


def read(folder: Path, device: torch.device) -> tuple[None, str]:
    """The stream alone: every tensor onto the card and thrown away."""
    from core.model.loading.tensor_stream import TensorStream
    from core.models.checks.weights import weight_files

    with TensorStream(weight_files(folder), device) as stream:
        for entry in stream.entries.values():
            entry[...]
        return None, f"{stream.total_bytes / 1e9:.2f} GB"


def ours(folder: Path, device: torch.device, cache: Path | None) -> tuple[Any, str]:
    """As a run loads it."""
    from core.contract.config import ModelChoice
    from core.model.loading.load import load_base

    loaded = load_base(folder, ModelChoice(quantization="nf4", dtype="bfloat16"), device, cache=cache)
    return loaded.model, loaded.line


def by_transformers(folder: Path, device: torch.device) -> tuple[Any, str]:
    """As everybody loads it."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    kind = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.bfloat16, device_map={"": device}, quantization_config=kind
    )
    return model, ""


def compare(folder: Path, device: torch.device) -> dict[str, Any]:
    """Every tensor of the three ways' state, bit for bit."""
    wanted = by_transformers(folder, device)[0].state_dict()
    facts: dict[str, Any] = {"tensors": len(wanted)}
    for word, cache in (("ours", None), ("cached", folder.with_suffix(".cache"))):
        found = ours(folder, device, cache)[0].state_dict()
        assert found.keys() == wanted.keys()
        other = [name for name in wanted if not same_bits(found[name], wanted[name])]
        assert not other, other[:5]
        facts[f"{word}_equal"] = len(found)
    return facts


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Same dtype, place and bits."""
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)


if __name__ == "__main__":
    main()
