"""One row as the model will see it, beside the table of rows."""

from collections.abc import Sequence
from itertools import takewhile

from core.contract.data import Preview, PreviewRow, Span
from studio.pages.new_run.data.chips import label_chip, mark_chip
from studio.pages.new_run.words import say
from studio.shell.markup import Markup, join, tag

KINDS = ("trained", "avoided", "read", "special", "cut", "differs")


def keys_view() -> Markup:
    """What the colors mean; ``data_table.css`` shows those that occur."""
    keys = (tag("span", say(f"preview.{kind}"), class_=f"token {kind}") for kind in KINDS)
    return tag("p", tag("span", say("preview.keys"), class_="sr-only"), *keys, class_="keys")


def row_view(page: Preview) -> Markup:
    """A row with colored token kinds and counts; nothing where it is not trained on."""
    notes = (tag("p", note, class_="hint") for note in page.notes)
    shown = [_pair(*sides) if sides[0].side == "chosen" else join(*map(_row, sides)) for sides in _by_row(page.rows)]
    if not shown:
        return join(*notes, tag("p", say("preview.none"), class_="hint"))
    template = tag("p", say("preview.template", template=page.template), class_="hint template")
    return join(*notes, tag("ol", *shown, class_="rows"), template)


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
