"""HTML made in Python, and the small pieces that pages share.

Names of rows, models and runs come from outside: everything that reaches a page goes through ``tag`` or ``safe``.
"""

import html as _html
import json
from collections.abc import Mapping
from typing import Any

from core.contract.errors import Fault
from studio.shell.assets import asset
from studio.words.faults import said


class Markup(str):
    """A string that is HTML; ``tag`` and ``join`` escape any other ``str``."""

    __slots__ = ()


VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "use"})


def safe(text: object) -> Markup:
    """Text as HTML, quotes included."""
    return Markup(_html.escape(str(text), quote=True))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element. Children that ``tag`` or ``join`` made are kept, all others are escaped; None is left out.

    ``class_`` and ``for_`` lose their underscore, other underscores become hyphens; False and None attributes are left
    out, True stands without a value.
    """
    opening = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{opening}>")
    return Markup(f"<{name}{opening}>{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """Children one after another, escaped where they are text."""
    kept = (child for child in children if child is not None)
    return Markup("".join(child if isinstance(child, Markup) else safe(child) for child in kept))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{safe(value)}"'


def icon(name: str, label: str = "") -> Markup:
    """An icon of ``assets/icons.svg``; without a label it is decoration."""
    hidden: dict[str, object] = {"role": "img", "aria-label": label} if label else {"aria-hidden": "true"}
    return tag("svg", tag("use", href=asset(f"icons.svg#{name}")), class_="icon", **hidden)


def push(words: str, do: str, value: Mapping[str, Any] | None = None, **options: Any) -> Markup:
    """A quiet button within a board: a press is sent as JSON through the hidden field ``do`` (``parts.channel``). A
    custom event of ``gr.HTML`` would need ``unsafe-eval``; a route of ours cannot update Gradio's components."""
    asked = {"data-do": do, "data-value": json.dumps(value or {})}
    return tag("button", words, type="button", class_="quiet-push", **options, **asked)


def fault(error: Fault | str) -> Markup:
    """An error: one line, and what to do."""
    if isinstance(error, str):
        return tag("p", icon("warning"), tag("span", error), class_="fault", role="alert")
    cause, cure = said(error)
    lines = tag("ul", *(tag("li", line) for line in error.problems)) if error.problems else None
    return tag(
        "div",
        icon("warning"),
        tag("div", tag("strong", cause), " ", tag("span", cure) if cure else None, lines),
        class_="fault",
        role="alert",
    )
