"""``python -m core.runs.metrics.follow RUN SINK``: passes a run's events on, until the run ends.

It reads the log and writes into ``RUN/metrics/`` alone; the run knows nothing of it. Where it stops (an error of the
library, a restart of the machine) it goes on later from the place in the log that it keeps::

    metrics/SINK.json   offset of the log, and what the sink keeps      metrics/SINK.lock   held by the one that follows
    metrics/SINK.log    what it prints, where it was started by itself  metrics/SINK/       the sink's own files
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.errors import RunError
from core.contract.events import Evaluation, Event, Failed, Step
from core.contract.methods import HELD_OUT_MEASURES, MEASURES
from core.machine.disk import read_object, write_whole
from core.machine.locations import Locations
from core.machine.locks import FileLock
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.run_yaml import flat
from core.runs.log.events_log import LAST_KINDS, EventTail
from core.runs.metrics.sinks import SINKS, Shown, Sink, Values, expect_installed
from core.runs.record.summary import nobody_lives

POLL_SECONDS = 1.0
QUIET_SECONDS = 5.0
"""Without an event; then it is asked whether anybody serves the run."""
_TRAIN = ("loss", "learning_rate", "grad_norm", "epoch", "tokens_per_second", "memory_bytes", "card_used_bytes",
          "gpu_load", "power_watts", "temperature_celsius", *MEASURES)  # fmt: skip
_EVAL = ("loss", *HELD_OUT_MEASURES)
_MOST_BYTES = 64 << 10
_PATHS = ("model.name", "data.path")


def main(arguments: list[str] | None = None) -> int:
    """Follows one run; the exit code is 1 where it could not."""
    run, name = arguments or sys.argv[1:]
    with suppress(OSError):
        os.nice(10)
    try:
        pass_on(JobFolder(Path(run)), name, Locations.find())
    except Exception as error:  # noqa: BLE001 - a library's, which ends this process alone
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def pass_on(folder: JobFolder, name: str, locations: Locations, wait: Callable[[float], object] = time.sleep) -> int:
    """Passes on what the log holds from the kept place on, until the run ends; returns how many events that were.

    Raises:
        RunError: another process does it already.
        ConfigError: the library is missing.
    """
    expect_installed(name)
    place = folder.path / "metrics"
    (place / name).mkdir(parents=True, exist_ok=True)
    lock = FileLock(place / f"{name}.lock")
    if not lock.acquire():
        raise RunError("metrics.busy", run_id=folder.name, title=SINKS[name].title)
    try:
        kept = {key: str(value) for key, value in read_object(place / f"{name}.json", _MOST_BYTES).items()}
        config = folder.config()
        shown = Shown(folder.name, config.name or folder.name, settings(config), place / name, locations.home, kept)
        sink = SINKS[name].open(shown)
        last: Event | None = None
        passed = 0
        try:
            for events, offset in _groups(folder, int(kept.get("offset", "0")), wait):
                for event in events:
                    last, passed = event, passed + _tell(sink, event)
                kept["offset"] = str(offset)
                write_whole(place / f"{name}.json", json.dumps(kept))
        finally:
            sink.close(isinstance(last, Failed))
        return passed
    finally:
        lock.release()


def _groups(folder: JobFolder, offset: int, wait: Callable[[float], object]) -> Iterator[tuple[list[Event], int]]:
    """New events, and where the log stands behind them, to the run's end."""
    tail, quiet = EventTail(folder.events, offset), 0.0
    while True:
        ended = nobody_lives(folder)  # asked before reading: what was written before its end is read
        fresh = tail.read()
        if fresh:
            quiet = 0.0
            yield fresh, tail.offset
            if fresh[-1].kind in LAST_KINDS:
                return
        elif ended and quiet >= QUIET_SECONDS:
            return
        wait(POLL_SECONDS)
        quiet += POLL_SECONDS


def _tell(sink: Sink, event: Event) -> bool:
    """Passes a step or an evaluation on."""
    if isinstance(event, Step):
        values = _values(event, "train", _TRAIN)
    elif isinstance(event, Evaluation):
        values = _values(event, "eval", _EVAL)
    else:
        return False
    if values:
        sink.log(event.at, event.step, values)
    return bool(values)


def _values(event: Event, group: str, names: Iterable[str]) -> Values:
    """What was measured; a number that is none is left out, since not every library draws it."""
    found = ((name, getattr(event, name)) for name in names)
    return {f"{group}/{name}": float(value) for name, value in found if value is not None and math.isfinite(value)}


def settings(config: RunConfig) -> dict[str, Any]:
    """The run's settings without paths of this machine: of these the last part."""
    values: dict[str, Any] = {}
    for key, value in flat(config).items():
        if key in _PATHS and str(value).startswith("/"):
            value = Path(str(value)).name
        values[key] = ", ".join(map(str, value)) if isinstance(value, tuple) else value
    del values["data.columns"], values["data.system_prompt"]
    return values


if __name__ == "__main__":
    sys.exit(main())
