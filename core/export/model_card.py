"""The model card: base, data, recipe, measures and versions, from the run's records; without paths of this machine."""

from dataclasses import dataclass
from pathlib import Path

import yaml

from core.contract.config import RunConfig
from core.contract.forms import FORMS, ExportForm, Form
from core.contract.tasks import DEFAULT_TASK, TASKS
from core.runs.record.job_record import RunRecord, effective_config


@dataclass(frozen=True)
class Ending:
    """How an answer ends under the template that was trained on.

    ``template`` is its name for people, ``added``: it is not the base model's own, ``mark``: what it writes behind an
    answer, ``ids``: all tokens at which generation ends.
    """

    template: str
    added: bool
    mark: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Made:
    """What an export holds; ``dtype`` is that of merged weights, else empty."""

    form: Form
    checkpoint: str
    dtype: str
    ending: Ending


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
        "pipeline_tag": TASKS[DEFAULT_TASK].pipeline,
        "tags": [form.tag, config.method, "luthier"],
    }
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n",
        f"# {_plain(config.name) or base_name(config) + ', finetuned'}\n",
        _origin(config, form, checkpoint, made.dtype),
        _measured(record, checkpoint),
        _use(config, form),
        _answers(config, made),
        f"## Recipe\n\n```yaml\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}```\n",
        _versions(record),
    ]
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


def _origin(config: RunConfig, form: ExportForm, checkpoint: str, dtype: str) -> str:
    revision = f" at revision `{config.model.revision}`" if config.model.revision else ""
    held = config.model.form.detail or config.model.dtype.replace("auto", "16 bits")
    bits, merged = config.model.form.bits, ""
    if form.whole and config.model.form.quantised:
        merged = f"\nThe adapter was added to the original 16-bit weights, not to the {bits}-bit ones trained over.\n"
    return (
        f"{form.what.format(dtype=dtype)} made with Luthier from `{base_name(config)}`{revision}, "
        f"held in {held} while training ({config.learning.title}), {checkpoint}.\n{merged}\n"
        f"What learned: {config.learns.words}.\n\n"
        f"Data: `{_plain(Path(config.data.path).name)}`, SHA-256 `{config.data.sha256}`.\n"
    )


def _measured(record: RunRecord, checkpoint: str) -> str:
    step = int(checkpoint.removeprefix("step-") or 0) if checkpoint.startswith("step-") else record.last_step
    known = [said for said in record.evaluations if said.loss is not None]
    before = next((said for said in known if said.step == 0), None)
    after = next((said for said in reversed(known) if 0 < said.step <= step), None)
    lines = ["## Measured\n"]
    if before:
        lines.append(f"- held-out loss of the base model: {before.loss:.4f} ({before.rows} rows)")
    if after:
        lines.append(f"- held-out loss after step {after.step}: {after.loss:.4f}")
    if record.plan:
        lines.append(
            f"- {record.plan.train_rows} rows trained on, {record.plan.trainable_parameters:,} trained parameters"
        )
    return "\n".join([*lines, ""])


def _use(config: RunConfig, form: ExportForm) -> str:
    hub = config.model.source == "hub"
    base = config.model.name if hub else "the folder of the base model"
    revision = f', revision="{config.model.revision}"' if hub and config.model.revision else ""
    lines = [] if form.whole else ["from peft import PeftModel"]
    kind = TASKS[DEFAULT_TASK].model_class
    classes = f"{kind}, AutoTokenizer" + ("" if form.whole else ", GenerationConfig")
    lines += [f"from transformers import {classes}", ""]
    lines += ['tokenizer = AutoTokenizer.from_pretrained("this folder")']
    if not form.whole:
        lines += [f'base = {kind}.from_pretrained("{base}"{revision}, dtype="auto")']
        lines += ['base.generation_config = GenerationConfig.from_pretrained("this folder")  # where an answer ends']
        lines += ['model = PeftModel.from_pretrained(base, "this folder")']
    else:
        lines += [f'model = {kind}.from_pretrained("this folder", dtype="auto")']
    return "## Use\n\n```python\n" + "\n".join(lines) + "\n```\n"


def _answers(config: RunConfig, made: Made) -> str:
    """How a chat is written and where an answer ends."""
    ending = made.ending
    ids = ", ".join(map(str, ending.ids)) or "none"
    if ending.template == "none":
        return f"It was trained without a chat template. `generation_config.json` names the end tokens: {ids}.\n"
    lines = ["The tokenizer carries the chat template that was trained on."]
    if ending.added:
        whose = "ChatML in place of the base model's own" if config.data.template == "chatml" else (
            "ChatML, since the base model brings no chat template"
        )  # fmt: skip
        lines.append(f"It is {whose}: use this tokenizer, not the base model's.")
    if ending.mark:
        lines.append(f"`{ending.mark}` ends an answer.")
    lines.append(f"`generation_config.json` names the tokens at which generation ends ({ids}).")
    if not FORMS[made.form].whole:
        lines.append("A program that reads the base model's files alone may write on behind it.")
    return "\n".join(lines) + "\n"


def _versions(record: RunRecord) -> str:
    if record.hello is None:
        return "## Versions\n\nNot recorded.\n"
    named = ", ".join(f"{name} {version}" for name, version in sorted(record.hello.versions.items()))
    return f"## Versions\n\nTrained on {_plain(record.hello.device_name)} with {named}.\n"


def _plain(text: str) -> str:
    """A name without characters that start markup."""
    return "".join(" " if character in "<>`[]|\n\r" else character for character in text).strip()
