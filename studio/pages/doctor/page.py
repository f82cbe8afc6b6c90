"""The doctor page: findings about this machine, each with its action; and the cached tokenised rows."""

from collections.abc import Sequence

from fastapi import APIRouter

from core.data.tokens.cache import Cached, clear_cached, list_cached
from core.machine.doctor.examine import examine
from core.machine.doctor.findings import MachineFinding
from studio.figures.run_figures import bytes_words, day_and_time
from studio.pages.doctor.words import say
from studio.services.services import Studio
from studio.shell.markup import Markup, icon, join, tag
from studio.shell.slots import button, live, slot

_ORDER = {"fault": 0, "advice": 1, "fine": 2}
_COMMANDS = ("sudo ", "pip ", "python3 ")
_ICONS = {"fault": "warning", "advice": "info", "fine": "check"}


def page(studio: Studio) -> Markup:
    """The page; opening it examines the machine."""
    findings = view(examine(studio.locations.home))
    return join(findings, cache_view(list_cached(studio.locations)))


def view(findings: Sequence[MachineFinding]) -> Markup:
    """All findings, faults first."""
    head = tag("h1", say("doctor.title"))
    about = tag("p", say("doctor.about"), class_="quiet")
    rows = (_row(finding) for finding in sorted(findings, key=lambda finding: _ORDER[finding.level]))
    return tag("section", head, about, tag("ul", *rows, class_="findings"), class_="doctor")


def cache_view(kept: Sequence[Cached]) -> Markup:
    """The cached tokenised rows, the last used first, and the button that deletes them."""
    head = tag("h2", say("cache.title"))
    about = tag("p", say("cache.about"), class_="about")
    line = slot("said", "p", role="status")
    if not kept:
        return live("doctor", {}, head, about, tag("p", say("cache.none")), line)
    total = say("cache.total", size=bytes_words(sum(one.bytes for one in kept)))
    names = ("file", "tokenizer", "rows", "tokens", "size", "used")
    columns = tag("tr", *(tag("th", say(f"cache.{name}"), scope="col") for name in names))
    rows = []
    for one in kept:
        cells = (one.tokenizer, f"{one.rows:,}", f"{one.tokens:,}", bytes_words(one.bytes), day_and_time(one.used))
        rows.append(tag("tr", tag("th", one.file, scope="row"), *(tag("td", cell) for cell in cells)))
    table = tag("table", tag("thead", columns), tag("tbody", *rows), class_="cached")
    shown = slot("kept", "div", tag("div", table, class_="scroll", tabindex="0", aria_label=say("cache.title")))
    foot = slot("foot", "p", tag("span", total), " ", button(say("cache.clear"), "quiet", data_f="clear"))
    return live("doctor", {}, head, about, shown, foot, line)


def _row(finding: MachineFinding) -> Markup:
    kind = "code" if finding.action.startswith(_COMMANDS) else "span"
    action = tag("p", tag("span", say("doctor.do")), tag(kind, finding.action)) if finding.action else None
    words = tag("div", tag("p", tag("strong", say(f"doctor.{finding.level}")), finding.text), action)
    return tag("li", icon(_ICONS[finding.level]), words, class_=f"finding {finding.level}")


def routes(studio: Studio) -> APIRouter:
    """``/studio/cache/clear``."""
    router = APIRouter(prefix="/studio")

    @router.post("/cache/clear")
    def clear() -> dict[str, str]:
        return {"said": say("cache.cleared", size=bytes_words(clear_cached(studio.locations)))}

    return router
