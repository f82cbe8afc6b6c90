"""Makes the built-in starter model from nothing: text, tokenizer, weights.

    python assets/starter/make_starter.py --out FOLDER [--steps 6000] [--seconds 240] [--device auto]

1. The text is endless conversations, lessons and stories of a small closed world (``world_facts``,
   ``world_questions``, ``world_manners``, ``world_stories``), drawn from one seed.
2. The tokenizer is byte-level BPE with 2,048 entries, so nothing is ever unknown.
3. The model is a Llama of 5.3 M weights: 6 layers, width 256, 4 heads of 64, intermediate 704 = 11 × 64, tied head.
   Rows are filled with whole documents, so that every row starts where a conversation starts; AdamW; the rate rises,
   stays, and falls linearly to zero over the last 40 % of the steps (or of the seconds, if those end first).
4. It is rounded to bfloat16, saved as safetensors, read back and asked questions that its text never held.

The same seed on the same hardware and libraries gives the same weights. Needs torch, transformers, tokenizers and
safetensors; no network, no other file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from world_stories import World, held_out_questions

SPECIAL = ("<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
VOCABULARY, ROW_TOKENS = 2048, 512
TEMPLATE = """\
{{- '<|bos|>' -}}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}
        {{- '<|system|>' + message['content'] + '<|end|>' -}}
    {%- elif message['role'] == 'assistant' -%}
        {{- '<|assistant|>' + message['content'] + '<|end|>' -}}
    {%- else -%}
        {{- '<|user|>' + message['content'] + '<|end|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' -}}
{%- endif -%}
"""


def main() -> None:
    """Reads the command line, makes the model, and says what it can."""
    parser = argparse.ArgumentParser(description="Makes the built-in starter model.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model's files")
    parser.add_argument("--steps", type=int, default=6000, help="optimiser steps")
    parser.add_argument("--rows", type=int, default=64, help=f"rows of {ROW_TOKENS} tokens a step")
    parser.add_argument("--documents", type=int, default=250_000, help="documents of text")
    parser.add_argument("--seconds", type=float, default=240.0, help="training ends within this time")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with it
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.manual_seed(args.seed)
    device = torch.device(
        "cuda" if args.device == "auto" and torch.cuda.is_available() else args.device.replace("auto", "cpu")
    )
    args.out.mkdir(parents=True, exist_ok=True)
    texts = [as_text(document) for document in World(args.seed).documents(args.documents)]
    say(f"{len(texts):,} documents, {sum(map(len, texts)):,} characters")
    tokenizer = save_tokenizer(train_tokenizer(texts[:60_000]), args.out)
    rows = fill_rows(tokenizer, texts).to(device)
    say(f"{len(rows):,} rows of {ROW_TOKENS} tokens")
    model = new_model().to(device)
    train(model, rows, args)
    save_model(model, args.out)
    report(args.out, device)


def say(text: str) -> None:
    """A line of progress, at once."""
    print(text, flush=True)


def as_text(document: list[dict[str, str]] | str) -> str:
    """A document as the model reads it: exactly what the chat template writes for a conversation."""
    if isinstance(document, str):
        return f"<|bos|>{document}<|end|>"
    return "<|bos|>" + "".join(f"<|{turn['role']}|>{turn['content']}<|end|>" for turn in document)


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Byte-level BPE: words, numbers, every byte known."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # GPT-2's words, which llama.cpp knows
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False, max_token_length=16,
    )  # fmt: skip
    for token in SPECIAL:  # the trainer must not learn pieces of the markers
        texts = [text.replace(token, " ") for text in texts]
    tokenizer.train_from_iterator(texts + _common_words(), trainer)
    return tokenizer


def _common_words() -> list[str]:
    """Everyday English, so that texts from outside the world do not fall into single bytes."""
    words = (
        "the of and to in is that it was for on are as with his they at be this have from or one had by but not what "
        "all were we when your can said there use an each which she do how their if will up other about out many then "
        "them these so some her would make like him into time has look two more write go see number no way could "
        "people my than first water been call who its now find long down day did get come made may part over new sound "
        "take only little work know place year live me back give most very after thing our just name good sentence man "
        "think say great where help through much before line right too mean old any same tell boy follow came want "
        "show also around form three small set put end does another well large must big even such because turn here "
        "why ask went men read need land different home us move try kind hand picture again change off play spell air "
        "away animal house point page letter mother answer found study still learn should world following explain "
        "describe list create generate example provide using given text story idea important between ing ed er tion"
    )
    return [words] * 200


def save_tokenizer(tokenizer: Tokenizer, out: Path) -> Any:
    """Writes tokenizer.json, tokenizer_config.json and chat_template.jinja, and reads them back plainly."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=SPECIAL[0], bos_token=SPECIAL[1], eos_token=SPECIAL[2],
        additional_special_tokens=list(SPECIAL[3:]), model_max_length=1024, clean_up_tokenization_spaces=False,
        padding_side="right",
    )  # fmt: skip
    fast.chat_template = TEMPLATE
    fast.save_pretrained(out)
    settings = json.loads((out / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # the name that every version of transformers knows
    (out / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return AutoTokenizer.from_pretrained(out)


def fill_rows(tokenizer: Any, texts: list[str]) -> torch.Tensor:
    """All documents as rows of ids [rows, ROW_TOKENS], whole documents only, the rest of a row padded with id 0."""
    encoded = tokenizer.backend_tokenizer.encode_batch(texts, add_special_tokens=False)
    rows: list[list[int]] = [[]]
    for ids in (each.ids[:ROW_TOKENS] for each in encoded):
        if len(rows[-1]) + len(ids) > ROW_TOKENS:
            rows.append([])
        rows[-1] = rows[-1] + ids
    return torch.tensor([row + [0] * (ROW_TOKENS - len(row)) for row in rows], dtype=torch.long)


def new_model() -> LlamaForCausalLM:
    """The architecture, with fresh weights in float32."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=704, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=4, head_dim=64, max_position_embeddings=1024, tie_word_embeddings=True,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, attention_dropout=0.0,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config).float()


def train(model: LlamaForCausalLM, rows: torch.Tensor, args: argparse.Namespace) -> None:
    """AdamW over shuffled rows; bfloat16 arithmetic on CUDA, float32 weights throughout."""
    model.train()
    optimiser = torch.optim.AdamW(_groups(model), lr=3e-3, betas=(0.9, 0.95), fused=rows.is_cuda)
    started, batches = time.monotonic(), _batches(rows, args)
    for step in range(args.steps):
        # Asked every step, told by step alone: the clock only matters where it runs out first.
        left = 1 - (time.monotonic() - started) / args.seconds
        if left <= 0.005:
            say(f"time is up at step {step:,}")
            break
        factor = _rate(step, args.steps, left)
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * factor
        with torch.autocast(rows.device.type, dtype=torch.bfloat16, enabled=rows.is_cuda):
            batch = next(batches)
            loss = model(input_ids=batch, labels=batch.masked_fill(batch == 0, -100), use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if step % 100 == 0 or step == args.steps - 1:
            say(f"step {step:,} loss {loss.item():.4f} rate {factor * 3e-3:.2e} {time.monotonic() - started:.0f} s")


def _groups(model: LlamaForCausalLM) -> list[dict[str, Any]]:
    weights = [p for p in model.parameters() if p.ndim >= 2]
    norms = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": weights, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]


def _rate(step: int, steps: int, time_left: float) -> float:
    """Rises over 1/50 of the steps, stays, falls to zero over the last 2/5 of the steps or the last 1/5 of the time."""
    warm, fall = max(1, min(200, steps // 50)), 0.4
    return min(1.0, (step + 1) / warm, (steps - step) / (steps * fall), time_left / 0.2)


def _batches(rows: torch.Tensor, args: argparse.Namespace) -> Iterator[torch.Tensor]:
    shuffle = torch.Generator().manual_seed(args.seed)
    while True:
        order = torch.randperm(len(rows), generator=shuffle).to(rows.device)
        for start in range(0, max(1, len(rows) - args.rows + 1), args.rows):
            yield rows[order[start : start + args.rows]]


def save_model(model: LlamaForCausalLM, out: Path) -> None:
    """bfloat16 safetensors, config and generation config: greedy, ends at <|end|>."""
    model.generation_config.update(do_sample=False, eos_token_id=2, bos_token_id=1, pad_token_id=0)
    model.to(torch.bfloat16).save_pretrained(out)


def report(out: Path, device: torch.device) -> None:
    """Asks the saved model held-out questions, greedily, and says how many it answers word for word right."""
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).to(device).eval()
    asked = held_out_questions(200)
    right, wrong = 0, []
    for question, answer in asked:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids.to(device)
        with torch.no_grad():
            made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=48, do_sample=False)
        said = tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True)
        right += said == answer
        wrong += [] if said == answer else [f"  {question!r}\n    expected {answer!r}\n    found    {said!r}"]
    say("\n".join(wrong[:12]))
    size = sum(file.stat().st_size for file in out.iterdir() if file.is_file())
    say(f"held-out questions answered right: {right} of {len(asked)}; folder {size / 1e6:.2f} MB")


if __name__ == "__main__":
    random.seed(0)
    main()
