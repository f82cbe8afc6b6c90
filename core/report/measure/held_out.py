"""Losses of held-out rows before and after, by source, language, length and label."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite
from pathlib import Path
from typing import Any

from torch.nn.functional import logsigmoid

from core.contract.errors import DataError
from core.data.doctor.findings.languages import language_of
from core.data.doctor.findings.text_words import words_of
from core.data.files.admission import admitted, named
from core.data.read.examples import open_reading
from core.machine.locations import Locations
from core.model.scores import ScoreModel, row_losses
from core.report.measure.budget import Slot
from core.report.measure.subject import Paired, Subject
from core.report.schema import BAD, GOOD, Change, Group, GroupKind, HeldOut, RowLoss
from core.report.statistics import BOOTSTRAP, LEAST, compared, mean, share
from core.train.evaluate.sample import readable
from core.train.step.rows import LabelRows, Rows

SOURCES = ("source", "dataset", "subset", "category", "task", "topic", "domain")
"""Columns that say where a row is from, the first that the file has; training reads none of them."""
_MOST_GROUPS = 12
_MOST_IN_GROUP = 8
_LENGTHS = ((64, "1–64"), (256, "65–256"), (1024, "257–1,024"), (4096, "1,025–4,096"), (inf, "4,097 and more"))
_LISTED = 8
_SHOWN = 200
_OPPOSITE: dict[Change, Change] = {"better": "worse", "worse": "better", "same": "same"}


@dataclass(frozen=True)
class Loss:
    """A row's summed loss, what it is divided by, and whether the row is answered right."""

    total: float
    weight: float
    right: bool | None = None


def groups_of(subject: Subject, rows: Rows, order: Sequence[int]) -> list[list[int]]:
    """Rows that are measured in one pass, in their order: as many tokens as a micro-batch of the training had."""
    groups: list[list[int]] = []
    room = 0
    for row in order:
        length = rows.length(row)
        if not groups or length > room or len(groups[-1]) == _MOST_IN_GROUP:
            groups.append([])
            room = subject.config.train.tokens_per_pass
        groups[-1].append(row)
        room -= length
    return groups


def measurer(subject: Subject, rows: Rows) -> Callable[[Sequence[int]], list[Loss | None]]:
    """How some rows are measured: of pairs the chosen answer, right where it is the likelier one a token."""
    if subject.trained.outputs:
        return _scored(subject, rows)

    def measure(chosen: Sequence[int]) -> list[Loss | None]:
        sequences = [rows.sequences(row) for row in chosen]
        found = iter(subject.losses([one for sides in sequences for one in sides]))
        return [_loss([next(found) for _ in sides]) for sides in sequences]

    return measure


def _loss(sides: Sequence[tuple[float, int]]) -> Loss | None:
    (total, count), *others = sides
    if not count or not isfinite(total):
        return None
    return Loss(total, count, total / count < others[0][0] / max(1, others[0][1]) if others else None)


def _scored(subject: Subject, rows: Rows) -> Callable[[Sequence[int]], list[Loss | None]]:
    model, outputs = ScoreModel(subject.model, dtype=subject.dtype), subject.trained.outputs
    assert outputs is not None

    def measure(chosen: Sequence[int]) -> list[Loss | None]:
        logits = model(**subject.batch([one for row in chosen for one in rows.sequences(row)]))
        if not isinstance(rows, LabelRows):
            leads = (logits[0::2] - logits[1::2]).view(-1)
            return [Loss(float(-logsigmoid(lead)), 1.0, bool(lead > 0)) if lead.isfinite() else None for lead in leads]
        targets = rows.targets(chosen).to(logits.device)
        rights: Sequence[Any] = {
            "single_label_classification": lambda: (logits.argmax(1) == targets).tolist(),
            "multi_label_classification": lambda: ((logits > 0) == (targets > 0.5)).all(1).tolist(),
            "regression": lambda: [None for _ in chosen],
        }[outputs.problem]()
        losses = row_losses(logits, targets, outputs.problem).tolist()
        return [Loss(loss, 1.0, right) if isfinite(loss) else None for loss, right in zip(losses, rights, strict=True)]

    return measure


def held_out(subject: Subject, slot: Slot) -> tuple[HeldOut | None, int, int]:
    """What was measured, how many rows of how many."""
    data = subject.data
    if data is None or not len(data.held_out):
        return None, 0, 0
    rows, order = data.held_out, subject.drawn(len(data.held_out))
    measure, found = measurer(subject, rows), []
    with subject.in_tiles(rows, order):
        for one in subject.paired(groups_of(subject, rows, order), measure, slot):
            found.append(one)
            subject.tell.stage("measuring", "Held-out rows", len(found), len(order), "rows")
    if not found:
        return None, 0, len(order)
    good = [one for one in found if rows.good(one.item)] or found
    rights = [(one.after.right, one.before and one.before.right) for one in good if one.after.right is not None]
    before = [earlier for _, earlier in rights if earlier is not None]
    lines = [_line(subject, rows, one) for one in good]
    risen = [line for line in lines if line.before is not None and line.after > line.before]
    outputs = subject.trained.outputs
    numbers = outputs and subject.config.learning.labelled and outputs.problem == "regression"
    part = HeldOut(
        unit="squared error" if numbers else "nats a row" if outputs else "nats a token",
        rows=len(good),
        tokens=int(sum(one.after.weight for one in good)),
        accuracy_after=share(sum(after for after, _ in rights), len(rights)) if rights else None,
        accuracy_before=share(sum(before), len(before)) if before else None,
        groups=_groups(subject, rows, found),
        worse=tuple(sorted(risen, key=lambda one: (one.before or 0.0) - one.after)[:_LISTED]),
        hardest=tuple(sorted(lines, key=lambda one: -one.after)[:_LISTED]),
        formula=BOOTSTRAP,
        **means(good),
    )
    return part, len(found), len(order)


def means(found: Sequence[Paired]) -> dict[str, Any]:
    """The mean ``after``; where there is something to compare with also ``before``, ``difference`` and ``change``."""
    after, weights = [one.after.total for one in found], [one.after.weight for one in found]
    if found[0].before is None:
        return {"after": mean(after, weights)}
    told = compared([one.before.total for one in found], after, weights)
    return {**vars(told), "change": told.change}


def _text(subject: Subject, rows: Rows, row: int) -> str:
    return readable(subject.tokenizer, rows.sequences(row)[0].ids.tolist())


def _line(subject: Subject, rows: Rows, one: Paired) -> RowLoss:
    return RowLoss(
        row=subject.numbers[one.item],
        tokens=rows.side_lengths(one.item)[0],
        before=one.before.total / one.before.weight if one.before else None,
        after=one.after.total / one.after.weight,
        text=" ".join(_text(subject, rows, one.item).split())[:_SHOWN],
    )


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _groups(subject: Subject, rows: Rows, found: Sequence[Paired]) -> tuple[Group, ...]:
    """By each property under which rows fall apart. Rows of bad answers are a group of their own alone: their loss is
    meant to rise."""
    good = [one for one in found if rows.good(one.item)]
    names: dict[GroupKind, Callable[[Paired], str]] = {}
    if sources := _sources(subject, {subject.numbers[one.item] for one in found}):
        names["source"] = lambda one: sources.get(subject.numbers[one.item], "")
    names["language"] = lambda one: _language(_text(subject, rows, one.item))
    names["length"] = lambda one: next(name for most, name in _LENGTHS if rows.side_lengths(one.item)[0] <= most)
    names["label"] = lambda one: rows.label(one.item)
    groups = [group for by, name in names.items() for group in grouped(by, good, name)]
    if good and len(good) < len(found):
        bad = [one for one in found if not rows.good(one.item)]
        turned = _group("label", BAD, bad)
        groups += [
            _group("label", GOOD, good),
            turned.model_copy(update={"change": _OPPOSITE[turned.change]}),
        ]
    return tuple(groups)


def grouped(by: GroupKind, found: Sequence[Paired], name_of: Callable[[Paired], str]) -> list[Group]:
    """The groups of one kind, the largest first, small ones together as "others"; none where all rows are alike."""
    members: dict[str, list[Paired]] = {}
    for one in found:
        members.setdefault(name_of(one) or "not sure", []).append(one)
    if len(members) < 2:
        return []
    ordered = sorted(members, key=lambda name: -len(members[name]))
    kept = [name for name in ordered[:_MOST_GROUPS] if len(members[name]) >= LEAST]
    rest = [one for name in ordered if name not in kept for one in members[name]]
    groups = [_group(by, name, members[name]) for name in kept]
    return groups + ([_group(by, "others" if kept else "all", rest)] if rest and kept else [])


def _group(by: GroupKind, name: str, found: Sequence[Paired]) -> Group:
    tokens = int(sum(one.after.weight for one in found))
    return Group(by=by, name=name[:80], rows=len(found), tokens=tokens, **means(found))


def _language(text: str) -> str:
    return language_of(text, words_of(text))


def _sources(subject: Subject, wanted: set[int]) -> dict[int, str]:
    """By row number what the file's column of sources says; empty where it has none, or the file is gone."""
    path, home = Path(subject.config.data.path), Locations.find().home
    try:
        place = admitted(path, home)
        reading = open_reading(place, subject.config.data, named(path, place))
        column = next((name for name in SOURCES if name in reading.columns), "")
        if not column or column in reading.recognised.mapping.values():
            return {}
        found = {}
        for record in islice(reading.source.records(), max(wanted, default=0)):
            subject.safe_point()
            if record.row in wanted and not record.fault:
                found[record.row] = str(record.values.get(column) or "")[:80]
    except (DataError, OSError, UnicodeDecodeError):
        return {}
    return found
