"""The comparison from top to bottom: groups of rows, checks, answers, forgetting, what moved."""

from collections.abc import Sequence

from core.report.schema import Answers, Figure, Forgetting, Group, Moved, Tally
from studio.figures.pictures import Axis, columns, marks
from studio.figures.run_figures import UNKNOWN
from studio.pages.report.compared.runs import Compared, alike, glance
from studio.pages.report.sections.answers import OPENED, asked, column
from studio.pages.report.sections.held_out import group_name
from studio.pages.report.sections.moved import layer_norms, summary
from studio.pages.report.sections.rest import set_name
from studio.pages.report.sections.tables import body, changed, ends_of, named, row, section, table
from studio.pages.report.view import check_words, number
from studio.pages.report.words import say
from studio.shell.markup import Markup, join, tag


def together(runs: Sequence[Compared]) -> Markup:
    """All sections that at least one of the reports has."""
    parts = (glance(runs), _groups(runs), _checks(runs), _answers(runs), _forgetting(runs), _moved(runs))
    return tag("div", *(part for part in parts if part is not None), class_="report compared")


def _groups(runs: Sequence[Compared]) -> Markup | None:
    """Each group of held-out rows with every run's loss on one axis."""
    found: dict[tuple[str, str], list[Group | None]] = {}
    for place, run in enumerate(runs):
        for group in run.report.held_out.groups if run.report.held_out else ():
            found.setdefault((group.by, group.name), [None] * len(runs))[place] = group
    by: dict[str, list[list[Group | None]]] = {}
    for (kind, _), groups in found.items():
        by.setdefault(kind, []).append(groups)
    shown = {kind: lines for kind, lines in by.items() if len(lines) > 1}
    if not shown:
        return None
    values = [value for lines in shown.values() for groups in lines for one in groups if one for value in _values(one)]
    axis = Axis.over(values)
    bodies = (
        body((_group(groups, runs, axis) for groups in lines), say(f"report.by.{kind}"))
        for kind, lines in shown.items()
    )
    head = (say("report.rows"), axis.labels(), say("report.compared.after"))
    return section("held_out", say("report.part.held_out"), table(say("report.part.held_out"), head, *bodies))


def _values(group: Group) -> tuple[float | None, float]:
    return (group.before.value if group.before else None), group.after.value


def _group(groups: Sequence[Group | None], runs: Sequence[Compared], axis: Axis) -> Markup:
    one = next(group for group in groups if group)
    starts = {round(group.before.value, 3) for group in groups if group and group.before}
    before = starts.pop() if len(starts) == 1 else None  # of other models or rows it is another one
    places = [(group.after.value if group else None, run.tone) for group, run in zip(groups, runs, strict=True)]
    name = named(group_name(one), say("report.count.rows", rows=f"{one.rows:,}"))
    return row(name, marks(axis, places, before), _by_run([group.after if group else None for group in groups], runs))


def _by_run(figures: Sequence[Figure | None], runs: Sequence[Compared]) -> Markup:
    """A value a run, each behind its letter; the lowest is marked where they can be ranked."""
    values = {figure.value for figure in figures if figure}
    least = min(values) if len(values) > 1 and alike(runs) else None
    lines = []
    for figure, run in zip(figures, runs, strict=True):
        lowest = figure is not None and figure.value == least
        lines.append(tag("span", run.head, tag("b" if lowest else "span", number(figure.value if figure else None))))
    return tag("span", *lines, class_="by-run")


def _checks(runs: Sequence[Compared]) -> Markup | None:
    """Each check and how many answers of every run pass it."""
    found: dict[str, list[Tally | None]] = {}
    for place, run in enumerate(runs):
        for tally in run.report.answers.tallies if run.report.answers else ():
            if tally.of:
                found.setdefault(tally.check.model_dump_json(), [None] * len(runs))[place] = tally
    if not found:
        return None
    lines = []
    for tallies in found.values():
        check = next(one.check for one in tallies if one)
        lines.append(row(named(check.name, check_words(check)), *(_passed(one) for one in tallies)))
    head = (say("report.check"), *(run.head for run in runs))
    return section("checks", say("report.checks"), table(say("report.checks"), head, body(lines), kind="of-runs"))


def _passed(tally: Tally | None) -> str:
    if tally is None:
        return UNKNOWN
    before = "" if tally.passed_before is None else f"{tally.passed_before} → "
    return say("report.of", ends=f"{before}{tally.passed_after}", of=tally.of)


def _answers(runs: Sequence[Compared]) -> Markup | None:
    """Prompts that at least two of the runs answered: the original once for each model, then every run."""
    found: dict[tuple[int, str], dict[int, Answers]] = {}
    for place, run in enumerate(runs):
        for one in run.report.answers.rows if run.report.answers else ():
            found.setdefault((one.row, one.prompt), {})[place] = one
    both = [(prompt, answers) for (_, prompt), answers in found.items() if len(answers) > 1]
    if not both:
        return None
    lines = (_answer(prompt, answers, runs, place) for place, (prompt, answers) in enumerate(both))
    return section("answers", say("report.part.answers"), tag("div", *lines, class_="report-answers-list"))


def _answer(prompt: str, answers: dict[int, Answers], runs: Sequence[Compared], place: int) -> Markup:
    first = next(iter(answers.values()))
    shown, models = [column("right", say("report.reference"), first.reference)] if first.reference else [], set()
    for at, one in answers.items():
        run = runs[at]
        if one.before is not None and run.report.model not in models:
            models.add(run.report.model)
            shown.append(column("base", say("report.base"), one.before, one.cut_before))
        shown.append(column(run.tone, f"{run.letter} · {run.title}", one.after, one.cut_after))
    return asked(first.row, prompt, tag("div", *shown, class_="answers"), opened=place < OPENED)


def _forgetting(runs: Sequence[Compared]) -> Markup | None:
    """Each set of texts that runs were measured on."""
    found: dict[str, list[tuple[Compared, Forgetting]]] = {}
    for run in runs:
        for one in run.report.forgetting:
            found.setdefault(one.name, []).append((run, one))
    if not found:
        return None
    sets = []
    for ones in found.values():
        axis = Axis.over(ends_of(one for _, one in ones))
        told = (tag("span", say("report.kl", kl=number(one.kl.value)), class_="hint") for _, one in ones)
        rows = (changed(one, join(run.head, kl), axis) for (run, one), kl in zip(ones, told, strict=True))
        name = set_name(ones[0][1])
        sets.append(table(name, (name, axis.labels(), say("report.head.change")), body(rows)))
    return section("forgetting", say("report.part.forgetting"), *sets)


def _moved(runs: Sequence[Compared]) -> Markup | None:
    """The update of each layer, all runs on one scale."""
    known: list[tuple[Compared, Moved]] = [(run, run.report.moved) for run in runs if run.report.moved]
    norms = [layer_norms(part) for _, part in known]
    most = max((norm for ones in norms for norm, _ in ones), default=0.0)
    if most <= 0:
        return None
    lines = (
        row(run.head, columns(ones, most, 44, run.tone), tag("span", summary(part), class_="hint"))
        for (run, part), ones in zip(known, norms, strict=True)
    )
    head = ("", say("report.moved.layers"), "")
    return section(
        "moved", say("report.part.moved"), table(say("report.part.moved"), head, body(lines), kind="drawn-rows strips")
    )
