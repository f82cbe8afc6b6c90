"""The choices in New run, a frozen value, and their draft.

Every change is a new ``Session`` with a ``RunConfig``. The draft is ``draft.json``, written a moment after the last
change. Start carries the draft's id and choices: a second Start of the same opens the first one's run.

All windows share one draft, which holds the last change. Choices that another window or a repeated run replaced are
kept beside it until the next Start, so that they can be taken back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from core.contract.config import DataChoice, RunConfig
from core.contract.errors import ConfigError
from core.contract.knobs import Knob, knobs
from core.contract.methods import DEFAULT_METHOD, method_for
from core.estimate.eight_bits import AUTO, KEY
from core.machine.disk import write_whole
from core.machine.locations import ASSETS, Locations
from core.models.catalog import apply_preset, preset, presets
from core.models.suited import FOLLOWING
from core.runs.folder.run_yaml import flat
from studio.services.recent import Recent
from studio.services.standing import Standing, every_setting, own_of
from studio.words.text import say

SAMPLES = {
    "instruction": "instruction.jsonl",
    "chat": "chat.jsonl",
    "preference": "preference.jsonl",
    "text": "text.txt",
}
AUTOMATIC = (
    "method",
    "model.dtype",
    "model.streamed_layers",
    "model.rope_scaling",
    "model.rope_factor",
    "train.optim",
    "train.memory_gib",
    "train.checkpointing",
    "train.tokens_per_pass",
    "train.tile_tokens",
    "train.eval_steps",
    "train.save_steps",
)
FIRST_PRESET = "try-it"
_WINDOWS = 64
Why = Literal["run", "window", "back"]
_WHY: tuple[Why, ...] = get_args(Why)
_KNOBS: dict[str, Knob] = knobs(RunConfig)


@dataclass(frozen=True)
class Before:
    """Replaced choices: by a run that is run again, by another window, or by taking back."""

    config: RunConfig
    why: Why
    own: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Session:
    """The choices so far. ``config`` may hold automatic values; they are resolved at Start. ``own`` are the settings
    that a person set; all others follow the proposal that stands."""

    config: RunConfig
    draft_id: str = field(default_factory=lambda: secrets.token_hex(8))
    before: Before | None = None
    own: frozenset[str] = frozenset()
    standing: Standing | None = None

    def with_values(self, values: Mapping[str, Any]) -> Session:
        """The session with these dotted keys changed.

        Raises:
            ConfigError: values out of range or of the wrong kind, all of them, in the words of their labels.
        """
        raw = self.config.model_dump()
        for key, value in values.items():
            part, _, name = key.rpartition(".")
            (raw[part] if part else raw)[name] = value
        try:
            return replace(self, config=RunConfig.model_validate(raw))
        except ValidationError as error:
            faults = [_fault(".".join(map(str, fault["loc"])), fault["input"]) for fault in error.errors()]
            raise ConfigError("config.faults/form", count=len(faults), problems=faults) from error

    @property
    def start_id(self) -> str:
        """The identity of a Start: the same choices of a draft started twice are one run."""
        choices = json.dumps(self.config.model_dump(mode="json"), sort_keys=True)
        return f"{self.draft_id}-{hashlib.sha256(choices.encode()).hexdigest()}"


def home_written_out(path: str) -> str:
    """A stripped path with ``~`` expanded, where that is possible."""
    path = (path or "").strip()
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except (RuntimeError, ValueError):
        return path


def first() -> Session:
    """The first visit's choices: built-in model, instruction sample, the preset "Try it"."""
    start = RunConfig(data=DataChoice(path=str(sample_path("instruction"))))
    return Session(apply_preset(start, preset(FIRST_PRESET)))


def sample_path(key: str) -> Path:
    """The file of a sample."""
    return ASSETS / "samples" / SAMPLES[key]


def sample_of(path: str) -> str:
    """The key of the sample at this path; empty where it is none."""
    return next((key for key in SAMPLES if path == str(sample_path(key))), "")


def load(locations: Locations) -> Session:
    """The draft, or a first visit's session where there is none that can be read."""
    try:
        raw = json.loads(locations.draft.read_text(encoding="utf-8"))
        if "version" not in raw and raw["config"].get("method") == DEFAULT_METHOD:
            raw["config"]["method"] = "auto"  # older studios wrote the default
        config = RunConfig.model_validate(raw["config"])
        if config.preset not in {recipe.key for recipe in presets()}:
            config = config.model_copy(update={"preset": ""})  # not a choice of the page
        own, standing = _own(raw, config), _standing(raw.get("standing"))
        return Session(config, str(raw["draft_id"]), _before(raw.get("before")), own, standing)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return first()


def _before(raw: Any) -> Before | None:
    try:
        config = RunConfig.model_validate(raw["config"])
        return Before(config, _WHY[_WHY.index(raw["why"])], _own(raw, config))
    except (ValueError, KeyError, TypeError):
        return None


def _own(raw: dict[str, Any], config: RunConfig) -> frozenset[str]:
    """The settings that a person set; of an older draft, which does not say it, those that nothing else explains."""
    return frozenset(map(str, raw["own"])) if "own" in raw else own_of(config)


def _standing(raw: Any) -> Standing | None:
    try:
        return Standing.model_validate(raw)
    except ValidationError:
        return None


def reopened(config: RunConfig, asked: RunConfig | None, corrected: Collection[str] = ()) -> RunConfig:
    """A run's config with its automatic values automatic again; what a person chose or was ``corrected`` stays. Without
    ``asked`` all that may be automatic counts as automatic. A method that "auto" would not choose today stays."""
    before, ran, untouched = flat(asked or config), flat(config), flat(RunConfig())
    ours = {key: before[key] for key in FOLLOWING if before[key] != ran[key]}
    ours |= {key: untouched[key] for key in AUTOMATIC if asked is None or before[key] == untouched[key]}
    if config.method != method_for(config.data.layout):
        ours.pop("method", None)
    ours = {key: ours[key] for key in ours if key not in corrected}
    if asked and asked.train.arithmetic == AUTO:  # what a trial found then is no person's choice
        ours[KEY] = AUTO
    return Session(config).with_values(ours).config


def _write(locations: Locations, session: Session) -> None:
    draft: dict[str, Any] = {"version": 2, "draft_id": session.draft_id, "own": sorted(session.own)}
    draft["config"] = session.config.model_dump(mode="json")
    if session.standing:
        draft["standing"] = session.standing.model_dump(mode="json")
    if before := session.before:
        raw = before.config.model_dump(mode="json")
        draft["before"] = {"config": raw, "why": before.why, "own": sorted(before.own)}
    write_whole(locations.draft, json.dumps(draft), mode=0o600)


class Drafts:
    """Keeps the draft, a moment after the last change; ``flush`` writes at once."""

    def __init__(self, locations: Locations, delay_seconds: float = 0.4) -> None:
        self._locations = locations
        self._delay = delay_seconds
        self.lock = threading.RLock()
        """Held by whoever reads the draft to write what follows from it."""
        self._waiting: Session | None = None
        self.shown: Recent[RunConfig] = Recent(_WINDOWS)
        """What each open window shows, by its id."""

    def load(self) -> Session:
        """The newest session: the one to be written, else the file's. A first visit's is written at once, so that all
        windows share it."""
        with self.lock:
            if self._waiting is None and not self._locations.draft.exists():
                with contextlib.suppress(OSError):
                    _write(self._locations, first())
            return self._waiting or load(self._locations)

    def of(self, window: str) -> Session:
        """The draft with the config that a window shows, whatever another window did since."""
        session = self.load()
        return replace(session, config=self.shown.get(window) or session.config)

    def edit(self, session: Session, window: str = "") -> None:
        """Writes a window's choices soon, under the draft's id: the window's own may have become a run. What another
        window chose meanwhile is kept as ``before``."""
        with self.lock:  # a window's edits may arrive concurrently
            kept, shown = self.load(), self.of(window).config
            lost = kept.config not in (shown, session.config)
            before = Before(kept.config, "window", kept.own) if lost else kept.before
            self.save(replace(session, draft_id=kept.draft_id, before=before))
            if window:
                self.shown.put(window, session.config)

    def redraft(self, config: RunConfig) -> None:
        """Makes a run's config, without its name, the draft at once; all its settings count as set."""
        fresh = Session(config.model_copy(update={"name": ""}), own=every_setting(config))
        kept = self.load()
        untouched = kept.config in (fresh.config, first().config)
        self.save(replace(fresh, before=kept.before if untouched else Before(kept.config, "run", kept.own)))
        self.flush()

    def take_back(self) -> Session:
        """Swaps the draft with the replaced choices."""
        kept = self.load()
        if kept.before is not None:
            before = Before(kept.config, "back", kept.own)
            self.save(replace(kept, config=kept.before.config, own=kept.before.own, standing=None, before=before))
            self.flush()
        return self.load()

    def renew(self, started: Session) -> None:
        """Gives the started draft a fresh id at once, unless it has one."""
        if self.load().draft_id == started.draft_id:
            told = started.standing.model_copy(update={"changed": ()}) if started.standing else None
            self.save(Session(started.config, own=started.own, standing=told))
            self.flush()

    def save(self, session: Session) -> None:
        """Writes the session soon; only the last of a burst is written."""
        with self.lock:
            begins = self._waiting is None
            self._waiting = session
        if begins:
            timer = threading.Timer(self._delay, self.flush)
            timer.daemon = True
            timer.start()

    def flush(self) -> None:
        """Writes the waiting session; a full disk loses the draft, not the page."""
        with self.lock, contextlib.suppress(OSError):
            session, self._waiting = self._waiting, None
            if session is not None:
                _write(self._locations, session)


def _fault(key: str, value: object) -> str:
    """One field's fault by its label: the expected and the given value."""
    knob = _KNOBS.get(key)
    if knob is None:
        return say("form.fault.other", key=key, found=value)
    return say("form.fault", label=knob.label, expected=_expected(knob), found="empty" if value is None else value)


def _expected(knob: Knob) -> str:
    if knob.choices:
        return ", ".join(knob.choices)
    low, high = (None if bound is None else f"{bound:,.10g}" for bound in (knob.minimum, knob.maximum))
    unit = f" {knob.unit}" if knob.unit else ""
    if low is not None and high is not None:
        return say("form.range.above" if knob.above else "form.range", low=low, high=high) + unit
    return say("form.at_least", low=low) + unit if low is not None else say("form.number")
