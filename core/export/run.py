"""One export job, on the CPU, so that it neither waits for the card nor disturbs a run.

.tmp-NAME/  adapter or whole weights, tokenizer, README.md; of a language model generation config and chat template, of
            a head of scores their names
            ─► verify (fresh process) ─► exports/NAME ─► Exported ─► Finished
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.errors import ModelError
from core.contract.events import Exported, Finished, Stopped
from core.data.render.chat_tokens import apply_template_to, load_tokenizer
from core.export.forms.classifier import Head
from core.export.forms.makers import MAKERS
from core.export.gguf.proof.check import Verified
from core.export.guides.modelfile import write_modelfile
from core.export.guides.talk import Talk, talk_of
from core.export.model_card import Made, write_card
from core.export.opening import Job, open_job
from core.export.parts import examples_of
from core.export.reading import Reading, reading_of
from core.export.weights import written_dtype
from core.machine.children.tied import start_tied
from core.machine.disk import folder_bytes, make_durable
from core.machine.host import Host
from core.machine.imports import without_card
from core.machine.locations import REPOSITORY
from core.model.pissa import CORRECTED
from core.models.checks.folder import is_encoder, read_config_json, read_shape
from core.models.checks.weights import weights_bytes
from core.models.outputs import read_outputs
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter
from core.runs.process.activity import MemoryKills
from core.train.channel.command_queue import CommandQueue, Leave
from core.train.channel.reporter import EventReporter

CHECKED_ROWS = 4
"""Of the data, whose scores are compared."""
FITS, CHECKED_SHARE = 0.8, 0.25
"""Of the free memory: what a model may take in its check, and what its first layers may where it is larger."""


def export(folder: JobFolder, writer: EventWriter, orders: CommandQueue) -> None:
    """Does the job in this folder and writes its last event.

    Raises:
        Fault: checkpoint, base model, disk or the reloaded export cannot be used.
    """
    started = time.monotonic()
    job = open_job(folder, EventReporter(writer), orders)
    try:
        verified = _verify(job, _make(job))
        job.check()
        size = folder_bytes(job.draft)
        for path in job.draft.rglob("*"):
            if path.is_file():
                make_durable(path)
        job.draft.rename(job.final)
        told = {"checks": verified.checks, "warnings": verified.warnings}
        job.tell.say(Exported(name=job.request.name, form=job.request.form, bytes=size, **told))
        job.tell.say(Finished(seconds=round(time.monotonic() - started, 1)))
    except Leave:
        job.tell.say(Stopped(kept=False))
    finally:
        shutil.rmtree(job.draft, ignore_errors=True)


def _make(job: Job) -> Reading | None:
    """Writes the draft; returns how texts reach the model, where it gives scores."""
    parts, reading = job.parts, None
    if job.config.learning.task.scores:
        tokenizer, rows = load_tokenizer(parts.base), list(islice(examples_of(job.config), CHECKED_ROWS))
        reading = reading_of(tokenizer, job.config, read_outputs(parts.trained), rows)
        tokenizer.save_pretrained(str(job.draft))
        parts = replace(parts, head=Head(reading.outputs, reading.pad_id))
    maker = MAKERS[job.request.form]
    job.tell.stage("merging", maker.stage)

    def progress(done: int, total: int) -> None:
        job.tell.stage("merging", maker.stage, done, total, "tensors")

    dtype = maker.make(parts, job.draft, progress, job.check)
    job.check()
    text = reading or talk_of(parts.base, job.config)
    if isinstance(text, Talk):
        if maker.try_it is None:
            _write_tokenizer(job.draft, text)
        write_modelfile(job.draft, job.request.form, text, job.config)
    write_card(
        job.draft,
        job.config,
        job.record,
        Made(job.request.form, job.checkpoint, dtype, text, parts.weights, parts.positions),
    )
    return reading


def _write_tokenizer(draft: Path, talk: Talk) -> None:
    """Writes tokenizer, the template that was trained on, and the generation config."""
    apply_template_to(talk.tokenizer, talk.template)
    talk.tokenizer.save_pretrained(str(draft))
    (draft / "generation_config.json").write_text(json.dumps(talk.generation, indent=2), encoding="utf-8")


def _verify(job: Job, reading: Reading | None) -> Verified:
    """Compares the draft with what it was made of: in llama.cpp, or in a fresh process with peft and transformers
    alone."""
    if try_it := MAKERS[job.request.form].try_it:
        job.tell.stage("verifying", "Comparing llama.cpp with transformers")
        return try_it(job.parts, job.draft, job.check)
    job.tell.stage("verifying", "Reloading it with plain peft and transformers")
    request: dict[str, Any] = {
        "form": job.request.form,
        "class": job.config.learning.task.model_class,
        "folder": str(job.draft),
        "base": str(job.parts.base),
        "trained": str(job.parts.trained),
    }
    copies = MAKERS[job.request.form].copies
    request |= {"positions": job.parts.positions} if job.parts.positions else {}
    request |= {"layers": layers} if (layers := _layers_that_fit(job.parts.base, copies)) else {}
    request |= {"scores": reading.told()} if reading else {"prompt": _prompt(job.config)}
    if job.parts.weights == "trained_on":
        dtype = job.parts.dtype or written_dtype(job.parts.base)
        request |= {"held": str(dtype).removeprefix("torch."), "corrected": CORRECTED}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "request.json"
        file.write_text(json.dumps(request), encoding="utf-8")
        answer = _ask([sys.executable, "-m", "core.export.verify", str(file)], job.check)
    if "checks" not in answer:
        raise ModelError("export.unverified", reason=answer.get("fault", "no answer"))
    return Verified(tuple(answer["checks"]))


def _layers_that_fit(base: Path, copies: int) -> int:
    """How many of the first layers are checked, where so many copies of the model do not fit in the free memory; 0: all
    of them."""
    config, (_, free) = read_config_json(base), Host().memory()
    size = copies * weights_bytes(base)
    if size < FITS * free or is_encoder(config):
        return 0
    layers = read_shape(config).num_hidden_layers
    return max(1, int(CHECKED_SHARE * free * layers / size))


def _ask(command: list[str], check: Callable[[], None]) -> dict[str, Any]:
    environment = {**os.environ, **without_card(os.environ), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    kills = MemoryKills()
    with tempfile.TemporaryFile() as output:
        process = start_tied(command, stdout=output, cwd=REPOSITORY, env=environment)
        try:
            while process.poll() is None:
                check()
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    except ValueError:
        answer = {}
    if not answer and process.returncode == -9:
        return {"fault": f"the fresh process was killed {kills.words}"}
    return answer or {"fault": f"the fresh process ended with exit code {process.returncode}"}


def _prompt(config: RunConfig) -> str:
    """A question of the data."""
    for example in islice(examples_of(config), 1):
        asked = next((message.content for message in example.messages if message.role == "user"), example.text)
        return asked[:500] or "Hello."
    return "Hello."
