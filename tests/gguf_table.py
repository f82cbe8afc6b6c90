"""The table of forms: bytes, seconds, peak memory and checks of GGUF files, for each family at tiny size and for some
at real shapes, whose weights are drawn. Real vocabularies lie in a folder ``shared`` beside this repository.

    python tests/gguf_table.py tiny [NAME...]        writes tests/results/gguf_tiny.json
    python tests/gguf_table.py real [NAME...]        writes tests/results/gguf_real.json; some GB in --at, removed after

Tiny models have an adapter that learned some sentences for a moment; at real shapes A and B are drawn, so perplexities
there tell what a form loses, not what training brought. ``memory``: the largest anonymous memory of this process while
it wrote, in MB, above what it held before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from gguf_cases import FAMILIES, description, make_adapter, make_base, material, row_of
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from core.contract.errors import ModelError
from core.contract.forms import QUANTISATIONS
from core.contract.tasks import LEARNS
from core.export.gguf.adapter import write_adapter
from core.export.gguf.metadata import read_config
from core.export.gguf.model import Description, Quantiser, write_model
from core.export.gguf.proof.check import Tried, affordable, verify
from core.export.gguf.proof.material import Material, Text, within
from core.export.gguf.proof.streamed import Streamed, weighings_of
from core.export.gguf.vocabulary import vocabulary_of
from core.export.weights import FinishedWeights, finished
from core.machine.children.serve import give_back_memory

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
REAL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Qwen2-0.5B": ("qwen2", "qwen2", {
        "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
        "max_position_embeddings": 32768, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    }),
    "Llama-3.2-1B": ("llama", "gpt-2", {
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True,
        "max_position_embeddings": 131072, "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
    }),
    "Gemma-2-2B": ("gemma2", "phi-3", {
        "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256,
        "tie_word_embeddings": True, "max_position_embeddings": 8192, "sliding_window": 4096,
    }),
    "Phi-3-mini": ("phi3", "phi-3", {
        "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "tie_word_embeddings": False,
        "max_position_embeddings": 4096, "sliding_window": 2047,
    }),
}  # fmt: skip
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@contextmanager
def measured(row: dict[str, Any]) -> Iterator[None]:
    """Seconds and the largest anonymous memory of the block."""
    give_back_memory()
    over, most, before = threading.Event(), [0], _anonymous()

    def watch() -> None:
        while not over.wait(0.01):
            most[0] = max(most[0], _anonymous())

    thread = threading.Thread(target=watch)
    thread.start()
    started = time.monotonic()
    try:
        yield
    finally:
        row["seconds"] = round(time.monotonic() - started, 2)
        over.set()
        thread.join()
        row["memory"] = max(0, most[0] - before) // 1024


def _anonymous() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def rows_of(
    run: tuple[Path, Path], tried_on: Material, told: Description, forms: list[str]
) -> Iterator[dict[str, Any]]:
    """One line of the table for each form; ``run``: base and adapter."""
    base, adapter = run
    tuned, own = finished(base, adapter, LEARNS["adapter"]), finished(base, base, LEARNS["everything"])
    for form in forms:
        kind, _, weighed = form.partition("+")
        row: dict[str, Any] = {"form": form}
        with tempfile.TemporaryDirectory(dir=base.parent) as folder:
            file, lora = Path(folder) / "model.gguf", Path(folder) / "adapter.gguf"
            if kind == "adapter":
                write_model(file, told, own, Quantiser("f16"), _quiet, _quiet)
                with measured(row):
                    write_adapter(lora, told.config, base, adapter, _quiet, _quiet)
            else:
                weighings: dict[str, Any] = {}
                if weighed:
                    with measured(about := {}):
                        weighings = _weighings(told, tuned, tried_on)
                    row["weighing"] = about
                with measured(row):
                    write_model(file, told, tuned, Quantiser(kind, weighings), _quiet, _quiet)  # type: ignore[arg-type]
            adapted = lora if kind == "adapter" else None
            row["bytes"] = (adapted or file).stat().st_size
            one = Tried(file, told.config, tuned, own, "f16" if adapted else kind, adapted)  # type: ignore[arg-type]
            with measured(checking := {}):
                try:
                    found = verify(one, tried_on, _quiet)
                    row |= {"checks": found.checks, "warnings": found.warnings}
                except ModelError as fault:
                    row["fault"] = str(fault)
            row["checking"] = checking
        print(json.dumps(row, ensure_ascii=False), flush=True)
        yield row


def _weighings(told: Description, weights: FinishedWeights, tried_on: Material) -> dict[str, Any]:
    rows = within(tried_on.seen, affordable(weights))
    return dict(weighings_of(Streamed(told.config, weights, _quiet), [row.ids for row in rows]))


def tiny(name: str, place: Path) -> dict[str, Any]:
    """A family at tiny size."""
    base = make_base(place / "base", name)
    adapter = make_adapter(base, place / "adapter", steps=25)
    told = description(base)
    tried_on = material(AutoTokenizer.from_pretrained(base), plain=not told.vocabulary.notes)
    forms = [*QUANTISATIONS, "q4_k_m+importance", "adapter"]
    lines = [*rows_of((base, adapter), tried_on, told, forms)]
    return {"family": FAMILIES[name][0], "tokenizer": FAMILIES[name][1], "forms": lines}


def real(name: str, place: Path) -> dict[str, Any]:
    """Drawn weights at a published model's shape, with a real vocabulary."""
    from peft import LoraConfig, get_peft_model

    family, vocabulary, shape = REAL[name]
    tokenizer = AutoTokenizer.from_pretrained(SHARED / "tokenizers" / vocabulary)
    tokenizer.chat_template = tokenizer.chat_template or CHATML
    config = AutoConfig.for_model(family, **shape, initializer_range=0.03, pad_token_id=0)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    base, adapter, count = place / "base", place / "adapter", sum(one.numel() for one in model.parameters())
    model.save_pretrained(str(base))
    adapted = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", init_lora_weights=False)
    )
    adapted.save_pretrained(str(adapter), save_embedding_layers=False)
    del model, adapted
    told = Description(
        read_config(base), vocabulary_of(tokenizer, shape["vocab_size"], (), True), tokenizer.chat_template, name
    )
    read = json.loads((SHARED / "alpaca_en_999.json").read_text(encoding="utf-8"))
    chats = [[{"role": "user", "content": one["instruction"]}] for one in read[:200]]
    texts = [tokenizer.apply_chat_template(one, tokenize=False, add_generation_prompt=True) for one in chats]
    written = tuple(Text(one, tuple(tokenizer(one, add_special_tokens=False).input_ids)) for one in texts)
    answers = [one["output"] for one in read[200:260] if one["output"].split()[2:]]
    rows = tuple(row_of(tokenizer, one).cut(120) for one in answers[:4])
    tried_on = Material(written, tuple(text.ids[-24:] for text in written[:20]), rows, rows)
    return {"parameters": count, "forms": [*rows_of((base, adapter), tried_on, told, ["f16", "q8_0", "q4_k_m"])]}


def _quiet(*_: object) -> None:
    pass


def main() -> None:
    """Measures what is asked for, and keeps what stands in the file of the others."""
    asking = argparse.ArgumentParser()
    asking.add_argument("size", choices=("tiny", "real"))
    asking.add_argument("names", nargs="*")
    asking.add_argument("--at", type=Path, default=Path(tempfile.gettempdir()))
    chosen = asking.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    known, made = (FAMILIES, tiny) if chosen.size == "tiny" else (REAL, real)
    out = ROOT / "tests" / "results" / f"gguf_{chosen.size}.json"
    out.parent.mkdir(exist_ok=True)
    for name in chosen.names or known:
        place = Path(tempfile.mkdtemp(dir=chosen.at))
        try:
            print(name, flush=True)
            one = made(name, place)
            held = json.loads(out.read_text("utf-8")) if out.exists() else {}
            out.write_text(json.dumps(held | {name: one}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        finally:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
