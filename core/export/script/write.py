"""Writes a run as a folder that trains it again: ``train.py``, its rows, what it needs, and what the run measured.

train.py           at most 120 lines on plain transformers, peft and TRL
train.jsonl        the rows in the run's own split (held_out.jsonl those that it was measured on)
requirements.txt   the versions that it was trained with
run.json           hashes of the rows' tokens, the rows of the first step, and the run's first losses
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.contract.optimisers import optimiser_of
from core.data.deal.packing import epoch_batches
from core.data.render.chat_tokens import apply_template_to, load_tokenizer
from core.estimate import total_steps
from core.export.parts import Parts
from core.export.script.rows import KINDS
from core.export.script.train_py import Facts, needed, train_py
from core.machine.disk import folder_bytes
from core.machine.imports import version_of
from core.model.loading.load import ensure_padding
from core.models.catalog import find_model
from core.models.outputs import read_outputs, write_outputs
from core.runs.folder.held_out_rows import draw_path, kept_draw
from core.runs.record.job_record import RunRecord, effective_config
from core.train.keep.depends import KeptRows
from core.train.keep.start_adapter import start_folder
from core.train.methods.scores import class_weights
from core.train.reading import RunData, read_data
from core.train.step.rows import LabelRows, Rows

DATA = ("train.jsonl", "held_out.jsonl")
LOSSES_TOLD = 10


def script_bytes(parts: Parts) -> int:
    """The room that it needs: the data as text, and what the run went on from."""
    assert parts.run is not None
    folder = parts.run.folder
    config, start = folder.config(), folder.path / "start"
    data = Path(config.data.path)
    return 2 * (data.stat().st_size if data.is_file() else 0) + (folder_bytes(start) if start.is_dir() else 0)


def write_script(parts: Parts, draft: Path, progress: Callable[[int, int], None], check: Callable[[], None]) -> str:
    """Writes the folder.

    Raises:
        RunError: what the run did is in none of these libraries, or the rows are not those that it learned from.
        DataError: the data cannot be read any more.
    """
    assert parts.run is not None
    run, record = parts.run, parts.run.record
    config = effective_config(run.folder.config(), record.corrections)
    refuse(config)
    tokenizer = ensure_padding(load_tokenizer(parts.base))
    apply_template_to(tokenizer, config.data)
    kept = KeptRows(draw_path(run.folder.path), config, run.channel) if kept_draw(run.folder.path) else None
    data = read_data(config, tokenizer, run.channel, kept)
    outputs = read_outputs(parts.trained) if data.outputs else None
    facts = _facts(parts, config, replace(data, outputs=outputs))
    hashes = {}
    for name, rows in zip(DATA, (data.train, data.held_out), strict=True):
        if len(rows):
            hashes[name] = _write_rows(draft / name, rows, tokenizer, check)
            progress(len(hashes), len(DATA))
    first = epoch_batches(len(data.train), config.rows_per_step, 0, config.train.seed)[0]
    told = {"run": facts.run, "sha256": hashes, "first_step": first, "losses": _losses(record), **_compared(facts)}
    if facts.positions:
        told["positions"] = facts.positions
    if facts.balanced and isinstance(data.train, LabelRows):
        told["class_weights"] = class_weights(data.train).tolist()
    (draft / "run.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    (draft / "train.py").write_text(train_py(facts), encoding="utf-8")
    there = {name: version_of(name) for name in needed(facts)}
    had = record.hello.versions if record.hello else {}
    versions = {name: re.match(r"[\w.]*", had.get(name) or there[name], re.ASCII) for name in there}
    lines = (f"{name}=={found[0]}\n" for name, found in versions.items() if found and found[0])
    (draft / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    if outputs:
        write_outputs(outputs, draft)
    if config.resume_from:
        shutil.copytree(start_folder(run.folder, config), draft / "start")
    return ""


def refuse(config: RunConfig) -> None:
    """Raises RunError where plain libraries cannot do what the run did."""
    if config.learns.adapter and config.lora.has_start and config.model.form.quantised:
        kind = f"init_lora_weights={config.lora.init_lora_weights}"
        raise RunError("export.script", what=f"an adapter that begins at {kind} over weights in 4 bits")
    if optimiser_of(config.train.optim, gpu=False).others:
        raise RunError("export.script", what=f"the optimiser {config.train.optim} beside another one")


def _facts(parts: Parts, config: RunConfig, data: RunData) -> Facts:
    assert parts.run is not None
    record, model = parts.run.record, config.model
    spec = find_model(model.source, model.name, model.revision)
    adapter: dict[str, Any] = {}
    if config.learns.adapter:
        adapter = json.loads((parts.trained / "adapter_config.json").read_text(encoding="utf-8"))
    dtype = record.plan.dtype if record.plan and record.plan.dtype else model.dtype
    return Facts(
        run=parts.run.folder.name,
        config=config,
        base=model.name if model.source == "hub" else parts.base_name,
        dtype=dtype.replace("auto", "float32"),
        steps=total_steps(config, len(data.train)),
        held_out=len(data.held_out),
        adapter=adapter,
        rows=data.train,
        outputs=data.outputs,
        encoder=spec.encoder,
        positions=parts.positions,
    )


def _write_rows(path: Path, rows: Rows, tokenizer: Any, check: Callable[[], None]) -> str:
    """Writes the rows; returns the SHA-256 of their tokens, as ``core.export.verify`` computes it of the script's."""
    digest = hashlib.sha256()
    with path.open("w", encoding="utf-8") as file:
        for row in range(len(rows)):
            told, tokens = KINDS[type(rows)](rows, tokenizer, row)
            check()
            file.write(json.dumps(told, ensure_ascii=False) + "\n")
            digest.update(json.dumps(tokens).encode())
    return digest.hexdigest()


def _losses(record: RunRecord) -> list[float | None]:
    """Of the first steps."""
    by_step = {step.step: step.loss for step in record.steps if step.step <= LOSSES_TOLD}
    return [by_step[step] for step in sorted(by_step)]


def _compared(facts: Facts) -> dict[str, Any]:
    """Whether the first step's loss can be the same on a processor, and how nearly: noise, a head that is drawn on
    another device, and a scaler of float16 make it another one."""
    config, scaled = facts.config, facts.dtype == "float16"
    noisy = config.train.neftune_noise_alpha or (config.lora.lora_dropout and config.resume_from)
    rounded = facts.half or config.model.form.quantised
    return {"same_loss": not (noisy or facts.encoder or scaled), "within": 0.02 if rounded else 1e-3}
