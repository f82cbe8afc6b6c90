"""What each column is, in a person's words. Layouts call one thing by several names (``prompt``, ``instruction``); here
it has one, and the layout follows from what was chosen."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.contract.config import DataChoice, Layout
from core.contract.rows import RoleGuess
from core.data.read.cells import JOIN
from core.data.read.layouts import columns_in
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.shell.markup import Markup, icon, push, tag


class _Form(NamedTuple):
    """A layout's roles with their words, and which words are enough for it."""

    words: dict[str, str]
    enough: tuple[tuple[str, ...], ...]


_SYSTEM, _ASKED = {"system": "system"}, (("question", "answer"),)
FORMS: dict[Layout, _Form] = {
    "prompt_completion": _Form({"prompt": "question", "completion": "answer", **_SYSTEM}, _ASKED),
    "alpaca": _Form({"instruction": "question", "input": "context", "output": "answer", **_SYSTEM}, _ASKED),
    "messages": _Form({"messages": "conversation", **_SYSTEM, "tools": "tools"}, (("conversation",),)),
    "sharegpt": _Form({"conversations": "conversation", **_SYSTEM, "tools": "tools"}, (("conversation",),)),
    "preference": _Form(
        {
            "prompt": "question",
            "input": "context",
            "conversations": "conversation",
            "chosen": "chosen",
            "rejected": "rejected",
            "margin": "margin",
            **_SYSTEM,
        },
        (("chosen", "rejected"),),
    ),
    "kto": _Form(
        {"messages": "conversation", "prompt": "question", "completion": "answer", "label": "mark", **_SYSTEM},
        (("question", "answer", "mark"), ("conversation", "mark")),
    ),
    "classification": _Form({"text": "text", "text_pair": "second_text", "label": "label"}, (("text", "label"),)),
    "text": _Form({"text": "text"}, (("text",),)),
}
"""In the order in which they are thought of."""
WORDS = (
    "question", "context", "answer", "system", "conversation", "chosen", "rejected", "mark", "text", "second_text",
    "label", "margin", "tools",
)  # fmt: skip
"""As a column's header offers them; "" leaves it out."""
JOINED = ("question", "context", "answer", "system", "chosen", "rejected", "text", "second_text")
"""Those that several columns may have: their texts are joined in the order of the columns."""


def words_of(layout: str, columns: Mapping[str, str], names: Sequence[str] = ()) -> dict[str, str]:
    """Columns with their words, those that are joined one by one; none where the layout is not known yet. ``names`` are
    the file's columns."""
    form = FORMS.get(layout)  # type: ignore[call-overload]
    known = [(role, column) for role, column in columns.items() if column and role in form.words] if form else []
    return {one: form.words[role] for role, column in known for one in columns_in(column, names)}


def shown_words(view: View) -> dict[str, str]:
    """What the headers say: as the file is read, else as it was chosen so far, else nothing."""
    if view.report is not None:
        return words_of(view.report.layout, view.report.mapping, _names(view))
    return words_of(view.config.data.layout, view.config.data.columns, _names(view))


def _names(view: View) -> Sequence[str]:
    """The file's columns, in their order, those within objects one by one where that is known."""
    if view.guess is not None and view.guess.samples:
        return tuple(view.guess.samples)
    return view.report.columns if view.report is not None else ()


def given(view: View, column: str, word: str) -> DataChoice:
    """The choice with another word for one column. It is joined to the column that had the word, or takes its place
    where the word is of one column; what does not go with it is left out."""
    shown, joins = shown_words(view), word in JOINED
    words = {other: its for other, its in shown.items() if other != column and (joins or its != word)}
    if word in WORDS:
        words[column] = word
    known = view.report.layout if view.report is not None else view.config.data.layout
    layout = _layout_of(set(words.values()), word, known)
    names = [*_names(view), *words]
    by_word: dict[str, list[str]] = {}
    for other in sorted(words, key=names.index):
        by_word.setdefault(words[other], []).append(other)
    # Every role is told: one that is not would be filled in by the usual names of columns.
    columns = {role: JOIN.join(by_word.get(its, ())) for role, its in FORMS[layout].words.items()}
    return view.config.data.model_copy(update={"layout": layout, "columns": columns})


def _layout_of(words: set[str], newest: str, known: str) -> Layout:
    """The layout of these words: one that has the newest, which they complete if they can."""

    def rank(layout: Layout) -> tuple[bool, int, bool, int]:
        form = FORMS[layout]
        held = words & set(form.words.values())
        complete = any(held >= set(enough) for enough in form.enough)
        needed = max(len(held & set(enough)) for enough in form.enough)
        return complete and held == words, len(held), layout == known, needed

    return max((layout for layout in FORMS if not newest or newest in FORMS[layout].words.values()), key=rank)


def taken(guess: RoleGuess, data: DataChoice) -> DataChoice:
    """The choice with the proposed columns."""
    layout = next((layout for layout in FORMS if layout == guess.layout), None)
    if layout is None:
        return data
    columns = {role: guess.roles.get(role, "") for role in FORMS[layout].words}
    return data.model_copy(update={"layout": layout, "columns": columns})


def missing(view: View) -> tuple[str, ...]:
    """The words that no column has and that the rows cannot be read without; nothing where they can be read."""
    if not view.unmapped:
        return ()
    had = set(words_of(view.config.data.layout, view.config.data.columns).values())
    form = FORMS.get(view.config.data.layout)
    choices = form.enough if form else _ASKED
    best = max(choices, key=lambda enough: len(had & set(enough)) - len(enough))
    return tuple(word for word in best if word not in had)


def question(view: View) -> str:
    """What Start asks for; "" where it need not."""
    if not view.unmapped:
        return ""
    if proposed(view) is not None:
        return say("roles.confirm")
    lacks = missing(view)
    return say("roles.which", role=say(f"role.{lacks[0]}")) if lacks else say("roles.others")


def proposed(view: View) -> RoleGuess | None:
    """The proposal for a file that nobody has mapped yet."""
    guess = view.guess
    return guess if guess and guess.layout in FORMS and not any(view.config.data.columns.values()) else None


def proposal_view(view: View) -> Markup | None:
    """The columns that are proposed, with their samples, and the button that takes them; else what is still asked."""
    if not view.unmapped:
        return None
    guess = proposed(view)
    if guess is None:
        return tag(
            "p", icon("info"), tag("span", question(view), " ", say("roles.how")), class_="origin", role="status"
        )
    lines = tag("ul", *_lines(guess), class_="role-lines")
    use = push(say("roles.use"), "roles", {"use": True})
    words = tag("p", say("roles.proposed"), class_="hint")
    return tag("div", tag("div", lines, words), use, class_="role-proposal", role="status")


def _lines(guess: RoleGuess) -> Iterable[Markup]:
    for column, word in words_of(guess.layout, guess.roles).items():
        arrow, sample = tag("span", "→", aria_hidden="true"), guess.samples.get(column, "")
        parts = (tag("b", column), arrow, tag("span", say(f"role.{word}"), class_="chip"))
        yield tag("li", *parts, tag("q", sample) if sample else None)
