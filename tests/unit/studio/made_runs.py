"""The past of runs, as a worker writes it: for tests of what the window shows."""

import json
import math
from collections.abc import Callable
from functools import cache

from core.contract.config import DataChoice, RunConfig
from core.contract.events import CardStep, Checkpoint, Evaluation, Event, Finished, Hello, Plan, Queued, Starting, Step
from core.contract.methods import AskedMethod
from core.machine.locations import Locations
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import dump_config

RUN = "2026-11-20_2243_test_k3f9"
_SOMEWHERE = "/somewhere/else"
BEGAN = 1_780_000_000.0
MakeRun = Callable[..., JobFolder]
"""The fixture ``make_run``."""


def past(steps: int, total: int = 0, finished: bool = False) -> list[Event]:
    """The events of a run with ``steps`` steps, one a second, measured and saved every 100."""
    events: list[Event] = [
        Queued(at=BEGAN),
        Starting(at=BEGAN + 1, attempt=1),
        Hello(at=BEGAN + 2, attempt=1, pid=1, device="cpu", device_name="CPU"),
        Plan(at=BEGAN + 3, attempt=1, lines=("2 of 2 layers fast",), total_steps=total or steps, train_rows=900),
        Evaluation(at=BEGAN + 4, attempt=1, loss=2.5, rows=50, seconds=1.0),
    ]
    for number in range(1, steps + 1):
        at = BEGAN + 4 + number
        events.append(step(number, at))
        if number % 100 == 0:
            events.append(Evaluation(at=at, attempt=1, step=number, loss=1.2 + 1 / number, rows=50, seconds=1.0))
            name, loss = f"step-{number:06d}", 1.2 + 1 / number
            events.append(Checkpoint(at=at, attempt=1, step=number, name=name, bytes=10**6, best=True, eval_loss=loss))
    if finished:
        events.append(Finished(at=BEGAN + steps + 5, attempt=1, step=steps, seconds=steps + 4))
    return events


def on_two_cards(events: list[Event]) -> list[Event]:
    """The same run on two unlike cards."""
    used = {"card_used_bytes": 9_100_000_000, "gpu_load": 0.97, "power_watts": 168.0, "temperature_celsius": 67.0}
    cards = CardStep.model_validate(used), CardStep(card_used_bytes=8_800_000_000, gpu_load=0.41, power_watts=188.0)
    said = {"device": "cuda:0", "device_name": "NVIDIA GeForce RTX 3060", "cards": ("RTX 3060 (0)", "RTX 4090 (1)")}
    more = {"hello": said, "step": {**used, "cards": cards}}
    return [event.model_copy(update=more.get(event.kind, {})) for event in events]


def worse(steps: int = 300) -> list[Event]:
    """A finished run that learned too strongly: every held-out loss after the first is higher than that."""
    return [measured_as(event, 2.5 + event.step / 500) for event in past(steps, finished=True)]


def by_heart(steps: int = 400) -> list[Event]:
    """A finished run of many epochs over few rows: the held-out loss is lowest at step 100 and rises since."""
    told = (event.model_copy(update={"loss": event.loss - event.step / 700}) if isinstance(event, Step) else event
            for event in past(steps, finished=True))  # fmt: skip
    return [measured_as(event, 1.6 + abs(event.step - 100) / 500 if event.step else 2.5) for event in told]


def diverged(steps: int = 300) -> list[Event]:
    """A finished run with far too high a learning rate: both losses rise, with a spike now and then."""
    events = []
    for event in past(steps, finished=True):
        if isinstance(event, Step):
            loss = 2.4 + event.step / 60 + 0.4 * math.sin(event.step)
            event = event.model_copy(update={"loss": loss, "grad_norm": 90.0 if event.step % 97 == 0 else 4.0})
        events.append(measured_as(event, 2.5 + event.step / 50))
    return events


def measured_as(event: Event, loss: float) -> Event:
    """An evaluation, or the checkpoint of its step, with another held-out loss."""
    more = {"evaluation": {"loss": loss}, "checkpoint": {"eval_loss": loss, "best": False}}
    return event.model_copy(update=more.get(event.kind, {}))


def sorting(labels: int, steps: int = 400) -> list[Event]:
    """A finished run of a classifier: half of its rows are right at first, nearly all in the end."""
    names = tuple(("sport", "politics", "culture", "weather", "science", "travel")[:labels])
    names += tuple(f"label {number}" for number in range(len(names), labels))
    events: list[Event] = []
    for event in past(steps, finished=True):
        if isinstance(event, Plan):
            event = event.model_copy(update={"labels": names, "problem": "single_label_classification"})
        elif isinstance(event, Step):
            event = event.model_copy(update={"accuracy": 1 - 0.5 * math.exp(-event.step / 100)})
        elif isinstance(event, Evaluation):
            wrong = 6 if event.step == 0 else 1
            lines = tuple(
                tuple(
                    (5 * wrong * (labels - right)) % 7 if right != given else 60 - 9 * wrong for given in range(labels)
                )
                if right % 5 != 3
                else tuple(wrong * (given in (right, 0)) for given in range(labels))
                for right in range(labels)
            )
            share = sum(line[place] for place, line in enumerate(lines)) / sum(map(sum, lines))
            event = event.model_copy(update={"accuracy": share, "macro_f1": share - 0.04, "confusion": lines})
        events.append(event)
    return events


def step(number: int, at: float = 0.0, attempt: int = 1) -> Step:
    """One step with every reading but the GPU's."""
    return Step(
        at=at or BEGAN + number,
        attempt=attempt,
        step=number,
        epoch=number / 100,
        loss=1.0 + 1.5 * math.exp(-number / 300) + 0.1 * math.sin(number),
        learning_rate=2e-4,
        grad_norm=0.5,
        tokens=900,
        seconds=1.0,
        tokens_per_second=900.0,
        memory_bytes=700_000_000,
    )


def append(folder: JobFolder, events: list[Event]) -> None:
    """Appends events as lines."""
    with folder.events.open("a", encoding="utf-8") as log:
        log.writelines(event.model_dump_json() + "\n" for event in events)


@cache
def _config_text(name: str, method: AskedMethod) -> str:
    """A run's config as YAML, which takes longer to write than all else of a run; its data lie ``_SOMEWHERE``."""
    data = DataChoice(path=f"{_SOMEWHERE}/rows.jsonl")
    return dump_config(RunConfig(name=name, preset="try-it", method=method, data=data))


def write_run(
    locations: Locations,
    events: list[Event],
    run_id: str,
    name: str = "",
    checkpoints: tuple[int, ...] = (),
    method: AskedMethod = "auto",
) -> JobFolder:
    """A run's folder with its config, its log and the checkpoints that still stand."""
    folder = JobFolder(locations.runs / run_id)
    folder.path.mkdir(parents=True)
    written = _config_text(name, method).replace(_SOMEWHERE, str(locations.data))
    folder.run_yaml.write_text(written, encoding="utf-8")
    append(folder, events)
    losses = {event.step: event.eval_loss for event in events if isinstance(event, Checkpoint)}
    for number in checkpoints:
        adapter = folder.checkpoints / f"step-{number:06d}" / "adapter"
        adapter.mkdir(parents=True)
        (adapter / "adapter_model.safetensors").write_bytes(bytes(1000))
        manifest = {"step": number, "eval_loss": losses.get(number)}
        (adapter.parent / "MANIFEST.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder
