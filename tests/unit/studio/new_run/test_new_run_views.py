"""New run without a browser: what is looked up and remembered, what the form makes of its fields, what is shown."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from made_window import MACHINE, FakeData

from core.contract.config import DataChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.data import DataReport, Preview, RowProblem, SkippedRows
from core.contract.errors import ConfigError, DataError, ModelError
from core.contract.estimate import Resolved
from core.machine.hardware import Gpu, Machine
from studio.pages.new_run import outline
from studio.pages.new_run.cache import PageCache
from studio.pages.new_run.data import block as data
from studio.pages.new_run.data import preview
from studio.pages.new_run.data.preview import Asked
from studio.pages.new_run.form import KNOBS, Form, label_of, source_of
from studio.pages.new_run.model import block as model
from studio.pages.new_run.plan import summary
from studio.pages.new_run.train import block as train
from studio.pages.new_run.view import View
from studio.services.services import Studio
from studio.services.session import AUTOMATIC, first


@pytest.fixture
def config() -> RunConfig:
    return first().config


@pytest.fixture
def desk(studio: Studio) -> PageCache:
    return PageCache(studio)


def test_a_glance_asks_nobody_and_a_look_asks_once(desk: PageCache, fake_data: FakeData, config: RunConfig) -> None:
    assert desk.glance(config).waiting
    assert fake_data.asked == []
    seen = desk.look(config)
    assert fake_data.asked == ["report", f"facts {config.train.max_length}"]
    assert not seen.waiting
    assert seen.figures is not None
    assert seen.figures.total_steps == config.train.max_steps
    again = desk.look(config)
    assert len(fake_data.asked) == 2
    assert again.facts == seen.facts


def test_another_learning_rate_needs_no_look_and_another_length_is_nearly_right_at_once(
    desk: PageCache, fake_data: FakeData, config: RunConfig
) -> None:
    desk.look(config)
    rate = config.model_copy(update={"train": config.train.model_copy(update={"learning_rate": 1e-5})})
    assert not desk.glance(rate).waiting
    longer = config.model_copy(update={"train": config.train.model_copy(update={"max_length": 512})})
    view = desk.glance(longer)
    assert view.waiting
    assert view.figures is not None
    assert view.figures.total_steps
    assert not desk.look(longer).waiting
    assert fake_data.asked[-1] == "facts 512"


def test_a_fault_stays_with_its_file_and_is_tried_again(
    desk: PageCache, fake_data: FakeData, config: RunConfig
) -> None:
    fake_data.error = DataError.told_by(
        {"code": "data.broken", "message": "Expected JSON, found a picture.", "hint": "Choose another file."}
    )
    view = desk.look(config)
    assert view.data_fault is fake_data.error
    assert view.figures is not None, "memory is known without rows"
    assert summary.start_words(view) == ("Fix the data file", False)
    assert "found a picture" in data.report_view(view)
    fake_data.error = None
    assert desk.look(config).data_fault is None


def test_a_model_that_cannot_be_used_is_said_where_it_was_chosen(desk: PageCache, config: RunConfig) -> None:
    broken = config.model_copy(update={"model": ModelChoice(source="folder", name="/nowhere/at/all")})
    view = desk.look(broken)
    assert isinstance(view.model_fault, ModelError)
    assert "/nowhere/at/all" in model.model_view(view)
    assert summary.start_words(view) == ("Choose another model", False)


def test_the_preview_is_paged_and_text_stays_text(desk: PageCache, fake_data: FakeData, config: RunConfig) -> None:
    found = desk.preview(desk.look(config), Asked(20, "piano"))
    assert isinstance(found, Preview)
    assert fake_data.asked[-1] == "preview 20 piano []"
    drawn = preview.preview_view(found, Asked(20))
    assert '<span class="token read">&lt;b&gt;Q&lt;/b&gt;</span><span class="token trained">A</span>' in drawn
    assert "Rows 21 to 40 of 40" in drawn
    assert '<button type="button" class="quiet-push" disabled data-do="preview"' in drawn, "there is no page behind"
    assert "offset&quot;: 0, &quot;only" in drawn


def test_start_says_what_is_missing(config: RunConfig) -> None:
    nothing = config.model_copy(update={"data": DataChoice(), "model": ModelChoice(source="hub", name="")})
    view = View(nothing, MACHINE)
    assert summary.start_words(view) == ("Add a data file", False)
    assert summary.problems(view) == ["Add a data file", "Choose a model"]
    fault = View(
        config,
        MACHINE,
        form_fault=ConfigError.told_by({"code": "config.faults", "message": "One setting", "problems": ["x"]}),
    )
    assert summary.start_words(fault) == ("Fix the settings first", False)
    assert summary.start_words(View(config, MACHINE)) == ("Start training", True)


def test_the_summary_shows_memory_by_part_steps_and_what_is_learned(desk: PageCache, config: RunConfig) -> None:
    view = desk.look(config)
    drawn = summary.summary_view(view) + summary.more_view(view)
    assert view.figures is not None
    assert "part-weights" in drawn
    assert view.figures.sentence in drawn
    assert f"{config.train.max_steps}, of {config.rows_per_step} rows each" in drawn
    assert "The answers are learned" in data.report_view(view)
    assert "Optimiser" in train.auto_view(view)


def test_problem_rows_are_listed(config: RunConfig) -> None:
    report = DataReport(
        path="/x/<i>.jsonl", sha256="", bytes=1, rows=1234, usable=1233, layout="messages", reason="r", columns=(),
        mapping={}, roles=(), method="sft", problems=(RowProblem(row=7, code="c", text="no <answer>", raw="a: <x>"),),
        skipped=tuple(
            SkippedRows(code=f"c{number}", rows=120 - number, first_row=7, text="label is false: a bad answer")
            for number in range(5)
        ),
    )  # fmt: skip
    drawn = data.report_view(View(config, MACHINE, report=report))
    assert "1,233 of 1,234 rows can be used" in drawn
    assert "&lt;i&gt;.jsonl" in drawn
    assert "<b>Row 7</b>no &lt;answer&gt;<code>a: &lt;x&gt;</code>" in drawn
    outside = drawn.split("<details")[0]
    assert "120 rows are left out: label is false: a bad answer (first row 7)." in outside
    assert outside.count("left out") == 3, "of many reasons the frequent ones; the rows stand below"


def card(total: int, free: int, capability: tuple[int, int]) -> Machine:
    found = Gpu(0, "GPU-1", "GeForce RTX 3070", total << 30, free << 30, capability)
    return Machine((found,), 8, 32 << 30, 20 << 30, None, "Linux", True)


def test_the_machine_strip_says_card_memory_arithmetic_and_wsl() -> None:
    drawn = outline.machine_view(card(8, 7, (8, 6)))
    for words in ("GeForce RTX 3070", "7.0 GB of 8.0 GB free", "bf16", "WSL"):
        assert words in drawn
    assert "fp16" in outline.machine_view(card(8, 7, (7, 5)))
    assert "everything works, training is slow" in outline.machine_view(MACHINE)


class Field:
    """Stands for a component: the form only asks for its place."""


def made_form() -> tuple[Form, dict[str, Any]]:
    form, session = Form(), first()
    keys = ["data.path", "model.name", "preset", "draft_id", "roles", *(f"role.{index}" for index in range(6))]
    for key in (*keys, *(key for key in KNOBS)):
        form.add(key, Field())
    return form, dict(zip(form.fields, form.values(session), strict=True))


def test_the_form_reads_back_what_it_shows() -> None:
    form, shown = made_form()
    base = first()
    session = form.session(list(shown.values()), base)
    assert session.config == base.config
    assert session.draft_id == shown["draft_id"]


def test_a_typed_model_is_a_folder_or_a_hub_id() -> None:
    assert [source_of(name) for name in ("starter", "/m/x", "~/x", "Qwen/Qwen3-0.6B")] == [
        "starter", "folder", "folder", "hub",
    ]  # fmt: skip
    form, shown = made_form()
    shown["model.name"] = " Qwen/Qwen3-0.6B "
    config = form.session(list(shown.values()), first()).config
    assert (config.model.source, config.model.name, config.model.revision) == ("hub", "Qwen/Qwen3-0.6B", "")


def test_columns_mapped_by_hand_reach_the_config() -> None:
    form, shown = made_form()
    shown |= {"roles": "prompt,completion,system", "role.0": "frage", "role.1": "antwort", "role.2": ""}
    config = form.session(list(shown.values()), first()).config
    assert config.data.columns == {"prompt": "frage", "completion": "antwort", "system": ""}


def test_a_role_can_be_left_without_a_column_and_stays_on_the_page() -> None:
    columns = {"prompt": "question", "conversations": "", "chosen": ""}
    refused = View(RunConfig(data=DataChoice(path="/x", columns=columns)), MACHINE)
    names, updates = data.mapping(refused, ("question", "conversations"))
    assert names == "prompt,conversations,chosen"
    assert [update["value"] for update in updates[:3]] == ["question", "", ""]


def test_a_chosen_method_is_shown_and_dpo_without_pairs_is_a_fault(config: RunConfig) -> None:
    about: dict[str, Any] = {"path": "/x.jsonl", "sha256": "", "bytes": 1, "rows": 9, "usable": 9, "reason": "r"}
    about |= {"columns": (), "mapping": {}, "roles": ()}
    pairs, rows = (
        DataReport(layout=layout, method=method, **about)  # type: ignore[arg-type]
        for layout, method in (("preference", "dpo"), ("messages", "sft"))
    )
    for method, report, trained, words in (
        ("auto", pairs, "dpo", "(DPO)"),
        ("sft", pairs, "sft", "The chosen answer of each pair is learned"),
        ("auto", rows, "sft", "The answers are learned"),
        ("dpo", rows, "dpo", "found none"),
    ):
        view = View(config.model_copy(update={"method": method}), MACHINE, report=report)
        assert view.trained.method == trained
        assert words in data.report_view(view)
        assert ("Choose a method for these rows" in summary.problems(view)) is (words == "found none")


def test_the_mapping_form_shows_the_roles_of_the_layout(desk: PageCache, config: RunConfig) -> None:
    names, updates = data.mapping(desk.look(config), ("instruction", "output"))
    assert names == "instruction,input,output,system"
    assert [update["value"] for update in updates[:4]] == ["instruction", "", "output", ""]
    assert [update["visible"] for update in updates] == [True] * 4 + [False] * 2
    unread = View(config.model_copy(update={"data": DataChoice(path="/x", layout="prompt_completion")}), MACHINE)
    assert data.mapping(unread, ("a", "b"))[0] == "prompt,completion,system"


def test_every_setting_has_a_place_on_the_page() -> None:
    assert label_of(KNOBS["train.max_length"]) == "Max length (tokens)"
    assert {knob.group for knob in KNOBS.values()} == {*train.GROUPS, "data"}
    assert set(AUTOMATIC) <= KNOBS.keys()


def test_what_was_chosen_for_one_says_why_and_what_one_chose_oneself_can_be_given_back() -> None:
    chosen = (Resolved(key="train.tokens_per_pass", value="4,096", reason="the fastest that fits"),)
    config = RunConfig(model=ModelChoice(dtype="float16"), train=TrainChoice(save_steps=50, seed=1, optim="adamw_8bit"))
    drawn = train.auto_view(View(config, MACHINE, resolved=chosen))
    assert "Micro-batch size" in drawn
    assert "the fastest that fits" in drawn
    assert (drawn.count(">auto<"), drawn.count("set by you")) == (1, 3), "a seed is nobody's but one's own"
    back = [json.loads(html.unescape(value)) for value in re.findall(r'data-value="([^"]*)"', drawn)]
    assert back == [{"model.dtype": "auto"}, {"train.optim": "auto"}, {"train.save_steps": 0}]
    assert 'aria-label="Choose for me: Save every"' in drawn
    assert train.auto_view(View(config, MACHINE)) == ""
