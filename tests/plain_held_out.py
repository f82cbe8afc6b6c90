"""The held-out figures of exported models by torch, transformers and peft alone: nothing of this program is imported.

    python tests/plain_held_out.py REQUEST.json

The request is a list of ``{"folder", "base", "data", "rows", "pairs"}``: an export, the base model's folder (of an
adapter, else empty), the data file (JSON lines), the held-out rows' numbers in it from 1, and whether they are pairs of
answers. Prints a list of ``{"loss", "accuracy"}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForSequenceClassification, AutoTokenizer

BATCH = 4


def load(request: dict[str, Any], tokenizer: Any) -> Any:
    """The exported model in 32 bits: merged weights stay those of 16 bits."""
    folder = request["folder"]
    if not request["base"]:
        return AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    told = json.loads((Path(folder) / "labels.json").read_text(encoding="utf-8"))
    names = {int(number): name for number, name in told["id2label"].items()}
    base = AutoModelForSequenceClassification.from_pretrained(
        request["base"], num_labels=len(names), id2label=names, label2id=told["label2id"],
        problem_type=told["problem_type"], dtype=torch.float32,
    )  # fmt: skip
    base.config.pad_token_id = tokenizer.pad_token_id
    return PeftModel.from_pretrained(base, folder).eval()


def logits_of(model: Any, tokenizer: Any, texts: list[str], special: bool) -> torch.Tensor:
    """``[texts, scores]``, computed in padded batches."""
    parts = []
    for first in range(0, len(texts), BATCH):
        batch = texts[first : first + BATCH]
        inputs = tokenizer(batch, add_special_tokens=special, truncation=True, padding=True, return_tensors="pt")
        with torch.no_grad():
            parts.append(model(**inputs).logits)
    return torch.cat(parts)


def measured(request: dict[str, Any]) -> dict[str, float]:
    """Mean loss and share of right rows."""
    tokenizer = AutoTokenizer.from_pretrained(request["folder"])
    model = load(request, tokenizer)
    lines = Path(request["data"]).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(lines[number - 1]) for number in request["rows"]]
    if request["pairs"]:
        texts = [
            tokenizer.apply_chat_template(
                [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row[side]}],
                tokenize=False,
            )
            for side in ("chosen", "rejected")
            for row in rows
        ]
        better, worse = logits_of(model, tokenizer, texts, special=False)[:, 0].chunk(2)
        losses, right = -torch.nn.functional.logsigmoid(better - worse), better > worse
    else:
        logits = logits_of(model, tokenizer, [row["text"] for row in rows], special=True)
        targets = torch.tensor([model.config.label2id[row["label"]] for row in rows])
        losses, right = (
            torch.nn.functional.cross_entropy(logits, targets, reduction="none"),
            logits.argmax(1) == targets,
        )
    return {"loss": float(losses.mean()), "accuracy": float(right.float().mean())}


def main(path: str) -> list[dict[str, float]]:
    """The figures of every export of a request."""
    return [measured(request) for request in json.loads(Path(path).read_text(encoding="utf-8"))]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
    assert not {"core", "studio"} & {name.partition(".")[0] for name in sys.modules}
