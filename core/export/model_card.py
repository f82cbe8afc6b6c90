"""The model card: base, data, recipe, measures and versions, from the run's records; without paths of this machine."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from core.contract.config import RunConfig
from core.contract.events import Evaluation
from core.contract.forms import FORMS, ExportForm, FinishedFrom, Form
from core.contract.tasks import Problem
from core.export.guides.answers import answers
from core.export.guides.runtimes import ANEW, TRAINING, base_words, facts_of, placed_lines, section, used
from core.export.guides.talk import Talk
from core.export.reading import Reading, quoted
from core.models.positions import scaling_words
from core.runs.record.job_record import RunRecord, effective_config


@dataclass(frozen=True)
class Made:
    """What an export holds; ``dtype`` is that of merged weights, else empty; ``text``: how an answer ends, or how texts
    are read that get scores."""

    form: Form
    checkpoint: str
    dtype: str
    text: Talk | Reading
    weights: FinishedFrom = "original"
    positions: dict[str, Any] = field(default_factory=dict)
    """Fields of the base's config that scale its positions."""


def base_name(config: RunConfig) -> str:
    """The base's name in a card: its hub id, or the last part of its folder."""
    model = config.model
    return {"hub": model.name, "starter": "luthier-starter"}.get(model.source, Path(model.name).name)


def _recipe(config: RunConfig, record: RunRecord) -> dict[str, object]:
    """The recipe with later corrections folded in; paths become names."""
    values = effective_config(config, record.corrections).model_dump(mode="json")
    values["data"]["path"] = Path(config.data.path).name
    values["model"]["name"] = base_name(config)
    return values


def write_card(folder: Path, config: RunConfig, record: RunRecord, made: Made) -> None:
    """Writes ``README.md`` into an export."""
    values, form, checkpoint = _recipe(config, record), FORMS[made.form], made.checkpoint
    front = {
        "base_model": base_name(config),
        "library_name": form.library,
        "pipeline_tag": config.learning.task.pipeline,
        "tags": [form.tag, config.method, "luthier"],
    }
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n",
        f"# {_plain(config.name) or base_name(config) + ', finetuned'}\n",
        _origin(config, made),
        _measured(record, checkpoint, config.learning.task.scores),
        *_text(folder, config, made),
        f"## Recipe\n\n```yaml\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}```\n",
        _versions(record),
    ]
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


_BESIDE: dict[FinishedFrom, str] = {
    "original": "The adapter was added to the original 16-bit weights, not to the {bits}-bit ones trained over.",
    "trained_on": "The adapter was added to the weights as the run held them, quantised to {bits} bits and made wide "
    "again: exactly what it was trained beside.",
}


def _origin(config: RunConfig, made: Made) -> str:
    revision = f" at revision `{config.model.revision}`" if config.model.revision else ""
    held = config.model.form.detail or config.model.dtype.replace("auto", "16 bits")
    form, bits, merged = FORMS[made.form], config.model.form.bits, ""
    if form.whole and config.model.form.quantised:
        merged = f"\n{_BESIDE[made.weights].format(bits=bits)}\n"
    return (
        f"{form.what.format(dtype=made.dtype)} made with Luthier from `{base_name(config)}`{revision}, "
        f"held in {held} while training ({config.learning.title}), {made.checkpoint}.\n{merged}\n"
        f"What learned: {config.learns.words}.\n\n{_positions(config, made)}"
        f"Data: `{_plain(Path(config.data.path).name)}`, SHA-256 `{config.data.sha256}`.\n"
    )


_LOADED: dict[Form, str] = {
    "adapter": "An adapter holds no positions: the base is loaded with these, as the lines below do; "
    "`config.json` is the base's with them.",
    "gguf_adapter": "An adapter holds no positions: llama.cpp is told by the options below. Where there are none, it "
    "cannot be told, and the whole model as GGUF is the way.",
    "script": "`train.py` sets them.",
}
"""Where a form's positions come from; in others its own config says them."""


def _positions(config: RunConfig, made: Made) -> str:
    """How positions were scaled; empty where they were not."""
    scaling, theta = scaling_words(config.model), config.model.rope_theta
    told = [f"RoPE scaling {scaling}"] if scaling else []
    told += [f"RoPE base {theta:,.0f}"] if theta else []
    where = _LOADED.get(made.form, "Its own configuration says so, and loaders apply it.")
    return f"Positions: {', '.join(told)}. {where}\n\n" if told else ""


_MEASURES = {
    "accuracy": ("accuracy", "{:.1%}"),
    "macro_f1": ("macro F1", "{:.3f}"),
    "mean_error": ("mean error", "{:.4g}"),
}


def _measures(said: Evaluation) -> str:
    """What else was measured of the held-out rows."""
    values = ((name, form, getattr(said, field)) for field, (name, form) in _MEASURES.items())
    return "".join(f", {name} {form.format(value)}" for name, form, value in values if value is not None)


def _measured(record: RunRecord, checkpoint: str, scores: bool) -> str:
    step = int(checkpoint.removeprefix("step-") or 0) if checkpoint.startswith("step-") else record.last_step
    known = [said for said in record.evaluations if said.loss is not None]
    before = next((said for said in known if said.step == 0), None)
    after = next((said for said in reversed(known) if 0 < said.step <= step), None)
    lines = ["## Measured\n"]
    if before:
        first = "before training, with a head that was drawn" if scores else "of the base model"
        lines.append(f"- held-out loss {first}: {before.loss:.4f} ({before.rows} rows)")
    if after:
        lines.append(f"- held-out loss after step {after.step}: {after.loss:.4f}{_measures(after)}")
    if record.plan:
        lines.append(
            f"- {record.plan.train_rows} rows trained on, {record.plan.trainable_parameters:,} trained parameters"
        )
    return "\n".join([*lines, ""])


def _text(folder: Path, config: RunConfig, made: Made) -> tuple[str, ...]:
    """How it is used, and what else is to be known of texts."""
    if not FORMS[made.form].weights:
        return ("## Use\n\n" + section("Training it again", ANEW, "sh", TRAINING),)
    if isinstance(made.text, Reading):
        return _scores(config, made, made.text), _labels(made.text, FORMS[made.form])
    facts = replace(facts_of(folder, config, base_name(config), made.text), positions=made.positions)
    return used(facts, made.form), answers(made.text, config, made.form)


_SHOWN: dict[Problem, str] = {
    "single_label_classification": ".softmax(-1)",
    "multi_label_classification": ".sigmoid()",
    "regression": "",
}


def _scores(config: RunConfig, made: Made, reading: Reading) -> str:
    form = FORMS[made.form]
    kind, outputs, (base, revision) = config.learning.task.model_class, reading.outputs, base_words(config)
    shown = f"scores = model(**inputs).logits[0]{_SHOWN[outputs.problem]}"
    if (outputs.mean, outputs.scale) != (0.0, 1.0):  # as float64: float32 has seven digits
        shown = f"scores = model(**inputs).logits[0].double() * {outputs.scale!r} + {outputs.mean!r}"
    lines = ["import torch", *([] if form.whole else ["from peft import PeftModel"])]
    lines += [f"from transformers import {kind}, AutoTokenizer", ""]
    lines += ['tokenizer = AutoTokenizer.from_pretrained("this folder")']
    placed = placed_lines(made.positions)
    if form.whole:
        lines += [f'model = {kind}.from_pretrained("this folder", dtype="auto")', "labels = model.config.id2label"]
    else:
        lines += [f"labels = dict(enumerate({quoted(outputs.names)}))"]
        lines += [f"base = {kind}.from_pretrained("]
        at = f', revision="{revision}"' if revision else ""
        lines += [f'    "{base}"{at}, dtype="auto", num_labels={len(outputs.names)}, id2label=labels,']
        lines += [f'    label2id={{name: n for n, name in labels.items()}}, problem_type="{outputs.problem}",', ")"]
        lines[-1:-1] = placed
        lines += ["base.config.pad_token_id = tokenizer.pad_token_id"]
        lines += ['model = PeftModel.from_pretrained(base, "this folder").eval()']
    lines += [f"turns = {reading.turns}"] if reading.turns else []
    special = "" if reading.special else ", add_special_tokens=False"
    lines += [f'inputs = tokenizer({reading.code}{special}, truncation=True, return_tensors="pt")']
    lines += ["with torch.inference_mode():", f"    {shown}"]
    lines += ["print({labels[n]: float(score) for n, score in enumerate(scores)})"]
    library = "transformers" if form.whole else "peft"
    return "## Use\n\n" + section(library, "In Python.", "python", "\n".join(lines))


def _labels(reading: Reading, form: ExportForm) -> str:
    outputs = reading.outputs
    listed = ", ".join(f"`{_plain(name)}`" for name in outputs.names)
    kinds: dict[Problem, str] = {
        "single_label_classification": "Labels, one of which a text has",
        "multi_label_classification": "Labels, any of which a text may have",
        "regression": "Scores, which are numbers",
    }
    same = "" if reading.turns or not form.whole else (
        ' `pipeline("text-classification", model="this folder", top_k=None)` of transformers names them too.'
    )  # fmt: skip
    return f"{kinds[outputs.problem]}: {listed}.{same}\n"


def _versions(record: RunRecord) -> str:
    if record.hello is None:
        return "## Versions\n\nNot recorded.\n"
    named = ", ".join(f"{name} {version}" for name, version in sorted(record.hello.versions.items()))
    return f"## Versions\n\nTrained on {_plain(record.hello.device_name)} with {named}.\n"


def _plain(text: str) -> str:
    """A name without characters that start markup."""
    return "".join(" " if character in "<>`[]|\n\r" else character for character in text).strip()
