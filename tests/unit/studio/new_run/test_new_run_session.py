"""The session: its values, its faults in words, and the draft that survives."""

import json
import stat
import threading
import time
from typing import Any

import pytest

from core.contract.config import RunConfig
from core.contract.errors import ConfigError
from core.machine.locations import Locations
from core.models.catalog import preset
from studio.pages.new_run.handlers import Handlers
from studio.services.session import SAMPLES, Before, Drafts, Session, first, load, reopened, sample_of, sample_path


def test_a_first_visit_can_start_at_once() -> None:
    config = first().config
    assert config.problems() == []
    assert (config.model.source, config.preset) == ("starter", "try-it")
    assert sample_of(config.data.path) == "instruction"
    assert config.train.max_steps == preset("try-it").values["train.max_steps"]
    assert [key for key in SAMPLES if not sample_path(key).is_file()] == []


def test_all_faults_are_named_by_their_labels() -> None:
    with pytest.raises(ConfigError) as caught:
        first().with_values({"train.max_length": 3, "train.learning_rate": None, "data.train_on": "nothing"})
    assert set(caught.value.problems) == {
        "Max length must be 32 to 1,048,576 tokens; it is 3.",
        "Learning rate must be more than 0, at most 1; it is empty.",
        "Train on must be answers, last_answer, everything, tool_calls; it is nothing.",
    }


def test_the_draft_survives_and_only_the_last_of_a_burst_is_written(locations: Locations) -> None:
    drafts = Drafts(locations, delay_seconds=0.05)
    session = first()
    for steps in range(1, 20):
        session = session.with_values({"train.max_steps": steps})
        drafts.save(session)
    assert drafts.load() == session, "what waits is what a reload shows"
    until = time.monotonic() + 5
    while not locations.draft.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert load(locations) == session
    assert stat.S_IMODE(locations.draft.stat().st_mode) == 0o600


def test_windows_of_a_first_visit_show_one_draft(locations: Locations) -> None:
    drafts = Drafts(locations)
    assert drafts.load().draft_id == drafts.load().draft_id == Drafts(locations).load().draft_id


def test_a_window_from_before_a_start_does_not_bring_its_draft_back(locations: Locations) -> None:
    drafts = Drafts(locations, delay_seconds=0.01)
    old = drafts.load()
    drafts.renew(old)
    fresh = drafts.load()
    assert fresh.draft_id != old.draft_id
    drafts.edit(old.with_values({"name": "late"}))
    drafts.flush()
    assert (drafts.load().draft_id, drafts.load().config.name) == (fresh.draft_id, "late")
    drafts.renew(old)  # a second window's Start of the same
    assert drafts.load().draft_id == fresh.draft_id


# ── older drafts ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["", "{", "[]", '{"config": {"nonsense": 1}, "draft_id": "x"}'])
def test_a_draft_that_cannot_be_read_is_a_first_visit(locations: Locations, text: str) -> None:
    locations.draft.write_text(text)
    assert load(locations).config == first().config


@pytest.mark.parametrize(
    "more", [{}, {"before": None}, {"before": {"config": {"nonsense": 1}}}, {"before": 3},
             {"before": {"config": {}, "why": "x"}}]
)  # fmt: skip
def test_a_draft_of_an_older_version_is_read(locations: Locations, more: dict[str, Any]) -> None:
    old = {"version": 2, "draft_id": "x", "config": RunConfig(preset="chat-style").model_dump(mode="json")}
    locations.draft.write_text(json.dumps({**old, **more}))
    own = {"lora.r", "lora.lora_alpha", "train.num_train_epochs", "train.lr_scheduler_type", "train.warmup_steps"}
    found = load(locations)
    assert found == Session(RunConfig(preset="chat-style"), "x", own=frozenset(own)), "what is not the goal's is set"


def test_a_draft_of_an_older_studio_leaves_the_method_to_the_data(locations: Locations) -> None:
    Drafts(locations).redraft(first().with_values({"method": "sft"}).config)
    assert load(locations).config.method == "sft"
    raw = json.loads(locations.draft.read_text())
    del raw["version"]
    locations.draft.write_text(json.dumps(raw))
    assert load(locations).config.method == "auto"


@pytest.mark.parametrize("known", ["", "of-another-version", "<img src=x>"])
def test_a_draft_with_no_preset_or_one_that_nobody_knows_leaves_the_page_usable(handlers: Handlers, known: str) -> None:
    """Gradio refuses every event that brings a choice it does not have; nothing on the page would answer any more."""
    handlers.drafts.redraft(first().config.model_copy(update={"preset": known}))
    session = load(handlers.studio.locations)
    assert session.config.preset == ""
    values = handlers.form.values(session)
    assert dict(zip(handlers.form.fields, values, strict=True))["preset"] is None
    assert handlers.form.session(values, session).config.preset == ""


# ── what gives way ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_chosen_automatically_is_chosen_anew_when_run_again() -> None:
    solved = {"model.dtype": "bfloat16", "train.optim": "adamw_8bit", "train.checkpointing": "recompute"}
    solved |= {"train.tokens_per_pass": 4096, "train.memory_gib": 6.5, "train.eval_steps": 7, "train.save_steps": 9}
    chosen = first().with_values({"train.learning_rate": 0.5})
    assert reopened(chosen.with_values(solved).config, None) == chosen.config


@pytest.mark.parametrize(
    ("layout", "ran", "again"),
    [("classification", "sft", "sft"), ("classification", "classify", "auto"), ("preference", "sft", "sft"),
     ("preference", "dpo", "auto"), ("alpaca", "sft", "auto")],
)  # fmt: skip
def test_a_method_that_was_automatic_stays_what_it_was_where_another_is_automatic_today(
    layout: str, ran: str, again: str
) -> None:
    """Older studios trained texts with labels as conversations."""
    asked = first().with_values({"data.layout": layout})
    assert asked.config.method == "auto"
    config = asked.with_values({"method": ran}).config
    assert reopened(config, asked.config).method == reopened(config, None).method == again


def test_what_one_window_chooses_at_once_is_not_said_to_be_another_windows(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = Drafts(locations)
    drafts.shown.put("mine", drafts.load().config)
    saved, save = threading.Event(), drafts.save

    def slowly(session: Session) -> None:
        save(session)
        saved.set()
        time.sleep(0.1)

    monkeypatch.setattr(drafts, "save", slowly)
    one = threading.Thread(target=drafts.edit, args=(first().with_values({"train.seed": 5}), "mine"))
    one.start()
    assert saved.wait(5)
    drafts.edit(first().with_values({"train.seed": 6}), "mine")
    one.join()
    assert drafts.load().before is None
    assert drafts.load().config.train.seed == 6


def test_run_again_keeps_what_stood_there_until_the_next_start(locations: Locations) -> None:
    drafts, mine = Drafts(locations), first().with_values({"name": "mine", "train.seed": 5})
    drafts.redraft(first().config)
    assert load(locations).before is None, "nobody had chosen anything"
    drafts.save(mine)
    drafts.redraft(RunConfig(name="old", preset="chat-style"))
    assert load(locations).before == Before(mine.config, "run")
    assert load(locations).config.name == "", "the new run is called anew"
    assert drafts.take_back().config == load(locations).config == mine.config
    assert drafts.take_back().config.preset == "chat-style", "and back again"
    drafts.renew(drafts.load())
    assert load(locations).before is None
    assert Drafts(locations).take_back() == load(locations)


def test_run_again_leaves_the_arithmetic_open_again_whatever_a_trial_found() -> None:
    asked, ran = (RunConfig.model_validate({"train": {"arithmetic": name}}) for name in ("auto", "int8"))
    assert reopened(ran, asked, ["train.arithmetic"]).train.arithmetic == "auto"
    assert reopened(ran, ran).train.arithmetic == reopened(ran, None).train.arithmetic == "int8"
