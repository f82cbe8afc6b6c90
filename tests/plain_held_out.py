"""The held-out figures of exported models by torch, transformers and peft alone: nothing of this program is imported.

    python tests/plain_held_out.py REQUEST.json

The request is a list of ``{"folder", "base", "data", "rows", "pairs"}``: an export, the base model's folder (of an
adapter, else empty), the data file (JSON lines), the held-out rows' numbers in it from 1, and whether they are pairs of
answers; of a model that writes also ``{"method", "beta", "gamma"}``: what it learned by (gamma: SimPO's). Prints a list
of ``{"loss", "accuracy"}``; of a model that writes ``{"loss"}``, of pairs with the ``margin`` of their rewards, and
of marked answers that margin alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch.nn.functional import logsigmoid
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

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


def answered(model: Any, tokenizer: Any, prompt: str, answer: str) -> torch.Tensor:
    """Log-probabilities of a prompt's tokens, the number of these, the answer's, and the number of those."""
    turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
    asked = tokenizer.apply_chat_template(turns[:1], add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    begin = len(tokenizer(asked, add_special_tokens=False)["input_ids"])
    ids = tokenizer(whole, add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logs = model(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    read, said = logs[: begin - 1], logs[begin - 1 :]
    return torch.stack([read.sum(), torch.tensor(len(read)), said.sum(), torch.tensor(len(said))])


def continued(model: Any, tokenizer: Any, texts: list[str]) -> float:
    """Mean loss a token of texts, each ended, its first token given."""
    losses = []
    for text in texts:
        ids = torch.tensor([[*tokenizer(text)["input_ids"], tokenizer.eos_token_id]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none"))
    return float(torch.cat(losses).mean())


def written(request: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, float]:
    """What a run of a model that writes said of its held-out rows: TRL's formulas; of texts the mean over tokens."""
    tokenizer = AutoTokenizer.from_pretrained(request["folder"])
    model = AutoModelForCausalLM.from_pretrained(request["base"] or request["folder"], dtype=torch.float32).eval()
    model = PeftModel.from_pretrained(model, request["folder"]).eval() if request["base"] else model
    method, beta = request["method"], request["beta"]
    sides = ("chosen", "rejected") if request["pairs"] else ("completion",)
    if method == "pretrain":
        return {"loss": continued(model, tokenizer, [row["text"] for row in rows])}

    def logs() -> torch.Tensor:
        return torch.stack([torch.stack([answered(model, tokenizer, row["prompt"], row[side]) for side in sides])
                            for row in rows])  # fmt: skip

    found = logs()  # [rows, answers, 4]
    sums, mean = found[..., 2], found[..., 2] / found[..., 3]
    nll = -sums[:, 0].sum() / found[:, 0, 3].sum()
    if method == "sft":
        return {"loss": float(nll)}
    if method in ("dpo", "kto"):
        with model.disable_adapter():
            sums = sums - logs()[..., 2]
    if method == "kto":
        good = torch.tensor([row["label"] for row in rows])
        return {"margin": float(beta * (sums[good].mean() - sums[~good].mean()))}
    used = mean if method in ("simpo", "orpo") else sums
    logits = beta * (used[:, 0] - used[:, 1])
    losses = -logsigmoid(logits)
    if method == "simpo":
        losses = -logsigmoid(logits - request["gamma"])
    if method == "cpo":
        losses = losses + nll
    if method == "orpo":
        odds = mean - torch.log1p(-mean.exp())
        read = found[:, 0, :].sum(0)
        losses = -beta * logsigmoid(odds[:, 0] - odds[:, 1]) - (read[0] + read[2]) / (read[1] + read[3])
    return {"loss": float(losses.mean()), "margin": float(logits.mean())}


def measured(request: dict[str, Any]) -> dict[str, float]:
    """Mean loss and share of right rows."""
    if request.get("method"):
        lines = Path(request["data"]).read_text(encoding="utf-8").splitlines()
        return written(request, [json.loads(lines[number - 1]) for number in request["rows"]])
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
