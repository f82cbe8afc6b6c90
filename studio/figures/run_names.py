"""What runs are called, and in what each differs from the run before it with the same data.

A run that nobody named is called after its data and model; where several share both, also after what was changed since
the one before: "support.csv on Qwen3-4B, rank 32".
"""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.knobs import knobs
from core.contract.methods import METHODS
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import named_config
from core.runs.folder.run_yaml import flat
from core.runs.record.summary import RunSummary
from studio.figures.proposals import value_words, within
from studio.figures.run_figures import UNKNOWN, model_words, own_title
from studio.services.recent import Recent
from studio.words.text import say

_KNOBS = knobs(RunConfig)
_UNTOUCHED: dict[str, Any] = json.loads(json.dumps(flat(RunConfig())))
_TITLED, _SHOWN = 2, 3
"""Changes in a title, and in a row."""
_SECONDS = 30.0


class Names:
    """The names of runs that are listed together, the newest first."""

    def __init__(self, runs: Sequence[RunSummary] = ()) -> None:
        self._titles: dict[str, str] = {}
        self._differs: dict[str, list[str]] = {}
        of_data: dict[str, RunSummary] = {}
        of_both: dict[tuple[str, str], RunSummary] = {}
        for run in reversed(runs):
            if not run.data_key:
                continue
            both = (run.data_key, run.model_name)
            if run.data_key in of_data:
                self._differs[run.run_id] = list(_changes(run, of_data[run.data_key]))
            if both in of_both and (changes := list(_changes(run, of_both[both]))):
                self._titles[run.run_id] = say(
                    "run.title.differs", plain=plain_title(run), differs=_few(changes, _TITLED)
                )
            of_data[run.data_key] = of_both[both] = run

    def title(self, run: RunSummary) -> str:
        """The name that was given, else one that says what differs, else one with the time."""
        return run.name or self._titles.get(run.run_id) or own_title(run.data_name, run.model_name, run.run_id)

    def differs(self, run_id: str) -> str:
        """What was changed since the run before with the same data; empty for the first and for a repetition."""
        return _few(self._differs.get(run_id, []), _SHOWN)

    def own(self, run_id: str) -> str:
        """The name of one that nobody named; empty where nothing but its time is its own."""
        return self._titles.get(run_id, "")


def plain_title(run: RunSummary) -> str:
    """ "support.csv on Qwen3-4B"."""
    return say("run.title.plain", data=run.data_name or UNKNOWN, model=model_words(run.model_name))


def _few(changes: Sequence[str], most: int) -> str:
    more = [say("differs.more", count=len(changes) - most)] if len(changes) > most else []
    return ", ".join([*changes[:most], *more])


def _changes(run: RunSummary, before: RunSummary) -> Iterator[str]:
    """The settings in which a run differs from another one, those that matter most first."""
    if run.model_name != before.model_name:
        yield model_words(run.model_name)
    if run.method != before.method and run.method in METHODS:
        yield METHODS[run.method].title
    if run.resume_from and run.resume_from != before.resume_from:
        yield say("differs.goes_on")
    for key in _UNTOUCHED:
        if key in run.settings or key in before.settings:
            value = run.settings.get(key, _UNTOUCHED[key])
            if value != before.settings.get(key, _UNTOUCHED[key]):
                yield _words(key, value)


def _words(key: str, value: Any) -> str:
    """ "rank 32", "rsLoRA on", "other columns"."""
    knob = _KNOBS.get(key)
    if knob is None or knob.kind == "text" or isinstance(value, (dict, list)):
        return say("differs.other", label=_label(knob.label) if knob else say.get(f"differs.{key}") or key)
    if isinstance(value, bool):
        return say("differs.on" if value else "differs.off", label=_label(knob.label))
    return f"{_label(knob.label)} {value_words(key, value)}"


def _label(label: str) -> str:
    """A label within a sentence, without what stands in brackets."""
    return within(re.sub(r" *\(.*?\)", "", label))


_KNOWN: Recent[tuple[frozenset[str], float, Names]] = Recent(8)
"""By the folder of the runs: what was in it then, when, and the names."""


def names_in(runs: Path) -> Names:
    """The names of all runs below a folder, read again when a run comes or goes, and twice a minute."""
    there, now = frozenset(entry.name for entry in os.scandir(runs)), time.monotonic()
    known = _KNOWN.get(runs)
    if known is None or known[0] != there or now - known[1] > _SECONDS:
        known = (there, now, Names(RunStore(Locations(runs.parent)).list()))
        _KNOWN.put(runs, known)
    return known[2]


def titled_config(folder: JobFolder) -> RunConfig | None:
    """A run's config under the name that it is shown by; None where run.yaml cannot be read."""
    config = named_config(folder)
    if config is None or config.name:
        return config
    return config.model_copy(update={"name": names_in(folder.path.parent).own(folder.name)})
