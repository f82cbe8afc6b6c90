"""New run's handlers without a browser: edits and looks, windows beside each other, files, and Start."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from made_window import FakeData, Window, choose, in_the_end, look, shown, told

from core.contract.config import RunConfig
from core.contract.errors import Fault, MachineError
from core.data.files.keep import KeptFile
from core.machine.cards import CardLock
from core.models.catalog import find_model
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import read_asked
from studio.pages.new_run import cache as cache_module
from studio.pages.new_run import handlers as handlers_module
from studio.pages.new_run.handlers import Handlers, build
from studio.pages.new_run.page import lay_out
from studio.pages.new_run.view import View
from studio.pages.new_run.words import say
from studio.services.recent import Recent
from studio.services.services import Studio
from studio.services.session import first, sample_of, sample_path
from studio.words.faults import SAID

WAITING = say("summary.waiting")

pytestmark = pytest.mark.usefixtures("room_found_once")

# ── edits and looks ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_choice_made_while_a_look_runs_is_what_is_shown_in_the_end(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = handlers.cache.read, []
    later = str(sample_path("chat"))

    def slow(config: RunConfig) -> View:
        if not seen:  # another file is chosen meanwhile; another window's choice must not count
            choose(handlers, **{"data.path": later})
            choose(handlers, Window("window-2"), **{"data.path": str(sample_path("text"))})
        seen.append(config.data.path)
        return read(config)

    monkeypatch.setattr(handlers.cache, "read", slow)
    choose(handlers, **{"data.path": str(sample_path("instruction"))})
    said = list(handlers.looked(Window()))
    assert seen == [str(sample_path("instruction")), later]
    reports = [answer["data-report"] for answer in said if "data-report" in answer]
    assert "chat.jsonl" in reports[-1]
    assert not any("instruction.jsonl" in report for report in reports), "what was overtaken is not shown"


@pytest.mark.parametrize("event", ["looked", "made", "check_again", "examine_now", "count_all"])
def test_a_look_that_ends_repeats_nothing(handlers: Handlers, event: str) -> None:
    """Gradio writes a handler's last answer once more when the handler ends. A file that was dropped while the page
    looked at its first one was shown for a moment, and gone again."""
    handler = getattr(handlers if event == "looked" else handlers.data, event)
    sent = {"looked": [], "made": [told({"back": "/made/own.jsonl"}), *shown(handlers)]}.get(event, shown(handlers))
    assert list(handler(Window(), *sent))[-1] == {"summary": gr.skip()}


def test_what_another_choice_overtook_while_it_was_drawn_is_not_shown(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, said = handlers.page.file, []

    def slow(view: View) -> dict[Any, Any]:
        if not said:
            said.append(view)
            look(handlers, **{"data.path": str(sample_path("chat"))})
        return file(view)

    monkeypatch.setattr(handlers.page, "file", slow)
    choose(handlers, **{"data.path": str(sample_path("text"))})
    answers = list(handlers.looked(Window()))
    assert not any("text.txt" in answer.get("data-report", "") for answer in answers)


@pytest.mark.parametrize("steps", [3, -1])
@pytest.mark.parametrize("event", ["looked", "probed", "examine_now"])
def test_what_a_step_said_is_said_as_it_is_now_where_an_edit_crossed_it(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, event: str, steps: int
) -> None:
    """It may reach the page after the edit's answer: a fault was never said, a setting seemed not set."""
    look(handlers)
    monkeypatch.setattr("core.proof.probe.client.probe", lambda *_: Fault("work.fault"))
    handler = getattr(handlers, event, None) or getattr(handlers.data, event)
    answers = handler(Window(), *([] if event == "looked" else shown(handlers)))
    next(answers)
    key = "train.max_steps"
    edit = handlers.edited(Window(), *shown(handlers, **{key: steps}), by_hand=key)
    assert next(answers)["summary"] == edit["summary"]
    assert "look" not in edit
    handlers.edited(Window("window-2"), *shown(handlers, **{key: 4}), by_hand=key)
    assert {str(answer["summary"]) for answer in answers if answer.get("summary", gr.skip()) != gr.skip()} <= {
        str(handlers.page.said(handlers.windows.current("window-1", handlers.drafts.load().config))["summary"])
    }


def test_a_field_that_a_step_wrote_shows_what_was_set_meanwhile(handlers: Handlers) -> None:
    """A proposal that arrives after the edit's answer writes over it there, and Start trained that."""
    handlers.typed(Window(), "/made/own.jsonl", *shown(handlers))
    page: dict[Any, Any] = {}
    key = "train.max_steps"
    for answer in handlers.looked(Window()):
        if answer.get(f"field.{key}") == 0 and key not in handlers.drafts.load().own:
            page |= handlers.edited(Window(), *shown(handlers, **{key: 7}), by_hand=key)
        page |= answer
    assert (page[f"field.{key}"], handlers.drafts.load().config.train.max_steps) == (7, 7)


def test_of_two_looks_the_later_one_says_the_rest(handlers: Handlers) -> None:
    first = handlers.looked(Window())
    next(first)
    in_the_end(handlers.looked(Window()))
    assert list(first) == [{"summary": gr.skip()}]


def test_an_edit_shows_the_machine_as_it_is_now(handlers: Handlers) -> None:
    answer = handlers.edited(Window(), *shown(handlers))
    assert set(answer) == {*handlers.data.said_outputs, "outcome", "look"}
    assert answer["outcome"] == "", "a fault under Start was that of other choices"
    assert "12.0 GB of 16.0 GB memory free" in answer["machine"]


def test_an_edit_asks_for_a_look_where_rows_or_something_missing_want_one(handlers: Handlers) -> None:
    """What a look costs the browser no other edit pays; without it what is missing would be waited for for ever."""
    asks = {}
    handlers.restored(Window())
    in_the_end(handlers.looked(Window()))
    for key, value in (("train.max_length", 96), ("train.max_steps", 3), ("data.eval_rows_max", 90)):
        answer = handlers.edited(Window(), *shown(handlers, **{key: value}), by_hand=key)
        asks[key] = "look" in answer
        in_the_end(handlers.looked(Window()))
    assert asks == {"train.max_length": True, "train.max_steps": False, "data.eval_rows_max": True}
    handlers.cache._known = Recent(12)
    assert "look" in handlers.edited(Window(), *shown(handlers, **{"train.max_steps": 4}), by_hand="train.max_steps")
    faulty = shown(handlers, **{"train.max_steps": -1})
    assert "look" not in handlers.edited(Window(), *faulty, by_hand="train.max_steps"), "there is nothing to look at"


def test_a_look_at_work_does_not_write_over_a_fault(handlers: Handlers) -> None:
    """It began before the field was at fault; rows and model stay shown, and nothing is said of the run."""
    key = "train.max_length"
    look(handlers)
    handlers.edited(Window(), *shown(handlers, **{key: 3}), by_hand=key)
    said = in_the_end(handlers.looked(Window()))
    assert "Max length must be 32 to" in said["summary"]
    assert not said["start"]["interactive"]
    assert "400 of 400 rows" in said["data-report"]
    assert "5.3 M parameters" in said["model-about"]
    answer = handlers.edited(Window(), *shown(handlers, **{key: 128}), by_hand=key)
    assert "must be" not in answer["summary"]


def test_a_late_look_for_an_edit_takes_back_no_newer_one(handlers: Handlers) -> None:
    """It looks at what was chosen last; the newer edit's own look finds nothing left to do."""
    older, newer = shown(handlers, **{"train.max_length": 96}), shown(handlers, **{"train.max_steps": 3})
    look(handlers, **{"train.max_steps": 3})
    handlers.edited(Window(), *older, by_hand="train.max_length")
    handlers.edited(Window(), *newer, by_hand="train.max_steps")
    for said in handlers.looked(Window()):
        assert "3, of " in said.get("summary", "3, of ") or said["summary"] == gr.skip()
    assert handlers.drafts.load().config.train.max_steps == 3


def test_a_model_that_was_downloaded_meanwhile_is_looked_at_again(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The page must then read "on this machine"."""
    told_by_hub = {"source": "hub", "name": "a/b", "folder": "", "cached": False}
    spec = find_model("starter", "starter").model_copy(update=told_by_hub)
    here: dict[str, str] = {}
    monkeypatch.setattr(cache_module, "find_model", lambda *_: spec.model_copy(update=here))
    monkeypatch.setattr(cache_module, "is_cached", lambda name: bool(here))
    assert "on this machine" not in look(handlers, **{"model.name": "a/b"})["model-about"]
    here["folder"] = str(tmp_path)
    assert "on this machine" in look(handlers, **{"model.name": "a/b"})["model-about"]


def test_each_of_many_files_in_turn_is_answered(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of 26 once waited for ever: the model was forgotten while it was looked at, having come first."""
    monkeypatch.setattr(handlers.cache, "_known", Recent(12))
    for number in range(6):
        said = look(handlers, **{"data.path": f"/made/{number}.jsonl"})
        assert WAITING not in said["summary"], f"file {number}"
        assert said["start"]["interactive"], f"file {number}"


def test_what_is_known_of_files_is_kept_within_bounds() -> None:
    known = Recent[str](2)
    for name in ("a", "b", "a", "c"):
        known.put(name, name)
    assert [known.get(name) for name in ("a", "b", "c")] == ["a", None, "c"]


@pytest.mark.parametrize("event", ["looked", "count_all", "examine_now", "probed"])
def test_an_open_page_is_answered_by_a_studio_that_knows_nothing_of_it(
    handlers: Handlers, fake_data: FakeData, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was started again beneath the page, or has forgotten; the edit's setting asks for no look."""
    monkeypatch.setattr(handlers.cache, "_known", Recent(40))
    monkeypatch.setattr("core.proof.probe.client.probe", lambda *_: Fault("work.fault"))
    key = "train.learning_rate"
    values = shown(handlers, **{key: 1e-4})
    answer = handlers.edited(Window(), *values, by_hand=key)
    assert WAITING in answer["summary"]
    assert "look" in answer
    handler = getattr(handlers if event in ("looked", "probed") else handlers.data, event)
    assert WAITING not in in_the_end(handler(Window(), *([] if event == "looked" else values)))["summary"]
    asked = len(fake_data.asked)
    assert "look" not in handlers.edited(Window(), *values, by_hand=key)
    assert len(fake_data.asked) == asked


def test_a_choice_that_sets_fields_is_answered_in_one_event(handlers: Handlers) -> None:
    """With what its fields now say."""
    connected: list[Any] = []
    handlers._sets(lambda handler, *_, **__: connected.append(handler), handlers.preset_chosen, "field.preset")
    (choose,) = connected
    answer = choose(Window(), "chat-style", *shown(handlers, preset="chat-style"))
    assert answer["field.lora.r"] == handlers.drafts.load().config.lora.r == 32
    assert "Teach a tone" in answer["preset-goal"]
    assert (answer["outcome"], "look" in answer) == ("", True)
    answer = choose(Window(), "try-it", *shown(handlers, preset="try-it", **{"train.seed": -1}))
    assert (answer["field.lora.r"], answer["field.train.seed"]) == (16, 3407), "what was out of range is not kept"
    late = shown(handlers)
    look(handlers, **{"data.path": "/made/own.jsonl"})
    choose(Window(), "chat-style", *late)
    assert handlers.drafts.load().config.data.path == "/made/own.jsonl", "it was sent before that was chosen"


def test_a_fault_that_nobody_foresaw_is_an_answer(
    handlers: Handlers, fake_data: FakeData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake_data, "facts", lambda *_, **__: {}["nothing"])
    said = look(handlers)
    assert WAITING not in said["summary"]
    assert SAID["work.fault"][0] in said["data-report"]
    assert not said["start"]["interactive"]
    assert "KeyError: 'nothing'" in capsys.readouterr().err


# ── windows beside each other ────────────────────────────────────────────────────────────────────────────────────────


def test_another_windows_choices_do_not_go_in_silence_and_can_be_taken_back(handlers: Handlers) -> None:
    """Two windows once overwrote each other's draft without a word."""
    first_window, second = Window("window-1"), Window("window-2")
    for window in (first_window, second):
        handlers.restored(window)
    fields = dict(zip(handlers.form.fields, shown(handlers), strict=True))
    hers, mine = fields | {"train.learning_rate": 0.001}, fields | {"train.weight_decay": 0.05}
    assert not handlers.edited(second, *hers.values())["draft-line"], "nothing is lost yet"
    assert "Another window had other settings" in handlers.edited(first_window, *mine.values())["draft-line"]
    assert handlers.drafts.load().config.train.weight_decay == 0.05
    answer = handlers.taken_back(first_window)
    assert answer["data-typed"] == "", "a typed path is that of other choices"
    back = {key: answer[field] for key, field in handlers.form.fields.items()}
    assert (back["train.learning_rate"], back["train.weight_decay"]) == (0.001, fields["train.weight_decay"])
    assert "Undo" in handlers.edited(first_window, *back.values())["draft-line"]
    handlers.drafts.renew(handlers.drafts.load())
    assert not handlers.edited(first_window, *back.values())["draft-line"], "a run was started: it is in the history"


def test_a_window_keeps_what_its_fields_do_not_show(handlers: Handlers) -> None:
    """A run that is run again elsewhere brings its own target modules; they are none of an older window's."""
    handlers.restored(Window())
    values = shown(handlers)
    again = first().config
    lora = again.lora.model_copy(update={"target_modules": ("q_proj",)})
    handlers.drafts.redraft(again.model_copy(update={"lora": lora}))
    handlers.edited(Window(), *values)
    assert len(handlers.drafts.load().config.lora.target_modules) == 7


def test_a_mixture_begun_here_does_not_take_another_windows_choices_away_in_silence(handlers: Handlers) -> None:
    mine, other = Window("window-1"), Window("window-2")
    for window in (mine, other):
        handlers.restored(window)
    values = shown(handlers)
    handlers.edited(other, *shown(handlers, **{"train.learning_rate": 0.001}))
    handlers.data.mixed(mine, told({"mix": "remove", "index": 0}), *values)
    before = handlers.drafts.load().before
    assert before is not None
    assert (before.why, before.config.train.learning_rate) == ("window", 0.001)


@pytest.mark.parametrize("event", ["preset_chosen", "changed"])
def test_what_mends_a_value_out_of_range_leaves_the_rest_as_this_window_shows_it(
    handlers: Handlers, event: str
) -> None:
    """It once brought another window's settings, and its data, into the fields."""
    mine, other = Window("window-1"), Window("window-2")
    handlers.restored(mine)
    handlers.edited(mine, *shown(handlers, **{"data.eval_rows_max": 50}))
    out_of_range = shown(handlers, **{"train.max_length": 3})
    handlers.edited(mine, *out_of_range)
    choose(handlers, other, **{"data.path": str(sample_path("chat"))})
    handlers.edited(other, *shown(handlers, **{"data.eval_rows_max": 70}))
    asked = "chat-style" if event == "preset_chosen" else told({"train.max_length": 512})
    answered = getattr(handlers, event)(mine, asked, *out_of_range)
    sent = zip(handlers.form.fields.items(), out_of_range, strict=True)
    now = {key: answered.get(field, value) for (key, field), value in sent}
    assert (now["data.eval_rows_max"], now["data.path"]) == (50, str(sample_path("instruction")))
    assert now["train.max_length"] >= 512


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_typed_path_counts_once_and_a_home_is_written_out(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    file, late = "field.data.path", shown(handlers)
    assert handlers.typed(Window(), " ~/rows.jsonl ", *late)[file] == "/home/me/rows.jsonl"
    for stands in ("~/rows.jsonl", "  "):
        assert handlers.left(Window(), stands, *late) == {"data-report": gr.skip()}
    assert [*handlers.typed(Window(), "~/rows.jsonl", *late)] == ["look"], "it may have been written anew"
    assert handlers.left(Window(), "/made/other.jsonl", *late)[file] == "/made/other.jsonl"
    assert handlers.typed(Window(), "~nobody-of-this-name/x", *late)[file] == "~nobody-of-this-name/x"


def _own_file(handlers: Handlers, way: str, **fields: Any) -> dict[Any, Any]:
    """Chooses a file of one's own in one of the ways."""
    choose(handlers, **{"data.path": str(sample_path("instruction")), **fields})
    values = shown(handlers)
    if way == "made":
        return in_the_end(handlers.data.made(Window(), told({"back": "/made/own.jsonl"}), *values))
    if way == "typed":
        return handlers.typed(Window(), "/made/own.jsonl", *values)
    return handlers.dropped(Window(), "an-upload", *values)


@pytest.mark.parametrize("way", ["typed", "dropped", "made"])
def test_a_file_of_ones_own_keeps_neither_length_nor_steps_of_the_demo(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """1,000 rows once got 60 steps at 256 tokens, while the form said 3 epochs."""
    kept = KeptFile(Path("/made/own.jsonl"), "ab" * 32, "own.jsonl")
    monkeypatch.setattr(handlers_module, "taken", lambda *_: kept)
    monkeypatch.setattr(handlers_module, "uploaded", lambda *_: kept)
    answer = _own_file(handlers, way)
    assert (answer["field.data.path"], answer["field.preset"], answer["outcome"]) == ("/made/own.jsonl", None, "")
    assert set(answer) <= set(handlers.data.chosen_outputs)
    assert "field.preset" not in _own_file(handlers, way, preset="chat-style"), "it is no goal for samples"
    assert "field.preset" not in handlers.sampled(Window(), "chat", *shown(handlers))
    answer = _own_file(handlers, way, preset="try-it")
    said = in_the_end(handlers.looked(Window()))
    assert (said["field.train.max_steps"], said["field.train.max_length"]) == (0, 64), "as is proposed for its rows"
    assert "Changed with the new file: Max length 256 → 64, Max steps 60 → no limit" in said["summary-more"]


@pytest.mark.parametrize(
    "late", ["edited", "typed", "left", "preset_chosen", "changed", "probed", "check_again", "examine_now", "mixed"]
)
def test_what_was_sent_before_a_window_was_told_of_its_file_does_not_take_it_back(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """The table once stayed with the file of before, under fields that named another: the path's field was left while
    a sample's answer was on its way."""
    monkeypatch.setattr("core.proof.probe.client.probe", lambda *_: Fault("work.fault"))
    look(handlers)
    sent, chat = shown(handlers, **{"train.seed": 7}), str(sample_path("chat"))
    sent_path = handlers.drafts.load().config.data.path
    handlers.sampled(Window(), "chat", *shown(handlers))
    asked = {
        "typed": [sent_path],
        "left": [sent_path],
        "preset_chosen": ["chat-style"],
        "changed": [told({"train.seed": 8})],
        "mixed": [told({})],
    }
    handler = getattr(handlers, late, None) or getattr(handlers.data, late)
    answer = handler(Window(), *asked.get(late, []), *sent, **({"by_hand": "train.seed"} if late == "edited" else {}))
    list(answer if late in ("probed", "check_again", "examine_now") else ())
    assert handlers.drafts.load().config.data.path == chat
    assert "chat.jsonl" in in_the_end(handlers.looked(Window()))["data-report"]
    if late == "edited":
        assert answer["field.data.path"] == chat, "an answer that was lost is made good"


@pytest.mark.parametrize("way", ["sampled", "dropped", "role_given"])
def test_a_file_is_chosen_whatever_else_is_at_fault(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """And the fault stays said. An edit that came while it was read stays too."""
    chat = sample_path("chat")
    monkeypatch.setattr(handlers_module, "uploaded", lambda *_: KeptFile(chat, "ab" * 32, "chat.jsonl"))
    monkeypatch.setattr(handlers_module, "taken", lambda *_: KeptFile(chat, "ab" * 32, "chat.jsonl"))
    look(handlers)
    key = "train.max_length"
    sent = shown(handlers, **{key: 3})
    handlers.edited(Window(), *sent, by_hand=key)
    handlers.edited(Window(), *shown(handlers, **{"train.seed": 7}), by_hand="train.seed")
    handlers.edited(Window(), *sent, by_hand=key)
    wish = {"column": "output", "word": "chosen", "file": str(sample_path("instruction"))}
    asked = {"sampled": "chat", "dropped": "upload", "role_given": told(wish)}
    answer = getattr(handlers if way != "role_given" else handlers.data, way)(Window(), asked[way], *sent)
    assert "Max length must be 32 to" in answer["summary"]
    now = handlers.drafts.load().config
    assert (now.data.path == str(chat), now.data.layout) == (
        (False, "preference") if way == "role_given" else (True, "auto")
    )
    assert (now.train.seed, now.train.max_length) == (7, 256)


def test_a_layout_set_by_hand_counts_whatever_else_is_at_fault_or_on_its_way(handlers: Handlers) -> None:
    """Start once trained another layout than the field showed."""
    key = "data.layout"
    look(handlers)
    before = shown(handlers)
    faulty = shown(handlers, **{"train.max_length": 3})
    handlers.edited(Window(), *faulty, by_hand="train.max_length")
    layout = shown(handlers, **{"train.max_length": 3, key: "text"})
    assert "Max length must be 32 to" in handlers.edited(Window(), *layout, by_hand=key)["summary"]
    mended = shown(handlers, **{"train.max_length": 128, key: "text"})
    handlers.edited(Window(), *mended, by_hand="train.max_length")
    assert handlers.drafts.load().config.data.layout == "text"
    handlers.sampled(Window(), "chat", *before)
    crossing = dict(zip(handlers.form.fields, before, strict=True)) | {key: "messages"}
    answer = handlers.edited(Window(), *crossing.values(), by_hand=key)
    assert (answer["field.data.layout"], handlers.drafts.load().config.data.layout) == ("messages", "messages")


def test_what_is_set_beside_a_fault_counts_once_it_is_mended(handlers: Handlers) -> None:
    """It was forgotten, and the table stayed as the file was read before."""
    look(handlers)
    look(handlers, **{"data.layout": "text"})
    look(handlers, **{"data.layout": "auto"})
    rate, steps = "train.learning_rate", "train.max_steps"
    fields = dict(zip(handlers.form.fields, shown(handlers), strict=True))
    for key, value in ((rate, -1), (steps, 7), ("data.layout", "text")):
        fields[key] = value
        assert "must be" in handlers.edited(Window(), *fields.values(), by_hand=key)["summary"]
    list(handlers.data.examine_now(Window(), *fields.values()))
    fields[rate] = 0.001
    answer = handlers.edited(Window(), *fields.values(), by_hand=rate)
    draft = handlers.drafts.load()
    assert (draft.config.train.max_steps, draft.config.data.layout) == (7, "text")
    assert {rate, steps} <= draft.own
    assert "look" in answer, "the file's outputs are of before"


def test_a_proposal_writes_over_no_field_at_fault(handlers: Handlers) -> None:
    """The fault stayed said, of a field that was none any more, and Start waited for an edit that nobody owed."""
    look(handlers)
    key = "train.max_length"
    handlers.edited(Window(), *shown(handlers, **{key: 3}), by_hand=key)
    handlers.typed(Window(), "/made/own.jsonl", *shown(handlers))
    said = in_the_end(handlers.looked(Window()))
    assert not {f"field.{key}", "field.train.max_steps"} & said.keys()
    assert "Max length must be 32 to" in said["summary"]
    handlers.edited(Window(), *shown(handlers, **{key: 96}), by_hand=key)
    assert in_the_end(handlers.looked(Window()))["field.train.max_steps"] == 0, "it follows the file now"


@pytest.mark.parametrize("asks", ["edited", "role_given"])
def test_a_table_says_nothing_of_another_file(handlers: Handlers, asks: str) -> None:
    """Its changes rest for a moment before they count, and another file may be chosen meanwhile."""
    look(handlers)
    own, chat = str(sample_path("instruction")), str(sample_path("chat"))
    wish = {"path": "/made/edited.jsonl", "file": own, "column": "output", "word": "chosen"}
    handlers.sampled(Window(), "chat", *shown(handlers))
    answer = getattr(handlers.data, asks)(Window(), told(wish), *shown(handlers))
    data = handlers.drafts.load().config.data
    assert (answer, data.path, data.layout) == ({"summary": gr.skip()}, chat, "auto")
    answer = getattr(handlers.data, asks)(Window(), told(wish | {"file": chat}), *shown(handlers))
    data = handlers.drafts.load().config.data
    assert (data.path, data.layout) != (chat, "auto")
    assert answer["outcome"] == "", "a fault under Start was that of other choices"
    assert ("data-typed" in answer) == (asks == "edited"), "Start would wait for a path that was read before"


def test_a_recipe_fills_the_fields_and_says_what_is_lost(handlers: Handlers, tmp_path: Path) -> None:
    """What it is silent of returns to its default: the demo's length and steps are not its own."""
    recipe = tmp_path / "lora.yml"
    recipe.write_text(
        "base_model: a/b\nadapter: lora\nlora_r: 4\nsequence_len: 300\nfsdp: {a: <1>}\nval_set_size: 0.2\n"
    )
    answer = handlers.typed(Window(), str(recipe), *shown(handlers))
    assert (answer["field.model.name"], answer["field.lora.r"], answer["field.train.max_length"]) == ("a/b", 4, 300)
    assert (answer["field.train.max_steps"], answer["field.preset"], answer["data-typed"]) == (0, None, "")
    assert "field.data.path" not in answer, "it names no data that is here"
    assert "Axolotl" in answer["outcome"]
    assert "fsdp" in answer["outcome"]
    assert "&lt;1&gt;" in answer["outcome"]
    recipe.write_text("a: 1\n")
    assert "LLaMA-Factory" in handlers.typed(Window(), str(recipe), *shown(handlers))["outcome"]


def test_the_summary_says_that_fewer_steps_run_than_its_epochs(handlers: Handlers) -> None:
    said = look(handlers, **{"data.path": "/made/own.jsonl"})
    assert "Ends after 60 steps (1.2 of 3 epochs)" in said["summary-more"]
    assert "Run all epochs" in said["summary-more"]
    for other in ({"data.path": str(sample_path("chat"))}, {"train.max_steps": 0}, {"train.max_steps": 5000}):
        assert "Ends after" not in look(handlers, **other)["summary-more"]


# ── Start ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_start_twice_is_one_run_and_other_choices_are_another(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    folder = JobFolder(handlers.studio.locations.runs / "2026-11-20_2243_test_k3f9")
    folder.path.mkdir(parents=True)
    store = SimpleNamespace(start=lambda _, draft_id: started.append(draft_id) or folder.path.name)
    monkeypatch.setattr(handlers.studio, "store", store)
    figures = SimpleNamespace(seconds=(60.0, 120.0))
    monkeypatch.setattr(
        handlers_module, "prepare", lambda config, *_: SimpleNamespace(config=config, asked=config, estimate=figures)
    )
    same, other = shown(handlers), shown(handlers, **{"train.learning_rate": 0.001})
    for values in (same, same, other):
        assert "/watch?run=" in list(handlers.begin(Window(), "", "", *values))[-1]["outcome"]
    assert started[0] == started[1] != started[2]
    noted = read_asked(folder)
    assert noted is not None
    assert (noted.config.train.learning_rate, noted.seconds) == (0.001, (60.0, 120.0))


def test_start_says_that_it_adds_to_the_queue_while_a_run_has_the_card(handlers: Handlers) -> None:
    card = CardLock(handlers.studio.locations, handlers.studio.machine().cards)
    for holder, words in (("2026-11-20_2243_test_k3f9", "Add to queue"), ("Try", "Start training")):
        assert card.acquire(holder)  # Try leaves when a run wants the card
        assert handlers.edited(Window(), *shown(handlers))["start"]["value"].startswith(words)
        card.release()


def test_a_path_that_was_typed_but_not_read_is_not_passed_over(handlers: Handlers) -> None:
    last = list(handlers.begin(Window(), "/somewhere/else.jsonl", "", *shown(handlers)))[-1]
    assert "Press Enter" in last["outcome"]
    assert "look" in last, "one that has ended meanwhile said that Start can be pressed"
    dropped = handlers.studio.locations.uploads / "an-upload-of-a-file"
    dropped.mkdir(parents=True)
    (dropped / "name").write_text("rows.csv")
    (dropped / "rows.csv").write_text("question,answer\n1,2\n")
    last = list(handlers.begin(Window(), "", dropped.name, *shown(handlers)))[-1]
    assert "The file that you dropped has not been read yet." in last["outcome"], "Start was pressed at once"
    assert handlers.studio.store is None, "nothing was asked to start"


@pytest.mark.parametrize("error", [MachineError("disk.full/upload"), ValueError("unforeseen")])
def test_start_can_be_pressed_again_after_any_fault(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(handlers_module, "prepare", broken)
    last = list(handlers.begin(Window(), "", "", *shown(handlers)))[-1]
    assert last["start"]["interactive"] is True
    line = last["outcome"]
    assert 'role="alert"' in line
    assert "unforeseen" not in line
    assert ("ValueError: unforeseen" in capsys.readouterr().err) == isinstance(error, ValueError)


def test_a_page_begins_with_what_it_was_made_with(handlers: Handlers) -> None:
    """All sixty fields were once written anew at each load, and Start waited for a second answer."""
    answer = handlers.restored(Window())
    always = {*handlers.data.whole_outputs, "look"}
    assert set(answer) == always
    choose(handlers, **{"data.path": str(sample_path("chat"))})
    handlers.edited(Window(), *shown(handlers, **{"train.max_steps": 7}))
    answer = handlers.restored(Window("window-2"))
    assert {key: answer[key] for key in set(answer) - always} == {
        "field.data.path": str(sample_path("chat")), "field.train.max_steps": 7, "data-sample": "chat",
    }  # fmt: skip


def test_fields_are_drawn_with_the_choices_and_told_of_no_progress(studio: Studio) -> None:
    """Nothing shows it, and each of seventy parts was drawn anew three times an event."""
    with gr.Blocks() as blocks:
        page = lay_out(studio, session := studio.drafts.load())
        Handlers(studio, page).connect()
    assert [field.value for field in page.form.components] == page.form.values(session)
    assert page.parts["data-sample"].value == sample_of(session.config.data.path)
    assert [one.name for one in blocks.fns.values() if one.show_progress_on != []] == []


def test_an_edit_is_one_event_and_a_look_has_no_inputs(studio: Studio) -> None:
    """What an event costs the browser grows with its inputs; each edit once was two events of 68."""
    with gr.Blocks() as blocks:
        build(studio)
    events = list(blocks.fns.values())
    followed = {one.trigger_after for one in events}
    sets = {"typed", "left", "preset_chosen", "changed", "sampled", "role_given", "taken_back"}
    setting = [one for one in events if one.name in sets and one.concurrency_id == "edits"]
    assert len(setting) > 60
    assert [one.name for one in setting if one._id in followed] == []
    looks = [one for one in events if one.name == "looked"]
    assert [(len(one.inputs), one.trigger_mode) for one in looks] == [(0, "multiple")], "none is dropped beside another"


def test_all_that_sets_something_is_done_in_order(studio: Studio) -> None:
    """A typed value that was still on its way once wrote the former method over the one that was chosen after it."""
    with gr.Blocks() as blocks:
        build(studio)
    setting = {"preset_chosen", "changed", "sampled", "typed", "left", "role_given", "taken_back"}
    queues = {
        (one.name, one.concurrency_id, one.concurrency_limit) for one in blocks.fns.values() if one.name in setting
    }
    assert queues == {(name, "edits", 1) for name in setting}, "beside the fields' own edits"
