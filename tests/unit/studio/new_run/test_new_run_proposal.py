"""Settings follow the rows, the goal and the model; what a person set stays; each is said, and can be taken back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from made_window import FakeData, Window, asked_by, choose, in_the_end, look, report_of, shown, told

from core.contract.config import RunConfig
from core.contract.data import DataFacts
from core.contract.errors import DataError, HubError
from core.models.catalog import starter
from core.runs.folder.run_yaml import flat
from studio.pages.new_run import cache as cache_module
from studio.pages.new_run import summary
from studio.pages.new_run.handlers import Handlers
from studio.pages.new_run.view import View
from studio.services.session import Drafts, load, sample_path
from studio.services.standing import PENDING, Standing, every_setting, own_of

OWN = "/made/own.jsonl"
EPOCHS, LENGTH, RATE = "train.num_train_epochs", "train.max_length", "train.learning_rate"

pytestmark = pytest.mark.usefixtures("room_found_once")


@pytest.fixture(autouse=True)
def longer_rows(fake_data: FakeData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a person's own file 5,000 rows of 300 tokens; of others four hundred of twenty."""
    first = fake_data.facts

    def facts(path: Path, choice: Any, folder: Path, max_length: int, *, method: str) -> DataFacts:
        if "own" not in str(path):
            return first(path, choice, folder, max_length, method=method)
        return DataFacts(
            rows=5_000, lengths=(300,) * 5_000, trained=(90,) * 5_000, max_length=max_length, longest=300, mean=300.0
        )

    monkeypatch.setattr(fake_data, "facts", facts)
    monkeypatch.setattr(fake_data, "report", lambda path, choice, method=None: report_of(path, 5_000))


def visited(handlers: Handlers) -> Handlers:
    """A first visit, all of which is known."""
    look(handlers)
    return handlers


def own_file(handlers: Handlers, **more: Any) -> dict[Any, Any]:
    """What the page shows after a person's own file was chosen."""
    return look(handlers, **{"data.path": OWN, "preset": None, **more})


def config(handlers: Handlers) -> RunConfig:
    return handlers.drafts.load().config


def by_hand(handlers: Handlers, key: str, value: Any) -> dict[Any, Any]:
    answer = handlers.edited(Window(), *shown(handlers, **{key: value}), by_hand=key)
    return answer | (in_the_end(handlers.looked(Window())) if "look" in answer else {})


def pressed(handlers: Handlers, drawn: str, words: str) -> dict[Any, Any]:
    """What a button of these words in a board changes."""
    asked = next(value for value in asked_by(drawn.partition(f">{words}<")[0].rpartition("<button")[2] + "<"))
    answer = handlers.changed(Window(), told(asked), *shown(handlers))
    return answer | look(handlers)


def test_a_first_visits_sample_stays_as_quick_as_its_goal_says(handlers: Handlers) -> None:
    before = config(handlers)
    said = look(handlers)
    assert config(handlers) == before
    assert "Changed" not in said["summary-more"]
    assert "the goal “Try it” says so." in said["summary-more"]
    assert "a sample is for trying out" in said["summary-more"]


def test_an_own_file_gets_its_own_settings_with_why_and_undo(handlers: Handlers) -> None:
    said = own_file(visited(handlers))
    train = config(handlers).train
    assert (train.max_length, train.num_train_epochs, train.max_steps) == (320, 2, 0)
    assert (said["field.train.max_length"], said["field.train.num_train_epochs"]) == (320, 2)
    more = said["summary-more"]
    assert "Changed with the new file: Max length 256 → 320, Epochs 3 → 2, Max steps 60 → no limit, and " in more
    assert "usual for 4,800 rows" in more
    assert "5,000 question-answer pairs, 2 epochs, up to 300 tokens each" in said["summary"]
    said = pressed(handlers, more, "Undo")
    train = config(handlers).train
    assert (train.max_length, train.num_train_epochs, train.max_steps) == (256, 3, 60)
    assert "Changed with" not in said["summary-more"], "what was taken back is not said any more"
    assert "Use all proposed" in said["summary-more"]
    pressed(handlers, said["summary-more"], "Use all proposed")
    assert (config(handlers).train.max_length, handlers.drafts.load().own) == (320, frozenset())


def test_start_waits_until_the_settings_follow_an_own_file(handlers: Handlers) -> None:
    """Pressed before, it trained one's own rows with the settings of the sample that was there."""
    visited(handlers)
    waits = gr.update(value="Reading your file …", interactive=False)
    assert "start" not in handlers.page.another_file(str(sample_path("chat")), "try-it", "chat")
    assert handlers.typed(Window(), OWN, *shown(handlers))["start"] == waits
    answers = list(handlers.looked(Window()))
    pressed = [answer for answer in answers if answer.get("start", waits)["interactive"]]
    assert [answer["start"]["interactive"] for answer in answers if "start" in answer][:2] == [False, True]
    assert pressed[0]["field.train.max_length"] == 320, "with the first answer that lets it be pressed they are there"
    again = View(config(handlers), handlers.studio.machine(), standing=handlers.drafts.load().standing)
    assert summary.start_words(again)[1], "they follow it already, though this studio has not read it yet"
    changed = replace(again, standing=None, source=OWN)
    assert summary.start_words(changed)[1], "rows were changed by hand: a Start behind them is not lost"
    assert again.standing is not None
    pending = again.standing.model_copy(update={"cause": again.standing.cause | {"model": PENDING}})
    assert not summary.start_words(replace(again, standing=pending))[1], "they follow the proposed model's tokens next"
    rerun = View(config(handlers), again.machine, own=every_setting(config(handlers)))
    assert summary.start_words(rerun)[1], "nothing is left to follow it"
    assert not summary.start_words(View(config(handlers), again.machine))[1]
    empty = View(config(handlers), again.machine, data_fault=DataError("data.empty/file", name="own.jsonl"))
    assert summary.start_words(empty)[0] == "Fix the data file"
    choose(handlers, **{"data.path": "/made/another/own.jsonl"})
    assert "has not been read yet" in list(handlers.begin(Window(), "", "", *shown(handlers)))[-1]["outcome"]


def test_what_a_person_set_stays_with_another_file_and_another_model(
    handlers: Handlers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_file(visited(handlers))
    said = by_hand(handlers, EPOCHS, 5)
    assert "1 set by you" in said["summary-more"]
    assert "#train-num_train_epochs span[data-testid]::after { content: 'set by you' }" in said["summary-more"]
    assert "Proposed: 2; usual for" in said["summary-more"]
    larger = starter().model_copy(update={"name": "/made/larger", "source": "folder", "title": "Larger"})
    larger = larger.model_copy(update={"shape": larger.shape.model_copy(update={"hidden_size": 4096})})
    monkeypatch.setattr(cache_module, "find_model", lambda source, name: larger if source == "folder" else starter())
    handlers.changed(Window(), told({"model.name": "/made/larger"}), *shown(handlers))
    said = look(handlers)
    train = config(handlers).train
    assert (train.num_train_epochs, train.learning_rate) == (5, 2e-4), "a real model wants another rate"
    assert "Changed with the model: Alpha 32 → 16, Learning rate 0.003 → 0.0002." in said["summary-more"]
    own_file(handlers, **{"data.path": str(sample_path("chat"))})
    assert (config(handlers).train.num_train_epochs, config(handlers).model.name) == (5, "/made/larger")
    said = own_file(handlers)
    assert handlers.drafts.load().own == {EPOCHS, "model.name"}
    pressed(handlers, said["summary-more"], "Use 2")
    assert config(handlers).train.num_train_epochs == 2
    assert handlers.drafts.load().own == {"model.name"}


def test_what_a_person_set_survives_a_restart(handlers: Handlers) -> None:
    own_file(visited(handlers))
    by_hand(handlers, EPOCHS, 5)
    handlers.drafts.flush()
    again = load(handlers.studio.locations)
    assert again == handlers.drafts.load()
    assert (again.own, again.standing.of(EPOCHS) if again.standing else None) == ({EPOCHS}, 2)
    fresh = Handlers(handlers.studio, handlers.page)
    fresh.studio.drafts = fresh.drafts = fresh.windows.drafts = Drafts(handlers.studio.locations)
    fresh.edited(Window("new"), *fresh.form.values(again))
    said = in_the_end(fresh.looked(Window("new")))
    assert "1 set by you" in said["summary-more"]
    assert fresh.drafts.load().config == again.config


def test_what_follows_from_a_setting_follows_it_and_says_so(handlers: Handlers) -> None:
    own_file(visited(handlers))
    said = by_hand(handlers, "lora.r", 64)
    assert config(handlers).lora.lora_alpha == 128
    assert "Changed with what you set: Alpha 32 → 128." in said["summary-more"]
    pressed(handlers, said["summary-more"], "Undo")
    assert (config(handlers).lora.r, config(handlers).lora.lora_alpha) == (64, 32)
    said = by_hand(handlers, EPOCHS, 5)
    assert (config(handlers).train.warmup_steps, "Changed with" in said["summary-more"]) == (45, False), "no matter"
    by_hand(handlers, "lora.r", 8)
    assert config(handlers).lora.lora_alpha == 32, "it was set by taking back"


def test_typing_the_proposed_value_follows_the_proposal_again(handlers: Handlers) -> None:
    own_file(visited(handlers))
    by_hand(handlers, EPOCHS, 5)
    assert "set by you" not in by_hand(handlers, EPOCHS, 2)["summary-more"]
    assert handlers.drafts.load().own == frozenset()


def test_a_goal_takes_its_values_and_length_and_epochs_follow_the_rows(handlers: Handlers) -> None:
    own_file(visited(handlers))
    by_hand(handlers, RATE, 0.01)
    answer = handlers.preset_chosen(Window(), "chat-style", *shown(handlers, preset="chat-style"))
    assert (answer["field.lora.r"], answer["field.train.learning_rate"]) == (32, 2e-4), "the goal's, in place of mine"
    assert "field.train.max_length" not in answer, "320 as before: the goal's 2,048 are more than these rows have"
    said = look(handlers)
    assert handlers.drafts.load().own == frozenset()
    assert "the goal “Chat style” says so." in said["summary-more"]
    assert config(handlers).preset == "chat-style"


@pytest.mark.parametrize(("event", "asked"), [("preset_chosen", "chat-style"), ("changed", told({RATE: 0.001}))])
def test_a_file_that_was_chosen_since_stays(handlers: Handlers, event: str, asked: str) -> None:
    """The event was sent before, and comes late."""
    sent = shown(visited(handlers), preset="chat-style")
    own_file(handlers)
    answer = getattr(handlers, event)(Window(), asked, *sent)
    assert config(handlers).data.path == OWN
    assert answer["field.data.path"] == OWN, "as the window is about to be told, if it was not yet"
    assert not {"field.data.layout", "field.columns"} & answer.keys()


def test_a_goal_that_cannot_learn_from_the_new_rows_gives_way(handlers: Handlers) -> None:
    visited(handlers)
    handlers.preset_chosen(Window(), "preferences", *shown(handlers, preset="preferences"))
    said = own_file(handlers, preset="preferences")
    assert (config(handlers).preset, config(handlers).method) == ("", "auto")
    assert said["field.preset"] is None
    assert said["start"]["interactive"], "and no red box"


def test_a_run_that_is_run_again_keeps_its_settings_and_says_what_is_proposed(handlers: Handlers) -> None:
    data = config(handlers).data.model_copy(update={"path": OWN})
    own_file(visited(handlers))
    run = RunConfig(data=data).with_method("sft")
    run = run.model_copy(update={"train": run.train.model_copy(update={"num_train_epochs": 7.0})})
    handlers.drafts.redraft(run)
    handlers.restored(Window())
    said = look(handlers)
    assert flat(config(handlers)) == flat(run)
    assert "Changed" not in said["summary-more"]
    assert "Proposed: 2; " in said["summary-more"]
    handlers.drafts.take_back()
    assert handlers.drafts.load().own == frozenset(), "and what was there before had nothing set"


def test_a_late_event_does_not_bring_the_old_settings_back(handlers: Handlers) -> None:
    """It was sent before the window had been told of the proposal."""
    visited(handlers)
    late = shown(handlers, **{"data.path": OWN, "preset": None, "train.seed": 7})
    own_file(handlers)
    answer = handlers.edited(Window(), *late, by_hand="train.seed")
    assert (answer["field.train.seed"], answer["field.train.max_length"]) == (7, 320), "both crossed on their way"
    assert "field.train.seed" not in handlers.edited(Window(), *shown(handlers), by_hand="train.seed")
    train = config(handlers).train
    assert (train.seed, train.max_length, train.num_train_epochs) == (7, 320, 2)
    overwritten = shown(handlers, **{"train.seed": 3407, EPOCHS: 4})
    answer = handlers.edited(Window(), *overwritten, by_hand=EPOCHS)
    assert (answer["field.train.seed"], config(handlers).train.seed) == (7, 7), "a proposal wrote over it there"
    by_hand(handlers, EPOCHS, 2)
    assert handlers.drafts.load().own == {"train.seed"}


def test_the_answer_to_a_late_edit_leaves_what_is_typed_meanwhile(handlers: Handlers) -> None:
    """The setting was a person's own already, so the proposal that crossed the edit did not write over it."""
    visited(handlers)
    by_hand(handlers, "train.seed", 5)
    late = shown(handlers, **{"data.path": OWN, "preset": None, "train.seed": 7})
    own_file(handlers)
    answer = handlers.edited(Window(), *late, by_hand="train.seed")
    assert config(handlers).train.seed == 7
    assert "field.train.max_length" in answer, "both crossed on their way"
    assert "field.train.seed" not in answer


def test_free_memory_that_changes_moves_no_setting(handlers: Handlers) -> None:
    own_file(visited(handlers))
    before = handlers.drafts.load()
    machine = handlers.studio.machine()
    handlers.studio.machine = lambda: type(machine)(**{**vars(machine), "ram_free_bytes": 1 << 28})  # type: ignore[method-assign]
    look(handlers)
    assert handlers.drafts.load().config == before.config


@pytest.fixture
def no_hub(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> Handlers:
    """A first visit beside a card, where a large model is proposed; its tokenizer cannot be fetched."""
    from core.machine.hardware import Gpu

    machine = handlers.studio.machine()
    card = Gpu(0, "GPU-1", "Card", 12 << 30, 11 << 30, (8, 6))
    beside = type(machine)(**{**vars(machine), "gpus": (card,), "disk_free_bytes": 100 << 30})
    handlers.studio.machine = lambda: beside  # type: ignore[method-assign]
    away = HubError("hub.offline/model", name="x", at="")

    def folder(spec: Any) -> Path:
        if spec.source == "hub":
            raise away
        return Path(spec.folder)

    monkeypatch.setattr(cache_module, "tokenizer_folder", folder)
    return visited(handlers)


def test_a_model_that_the_hub_does_not_give_makes_room_for_one_that_is_here(
    no_hub: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = no_hub
    said = own_file(handlers)
    assert (config(handlers).model.name, config(handlers).train.max_length) == ("starter", 320)
    assert "the hub does not give another now" in said["summary-more"]
    assert "Base model" not in said["summary-more"].partition("<details")[0], "it is the one that was there"
    assert said["start"]["interactive"]
    monkeypatch.setattr(cache_module, "tokenizer_folder", lambda spec: Path("/made"))
    said = look(handlers, **{"data.path": "/made/own2.jsonl"})
    assert config(handlers).model.name == "Qwen/Qwen3-8B", "asked anew with the next file"
    assert "Base model Starter (built in) → Qwen3 8B" in said["summary-more"]
    assert "after a download of 16" in said["summary"]
    look(handlers, **{"data.path": str(sample_path("chat"))})
    assert config(handlers).model.name == "starter", "a sample is quick again"


def test_a_model_that_a_person_chose_stays_where_the_hub_does_not_give_it(no_hub: Handlers) -> None:
    """Choosing it from the list writes it into the field first, which then sends it already."""
    for name in ("Qwen/Qwen3-4B", "Qwen/Qwen3-8B"):
        answer = no_hub.changed(Window(), told({"model.name": name}), *shown(no_hub, **{"model.name": name}))
        assert answer, "Gradio refuses an answer that names no field, and nothing would follow it"
        look(no_hub)
        assert (config(no_hub).model.name, no_hub.drafts.load().own) == (name, {"model.name"})
    no_hub.changed(Window(), told({"model.name": "starter"}), *shown(no_hub, **{"model.name": "starter"}))
    assert no_hub.drafts.load().own == frozenset(), "it is what is proposed"


def test_an_older_draft_says_by_its_values_what_was_set() -> None:
    assert own_of(RunConfig()) == frozenset()
    other = RunConfig().model_copy(update={"train": RunConfig().train.model_copy(update={"seed": 5})})
    assert own_of(other) == {"train.seed"}
    assert Standing().of(EPOCHS) is None
