"""Knobs as form fields, and the form as a session: a knob's label, hint, unit and range come from its declaration.

Ranges are checked by the config: Gradio's own check shows only a passing notice.
"""

import contextlib
import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gradio as gr

from core.contract.config import RunConfig
from core.contract.knobs import Knob, knobs
from core.data.read.layouts import ROLES
from studio.pages.new_run.words import say
from studio.services.session import Session, home_written_out
from studio.services.standing import source_of
from studio.shell.parts import board

KNOBS: dict[str, Knob] = knobs(RunConfig)
CHOSEN = ("data.path", "data.layout", "columns", "preset")
"""Fields that choices of their own set: a file, how it is read, a goal. The layout can be set by hand, too."""
Answer = dict[Any, Any]
"""What an event says: components, and what they show now."""


def label_of(knob: Knob) -> str:
    """The label, with the unit where the label does not name it."""
    named = not knob.unit or knob.unit in knob.label.lower()
    return knob.label if named else f"{knob.label} ({knob.unit})"


def _field_of(key: str, value: Any, **options: Any) -> Any:
    """The Gradio component of one knob."""
    knob = KNOBS[key]
    shared: dict[str, Any] = {
        "label": label_of(knob),
        "info": knob.hint or None,
        "value": value,
        "interactive": True,
        "elem_id": key.replace(".", "-"),
        **options,
    }
    if knob.kind == "choice":
        choices = [(say.get(f"choice.{key}.{choice}") or choice, choice) for choice in knob.choices]
        return gr.Dropdown(choices=choices, filterable=False, **shared)
    if knob.kind == "switch":
        return gr.Checkbox(**shared)
    if knob.kind in ("integer", "number"):
        return gr.Number(precision=0 if knob.kind == "integer" else None, **shared)
    return gr.Textbox(lines=2, max_lines=6, **shared)


def sent(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a button within a board sent: its value and the fields of its form. What is none of ours is nothing."""
    try:
        raw = json.loads(text or "{}")
        value, form = raw.get("value"), raw.get("form")
    except (ValueError, AttributeError):
        return {}, {}
    return value if isinstance(value, dict) else {}, form if isinstance(form, dict) else {}


class Form:
    """The page's components: its fields, and the parts beside them.

    Every choice sends all fields, so that a restarted studio can go on with an open page.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        """By dotted key, in one fixed order."""
        self.parts: dict[str, Any] = {}
        """All else that events read or write, by its id in the page."""

    def add(self, key: str, value: Any, **options: Any) -> None:
        """Adds a knob's field."""
        self.fields[key] = _field_of(key, value, **options)

    def board(self, name: str, content: str = "") -> None:
        """Adds a piece of HTML that events write."""
        self.parts[name] = board(content, elem_id=name)

    @property
    def components(self) -> list[Any]:
        """All fields, in order: inputs of every choice."""
        return list(self.fields.values())

    def values(self, session: Session) -> list[Any]:
        """What the fields show for a session, in order."""
        return [_shown(session, key) for key in self.fields]

    def sent(self, key: str, values: Sequence[Any]) -> Any:
        """The value that was sent for one field."""
        return values[[*self.fields].index(key)]

    def as_chosen(self, values: Sequence[Any], session: Session, but: str = "") -> list[Any]:
        """The sent values with a session's file and goal; the field ``but`` as it was sent."""
        sent = zip(self.fields, values, strict=True)
        return [_shown(session, key) if key in CHOSEN and key != but else value for key, value in sent]

    def differing(self, session: Session, values: Sequence[Any]) -> Answer:
        """The fields that show something else for a session than was sent. A late answer leaves the others alone."""
        given = zip(self.fields.items(), values, strict=True)
        return {field: shown for (key, field), value in given if (shown := _shown(session, key)) != value}

    def session(self, values: Sequence[Any], base: Session) -> Session:
        """The fields' values as a session; what no field shows keeps its value in ``base``.

        Raises:
            ConfigError: values out of range, all of them.
        """
        given = dict(zip(self.fields, values, strict=True))
        draft_id = str(given.pop("draft_id") or "").partition(".")[0] or base.draft_id
        if "preset" in given:
            given["preset"] = given["preset"] or ""
        columns = _columns(str(given.pop("columns") or ""), str(given["data.layout"]))
        name = home_written_out(str(given.pop("model.name") or ""))
        given |= {"model.name": name, "model.source": source_of(name), "data.columns": columns}
        if name != base.config.model.name:
            given["model.revision"] = ""
        if str(given["data.path"]) != base.config.data.path:
            given["data.sha256"] = ""
        session = base.with_values({key: value for key, value in given.items() if value is not None or key in KNOBS})
        return replace(session, draft_id=draft_id)

    def told(self, values: Sequence[Any], session: Session) -> bool:
        """Whether the window that sent these fields had been told of the proposal that stands."""
        sent = str(self.sent("draft_id", values) or "").partition(".")[2]
        return sent in ("", _stamp(session))


def _stamp(session: Session) -> str:
    return str(session.standing.stamp) if session.standing else "0"


def draft_shown(session: Session) -> str:
    """Which draft the window shows, and which proposal it was told of."""
    return f"{session.draft_id}.{_stamp(session)}"


def _shown(session: Session, key: str) -> Any:
    if key == "draft_id":
        return draft_shown(session)
    if key == "columns":
        return shown_columns(session.config.data.columns)
    value = operator.attrgetter(key)(session.config)
    return None if value == "" and key == "preset" else value  # Gradio refuses every event that brings another choice


def shown_columns(columns: Mapping[str, str]) -> str:
    """Roles with their columns, as the hidden field holds them."""
    return json.dumps(columns) if columns else ""


def _columns(sent: str, layout: str) -> dict[str, str]:
    """The columns that were sent. A layout that was chosen since leaves out the roles that it does not have."""
    with contextlib.suppress(ValueError, AttributeError):
        known = ROLES.get(layout)  # type: ignore[call-overload]
        given = {str(role): str(column) for role, column in json.loads(sent or "{}").items()}
        return {role: column for role, column in given.items() if known is None or role in known}
    return {}
