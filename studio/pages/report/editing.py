"""What a person chooses for all reports, as a form: checks of answers, texts that nothing may be forgotten of, and how
long a report may take. Its script is ``assets/js/pages/report/checks.js``."""

from typing import Any, get_args

from core.report.choices import MOST_CHECKS, CheckKind, LengthUnit, ReportChoices
from studio.pages.report.words import say
from studio.shell.markup import Markup, tag
from studio.shell.slots import button, slot

FIELDS: dict[CheckKind, tuple[str, ...]] = {
    "exact": ("expected", "ignore_case"),
    "contains": ("expected", "ignore_case"),
    "number": ("expected", "tolerance"),
    "regex": ("expected",),
    "json": ("expected",),
    "label": ("labels", "expected"),
    "length": ("least", "most", "unit"),
    "language": ("expected",),
}
"""What is asked of each kind of check beside its name."""


def editing_words(choices: ReportChoices, data: str) -> dict[str, Any]:
    """What the script needs: the choices as they are, the fields of each kind, and its words."""
    words = {key: say(f"report.edit.{key}") for key in ("saved", "remove", "name", "kind", "for", "for.all", "unsaved")}
    words |= {f"field.{field}": say(f"report.edit.{field}") for fields in FIELDS.values() for field in fields}
    kinds = [
        {
            "key": kind,
            "title": say(f"report.kind.{kind}"),
            "hint": say(f"report.kind.{kind}.hint"),
            "fields": FIELDS[kind],
        }
        for kind in get_args(CheckKind)
    ]
    units = [[unit, say(f"report.unit.{unit}")] for unit in get_args(LengthUnit)]
    chosen = choices.model_dump(mode="json")
    return {"words": words, "kinds": kinds, "units": units, "chosen": chosen, "data": data, "most": MOST_CHECKS}


def editing() -> Markup:
    """The form without its checks, which the script adds."""
    about = tag("p", say("report.edit.about"), class_="hint")
    none = slot("checks-none", "p", say("report.edit.none"), class_="hint", hidden=True)
    checks = slot("checks", "ol", class_="edit-checks")
    add = button(say("report.edit.add"), "quiet", data_f="check-add")
    example = say("report.edit.general.example")
    field = slot("general", "input", type="text", name_="general", spellcheck="false", placeholder=example)
    general = tag("label", tag("span", say("report.edit.general")), field)
    hint = tag("p", say("report.edit.general.about"), class_="hint")
    save = tag("button", say("report.edit.save"), type="submit", class_="push primary")
    said = slot("choices-said", "span", role="status", class_="hint")
    form = slot("choices", "form", about, none, checks, add, general, hint, tag("div", save, said, class_="actions"))
    return tag("details", tag("summary", say("report.edit.title")), form, class_="folded")
