"""The data doctor, the third panel of the Data block: what was found in the rows, each with its rows and its fix.

A fix writes a new data set and switches to it; the file stays as it is, and the report line leads back to it.
"""

from __future__ import annotations

import gradio as gr

from core.contract.errors import StudioError
from core.contract.findings import Checkup, Finding
from studio.pages.new_run.asking import push
from studio.pages.new_run.data.sources import working_view
from studio.shell.markup import Markup, fault, icon, join, tag
from studio.shell.parts import board
from studio.words.text import say

__all__ = ["checkup_view", "layout", "tab_words", "title_of"]

_ORDER = {"fault": 0, "warning": 1, "note": 2}
_ICONS = {"fault": "warning", "warning": "warning", "note": "info"}
_LANGUAGES = 6

# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def layout() -> gr.HTML:
    """The panel's board, still empty."""
    with gr.Column(elem_id="panel-doctor", elem_classes="panel"):
        return board(elem_id="data-doctor")


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def checkup_view(found: Checkup | StudioError | None, rows: int = 0, progress: tuple[int, ...] | None = None) -> Markup:
    """What was found; how far the examination is; or the button that begins it."""
    if progress is not None:
        return _running(progress)
    if isinstance(found, StudioError):
        return join(fault(found), _begin(rows))
    if found is None:
        return join(tag("p", say("doctor.data.about"), class_="quiet"), _begin(rows)) if rows else Markup()
    if not found.findings:
        head = tag("p", icon("check"), tag("span", say("doctor.data.clean", rows=f"{found.rows:,}")), class_="clean")
        return join(head, _languages(found.languages))
    ordered = sorted(found.findings, key=lambda finding: _ORDER[finding.level])
    counts = tag("p", say("doctor.data.counts", rows=f"{found.rows:,}", levels=_levels(found)), class_="quiet")
    rows_of = (_finding(finding) for finding in ordered)
    return join(counts, tag("ul", *rows_of, class_="data-findings"), _languages(found.languages))


def tab_words(found: Checkup | StudioError | None) -> str:
    """The panel's name on its tab, with the number of findings that ask for something."""
    if not isinstance(found, Checkup):
        return say("panel.doctor")
    serious = sum(finding.level != "note" for finding in found.findings)
    return say("panel.doctor.count", count=serious) if serious else say("panel.doctor")


def title_of(code: str) -> str:
    """A finding's short name."""
    return say.get(f"finding.{code}") or code.replace("_", " ")


def _levels(found: Checkup) -> str:
    counts = {level: sum(finding.level == level for finding in found.findings) for level in _ORDER}
    return ", ".join(say(f"doctor.data.{level}", count=count) for level, count in counts.items() if count)


def _finding(finding: Finding) -> Markup:
    head = tag("strong", f"{title_of(finding.code)}.")
    words = tag("p", tag("span", say(f"doctor.level.{finding.level}"), class_="sr-only"), head, " ", finding.text)
    buttons = tag("p", _rows_button(finding), _fix_button(finding), class_="finding-buttons")
    shown = buttons if finding.rows or finding.fix else None
    return tag(
        "li", icon(_ICONS[finding.level]), tag("div", words, shown), class_=f"data-finding level-{finding.level}"
    )


def _rows_button(finding: Finding) -> Markup | None:
    if not finding.rows:
        return None
    all_shown = len(finding.rows) >= finding.count
    words = say("doctor.data.rows" if all_shown else "doctor.data.rows.first", count=f"{finding.count:,}",
                first=f"{len(finding.rows):,}")  # fmt: skip
    name = say("doctor.data.rows.name", count=f"{finding.count:,}", title=title_of(finding.code))
    return push(words, "preview", {"only": finding.code}, aria_label=name, data_panel="rows")


def _fix_button(finding: Finding) -> Markup | None:
    if not finding.fix:
        return None
    words = finding.fix_text or say(f"doctor.fix.{finding.fix}")
    return push(words, "source", {"fix": finding.code}, title=say("doctor.fix.means"))


def _begin(rows: int) -> Markup:
    return push(say("doctor.data.begin", rows=f"{rows:,}"), "examine")


def _running(progress: tuple[int, ...]) -> Markup:
    done, total = (*progress, 0, 0)[:2]
    words = say("doctor.data.running", done=f"{done:,}", total=f"{total:,}") if total else say("doctor.data.starting")
    return working_view(words, done, total, "examine")


def _languages(shares: dict[str, float]) -> Markup | None:
    """The mix of languages as one small bar, with its words: nothing where all rows are of one."""
    if len(shares) < 2:
        return None
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    shown = ordered[:_LANGUAGES]
    rest = sum(share for _, share in ordered[_LANGUAGES:])
    pieces = [*shown, *([(say("languages.other"), rest)] if rest else [])]
    bars = (
        tag("i", class_=f"tone-{index}", style=f"width:{100 * share:.1f}%") for index, (_, share) in enumerate(pieces)
    )
    words = (
        tag("li", tag("i", class_=f"tone-{index}"), name, tag("b", _percent(share)))
        for index, (name, share) in enumerate(pieces)
    )
    title = tag("h4", say("languages.title"))
    return tag("div", title, tag("div", *bars, class_="language-bar", aria_hidden="true"),
               tag("ul", *words, class_="language-words"), class_="languages")  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.0f}\u00a0%" if share >= 0.01 else "<1\u00a0%"
