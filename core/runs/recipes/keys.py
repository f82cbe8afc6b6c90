"""What a key of another program's recipe becomes here, and how values are read."""

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from core.contract.config import TARGETS, TrainChoice
from core.contract.config.positions import ROPE_SCALINGS
from core.contract.optimisers import OPTIMISERS

Values = dict[str, Any]
"""By dotted key of ours."""


SHARE = "warmup_ratio"
"""In place of a key of ours: warm-up as a share of the steps, which is counted in steps here."""


class NoPlaceError(Exception):
    """A value that has no place here; the reason."""


@dataclass(frozen=True)
class Key:
    """One key. ``ours``: its dotted key here, empty where it has none, and ``why`` says what is done instead;
    ``read`` turns a value into ours, or into several, and raises NoPlaceError where there is none. ``decides``: whether
    something else is trained without it."""

    ours: str = ""
    read: Callable[[Any], Any] = lambda value: value
    why: str = ""
    decides: bool = False


@dataclass(frozen=True)
class Found:
    """What several keys decide together: values by our key with the keys that they come from, and reasons by key."""

    values: Mapping[str, tuple[Any, tuple[str, ...]]]
    left: Mapping[str, str]

    def __or__(self, other: "Found") -> "Found":
        return Found({**self.values, **other.values}, {**self.left, **other.left})


@dataclass(frozen=True)
class Recipe:
    """One program's recipes.

    ``keys`` are dotted where its files have sections, unless ``flat``; ``marks``: keys that its files alone have;
    ``usual``: what it does where a file is silent and we do otherwise; ``together``: what several keys decide, from all
    fields and the file's folder.
    """

    title: str
    keys: Mapping[str, Key]
    marks: frozenset[str]
    usual: Mapping[str, Any]
    together: Callable[[Mapping[str, Any], Path], Found] = lambda _fields, _folder: Found({}, {})
    flat: bool = False


def not_here(*names: str, why: str = "has no counterpart here", decides: bool = True) -> dict[str, Key]:
    """Keys without a place here."""
    return {name: Key(why=why, decides=decides) for name in names}


def needless(*names: str, why: str = "not needed here") -> dict[str, Key]:
    """Keys that change nothing of what is learned."""
    return not_here(*names, why=why, decides=False)


# ── readers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def number(value: Any) -> Any:
    """A number, which YAML reads as a text where it has no point (``2e-4``)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise NoPlaceError("expected a number")
    try:
        made = float(value)
    except (ValueError, OverflowError) as error:
        raise NoPlaceError("expected a number") from error
    if not math.isfinite(made):
        raise NoPlaceError("expected a finite number")
    return int(made) if made.is_integer() else made


def switch(value: Any) -> bool:
    """Yes or no."""
    known = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    read = known.get(str(value).strip().lower())
    if read is None:
        raise NoPlaceError("expected true or false")
    return read


def word(known: Mapping[str, Any], usual: str = "") -> Callable[[Any], Any]:
    """A value out of a table, whose keys are in lower case; ``usual``: what to choose instead."""

    def read(value: Any) -> Any:
        name = str(value).strip().lower()
        if name not in known:
            raise NoPlaceError(f"{usual or 'there is none here'}; known are {', '.join(sorted(known))}")
        return known[name]

    return read


def targets(value: Any) -> list[str]:
    """Projections: a list, or names with commas; ``all`` are all of them."""
    names = value if isinstance(value, list) else [one.strip() for one in str(value).split(",")]
    names = [str(name) for name in names if name]
    if not names or names[0] in ("all", "all-linear"):
        return [*TARGETS]
    if wrong := [name for name in names if not re.fullmatch(r"\w+", name)]:
        raise NoPlaceError(f"{wrong[0]} is no name of a projection")
    return [*(name for name in TARGETS if name in names), *(name for name in names if name not in TARGETS)]


def checkpointing(value: Any) -> str:
    """Yes, no or a library's way of it."""
    return "auto" if str(value).lower() not in ("false", "none", "no", "") else "none"


def held_out(value: Any) -> Values:
    """A share of the rows, or from 1 on their number."""
    many = number(value)
    return {"data.eval_fraction": many} if many < 1 else {"data.eval_fraction": 0.5, "data.eval_rows_max": int(many)}


def given(name: Any) -> Callable[[Any], Any]:
    """Yes means this value here, no nothing."""

    def read(value: Any) -> Any:
        return name if switch(value) else None

    return read


def if_set(value: Any) -> Any:
    """A number, where 0 means nothing."""
    return number(value) or None


def from_zero(value: Any) -> Any:
    """A number, where one below 0 means none of it."""
    return max(0, number(value))


OPTIMISER = word(
    {
        **{name: name for name in OPTIMISERS},
        "adamw": "adamw_torch",
        "adamw8bit": "adamw_8bit",
        "adamw_bnb_8bit": "adamw_8bit",
        "adamw_hf": "adamw_torch",
        "pagedadamw8bit": "paged_adamw_8bit",
        "paged_adamw": "paged_adamw_8bit",
        "paged_adamw_32bit": "paged_adamw_8bit",
        "adafactor": "adafactor",
        "lion8bit": "lion_8bit",
        "lion": "lion_8bit",
        "lion_32bit": "lion_8bit",
    },
    "auto is used",
)
SCHEDULES = get_args(TrainChoice.model_fields["lr_scheduler_type"].annotation)
SCHEDULE = word({name: name for name in SCHEDULES}, "linear is used")
_SINKS = get_args(TrainChoice.model_fields["report_to"].annotation)
REPORTS = word({name: name for name in _SINKS}, "metrics RUN --to NAME passes them on, one at a time")
SCALING = word({name: name for name in ROPE_SCALINGS}, "auto is used")
COMMON: dict[str, Key] = {
    "lora_alpha": Key("lora.lora_alpha", number),
    "lora_dropout": Key("lora.lora_dropout", number),
    "loraplus_lr_ratio": Key("lora.loraplus_lr_ratio", number),
    "dpo_label_smoothing": Key("train.label_smoothing", number),
    "simpo_gamma": Key("train.simpo_gamma", number),
    "gradient_accumulation_steps": Key("train.gradient_accumulation_steps", number),
    "gradient_checkpointing": Key("train.checkpointing", checkpointing),
    "max_steps": Key("train.max_steps", from_zero),
    "learning_rate": Key("train.learning_rate", number),
    "warmup_steps": Key("train.warmup_steps", number),
    "warmup_ratio": Key(SHARE, number),
    "weight_decay": Key("train.weight_decay", number),
    "max_grad_norm": Key("train.max_grad_norm", number),
    "neftune_noise_alpha": Key("train.neftune_noise_alpha", number),
    "seed": Key("train.seed", number),
    "save_steps": Key("train.save_steps", number),
    "eval_steps": Key("train.eval_steps", number),
}
"""Names of transformers, peft and TRL that programs took over as they are."""
_MOST_COUNTED = 256 << 20


def rows_in(path: Path) -> int | None:
    """The rows of a data file of lines or of a JSON list; None of others."""
    if path.stat().st_size > _MOST_COUNTED:
        return None
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        with path.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    try:
        listed = json.loads(path.read_bytes()) if path.suffix.lower() == ".json" else None
    except (ValueError, RecursionError):
        return None
    return len(listed) if isinstance(listed, list) else None


def data_file(folder: Path, named: Any) -> tuple[Any, str]:
    """The path of a data file that a recipe names, from its folder; else None and the reason."""
    path = folder / str(named)
    with suppress(OSError, ValueError):  # what no file can be called
        if path.is_file():
            return str(path.resolve()), ""
        if path.is_dir():
            return None, "a folder; choose one file of it as data.path"
    return None, "no file here; fetch it, and choose it as data.path (New run fetches data sets of the hub)"
