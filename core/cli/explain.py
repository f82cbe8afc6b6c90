"""The glossary as lines of text: for the command line, and for README's "Words".

A word is looked up by any of its names or by a setting that it explains: ``rank``, ``max length``, ``lora.r``,
``warmup_steps``.
"""

import difflib
import textwrap
from collections.abc import Iterator

from core.contract.config import RunConfig
from core.contract.errors import ConfigError
from core.contract.glossary.terms import Term
from core.contract.glossary.words import GLOSSARY, PARTS, called, plainly
from core.contract.knobs import Knob, knobs

WIDTH = 100
README_WIDTH = 140
README_WORDS = (
    "token", "template", "held-out-loss", "quantisation", "adapter", "rank", "sft", "pretrain", "dpo", "kto",
    "full-finetuning", "accumulation", "recompute", "probe", "gradient-norm", "merged",
)  # fmt: skip
"""Words that README uses without explaining them."""
NEAR = 4
_KNOBS = knobs(RunConfig)


def listed() -> list[str]:
    """Every word by its part, a line each: its key and its name."""
    lines: list[str] = []
    for part in PARTS:
        lines += [part.title, *(f"  {term.key:16} {term.name}" for term in part.terms), ""]
    return [*lines, "One of them, or a setting of run.yaml:   python3 launcher.py explain rank"]


def explain(asked: str) -> list[str]:
    """A word, or a setting that no word explains, as lines of a terminal.

    Raises:
        ConfigError: nothing is called that; similar names are given.
    """
    wanted = plainly(asked)
    if term := _by_name().get(wanted):
        return list(_lines(term))
    if settings := [_setting(knob) for key, knob in _KNOBS.items() if wanted in _ways(key)]:
        return settings
    near = _near(wanted)
    hint = f"Near: {', '.join(near)}." if near else "Without a word, all of them are listed."
    raise ConfigError("glossary.unknown", asked=asked, hint=hint)


def markdown() -> list[str]:
    """The words that README uses, as the lines between its two markers."""
    lines = []
    for key in README_WORDS:
        term = GLOSSARY[key]
        text = f"- **{term.name}**: {term.brief}"
        lines += textwrap.wrap(text, README_WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return lines


def _lines(term: Term) -> Iterator[str]:
    yield term.name
    yield from textwrap.wrap(term.text, WIDTH)
    for knob in _KNOBS.values():
        if knob.term == term.key:
            yield f"setting   {_setting(knob)}"
    if term.also:
        yield f"see also  {', '.join(term.also)}"


def _setting(knob: Knob) -> str:
    """A setting: its key, its label, its help unless that repeats the term's, and its default."""
    default = f"{knob.default:g}" if knob.kind == "number" else str(knob.default).lower() or "empty"
    term = GLOSSARY.get(knob.term)
    help_ = knob.hint.removeprefix(term.brief).strip() if term else knob.hint
    unit = f" {knob.unit}" if knob.unit and knob.unit not in knob.label.lower() else ""
    words = (f"{knob.key}: {knob.label}.", help_, f"Default: {default}{unit}.")
    return " ".join(word for word in words if word)


def _by_name() -> dict[str, Term]:
    """Every name to its term. A term's own names outweigh the settings that it explains."""
    by_setting = {way: GLOSSARY[knob.term] for key, knob in _KNOBS.items() if knob.term for way in _ways(key)}
    return by_setting | {name: term for term in GLOSSARY.values() for name in called(term)}


def _ways(key: str) -> set[str]:
    """How a setting may be asked for: by its key, the key's last part, or its label."""
    return {plainly(key), plainly(key.rpartition(".")[2]), plainly(_KNOBS[key].label)}


def _near(wanted: str) -> list[str]:
    """Keys with similar names, the nearest first."""
    names = {way: key for key in _KNOBS for way in _ways(key)} | {name: one.key for name, one in _by_name().items()}
    holding = sorted((name for name in names if len(wanted) > 2 and wanted in name), key=lambda name: name.find(wanted))
    close = difflib.get_close_matches(wanted, names, NEAR, cutoff=0.7)
    return list(dict.fromkeys(names[name] for name in (*close, *holding)))[:NEAR]
