"""New run's outline: its headings and the machine, without the fields. It stands until Gradio has drawn the page.

The page takes its headings from here, so that nothing moves when the fields come.
"""

from core.machine.hardware import Machine
from studio.pages.new_run.words import say
from studio.services.session import Before
from studio.shell.markup import Markup, icon, join, push, tag

BLOCKS = ("data", "model", "train")


def outline(machine: Machine) -> Markup:
    """The whole page without its fields; Start says that it is loading."""
    sheets = (tag("section", block_head(name), class_=f"block-sheet outline-{name}") for name in BLOCKS)
    start = tag("button", say("start.opening"), type="button", disabled=True, class_="outline-start")
    status = tag("p", role="status", class_="quiet", data_away=say("start.away"))
    summary = tag("section", tag("h2", say("summary.title")), start, status, class_="summary-sheet")
    columns = (tag("div", summary, class_="new-run-summary"), tag("div", *sheets, class_="new-run-blocks"))
    return join(head_view(machine, anchor=None), tag("div", *columns, class_="new-run"))


def head_view(machine: Machine, anchor: str | None = "page") -> Markup:
    """The page's title and the machine as it is now."""
    title = tag("h1", say("new.title"), id=anchor, tabindex="-1")
    return tag("div", title, machine_view(machine), class_="page-head")


def draft_view(before: Before | None) -> Markup:
    """Says why other choices were replaced, with the button to take them back."""
    if before is None:
        return Markup()
    back = push(say(f"draft.{before.why}.take"), "draft")
    return tag("p", icon("info"), tag("span", say(f"draft.{before.why}")), back, class_="origin")


def block_head(name: str) -> Markup:
    """The number, the title and the purpose of a block."""
    number = tag("span", str(BLOCKS.index(name) + 1), class_="number", aria_hidden="true")
    return tag("div", tag("h2", number, say(f"{name}.title")), tag("p", say(f"{name}.about")), class_="block-head")


def machine_view(machine: Machine) -> Markup:
    """The hardware to train on, in one strip."""
    facts = [
        _chip_fact(machine),
        _fact("memory", say("machine.ram", free=_gb(machine.ram_free_bytes), total=_gb(machine.ram_total_bytes))),
    ]
    if machine.disk_free_bytes is not None:
        facts.append(_fact("disk", say("machine.disk", free=_gb(machine.disk_free_bytes))))
    if machine.wsl:
        facts.append(_fact("info", "WSL"))
    return tag("div", *facts, class_="machine", role="group", aria_label=say("machine.title"))


def _chip_fact(machine: Machine) -> Markup:
    card = machine.gpu
    if card is None:
        words = join(tag("strong", say("machine.none")), " ", say("machine.none.means"))
        return tag("span", icon("chip"), tag("span", words), class_="machine-fact", title=machine.gpu_problem or None)
    arithmetic = "bf16" if card.bf16 else "fp16"
    if card.free_bytes is None or card.total_bytes is None:
        return _fact("chip", join(tag("strong", card.name), " ", arithmetic))
    free = say("machine.vram", free=_gb(card.free_bytes), total=_gb(card.total_bytes))
    return _fact("chip", join(tag("strong", card.name), " ", free, " · ", arithmetic))


def _fact(picture: str, words: object) -> Markup:
    return tag("span", icon(picture), tag("span", words), class_="machine-fact")


def _gb(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB"
