"""Stop, stop now and pause of the real worker under its real supervisor, asked in every stage; by hand, since it takes
minutes: ``pytest -m slow tests/unit/worker/test_worker_stops.py -s``.

    acknowledged within 1 s · stop now frees the card within 5 s · stop and pause save and free it within 30 s
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest
from tiny_run import make_in
from waiting import until

from core.contract.commands import parse_command
from core.contract.config import RunConfig
from core.machine.cards import held_by
from core.machine.hardware import read_machine
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.log.events_log import EventTail

pytestmark = [pytest.mark.slow, pytest.mark.alone]
STAGES = ("starting", "hello", "preparing", "loading", "first_step", "training", "evaluating", "saving")
ACKNOWLEDGED_SECONDS = 1.0
FREE_SECONDS = {"stop_now": 5.0, "stop": 30.0, "pause": 30.0}


@pytest.fixture
def store(locations: Locations) -> Iterator[RunStore]:
    yield RunStore(locations)
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and any(str(locations.home) in word for word in process.cmdline()):
                process.kill()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("tiny")
    make_in(str(folder))
    raw = json.loads((folder / "run.json").read_text())
    raw["train"].update(max_steps=5000, eval_steps=7, save_steps=11)
    return RunConfig.model_validate(raw)


@pytest.mark.parametrize("verb", ["stop_now", "stop", "pause"])
@pytest.mark.parametrize("stage", STAGES)
def test_it_is_heard_and_done_in_every_stage(store: RunStore, tiny: RunConfig, stage: str, verb: str) -> None:
    run_id = store.start(tiny)
    folder = store.open(run_id)
    tail = EventTail(folder.events)
    until(lambda: any(stage in (event.kind, getattr(event, "stage", "")) for event in tail.read()))
    asked = time.monotonic()
    getattr(store, verb)(run_id)
    until(lambda: held_by(store.locations, read_machine().cards) is None, FREE_SECONDS[verb] + 5)
    took = time.monotonic() - asked
    record = store.record(run_id)
    assert record.state == ("paused" if verb == "pause" else "stopped")
    command = parse_command(folder.commands.read_bytes().splitlines()[-1])
    assert command is not None
    heard = [event for event in EventTail(folder.events).read() if event.kind == "acknowledged"]
    late = heard[0].at - command.at
    print(f"{verb} in {stage}: heard after {late:.2f} s, card free after {took:.2f} s")
    if verb != "stop_now":  # nobody acknowledges that before it is done
        assert late < ACKNOWLEDGED_SECONDS
    assert took < FREE_SECONDS[verb]
    assert len(heard) == 1
    if verb == "pause":
        assert record.last_step == folder.newest_step() or not folder.checkpoints.exists()
