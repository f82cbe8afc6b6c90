"""The forms in which a run can be taken home, with sizes, options and what is missing for them: plain values."""

import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.contract.config import RunConfig
from core.contract.forms import FORMS, QUANTISATIONS, ExportForm, Form, Option
from core.machine.locations import ASSETS
from core.models.catalog import cached_models, catalogue
from core.runs.folder.job_folder import JobFolder
from studio.figures.run_figures import bytes_words
from studio.pages.take_home.words import say

_OFFERED: dict[Option, Callable[[RunConfig], bool]] = {"weights": lambda config: config.model.form.quantised}
"""Options that only some runs leave open."""


def forms_of(folder: JobFolder, config: RunConfig | None, free: int) -> list[dict[str, Any]]:
    """The forms of what learned: what each is for, its expected sizes and whether there is room, its options, and the
    packages that are missing with the command that installs them."""
    config = config or RunConfig()
    newest, learns = folder.newest_checkpoint(), config.learns
    adapter = _folder_bytes(newest / learns.folder) if newest else 0
    whole = merged_bytes(config)
    sizes = {key: whole if FORMS[key].whole else adapter if FORMS[key].weights else 0 for key in config.export_forms}
    return [_form(key, config, size, free) for key, size in sizes.items()]


def _form(key: Form, config: RunConfig, size: int, free: int) -> dict[str, Any]:
    """One of them; ``size`` is that of 16 bits."""
    form, scored = FORMS[key], f"home.{key}.for.scores" if config.learning.task.scores else ""
    missing = [name for name in form.needs if not find_spec(name)]
    return {
        "key": key,
        "use": say.get(scored) or say(f"home.{key}.for"),
        "options": [name for name in sorted(form.options) if _OFFERED.get(name, lambda _: True)(config)],
        "missing": say("home.missing", packages=" and ".join(missing)) if missing else "",
        "install": f"{sys.executable} -m pip install {' '.join(missing)}" if missing else "",
        "kinds": _kinds(form, size, free),
        **_room(size, free),
    }


def _kinds(form: ExportForm, size: int, free: int) -> list[dict[str, Any]]:
    """The quantisations of a form, with their sizes: ``size`` is that of 16 bits."""
    if "quantisation" not in form.options:
        return []
    kinds = []
    for name, bits in QUANTISATIONS.items():
        bytes = round(size * bits / 16)
        title = f"{name.upper()} · {say('home.size', size=bytes_words(bytes))}" if bytes else name.upper()
        kinds.append({"name": name, "title": title, "use": say(f"kind.{name}"), **_room(bytes, free)})
    return kinds


def _room(size: int, free: int) -> dict[str, Any]:
    """An expected size in words, and whether there is room for it."""
    about = say("home.size", size=bytes_words(size)) if size else ""
    short = "" if size <= free else f". {say('home.no_room', short=bytes_words(size - free))}"
    return {"size": about + short, "room": size <= free}


def merged_bytes(config: RunConfig | None) -> int:
    """Bytes of the base in 16 bits, of an encoder in 32: its files on this disk, or for a hub model its parameters; 0
    where unknown."""
    if config is None:
        return 0
    if config.model.source == "starter":
        return _folder_bytes(ASSETS / "starter", "*.safetensors")
    if config.model.source == "folder":
        return _folder_bytes(Path(config.model.name), "*.safetensors")
    return _hub_bytes(config.model.name)


@cache
def _hub_bytes(name: str) -> int:
    known = (spec for specs in (catalogue, cached_models) for spec in specs() if spec.name == name)
    return next(((4 if spec.encoder else 2) * spec.shape.parameters for spec in known), 0)


def _folder_bytes(folder: Path, pattern: str = "*") -> int:
    try:
        return sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file())
    except OSError:
        return 0
