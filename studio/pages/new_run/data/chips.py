"""What is learned of rows: marks and labels as chips with their counts, what labels are learned as, how they are
balanced, and the methods that take the rows."""

from zlib import crc32

from core.contract.config import RunConfig
from core.contract.data import DataReport, Labels, Marks
from core.contract.methods import METHODS, methods_for
from core.contract.tasks import Problem
from core.data.read.labels import LABELS_KEPT, PROBLEMS, fitting
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.shell.explained import leads_to
from studio.shell.markup import Markup, icon, join, push, tag

_LONGEST_LABEL = 40
_HUES = 24
_LABELS_SHOWN = 5
_RARE = 0.5
"""Labels with less than this share of the rows that each would have if all had as many."""


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


def classes_view(report: DataReport, trained: RunConfig | None = None) -> Markup:
    """The marks of a file's rows, or its labels with a bar each; ``trained``: the config, which may learn them."""
    marks = _marks(report.marks) if report.marks else None
    learned = trained if trained and trained.learning.labelled else None
    return join(marks, _labels(report.labels, learned) if report.labels else None)


def _marks(marks: Marks) -> Markup:
    counts = []
    for mark, count in zip((True, False), marks.rows, strict=True):
        share = f"{100 * count / max(1, sum(marks.rows)):.0f}"
        counts += [mark_chip(mark), tag("span", say("data.marks", count=f"{count:,}", share=share), class_="count")]
    written = say("data.marks.written", good=", ".join(marks.good) or "–", bad=", ".join(marks.bad) or "–")
    return tag("p", *counts, tag("span", written, class_="hint"), class_="marks")


def _labels(labels: Labels, trained: RunConfig | None) -> Markup:
    problem = problem_of(labels, trained) if trained else None
    if labels.kind == "number" and problem in (None, "regression"):
        line = tag("p", say("data.labels.number"), class_="label-line")
        return join(line, _problems(labels, problem) if problem else None)
    kind = "several" if labels.kind == "several labels" else "one"
    most = max(labels.counts.values(), default=1)
    usual = sum(labels.counts.values()) / max(1, len(labels.counts)) if problem != "regression" else 0.0
    rare = {label for label, count in labels.counts.items() if count < _RARE * usual}
    rows = []
    for label, count in labels.counts.items():
        bar = tag("i", style=f"width:{100 * count / most:.1f}%;{_hue(label)}")
        drawn = tag("span", bar, class_="label-bar", aria_hidden="true")
        told = say("data.labels.row" if count == 1 else "data.labels.rows", count=f"{count:,}")
        mark = tag("em", say("data.labels.rare")) if label in rare else None
        rows.append(tag("li", label_chip(label), drawn, tag("span", told, mark, class_="count")))
    first = tag("ul", *rows[:_LABELS_SHOWN], class_="label-counts")
    words = tag("p", say(f"data.labels.{kind}", distinct=f"{labels.distinct:,}"), class_="label-line")
    if trained and problem:
        words = _problems(labels, problem) or words
    if trained and rare:
        on = trained.train.class_weights == "balanced"
        button = push(say("data.labels.balance"), "change", {"train.class_weights": "none" if on else "balanced"},
                      aria_pressed="true" if on else "false")  # fmt: skip
        words = join(words, tag("p", tag("span", say("data.labels.balance.why")), button, class_="origin"))
    if len(rows) <= _LABELS_SHOWN:
        return join(words, first)
    more = f"{labels.distinct - _LABELS_SHOWN:,}" if labels.distinct <= LABELS_KEPT else f"{len(rows):,}"
    rest = tag("ul", *rows[_LABELS_SHOWN:], class_="label-counts")
    folded = tag("details", tag("summary", say("data.labels.more", count=more)), rest, class_="more-labels",
                 data_keep="labels")  # fmt: skip
    return join(words, first, folded)


def problem_of(labels: Labels, trained: RunConfig) -> Problem:
    """What the labels are learned as."""
    asked = trained.train.problem_type
    return PROBLEMS[labels.kind] if asked == "auto" else asked


def _problems(labels: Labels, problem: Problem) -> Markup | None:
    """What the labels can be learned as, the chosen one pressed; what was read leaves the choice to the file."""
    choices = fitting(labels)
    if len(choices) < 2:
        return None
    buttons = (
        push(say(f"data.labels.as.{one}", distinct=f"{labels.distinct:,}"), "change",
             {"train.problem_type": "auto" if one == PROBLEMS[labels.kind] else one},
             aria_pressed="true" if one == problem else "false")
        for one in choices
    )  # fmt: skip
    name = tag("b", say("data.labels.as"), id="problems-label")
    return tag("div", name, *buttons, role="group", aria_labelledby="problems-label", class_="methods problems-as")


def methods_view(view: View) -> Markup | None:
    """The methods as buttons, the one that trains pressed; None where there is nothing to choose.

    The rows' own method leaves the choice to the data, so that another file gets its own.
    """
    if view.report is None:
        return None
    fitting, chosen = methods_for(view.report.layout), METHODS[view.method]
    if len(fitting) == 1 and not view.lacks_rows:
        return None
    buttons = (
        push(METHODS[name].title, "change", {"method": "auto" if name == view.report.method else name},
             aria_pressed="true" if name == view.method else "false")
        for name in fitting
    )  # fmt: skip
    label = tag("b", say("method.label"), id="methods-label")
    choice = tag("div", label, *buttons, role="group", aria_labelledby="methods-label", class_="methods")
    when = say.get(f"method.{view.method}.{view.report.layout}") or say(f"method.{view.method}")
    more = leads_to(chosen.term or view.method, say("method.more", title=chosen.title))
    about = tag("p", when, " ", more, class_="hint") if view.method in fitting else None
    return tag("div", choice, about, id="data-methods")
