"""Rows as the model will see them, the first panel of the Data block: searched, paged, or only those of a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import gradio as gr

from core.contract.data import Preview, PreviewRow, Span
from core.contract.errors import Fault
from studio.pages.new_run.data.chips import label_chip, mark_chip
from studio.pages.new_run.form import Form, sent
from studio.pages.new_run.words import say
from studio.shell.markup import Markup, fault, icon, join, push, tag
from studio.shell.parts import board

ROWS_A_PAGE = 20
KINDS = ("trained", "avoided", "read", "special", "cut")
_LONGEST_SEARCH = 200


@dataclass(frozen=True)
class Asked:
    """Which rows the panel shows: those that contain ``search``, from ``offset`` on; ``only`` is a finding's code."""

    offset: int = 0
    search: str = ""
    only: str = ""

    @classmethod
    def read(cls, asked: str, search: str = "") -> Asked:
        """By the button of the panel and the search box."""
        value, words = sent(asked)[0], (search or "").strip()[:_LONGEST_SEARCH]
        try:
            return cls(max(0, int(value.get("offset", 0))), words, str(value.get("only", "")))
        except (ValueError, TypeError, OverflowError):
            return cls(search=words)


# ── layout ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def layout(form: Form) -> None:
    """The panel, still empty."""
    with gr.Column(elem_id="panel-rows", elem_classes="panel"):
        with gr.Row(elem_classes="preview-tools"):
            form.parts["preview-search"] = gr.Textbox(
                label=say("preview.search"), placeholder=say("preview.search.example"), max_lines=1,
                elem_id="preview-search", container=True, min_width=60,
            )  # fmt: skip
            keys = (tag("span", say(f"preview.{kind}"), class_=f"token {kind}") for kind in (*KINDS, "differs"))
            colours = tag("p", tag("span", say("preview.keys"), class_="sr-only"), *keys, class_="keys")
            board(colours, elem_classes="preview-keys")
        form.board("preview-only")
        form.board("data-preview")


# ── view ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def preview_view(page: Preview | Fault | None, asked: Asked) -> Markup:
    """A page of rows with coloured token kinds and counts; its position, and the buttons to the others."""
    if page is None:
        return Markup()
    if isinstance(page, Fault):
        return fault(page)
    notes = (tag("p", note, class_="hint") for note in page.notes)
    if not page.rows:
        return join(*notes, tag("p", say("preview.none"), class_="quiet none-found", role="status"))
    shown = (_pair(*sides) if sides[0].side == "chosen" else join(*map(_row, sides)) for sides in _by_row(page.rows))
    rows = tag("ol", *shown, class_="rows", tabindex="0", aria_label=say("preview.title"))
    last = min(asked.offset + ROWS_A_PAGE, page.total)
    where = say("preview.where", first=f"{asked.offset + 1:,}", last=f"{last:,}", total=f"{page.total:,}")
    words = tag("p", tag("span", where, role="status"), " · ", say("preview.template", template=page.template))
    earlier = _turn("preview.earlier", asked.offset - ROWS_A_PAGE, asked.only, asked.offset > 0)
    later = _turn("preview.later", asked.offset + ROWS_A_PAGE, asked.only, last < page.total)
    larger = tag("button", say("preview.larger"), type="button", class_="quiet-push", data_larger="block-data",
                 aria_pressed="false")  # fmt: skip
    pager = tag("div", earlier, later, larger, class_="pager", role="toolbar", aria_label=say("preview.pager"))
    return join(*notes, rows, tag("div", words, pager, class_="preview-foot"))


def only_view(title: str, count: int) -> Markup:
    """Says that only a finding's rows are shown, with the button to show all."""
    if not title:
        return Markup()
    words = tag("span", say("preview.only", title=title, count=f"{count:,}"))
    back = push(say("preview.all"), "preview", {"offset": 0, "only": ""})
    return tag("p", icon("search"), words, back, class_="only", role="status")


def _turn(words: str, offset: int, only: str, possible: bool) -> Markup:
    return push(say(words), "preview", {"offset": max(0, offset), "only": only}, disabled=not possible)


def _by_row(rows: Sequence[PreviewRow]) -> list[tuple[PreviewRow, ...]]:
    """The two sides of a pair together, every other row alone."""
    found: list[tuple[PreviewRow, ...]] = []
    for row in rows:
        if row.side == "rejected" and found:
            found[-1] = (*found[-1], row)
        else:
            found.append((row,))
    return found


def _pair(chosen: PreviewRow, rejected: PreviewRow) -> Markup:
    """A preference row: what both sides begin with, then its two answers beside each other."""
    both = zip(chosen.spans, rejected.spans, strict=False)
    shared = sum(1 for _ in takewhile(lambda sides: sides[0] == sides[1] and sides[0].kind != "trained", both))
    head = tag("div", tag("b", say("data.row", row=f"{chosen.row:,}")), class_="row-head")
    answers = (
        tag("div", tag("div", tag("b", say(f"preview.side.{row.side}")), *_counts(row), class_="row-head"),
            _text(row.spans[shared:]), class_=f"answer {row.side}")
        for row in (chosen, rejected)
    )  # fmt: skip
    prompt = _text(chosen.spans[:shared]) if shared else None
    return tag("li", head, prompt, tag("div", *answers, class_="pair"))


def _row(row: PreviewRow) -> Markup:
    parts = [tag("b", say("data.row", row=f"{row.row:,}"))]
    if row.mark is not None:
        parts.append(mark_chip(row.mark))
    parts += [label_chip(label) for label in row.labels]
    head = tag("div", *parts, *_counts(row), class_="row-head")
    return tag("li", head, _text(row.spans))


def _counts(row: PreviewRow) -> list[Markup]:
    avoided = row.side == "rejected" or row.mark is False
    labelled = row.labels and not row.trained_tokens
    counted = "preview.counts.avoided" if avoided else "preview.counts.label" if labelled else "preview.counts"
    counts = say(counted, tokens=f"{row.tokens:,}", trained=f"{row.trained_tokens:,}")
    means = say("preview.counts.avoided.means") if avoided else None
    cut = tag("span", say("preview.cut_tokens", count=f"{row.cut_tokens:,}"), class_="cut-count")
    return [tag("span", counts, title=means), *([cut] if row.cut_tokens else [])]


def _text(spans: Sequence[Span]) -> Markup:
    pieces = (
        tag("span", one.text.replace("\n", "⏎\n") if one.kind == "special" else one.text,
            class_=f"token {one.kind}{' differs' if one.differs else ''}")
        for one in spans
    )  # fmt: skip
    return tag("p", *pieces, class_="row-text")
