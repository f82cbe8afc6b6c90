"""The text of ``train.py``: at most 120 lines on plain transformers, peft and TRL that train a run again."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from core.contract.config import RunConfig
from core.contract.methods import METHODS
from core.contract.tasks import OUTPUTS_FILE, Outputs, Problem
from core.export.script.trainers import SCRIPTS, Script, Settings

MOST_LINES = 120
_WIDTH = 119


@dataclass(frozen=True)
class Facts:
    """What a script is written from. ``config`` is the effective one, ``dtype`` what the run computed in;
    ``adapter``: fields of the checkpoint's adapter_config.json, ``base`` a hub id or a name, ``held_out`` rows."""

    run: str
    config: RunConfig
    base: str
    dtype: str
    steps: int
    held_out: int
    adapter: dict[str, Any]
    rows: Any
    outputs: Outputs | None = None
    encoder: bool = False
    positions: dict[str, Any] = field(default_factory=dict)
    """Fields of the base's config that scale its positions, in ``run.json``."""

    @property
    def script(self) -> Script:
        """The row of its method."""
        return SCRIPTS[self.config.trained_method]

    @property
    def hub(self) -> bool:
        """Whether the base can be fetched by its name."""
        return self.config.model.source == "hub"

    @property
    def balanced(self) -> bool:
        """Whether rare labels weigh more."""
        named = self.outputs is not None and self.outputs.problem != "regression"
        return named and self.config.learning.labelled and self.config.train.class_weights == "balanced"

    @property
    def half(self) -> bool:
        """Whether it computes in 16 bits."""
        return self.dtype in ("bfloat16", "float16")

    @property
    def autocast(self) -> bool:
        """Whether weights of 32 bits meet products of 16: adapters cast by themselves, heads and embeddings do not."""
        learns = self.config.learns
        return self.half and (learns.base or learns.ends or self.outputs is not None)


def train_py(facts: Facts) -> str:
    """The whole file."""
    blocks = (_head, _imports, _begin, _rows, _order, _trainer, _build, _main)
    return "".join("\n".join(block(facts)) + "\n" for block in blocks)


def needed(facts: Facts) -> list[str]:
    """The packages that it imports."""
    names = ["torch", "transformers", "accelerate", "datasets", "safetensors"]
    names += ["trl"] if facts.script.module.startswith("trl") else []
    names += ["peft"] if facts.config.learns.adapter else []
    return [
        *names,
        *(["bitsandbytes"] if facts.config.model.form.quantised or "8bit" in facts.config.train.optim else []),
    ]


def _head(facts: Facts) -> Iterator[str]:
    config, steps = facts.config, f"{facts.steps:,} step{'s' if facts.steps > 1 else ''}"
    files = "train.jsonl and held_out.jsonl are" if facts.held_out else "train.jsonl is"
    yield f'"""{config.learning.title} of {_plain(facts.base)}, as run {facts.run} did it, by plain libraries.\n'
    yield "    pip install -r requirements.txt"
    base = "" if facts.hub else " --base FOLDER"
    where = "another copy of the base model" if facts.hub else "the base model's folder"
    yield f"    python train.py{base}    the whole run: {steps}; the result in ./trained"
    yield f"    python train.py --steps 1 --base FOLDER    to try it out, with {where}\n"
    yield f"{files} the run's own rows, cut at {config.train.max_length:,} tokens, a JSON object a line."
    yield f'{facts.script.about}\n"""\n'


def _imports(facts: Facts) -> Iterator[str]:
    script, config, adapts = facts.script, facts.config, facts.config.learns.adapter
    goes_on = bool(config.resume_from)
    yield "import argparse\nimport json\nimport random"
    yield "from pathlib import Path\n"
    yield "import torch\nfrom datasets import Dataset"
    if adapts:
        yield f"from peft import {'PeftModel' if goes_on else 'LoraConfig, get_peft_model'}"
    names = {config.learning.task.model_class, "AutoTokenizer"}
    names |= {"BitsAndBytesConfig"} if config.model.form.quantised else set()
    pair = {script.config or f"{script.name}Config", f"{script.name}Trainer"}
    yield f"from transformers import {', '.join(sorted(names))}"
    yield f"from {script.module} import {', '.join(sorted(pair))}"


def _begin(facts: Facts) -> Iterator[str]:
    yield "\nHERE, SEED = Path(__file__).resolve().parent, " + str(facts.config.train.seed)
    yield "tokenizer = AutoTokenizer.from_pretrained(HERE)"
    if facts.outputs and facts.config.learning.labelled:
        yield f'NAMES = list(json.loads((HERE / "{OUTPUTS_FILE}").read_text(encoding="utf-8"))["id2label"].values())'


_SPLIT = '''

def split(*pieces):
    """Token ids of each piece, of one tokenisation of all: a token belongs to the piece that it begins in."""
    if not isinstance(pieces[0], str):
        return list(pieces)  # token ids, where no text has just these
    read = tokenizer("".join(pieces), add_special_tokens=False, return_offsets_mapping=True)
    ends, ids, at = [len("".join(pieces[:count])) for count in range(1, len(pieces))], [[] for _ in pieces], 0
    for token, (start, _) in zip(read["input_ids"], read["offset_mapping"]):
        at = max(at, start)
        ids[sum(at >= end for end in ends)].append(token)
    return ids'''
_LABELS: dict[Problem, str] = {
    "single_label_classification": 'NAMES.index(row["label"])',
    "multi_label_classification": '[float(name in row["label"]) for name in NAMES]',
    "regression": '[(row["label"] - {mean!r}) / {scale!r}]',
}
"""A row's label as the model learns it."""


def _rows(facts: Facts) -> Iterator[str]:
    yield _SPLIT
    lines = facts.script.features
    if facts.outputs:
        label = _LABELS[facts.outputs.problem].format(mean=facts.outputs.mean, scale=facts.outputs.scale)
        lines = lines.replace("LABEL", label)
    yield f"\n\ndef features(row):\n{lines}"
    yield "\n\ndef load(name):"
    yield '    with (HERE / name).open(encoding="utf-8") as lines:'
    yield "        return Dataset.from_list([features(json.loads(line)) for line in lines])"


def _order(_facts: Facts) -> Iterator[str]:
    yield '''

class Order(list):
    """The run's order of rows, shuffled by seed and epoch."""

    def set_epoch(self, epoch):
        self.sort()
        random.Random(f"epoch:{SEED}:{epoch}").shuffle(self)'''


def _trainer(facts: Facts) -> Iterator[str]:
    yield f"\n\nclass Run({facts.script.name}Trainer):"
    yield "    def _get_train_sampler(self, *_):\n        return Order(range(len(self.train_dataset)))"
    if facts.script.prepared:
        yield f"\n    {facts.script.prepared}"
    rates = _rates(facts.config)
    if rates:
        shown = ", ".join(f'"{part}": {times:.6g}' for part, times in rates.items())
        yield f"\n    def create_optimizer(self, *_):\n        rates = {{{shown}}}  # of the learning rate"
        yield "        (kind, options), groups = self.get_optimizer_cls_and_kwargs(self.args), []"
        yield "        for name, tensor in self.model.named_parameters():"
        yield "            times = next((times for part, times in rates.items() if part in name), 1.0)"
        decay = 'self.args.weight_decay * ("bias" not in name)'
        yield f'            own = {{"lr": times * options["lr"], "weight_decay": {decay}}}'
        yield '            groups += [{"params": [tensor], **own}] if tensor.requires_grad else []'
        yield "        self.optimizer = kind(groups, **options)\n        return self.optimizer"
    if facts.balanced:
        yield from _weighed(facts)


def _rates(config: RunConfig) -> dict[str, float]:
    """Learning rates over the run's, by a part of the parameter's name (LoRA+, embeddings); the first one counts."""
    train, lora, learns = config.train, config.lora, config.learns
    if not learns.adapter:
        return {}
    ends = train.embedding_learning_rate / train.learning_rate if train.embedding_learning_rate else 0.1
    rates = {"modules_to_save": ends} if learns.ends else {}
    if (ratio := lora.loraplus_lr_ratio) not in (0, 1):
        rates |= {"lora_embedding_": 1e-6 / train.learning_rate, "lora_B": ratio, "magnitude": ratio, "bias": ratio}
    return rates


def _weighed(facts: Facts) -> Iterator[str]:
    """The loss with balanced class weights, which no trainer of these libraries has."""
    assert facts.outputs is not None
    several = facts.outputs.problem == "multi_label_classification"
    yield "\n    def compute_loss(self, model, inputs, return_outputs=False, **_):"
    yield '        labels, outputs = inputs.pop("labels"), model(**inputs)'
    told = 'json.loads((HERE / "run.json").read_text())["class_weights"]'
    yield f"        weights = torch.tensor({told}, device=labels.device)"
    if several:
        yield "        losses = torch.nn.BCEWithLogitsLoss(pos_weight=weights)(outputs.logits.float(), labels)"
    else:
        yield '        losses = torch.nn.CrossEntropyLoss(weights, reduction="none")(outputs.logits.float(), labels)'
    yield "        return (losses.mean(), outputs) if return_outputs else losses.mean()"


def _build(facts: Facts) -> Iterator[str]:
    config = facts.config
    yield f"\n\ndef build(base{f'={_shown(facts.base)}' if facts.hub else ''}, steps={facts.steps}):"
    yield "    torch.manual_seed(SEED)"
    yield from _model(facts)
    if config.learns.adapter and config.resume_from:
        yield '    model = PeftModel.from_pretrained(model, HERE / "start", is_trainable=True)'
    elif config.learns.adapter:
        yield "    torch.manual_seed(SEED)"
        yield f"{_call('    model = get_peft_model(model, LoraConfig', _lora(facts))})"
    yield from _settings(facts)
    values = {"model": _Code("model"), "args": _Code("settings"), "processing_class": _Code("tokenizer")}
    values |= {"train_dataset": _Code('load("train.jsonl")')}
    values |= {"eval_dataset": _Code('load("held_out.jsonl")')} if facts.held_out else {}
    yield _call("    trainer = Run", values)
    if config.learning.labelled:
        yield "    trainer.model_accepts_loss_kwargs = False  # its loss is a mean over rows"
    if facts.half:
        yield "    for tensor in filter(lambda tensor: tensor.requires_grad, trainer.model.parameters()):"
        yield "        tensor.data = tensor.data.float()  # a step is smaller than 16 bits can tell"
    yield "    return trainer"


def _model(facts: Facts) -> Iterator[str]:
    config, dtype = facts.config, "float32" if facts.config.learns.base else facts.dtype
    named = facts.hub and config.model.revision
    options: Settings = {"revision": config.model.revision} if named else {}
    options |= {"dtype": dtype}
    if facts.outputs:
        options |= {"num_labels": len(facts.outputs.names), "pad_token_id": _Code("tokenizer.pad_token_id")}
        if config.learning.labelled:
            options |= {"problem_type": facts.outputs.problem, "id2label": _Code("dict(enumerate(NAMES))")}
    if config.model.form.quantised:
        quantised: Settings = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        quantised |= {"bnb_4bit_compute_dtype": facts.dtype}
        quantised |= {"llm_int8_skip_modules": ["score", "lm_head"]} if facts.outputs else {}
        yield _call("    quantised = BitsAndBytesConfig", quantised)
        options |= {"quantization_config": _Code("quantised")}
    where = 'HERE / "start"' if config.learns.base and config.resume_from else "base"
    told = ['**json.loads((HERE / "run.json").read_text())["positions"]'] if facts.positions else []
    yield _call(f"    model = {config.learning.task.model_class}.from_pretrained", options, where, *told)
    if facts.outputs and not facts.encoder:
        yield "    weight, drawn = model.score.weight.data, torch.Generator().manual_seed(SEED)"
        deviation = "model.config.get_text_config().initializer_range"
        yield f"    weight.copy_(torch.randn(weight.shape, generator=drawn) * {deviation})"


def _lora(facts: Facts) -> Settings:
    lora, adapter = facts.config.lora, facts.adapter
    targets = adapter["target_modules"]
    kept = adapter.get("modules_to_save")
    return {
        "r": lora.r,
        "lora_alpha": lora.lora_alpha,
        "lora_dropout": lora.lora_dropout,
        "bias": lora.bias,
        "task_type": facts.config.learning.task.peft_type,
        **({"use_rslora": True} if lora.use_rslora else {}),
        **({"use_dora": True} if lora.use_dora else {}),
        **({"init_lora_weights": lora.init_lora_weights} if lora.has_start else {}),
        **({"modules_to_save": kept} if kept and facts.config.learns.ends else {}),
        **({"ensure_weight_tying": True} if adapter.get("ensure_weight_tying") else {}),
        "target_modules": targets if isinstance(targets, str) else sorted(targets),
    }


def _settings(facts: Facts) -> Iterator[str]:
    config, script = facts.config, facts.script
    train, learning = config.train, METHODS[config.trained_method]
    batch = max(train.per_device_train_batch_size, learning.rows_at_least)
    evaluated = {
        "eval_strategy": "steps",
        "eval_steps": train.eval_steps or max(1, facts.steps // 10),
        "per_device_eval_batch_size": batch,
    }
    values: Settings = {
        "output_dir": _Code('HERE / "checkpoints"'),
        "max_steps": _Code("steps"),
        "per_device_train_batch_size": batch,
        "gradient_accumulation_steps": -(-config.rows_per_step // batch),
        "learning_rate": train.learning_rate,
        "lr_scheduler_type": train.lr_scheduler_type,
        "warmup_steps": train.warmup_steps,
        "weight_decay": train.weight_decay,
        "max_grad_norm": train.max_grad_norm,
        "optim": train.optim,
        "seed": _Code("SEED"),
        "bf16": facts.autocast and facts.dtype == "bfloat16",
        **({"use_cpu": _Code("not torch.cuda.is_available()")} if facts.autocast else {}),
        **({"fp16": _Code("torch.cuda.is_available()")} if facts.dtype == "float16" else {}),
        "gradient_checkpointing": train.checkpointing != "none",
        **({"neftune_noise_alpha": train.neftune_noise_alpha} if train.neftune_noise_alpha else {}),
        **script.besides,
        **script.settings(config, facts.rows),
        "logging_steps": 1,
        "save_steps": train.save_steps or 500,
        **(evaluated if facts.held_out else {}),
        "report_to": "none",
        "remove_unused_columns": False,
    }
    yield _call(f"    settings = {script.config or script.name + 'Config'}", values)


def _main(facts: Facts) -> Iterator[str]:
    yield '\n\nif __name__ == "__main__":'
    yield "    asked = argparse.ArgumentParser()"
    default = f"default={_shown(facts.base)}" if facts.hub else "required=True"
    yield f'    asked.add_argument("--base", {default})'
    yield f'    asked.add_argument("--steps", type=int, default={facts.steps})'
    yield "    trainer = build(**vars(asked.parse_args()))"
    yield '    trainer.train()\n    trainer.save_model(HERE / "trained")'


class _Code(str):
    """A value that is an expression."""

    __slots__ = ()


def _shown(value: Any) -> str:
    """A value as Python, with double quotes."""
    if isinstance(value, _Code):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)


def _call(what: str, values: Settings, *first: str) -> str:
    """A call over as many lines as it needs."""
    words = [*first, *(f"{name}={_shown(value)}" for name, value in values.items())]
    if len(line := f"{what}({', '.join(words)})") <= _WIDTH:
        return line
    inner, lines = " " * (len(what) - len(what.lstrip()) + 4), [""]
    for word in words:
        if len(inner) + len(lines[-1]) + len(word) > _WIDTH:
            lines.append("")
        lines[-1] += f"{word}, "
    body = "\n".join(f"{inner}{line.rstrip()}" for line in lines)
    return f"{what}(\n{body}\n{inner[4:]})"


def _plain(text: str) -> str:
    return "".join(character for character in text if character.isalnum() or character in " ._-/")
