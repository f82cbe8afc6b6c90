"""The glossary: every word is used, explained once and briefly; knobs, command line, window and README read it there.

README's section is made anew by ``python3 launcher.py explain --markdown``.
"""

import re
from itertools import combinations

import pytest

from core.cli.commands import main
from core.cli.explain import README_WORDS, explain, listed, markdown
from core.contract.config import RunConfig
from core.contract.glossary.terms import Term
from core.contract.glossary.words import GLOSSARY, PARTS, called, plainly
from core.contract.knobs import knobs
from core.machine.locations import REPOSITORY
from studio.pages.glossary import page as page_of_words
from studio.pages.glossary.words import say
from studio.pages.new_run.train import GROUPS
from studio.pages.take_home import page as take_home
from studio.pages.try_it import page as try_it
from studio.pages.watch import page as watch

KNOBS = knobs(RunConfig)
README = (REPOSITORY / "README.md").read_text("utf-8")
BEGIN, END = "<!-- words: begin -->\n", "<!-- words: end -->"
SPOKEN = [
    path
    for pattern in (
        "studio/words/*.py",
        "studio/pages/*/words.py",
        "core/contract/config/*.py",
        "core/cli/commands.py",
        "core/estimate/*.py",
    )
    for path in REPOSITORY.glob(pattern)
]
"""Where what a person reads is written down."""
PAGES = "".join(str(page(None)) for page in (watch.page, try_it.page, take_home.page))  # type: ignore[arg-type]
LINKED = {part.key for part in PARTS if f"/glossary#part-{part.key}" in PAGES} | {"memory"}
"""Parts that another page leads to; ``memory`` from the summary, once there is an estimate."""

each_term = pytest.mark.parametrize("term", GLOSSARY.values(), ids=lambda term: term.key)


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_term_stands_once_and_no_two_answer_to_one_name() -> None:
    terms = [term for part in PARTS for term in part.terms]
    assert len(terms) == len(GLOSSARY)
    assert len({part.key for part in PARTS}) == len(PARTS)
    twice = [(a.key, b.key, called(a) & called(b)) for a, b in combinations(terms, 2) if called(a) & called(b)]
    assert twice == []


@each_term
def test_a_term_is_explained_and_its_neighbours_exist(term: Term) -> None:
    assert term.brief.endswith(".")
    assert term.more
    assert re.fullmatch(r"[a-z][a-z-]*", term.key)
    assert set(term.also) <= GLOSSARY.keys() - {term.key}


@each_term
def test_a_term_is_used_where_a_person_reads(term: Term) -> None:
    """Its name occurs in the window's words, the settings or the command line; and something leads to it."""
    words = plainly("".join(path.read_text("utf-8") for path in SPOKEN) + README.partition(BEGIN)[0])
    assert any(re.search(rf"\b{re.escape(name)}\b", words) for name in called(term)), "nobody says it: it can go"
    part = next(part.key for part in PARTS if term in part.terms)
    leading = {knob.term for knob in KNOBS.values()} | set(README_WORDS)
    near = {key for other in leading - {""} for key in GLOSSARY[other].also}
    assert term.key in leading | near or part in LINKED, "nothing leads to it"


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_setting_that_takes_the_terms_words_is_called_as_the_term_is() -> None:
    for key, knob in KNOBS.items():
        term = GLOSSARY.get(knob.term)
        if term and knob.hint.startswith(term.brief) and key != "data.eval_fraction":  # a share of what the term names
            assert knob.label == term.name, key


def test_every_setting_of_advanced_is_explained() -> None:
    silent = {key for key, knob in KNOBS.items() if not knob.term and knob.group in GROUPS}
    assert silent <= {"train.sample_rows"}, "its help says it all"


# ── the command line ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_explain_lists_all_and_explains_each_by_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines() == listed()
    for term in GLOSSARY.values():
        assert re.search(rf"^  {term.key} ", out, re.MULTILINE), term.key
        for name in called(term):
            assert explain(name)[0] == term.name, name
    assert max(len(line) for line in listed()) <= 100


def test_explain_takes_words_in_a_row_and_settings_as_a_run_yaml_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    """What it says of a word that it does not know: the command line's own test."""
    assert main(["explain", "learning", "rate"]) == 0
    assert capsys.readouterr().out.startswith("Learning rate\n")
    for asked in ("train.warmup_steps", "warmup_steps", "WARM-UP"):
        assert explain(asked)[0] == "Warm-up steps"
        assert "setting   train.warmup_steps: Warm-up steps. Default: 5." in explain(asked)[-2:]
    for key, knob in KNOBS.items():
        assert any(knob.label in line for line in explain(key)), key


# ── README and the page ──────────────────────────────────────────────────────────────────────────────────────────────


def test_readmes_words_are_the_glossarys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines() == markdown()
    stands = README.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    assert stands == markdown(), "put what `launcher.py explain --markdown` prints between README's markers"
    assert len(stands) <= 20, "a few words: those that README uses"
    rest = plainly(README.partition(BEGIN)[0] + README.partition(END)[2])
    for key in README_WORDS:
        assert any(re.search(rf"\b{re.escape(name)}", rest) for name in called(GLOSSARY[key])), key


def test_the_page_has_an_anchor_for_each_and_links_to_none_that_is_not() -> None:
    drawn = page_of_words.page(None)  # type: ignore[arg-type]
    anchors = re.findall(r'\bid="([^"]+)"', drawn)
    assert len(anchors) == len(set(anchors))
    assert {*GLOSSARY, *(f"part-{part.key}" for part in PARTS)} <= set(anchors)
    assert set(re.findall(r'href="#([^"]+)"', drawn)) <= set(anchors)
    assert set(re.findall(r'href="/glossary#([^"]+)"', PAGES)) <= set(anchors)
    assert say("glossary.title") in drawn
