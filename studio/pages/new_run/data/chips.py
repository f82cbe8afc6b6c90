"""Marks and labels of rows: as chips in the preview, and how many rows have each under the file's report."""

from zlib import crc32

from core.contract.data import DataReport, Labels, Marks
from core.data.read.labels import LABELS_KEPT
from studio.pages.new_run.words import say
from studio.shell.markup import Markup, icon, join, tag

_LONGEST_LABEL = 40
_HUES = 24
_LABELS_SHOWN = 5


def mark_chip(mark: bool) -> Markup:
    """A mark in a word, a sign and a colour."""
    name = "good" if mark else "bad"
    return tag("span", icon("check" if mark else "warning"), say(f"preview.mark.{name}"), class_=f"chip mark-{name}")


def label_chip(label: str) -> Markup:
    """A label, in a colour that it has everywhere."""
    shown = label if len(label) <= _LONGEST_LABEL else f"{label[:_LONGEST_LABEL]}…"
    return tag("span", shown, class_="chip label", style=_hue(label), title=label)


def _hue(label: str) -> str:
    return f"--hue:{360 // _HUES * (crc32(label.encode('utf-8', 'replace')) % _HUES)}"


def classes_view(report: DataReport) -> Markup:
    """The marks of a file's rows, or its labels with a bar each."""
    marks = _marks(report.marks) if report.marks else None
    return join(marks, _labels(report.labels) if report.labels else None)


def _marks(marks: Marks) -> Markup:
    counts = []
    for mark, count in zip((True, False), marks.rows, strict=True):
        share = f"{100 * count / max(1, sum(marks.rows)):.0f}"
        counts += [mark_chip(mark), tag("span", say("data.marks", count=f"{count:,}", share=share), class_="count")]
    written = say("data.marks.written", good=", ".join(marks.good) or "–", bad=", ".join(marks.bad) or "–")
    return tag("p", *counts, tag("span", written, class_="hint"), class_="marks")


def _labels(labels: Labels) -> Markup:
    if labels.kind == "number":
        return tag("p", say("data.labels.number"), class_="label-line")
    kind = "several" if labels.kind == "several labels" else "one"
    most = max(labels.counts.values(), default=1)
    rows = []
    for label, count in labels.counts.items():
        bar = tag("i", style=f"width:{100 * count / most:.1f}%;{_hue(label)}")
        drawn = tag("span", bar, class_="label-bar", aria_hidden="true")
        told = say("data.labels.row" if count == 1 else "data.labels.rows", count=f"{count:,}")
        rows.append(tag("li", label_chip(label), drawn, tag("span", told, class_="count")))
    first = tag("ul", *rows[:_LABELS_SHOWN], class_="label-counts")
    words = tag("p", say(f"data.labels.{kind}", distinct=f"{labels.distinct:,}"), class_="label-line")
    if len(rows) <= _LABELS_SHOWN:
        return join(words, first)
    more = f"{labels.distinct - _LABELS_SHOWN:,}" if labels.distinct <= LABELS_KEPT else f"{len(rows):,}"
    rest = tag("ul", *rows[_LABELS_SHOWN:], class_="label-counts")
    folded = tag("details", tag("summary", say("data.labels.more", count=more)), rest, class_="more-labels",
                 data_keep="labels")  # fmt: skip
    return join(words, first, folded)
