"""New run without a browser: what is looked up and remembered, what the form makes of its fields, what is shown."""

import html
import re
from dataclasses import replace
from typing import Any

import pytest
from made_window import MACHINE, FakeData, asked_by, report_of, shown

from core.contract.config import ModelChoice, RunConfig, TrainChoice
from core.contract.data import DataFacts, Labels, SkippedRows
from core.contract.errors import ConfigError, DataError
from core.contract.estimate import Resolved
from core.estimate import card_choices, estimate
from core.machine.hardware import Gpu, Machine
from core.models.catalog import catalogue
from core.models.suited import put
from studio.pages.new_run import model, outline, plan, summary, train
from studio.pages.new_run.cache import PageCache
from studio.pages.new_run.data import block as data
from studio.pages.new_run.data import preview
from studio.pages.new_run.form import KNOBS, label_of
from studio.pages.new_run.handlers import Handlers
from studio.pages.new_run.view import View
from studio.services.services import Studio
from studio.services.session import AUTOMATIC, Session, first


@pytest.fixture
def config() -> RunConfig:
    return first().config


@pytest.fixture
def cache(studio: Studio) -> PageCache:
    return PageCache(studio)


# ── looking up ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_glance_asks_nobody_and_a_look_asks_once(cache: PageCache, fake_data: FakeData, config: RunConfig) -> None:
    assert cache.glance(config).waiting
    assert fake_data.asked == []
    seen = cache.look(config)
    assert fake_data.asked == ["report", f"facts {config.train.max_length}"]
    assert not seen.waiting
    assert seen.figures is not None
    assert seen.figures.total_steps == config.train.max_steps
    assert cache.look(config).facts == seen.facts
    assert len(fake_data.asked) == 2


def test_another_learning_rate_needs_no_look_and_another_length_is_nearly_right_at_once(
    cache: PageCache, fake_data: FakeData
) -> None:
    cache.look(first().config)
    assert not cache.glance(first().with_values({"train.learning_rate": 1e-5}).config).waiting
    longer = first().with_values({"train.max_length": 512}).config
    view = cache.glance(longer)
    assert view.waiting
    assert view.figures is not None
    assert view.figures.total_steps
    assert not cache.look(longer).waiting
    assert fake_data.asked[-1] == "facts 512"


def test_a_head_has_the_scores_that_the_labels_are_learned_as(
    cache: PageCache, fake_data: FakeData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of prices one, though there are many; said of them otherwise, one a label."""
    labels = Labels(kind="number", counts={"10": 2, "20": 2, "30": 2}, distinct=3)
    read = report_of("/x", layout="classification", method="classify", labels=labels)
    monkeypatch.setattr(fake_data, "report", lambda *_: read)
    for problem, scores in (("auto", 1), ("single_label_classification", 3)):
        facts = cache.look(first().with_values({"method": "auto", "train.problem_type": problem}).config).facts
        assert facts is not None
        assert facts.labels == scores


def test_a_model_that_cannot_learn_so_is_a_fault_of_the_model(
    cache: PageCache, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said beside it, nothing is estimated, and nothing can be started."""
    [encoder] = [spec for spec in catalogue() if spec.key == "bert-base"]
    monkeypatch.setattr("studio.pages.new_run.cache.find_model", lambda *_: encoder.model_copy(update={"folder": "/x"}))
    view = cache.look(config)
    assert view.model_fault is not None
    assert view.model_fault.code == "model.writes_none"
    assert view.figures is None
    assert not summary.start_words(view)[1]
    assert "writes none" in model.model_view(view)


def test_a_fault_stays_with_its_file_and_is_tried_again(
    cache: PageCache, fake_data: FakeData, config: RunConfig
) -> None:
    fake_data.error = DataError("data.empty/upload")
    view = cache.look(config)
    assert view.data_fault is fake_data.error
    assert view.figures is not None, "memory is known without rows"
    assert summary.start_words(view) == ("Fix the data file", False)
    assert "This file is empty" in data.report_view(view)
    fake_data.error = None
    assert cache.look(config).data_fault is None


# ── the form ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def formed(handlers: Handlers, **fields: Any) -> Session:
    return handlers.form.session(shown(handlers, **fields), first())


def test_the_form_reads_back_what_it_shows(handlers: Handlers) -> None:
    read = formed(handlers)
    assert (read.config, read.draft_id) == (first().config, handlers.drafts.load().draft_id)
    assert {knob.group for knob in KNOBS.values()} == {*train.GROUPS, "data"}, "every setting has a place on the page"
    assert set(AUTOMATIC) <= KNOBS.keys()
    assert label_of(KNOBS["train.max_length"]) == "Max length (tokens)"


def test_a_typed_model_is_a_folder_or_a_hub_id(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for typed, source, name in (
        ("starter", "starter", "starter"), ("/m/x", "folder", "/m/x"), ("~/x", "folder", "/home/me/x"),
        (" Qwen/Qwen3-0.6B ", "hub", "Qwen/Qwen3-0.6B"),
    ):  # fmt: skip
        model = formed(handlers, **{"model.name": typed}).config.model
        assert (model.source, model.name, model.revision) == (source, name, "")


# ── what is shown ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_text_of_a_row_stays_text(cache: PageCache, config: RunConfig) -> None:
    drawn = preview.row_view(cache.row(cache.look(config), 1))
    assert '<span class="token read">&lt;b&gt;Q&lt;/b&gt;</span><span class="token trained">A</span>' in drawn


def test_start_says_what_is_missing(config: RunConfig) -> None:
    nothing = View(RunConfig(model=ModelChoice(source="hub", name="")), MACHINE)
    assert summary.start_words(nothing) == ("Add a data file", False)
    assert summary.problems(nothing) == ["Add a data file", "Choose a model"]
    fault = View(config, MACHINE, form_fault=ConfigError("config.faults/form", count=1, problems=["x"]))
    assert summary.start_words(fault) == ("Fix the settings first", False)
    assert "Choose data and a model" not in summary.summary_view(fault), "both are chosen"
    assert summary.start_words(View(config, MACHINE)) == ("Start training", True)


def test_rows_that_are_left_out_are_said_with_the_way_to_them(config: RunConfig) -> None:
    skipped = tuple(
        SkippedRows(code=f"c{number}", rows=120 - number, first_row=7, text="label is <false>: a bad answer")
        for number in range(5)
    )
    report = report_of("/x/<i>.jsonl", rows=1234, usable=1233, skipped=skipped)
    drawn = data.report_view(View(config, MACHINE, report=report))
    for words in (
        "1,233 of 1,234 rows can be used", "&lt;i&gt;.jsonl",
        "120 rows are left out: label is &lt;false&gt;: a bad answer (first row 7).",
    ):  # fmt: skip
        assert words in drawn
    assert drawn.count("left out:") == 3, "of many reasons the frequent ones"
    assert html.unescape(re.findall(r'data-wish="([^"]*)"', drawn)[0]) == '{"state": "left_out"}'


def test_the_machine_strip_says_card_memory_arithmetic_and_wsl() -> None:
    def drawn(capability: tuple[int, int]) -> str:
        card = Gpu(0, "GPU-1", "GeForce RTX 3070", 8 << 30, 7 << 30, capability)
        return outline.machine_view(Machine((card,), 8, 32 << 30, 20 << 30, None, "Linux", True))

    for words in ("GeForce RTX 3070", "7.0 GB of 8.0 GB free", "bf16", "WSL"):
        assert words in drawn((8, 6))
    assert "fp16" in drawn((7, 5))
    assert "everything works, training is slow" in outline.machine_view(MACHINE)


def cards_of(*names: str) -> Machine:
    gpus = tuple(
        Gpu(at, f"GPU-{at}", f"NVIDIA GeForce {name}", 12 << 30, 11 << 30, (8, 6)) for at, name in enumerate(names)
    )
    return Machine(gpus, 8, 32 << 30, 20 << 30, None, "Linux", False)


def pressed(machine: Machine, cards: str = "") -> list[tuple[str, str]]:
    """Each button of the switch: what it chooses, and whether it is pressed."""
    drawn = html.unescape(outline.machine_view(machine, cards))
    return re.findall(r'aria-pressed="(\w+)".*?"train.cards": "([^"]*)"', drawn)


def test_which_cards_is_one_switch_and_nothing_where_there_is_one() -> None:
    assert pressed(cards_of("RTX 3060")) == []
    two = cards_of("RTX 3060", "RTX 4090")
    assert pressed(two) == [("true", "0"), ("false", "1"), ("false", "0,1")], "of two the one, the other, or both"
    assert pressed(two, "0,1") == pressed(two, "all") == [("true", "0"), ("true", "1"), ("true", "0,1")]
    assert pressed(cards_of(*["RTX 3060"] * 4), "0,2") == [
        ("true", "2"), ("false", "0,1,2"), ("true", "0"), ("false", "0,2,3"), ("false", "0,1,2,3")
    ], "of more each is taken in or out"  # fmt: skip
    assert pressed(two, "7") == [("false", "0"), ("false", "1"), ("false", "0,1")], "cards of another machine"
    drawn = outline.machine_view(two, "", held={1})
    assert "RTX 4090 (1)" in drawn
    assert drawn.count("a run holds it") == 1


def test_cards_that_are_not_there_are_said_with_the_way_back(cache: PageCache, monkeypatch: pytest.MonkeyPatch) -> None:
    two = cards_of("RTX 3060", "RTX 3060")
    monkeypatch.setattr(cache.studio, "machine", lambda: two)
    seen = cache.look(first().with_values({"train.cards": "0,3"}).config)
    assert summary.start_words(seen) == ("Fix the settings first", False)
    drawn = summary.summary_view(seen)
    assert "are numbered 0 to 1, and 3 is not among them" in drawn
    assert "Use the first card" in drawn
    unlike = cards_of("RTX 3060", "RTX 4090")
    large = replace(
        unlike, gpus=(replace(unlike.gpus[1], index=0, free_bytes=23 << 30), replace(unlike.gpus[0], index=1))
    )
    view = View(first().with_values({"train.cards": "0,1"}).config, large)
    asked = cache.asked(view).machine.gpu
    assert asked is not None
    assert asked.short == "RTX 3060", "models are proposed for the smaller one"
    both = cache.look(first().with_values({"train.cards": "0,1"}).config)
    assert both.figures is not None
    assert both.figures.cards == 2
    drawn = summary.summary_view(both)
    assert "GPU memory (VRAM), each card" in drawn
    assert "on both cards" in drawn


def test_streamed_layers_are_told_with_their_memory_and_that_cards_share_it(config: RunConfig) -> None:
    spec = next(one for one in catalogue() if one.key == "llama-3.3-70b")
    both = replace(cards_of("RTX 3060", "RTX 3060"), ram_free_bytes=60 << 30, ram_total_bytes=64 << 30)
    for cards, ends in (("0", "GB in RAM"), ("0,1", "GB in RAM for all cards")):
        chosen, machine = put(config, "train.cards", cards), both.choosing(cards)
        figures = estimate(chosen, spec, None, machine)
        rows = dict(summary._elsewhere(View(chosen, machine, spec=spec), figures))
        assert rows["Streamed layers"].startswith(f"{figures.streamed_layers} of 80, ")
        assert rows["Streamed layers"].endswith(ends)


def test_of_several_cards_the_quicker_ones_are_proposed_and_unlike_ones_are_told(config: RunConfig) -> None:
    lengths, slow, fast = (400,) * 900, "RTX 3060", "H200"
    facts = DataFacts(rows=900, lengths=lengths, trained=lengths, max_length=2048, longest=400, mean=400.0)
    spec = next(one for one in catalogue() if one.key == "qwen3-4b")

    def told(machine: Machine, cards: str) -> str:
        chosen = put(put(config, "train.cards", cards), "train.max_steps", 0)
        choices = card_choices(chosen, spec, facts, machine)
        return str(plan.cards_view(View(chosen, machine, choices=choices)) or "")

    both = told(cards_of(slow, fast), "0,1")
    assert "Proposed: H200 (1) alone: about" in both
    assert "each gets rows by its speed, the smaller memory says what fits" in both
    assert html.unescape(re.findall(r'data-value="([^"]*)"', both)[0]) == '{"train.cards": "1"}'
    assert told(cards_of(slow, fast), "1") == "", "nothing is quicker"
    alike = told(cards_of(slow, slow), "")
    assert "Proposed: both: about" in alike
    assert "Unlike" not in alike
    assert told(cards_of(slow, slow), "0,1") == ""
    assert told(cards_of(slow), "") == ""


@pytest.mark.parametrize(
    ("method", "layout", "trained", "words"),
    [
        ("auto", "preference", "dpo", "Makes chosen answers likelier"),
        ("sft", "preference", "sft", "Learns the chosen answers only"),
        ("auto", "messages", "sft", "The answers are learned"),
        ("dpo", "messages", "dpo", "the rows in x.jsonl are of another kind: messages"),
    ],
)
def test_a_chosen_method_is_shown_and_dpo_without_pairs_is_a_fault(
    config: RunConfig, method: str, layout: str, trained: str, words: str
) -> None:
    report = report_of("/x.jsonl", layout=layout, method="dpo" if layout == "preference" else "sft")
    view = View(config.model_copy(update={"method": method}), MACHINE, report=report)
    assert view.trained.method == trained
    assert words in data.report_view(view)
    assert ("Choose a method for these rows" in summary.problems(view)) is (
        words == "the rows in x.jsonl are of another kind: messages"
    )


def test_what_was_chosen_for_one_says_why_and_what_one_chose_oneself_can_be_given_back() -> None:
    chosen = (Resolved(key="train.tokens_per_pass", value="4,096", reason="the fastest that fits"),)
    config = RunConfig(model=ModelChoice(dtype="float16"), train=TrainChoice(save_steps=50, seed=1, optim="adamw_8bit"))
    drawn = train.auto_view(View(config, MACHINE, resolved=chosen))
    assert "Micro-batch size" in drawn
    assert "the fastest that fits" in drawn
    assert (drawn.count(">auto<"), drawn.count("set by you")) == (1, 3), "a seed is nobody's but one's own"
    assert asked_by(drawn) == [{"model.dtype": "auto"}, {"train.optim": "auto"}, {"train.save_steps": 0}]
    assert 'aria-label="Set automatically: Save every"' in drawn
