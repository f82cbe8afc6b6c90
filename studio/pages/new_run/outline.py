"""New run's outline: its headings and the machine, without the fields. It stands until Gradio has drawn the page.

The page takes its headings from here, so that nothing moves when the fields come.
"""

from collections.abc import Container, Sequence

from core.contract.errors import MachineError
from core.machine.hardware import Gpu, Machine
from studio.pages.new_run.words import say
from studio.services.session import Before
from studio.shell.markup import Markup, icon, join, push, tag

BLOCKS = ("data", "model", "train")


def outline(machine: Machine, cards: str = "", held: Container[int] = ()) -> Markup:
    """The whole page without its fields; Start says that it is loading. ``cards`` and ``held`` as in ``head_view``."""
    sheets = (tag("section", block_head(name), class_=f"block-sheet outline-{name}") for name in BLOCKS)
    start = tag("button", say("start.opening"), type="button", disabled=True, class_="outline-start")
    status = tag("p", role="status", class_="quiet", data_away=say("start.away"))
    summary = tag("section", tag("h2", say("summary.title")), start, status, class_="summary-sheet")
    columns = (tag("div", summary, class_="new-run-summary"), tag("div", *sheets, class_="new-run-blocks"))
    return join(head_view(machine, cards, held, anchor=None), tag("div", *columns, class_="new-run"))


def head_view(machine: Machine, cards: str = "", held: Container[int] = (), anchor: str | None = "page") -> Markup:
    """The page's title and the machine as it is now; of several cards those that are chosen (``train.cards``), and by
    number those that a run holds."""
    title = tag("h1", say("new.title"), id=anchor, tabindex="-1")
    return tag("div", title, machine_view(machine, cards, held), class_="page-head")


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


def machine_view(machine: Machine, cards: str = "", held: Container[int] = ()) -> Markup:
    """The hardware to train on, in one strip."""
    facts = [
        _cards_fact(machine, cards, held) if len(machine.gpus) > 1 else _chip_fact(machine),
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


def _cards_fact(machine: Machine, cards: str, held: Container[int]) -> Markup:
    """Several cards, each a button: of two the one or the other or both; of more any of them. One stop of the Tab key
    (``panels.js``), as Start follows."""
    numbers = [gpu.index for gpu in machine.gpus]
    try:
        chosen = [gpu.index for gpu in machine.choosing(cards or str(numbers[0])).gpus]
    except MachineError:  # cards of another machine
        chosen = []
    everyone = say("cards.both") if len(numbers) == 2 else say("cards.all", count=len(numbers))
    rows = [(_card_words(gpu, held), _after(numbers, chosen, gpu.index), gpu.index in chosen) for gpu in machine.gpus]
    stop = next((place for place, (_, _, on) in enumerate(rows) if on), 0)
    pushes = (
        push(words, "change", {"train.cards": ",".join(map(str, after))}, aria_pressed="true" if on else "false",
             tabindex=0 if place == stop else -1)
        for place, (words, after, on) in enumerate([*rows, (everyone, numbers, set(chosen) == set(numbers))])
    )  # fmt: skip
    group = tag("span", *pushes, class_="cards-switch", role="toolbar", aria_label=say("cards.title"))
    return tag("span", icon("chip"), tag("span", say("cards.title")), group, class_="machine-fact machine-cards")


def _after(numbers: Sequence[int], chosen: Sequence[int], pressed: int) -> list[int]:
    """The cards after a press: of two it alone, of more with or without it, and never none."""
    others = {*chosen} ^ {pressed}
    return [number for number in numbers if number in others] if len(numbers) > 2 and others else [pressed]


def _card_words(gpu: Gpu, held: Container[int]) -> Markup:
    state = ""
    if gpu.index in held:
        state = say("cards.held")
    elif gpu.free_bytes is not None and gpu.total_bytes is not None:
        state = say("machine.vram", free=_gb(gpu.free_bytes), total=_gb(gpu.total_bytes))
    return join(tag("b", gpu.title), " ", tag("span", state))


def _fact(picture: str, words: object) -> Markup:
    return tag("span", icon(picture), tag("span", words), class_="machine-fact")


def _gb(size: int) -> str:
    return f"{size / (1 << 30):.1f} GB"
