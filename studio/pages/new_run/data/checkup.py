"""The data doctor, the third panel of the Data block: findings in the rows, each with its rows and its fix.

A fix writes a new data set and switches to it; the report line leads back to the file.
"""

from core.contract.data import Checkup, Finding
from core.contract.errors import Fault
from studio.pages.new_run.data.sources import working_view
from studio.pages.new_run.data.table import title_of, wish
from studio.pages.new_run.words import say
from studio.shell.markup import Markup, fault, icon, join, push, tag

_ORDER = {"fault": 0, "warning": 1, "note": 2}
_ICONS = {"fault": "warning", "warning": "warning", "note": "info"}
_LANGUAGES = 6


def checkup_view(checkup: Checkup | Fault | None, rows: int = 0, progress: tuple[int, ...] | None = None) -> Markup:
    """The findings, the progress of the examination, or the button that begins it."""
    begin = push(say("doctor.data.begin", rows=f"{rows:,}"), "examine")
    if progress is not None:
        done, total = (*progress, 0, 0)[:2]
        counted = say("doctor.data.running", done=f"{done:,}", total=f"{total:,}")
        return working_view(counted if total else say("doctor.data.starting"), done, total, "examine")
    if isinstance(checkup, Fault):
        return join(fault(checkup), begin)
    if checkup is None:
        return join(tag("p", say("doctor.data.about"), class_="quiet"), begin) if rows else Markup()
    if not checkup.findings:
        head = tag("p", icon("check"), tag("span", say("doctor.data.clean", rows=f"{checkup.rows:,}")), class_="clean")
        return join(head, _languages(checkup.languages))
    ordered = sorted(checkup.findings, key=lambda finding: _ORDER[finding.level])
    counts = {level: sum(finding.level == level for finding in checkup.findings) for level in _ORDER}
    levels = ", ".join(say(f"doctor.data.{level}", count=count) for level, count in counts.items() if count)
    head = tag("p", say("doctor.data.counts", rows=f"{checkup.rows:,}", levels=levels), class_="quiet")
    return join(head, tag("ul", *map(_finding, ordered), class_="data-findings"), _languages(checkup.languages))


def tab_words(checkup: Checkup | Fault | None) -> str:
    """The panel's name on its tab, with the number of findings above a note."""
    serious = sum(one.level != "note" for one in checkup.findings) if isinstance(checkup, Checkup) else 0
    return say("panel.doctor.count", count=serious) if serious else say("panel.doctor")


def _finding(finding: Finding) -> Markup:
    """One finding, with its rows and its fix."""
    title, count, first = title_of(finding.code), f"{finding.count:,}", f"{len(finding.rows):,}"
    level = tag("span", say(f"doctor.level.{finding.level}"), class_="sr-only")
    parts = [tag("p", level, tag("strong", f"{title}."), " ", finding.text)]
    buttons = []
    if finding.rows:
        all_shown = finding.kept or len(finding.rows) >= finding.count
        which = ".one" if finding.count == 1 else "" if all_shown else ".first"
        words = say(f"doctor.data.rows{which}", count=count, first=first)
        name = say("doctor.data.rows.name", count=count, title=title)
        buttons.append(wish(words, {"finding": finding.code}, aria_label=name))
    if finding.fix:
        words = finding.fix_text or say(f"doctor.fix.{finding.fix}")
        buttons.append(push(words, "source", {"fix": finding.code}, title=say("doctor.fix.means")))
    if buttons:
        parts.append(tag("p", *buttons, class_="finding-buttons"))
    return tag("li", icon(_ICONS[finding.level]), tag("div", *parts), class_=f"data-finding level-{finding.level}")


def _languages(shares: dict[str, float]) -> Markup | None:
    """The mix of languages as one small bar with words; nothing for one language."""
    if len(shares) < 2:
        return None
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    rest = sum(share for _, share in ordered[_LANGUAGES:])
    bars, words = [], []
    for index, (name, share) in enumerate([*ordered[:_LANGUAGES], *([(say("languages.other"), rest)] if rest else [])]):
        percent = f"{100 * share:.0f}%" if share >= 0.01 else "<1%"
        bars.append(tag("i", class_=f"tone-{index}", style=f"width:{100 * share:.1f}%"))
        words.append(tag("li", tag("i", class_=f"tone-{index}"), name, tag("b", percent)))
    title = tag("h4", say("languages.title"))
    return tag("div", title, tag("div", *bars, class_="language-bar", aria_hidden="true"),
               tag("ul", *words, class_="language-words"), class_="languages")  # fmt: skip
