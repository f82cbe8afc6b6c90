"""The main job without a browser: train the built-in model on a sample, show answers before and after, export."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from core.chat.client import ChatClient
from core.cli.follow import follow, of_result
from core.contract.config import DataChoice, RunConfig
from core.contract.data import Example
from core.contract.errors import RunError
from core.contract.forms import FORMS, Form
from core.data.read.examples import read_examples
from core.data.service.data_service import DataService
from core.machine.locations import ASSETS, Locations
from core.models.catalog import apply_preset, preset
from core.runs.control.prepare import prepare
from core.runs.control.store import RunStore
from core.runs.folder.held_out_rows import kept_draw
from core.runs.folder.job_folder import ExportRequest, JobFolder

QUESTIONS = 3
SHOWN: tuple[Form, ...] = ("adapter", "merged", "gguf")
"""What is taken home, of those that this machine can write."""


def demo(locations: Locations) -> int:
    """Runs the demo and returns the exit code."""
    started = time.monotonic()
    with closing(DataService(locations)) as service:
        prepared = prepare(demo_config(), locations, service)
    print(f"model     {prepared.spec.title}, {prepared.spec.shape.parameters / 1e6:.1f} million parameters")
    for line in prepared.data_lines():
        print(f"data      {line}")
    print(f"memory    {prepared.estimate.sentence}")
    store = RunStore(locations)
    run_id = store.start(prepared.config)
    try:
        _to_the_end(store, run_id)
    except KeyboardInterrupt:
        if run_id in store.living():
            stop = locations.command("stop", run_id)
            print(f"\nThe run goes on. See it in the studio, or stop it:   {stop}")
        return 130
    record, folder = store.record(run_id), store.open(run_id)
    took = f"{record.last_step} steps, {time.monotonic() - started:.0f} s in all"
    print("", *of_result(record), f"took      {took}", f"run       {folder.path}", sep="\n")
    print(*(f"{form:13} {folder.exports / form}" for form in _forms()), sep="\n")
    print(f"Open it in the studio:   {locations.command()}")
    return 0


def _to_the_end(store: RunStore, run_id: str) -> None:
    """Follows the training, shows answers before and after, and exports."""
    folder = store.open(run_id)
    _finished(folder, lambda: store.record(run_id).state == "lost")
    _compare(store.locations, folder)
    for form in _forms():
        job = store.export(run_id, ExportRequest(name=form, form=form, checkpoint="best"))
        gone = lambda job=job: store.export_record(run_id, job).state == "lost"  # noqa: E731
        _finished(store.export_folder(run_id, job), gone)


def _forms() -> list[Form]:
    return [form for form in SHOWN if all(map(find_spec, FORMS[form].needs))]


def demo_config() -> RunConfig:
    """The built-in model, the instruction sample, and the preset "Try it"."""
    sample = DataChoice(path=str(ASSETS / "samples" / "instruction.jsonl"))
    return apply_preset(RunConfig(name="demo", data=sample), preset("try-it"))


def _finished(folder: JobFolder, gone: Callable[[], bool]) -> None:
    last = follow(folder, print, gone)
    if last is None or last.kind != "finished":
        raise RunError("demo.unfinished", log=folder.log)


def _compare(locations: Locations, folder: JobFolder) -> None:
    """Asks base and finetuned model held-out questions."""
    config = folder.config()
    with closing(ChatClient(locations, config, folder.path)) as chat:
        for example in _held_out(folder, config)[:QUESTIONS]:
            question = next(message.content for message in example.messages if message.role == "user")
            answers = {"base": "", "tuned": ""}
            for answer in chat.ask([{"role": "user", "content": question}], max_new_tokens=60, temperature=0.0, seed=0):
                answers[answer.side] = answer.text
            print(f"\nasked     {question}\nbefore    {answers['base'].strip()}\nafter     {answers['tuned'].strip()}")
    print()


def _held_out(folder: JobFolder, config: RunConfig) -> Sequence[Example]:
    draw = kept_draw(folder.path)
    numbers = set(draw.numbers) if draw else set()
    return [example for example in read_examples(Path(config.data.path), config.data) if example.row in numbers]
