"""The Data block's panels and its long work, without a browser: what is drawn, what is asked, what goes on and ends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_window import FINDING, MACHINE, FakeData, Window, made_handlers, shown

from core.contract.data import DataFacts, Preview
from core.contract.errors import DataError, Fault, HubError
from core.contract.findings import Checkup, Finding
from core.data.files.made import as_row, write_rows
from studio.pages.new_run import cache as desk
from studio.pages.new_run.asking import sent
from studio.pages.new_run.data import block as data
from studio.pages.new_run.data import checkup, lengths, preview, sources
from studio.pages.new_run.data.preview import Asked
from studio.pages.new_run.handlers import Handlers
from studio.pages.new_run.long_work import LongWork, Work
from studio.pages.new_run.plan import summary
from studio.pages.new_run.view import View
from studio.services.services import Studio
from studio.services.session import first, sample_path


@pytest.fixture
def handlers(studio: Studio) -> Handlers:
    return made_handlers(studio)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as a large one, whose first rows are looked at before the rest."""
    monkeypatch.setattr(desk, "LARGE_BYTES", 0)


def told(do: dict[str, Any], **form: str) -> str:
    return json.dumps({"value": do, "form": form, "n": "1"})


def turned(handlers: Handlers, asked: str, search: str = "") -> dict[str, Any]:
    """What the panel shows at last."""
    return list(handlers.data.turned(Window(), asked, search, *shown(handlers)))[-1]


def test_what_a_button_sent_is_read_and_anything_else_is_nothing() -> None:
    assert sent(told({"fix": "x"}, name="n")) == ({"fix": "x"}, {"name": "n"})
    for text in ("", "null", "[]", "{", '{"value": 3, "form": []}'):
        assert sent(text) == ({}, {})
    assert Asked.read(told({"offset": 40, "only": "markup"}), "  word ") == Asked(40, "word", "markup")
    for text in ("", "[]", '{"value": {"offset": "x"}}', '{"value": {"offset": 1e999}}', '{"value": {"offset": null}}'):
        assert Asked.read(text) == Asked()
    assert Asked.read(told({"offset": -5})).offset == 0


def test_the_preview_turns_searches_and_shows_a_findings_rows(handlers: Handlers, fake_data: FakeData) -> None:
    list(handlers.looked(Window(), "", *shown(handlers)))
    answer = turned(handlers, told({"offset": 20}))
    assert fake_data.asked[-1] == "preview 20  []"
    assert "Rows 21 to 40 of 40" in answer["data.preview.rows"]
    answer = turned(handlers, told({"only": "exact_duplicates"}))
    assert fake_data.asked[-1] == "preview 0  [4, 9, 11]"
    assert "Repeated rows" in answer["data.preview.only"]
    assert "Show all rows" in answer["data.preview.only"]
    again = list(handlers.data.searched(Window(), "piano", *shown(handlers)))[-1]
    assert fake_data.asked[-1] == "preview 0 piano [4, 9, 11]", "a search stays among the finding's rows"
    back = turned(handlers, told({"offset": 0, "only": ""}))
    assert fake_data.asked[-1] == "preview 0  []"
    assert "Show all rows" in again["data.preview.only"]
    assert back["data.preview.only"] == ""


def test_a_look_that_ends_later_leaves_the_rows_that_were_turned_to(handlers: Handlers, fake_data: FakeData) -> None:
    window = Window()
    list(handlers.looked(window, "", *shown(handlers)))
    turned(handlers, told({"only": "exact_duplicates"}))
    answers = list(handlers.looked(window, "", *shown(handlers)))
    lines = [answer["data.preview.only"] for answer in answers if "data.preview.only" in answer]
    assert lines, "the look said something of the rows"
    assert all("Repeated rows" in line for line in lines)
    assert fake_data.asked[-1] == "preview 0  [4, 9, 11]"
    other = list(handlers.looked(window, "piano", *shown(handlers)))
    assert "Repeated rows" not in other[-1].get("data.preview.only", ""), "other words were searched for meanwhile"


def test_a_findings_rows_are_found_anew_where_the_choices_are_newer_than_the_finding(
    handlers: Handlers, fake_data: FakeData
) -> None:
    list(handlers.looked(Window(), "", *shown(handlers)))
    fake_data.asked.clear()
    newer = shown(handlers, **{"train.max_length": 96})
    asked = list(handlers.data.turned(Window(), told({"only": "exact_duplicates"}), "", *newer))
    assert "checkup" in fake_data.asked, "nothing was found for this length yet"
    assert "Repeated rows" in asked[-1]["data.preview.only"]
    assert fake_data.asked[-1] == "preview 0  [4, 9, 11]"


def test_no_row_that_matches_is_said() -> None:
    assert "No row holds these words" in preview.preview_view(Preview(rows=(), total=0, template="x"), Asked(0, "zzz"))


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=200))
def test_every_row_stands_in_one_bar_and_bars_and_stops_share_one_scale(found: list[int]) -> None:
    spread = lengths.spread_of(tuple(found))
    stops, bars = spread.stops, spread.bars
    assert list(stops) == sorted(set(stops))
    assert stops[-1] >= max(found)
    assert len(stops) <= 100
    assert sum(bars) == len(found)
    for stop in stops:
        assert sum(count for count, at in zip(bars, stops, strict=True) if at <= stop) == sum(n <= stop for n in found)
    places = [lengths.place(stop, stops) for stop in stops]
    assert all(before < after for before, after in pairwise(places))
    assert places[-1] == pytest.approx(1.0)


def test_lengths_are_drawn_named_and_stand_in_a_table(handlers: Handlers) -> None:
    desk_ = handlers.cache
    view = desk_.look(first().config)
    rows = (40,) * 90 + (400,) * 10
    facts = DataFacts(rows=100, lengths=rows, trained=(9,) * 100, max_length=256, longest=400, mean=76.0)
    assert view.figures
    figures = view.figures.model_copy(update={"rows_cut": 10, "tokens_lost": 1440, "tokens_per_epoch": 6160})
    picture, numbers = lengths.lengths_view(replace(view, facts=facts, figures=figures))
    assert "100 rows of 40 to 400 tokens, half of them at most 40. A limit of 256 tokens cuts 10 rows." in picture
    assert picture.count('class="under"') == 1
    assert picture.count('class="over"') == 1
    assert "10 of 100" in numbers
    assert "1,440 (19\u00a0%)" in numbers
    assert '<th scope="row">33 – 64</th><td>90</td><td>90 %</td>' in numbers
    assert lengths.lengths_view(View(first().config, MACHINE))[1] == ""


def test_findings_say_what_how_many_and_what_can_be_done() -> None:
    note = Finding(code="languages", level="note", count=1, text="n")
    fault = Finding(code="answer_cut", level="fault", count=700, text="f", rows=tuple(range(500)))
    found = Checkup(rows=400, findings=(note, FINDING, fault), languages={"English": 0.996, "German": 0.004})
    drawn = checkup.checkup_view(found)
    order = [drawn.index(f"level-{level}") for level in ("fault", "warning", "note")]
    assert order == sorted(order), "what is worst comes first"
    assert "Show 500 of 700 rows" in drawn
    assert "Leave out 3 repeated rows" in drawn
    assert "an &lt;earlier&gt; one" in drawn
    assert "English" in drawn
    assert "&lt;1\u00a0%" in drawn
    assert checkup.tab_words(found) == "Data doctor (2)"
    assert "nothing to fix" in checkup.checkup_view(Checkup(rows=9, findings=()))
    assert "Examine 51,000 rows" in checkup.checkup_view(None, rows=51_000)
    assert 'value="0.250"' in checkup.checkup_view(None, rows=9, progress=(1, 4))


def test_every_row_of_a_sampled_file_is_counted_when_asked(handlers: Handlers, fake_data: FakeData) -> None:
    fake_data.sampled = True
    looked = list(handlers.looked(Window(), "", *shown(handlers)))
    lengths_said = "data.lengths.figures"
    assert "Count all 400 rows" in [answer for answer in looked if lengths_said in answer][-1][lengths_said]
    said = [
        answer[lengths_said] for answer in handlers.data.count_all(Window(), *shown(handlers)) if lengths_said in answer
    ]
    assert fake_data.asked[-2:] == ["tokenise", "facts 256"], "the lengths are found anew"
    assert "sample" not in said[-1]
    fake_data.asked.clear()
    list(handlers.data.count_all(Window(), *shown(handlers)))
    assert "tokenise" not in fake_data.asked, "all are known"


def test_counting_every_row_says_how_far_it_is_and_can_be_ended(handlers: Handlers, fake_data: FakeData) -> None:
    fake_data.sampled = fake_data.slow = True
    list(handlers.looked(Window(), "", *shown(handlers)))
    counting = handlers.data.count_all(Window(), *shown(handlers))
    first = next(counting)["data.lengths.figures"]
    assert "100 of 400 rows" in first
    assert "Cancel" in first
    handlers.data.stop(told({"kind": "count"}))
    assert "Count all 400 rows" in list(counting)[-1]["data.lengths.figures"], "the sample's lengths stay"


def test_rows_that_cannot_be_counted_say_why(handlers: Handlers, fake_data: FakeData) -> None:
    fake_data.sampled = True
    list(handlers.looked(Window(), "", *shown(handlers)))
    fake_data.error = DataError.told_by(
        {"code": "data.cache", "message": "Expected room for the tokens, found none.", "hint": "Free some disk space."}
    )
    assert (
        "Free some disk space." in list(handlers.data.count_all(Window(), *shown(handlers)))[-1]["data.lengths.figures"]
    )


def test_a_small_file_is_examined_unasked(handlers: Handlers, fake_data: FakeData) -> None:
    answers = list(handlers.looked(Window(), "", *shown(handlers)))
    assert fake_data.asked.count("checkup") == 1
    assert "Data doctor (1)" in answers[-1]["data.tabs"]
    list(handlers.looked(Window(), "", *shown(handlers)))
    assert fake_data.asked.count("checkup") == 1, "what is known is not asked again"


def test_a_large_file_shows_its_first_rows_and_is_then_checked_whole(
    handlers: Handlers, fake_data: FakeData, large: None
) -> None:
    answers = list(handlers.looked(Window(), "", *shown(handlers)))
    reports = [str(answer["data.report"]) for answer in answers if "data.report" in answer]
    assert "50 of the first 50 rows can be used" in reports[0]
    assert "Cancel" in reports[0]
    assert "400 of 400 rows can be used" in reports[-1]
    assert answers[0]["start"]["value"] == "Check the whole file first"
    assert answers[-1]["start"]["interactive"]
    assert [ask for ask in fake_data.asked if not ask.startswith("preview")][:3] == ["first_look", "check", "facts 256"]


def test_a_check_can_be_cancelled_and_taken_up_again(handlers: Handlers, fake_data: FakeData, large: None) -> None:
    fake_data.slow = True
    answers: Iterator[Any] = handlers.looked(Window(), "", *shown(handlers))
    next(answers)
    going = next(answers)
    assert "7 rows so far" in str(going["data.report"])
    handlers.data.stop(told({"kind": "check"}))
    rest = list(answers)
    stopped = [str(answer["data.report"]) for answer in rest if "data.report" in answer][-1]
    assert "Check the whole file" in stopped
    assert "Only the first 50 rows" in stopped
    assert rest[-1]["start"]["value"] == "Check the whole file first"
    list(handlers.looked(Window(), "", *shown(handlers)))
    assert fake_data.asked.count("check") == 1, "what was stopped stays stopped"
    fake_data.slow = False
    again = list(handlers.data.check_again(Window(), "", *shown(handlers)))
    assert any("400 of 400" in str(answer.get("data.report")) for answer in again)


def test_a_fault_in_the_rest_of_a_large_file_is_said(handlers: Handlers, fake_data: FakeData, large: None) -> None:
    fake_data.error = DataError.told_by({"code": "data.broken", "message": "Expected JSON in row 70, found a picture."})
    answers = list(handlers.looked(Window(), "", *shown(handlers)))
    assert any("found a picture" in str(answer.get("data.report")) for answer in answers)
    assert answers[-1]["start"]["value"] == "Fix the data file"


def test_a_fix_writes_a_new_set_and_the_way_back_leads_to_the_file(handlers: Handlers, fake_data: FakeData) -> None:
    list(handlers.looked(Window(), "", *shown(handlers)))
    answer = list(handlers.data.made(Window(), told({"fix": "exact_duplicates"}), *shown(handlers)))[-1]
    assert fake_data.asked[-1] == "fix [('exact_duplicates', ())]"
    assert answer["field.data.path"] == "/made/mended.jsonl"
    assert handlers.cache.made_from("/made/mended.jsonl") == str(sample_path("instruction"))
    back = list(handlers.data.made(Window(), told({"back": "/old/file.jsonl"}), *shown(handlers)))[-1]
    assert back["field.data.path"] == "/old/file.jsonl"
    stale = list(handlers.data.made(Window(), told({"fix": "markup"}), *shown(handlers)))[-1]
    assert 'role="alert"' in stale["data.sources.outcome"]


def test_a_made_set_says_what_it_was_made_from(studio: Studio) -> None:
    example = desk_example()
    origin = {"made": "mended", "from": {"name": "<a>.jsonl"}, "done": [{"what": "left out", "count": 12}]}
    kept = write_rows([as_row(example)], "x", origin, studio.locations)
    drawn = str(data.origin_view(str(kept.path), "/old"))
    assert "made from &lt;a&gt;.jsonl: 12 rows left out. Your file is as it was." in drawn
    assert "Back to the file" in drawn
    # The same rows twice would be the same file, which keeps its first origin.
    parts = {"made": "mixture", "parts": [{"name": "a", "weight": 2}]}
    mixed = write_rows([as_row(example)] * 2, "y", parts, studio.locations)
    assert "a × 2" in str(data.origin_view(str(mixed.path)))
    assert data.origin_view("/no/such/file") is None


def desk_example() -> Any:
    from core.contract.data import Example, Message

    return Example(row=1, messages=(Message(role="user", content="q"), Message(role="assistant", content="a")))


def test_files_are_mixed_by_weight_each_with_its_layout(
    handlers: Handlers, fake_data: FakeData, monkeypatch: pytest.MonkeyPatch, studio: Studio
) -> None:
    folder = studio.locations.make().uploads / "an-upload-of-mine"
    folder.mkdir()
    (folder / "rows.jsonl").write_text("{}")
    (folder / "name").write_text("second.jsonl")
    answer = handlers.data.mixed(told({"mix": "add", "upload": folder.name}), *shown(handlers))
    drawn = answer["data.sources.mix"]
    assert "instruction.jsonl" in drawn, "the chosen file is the first part"
    assert "second.jsonl" in drawn
    assert "%" not in drawn, "what a weight comes to is not known before all rows are"
    parts = [sources.Part("/a", rows=30, weight=2), sources.Part("/b", rows=60, weight=0.5)]
    assert re.findall(r"(\d+) %", sources.mix_view(parts)) == ["67", "33"]
    form = {"path.0": "/a.jsonl", "layout.0": "alpaca", "weight.0": "2", "path.1": "/b.csv", "weight.1": "0,5"}
    made = list(handlers.data.made(Window(), told({"mix": "make"}, **form), *shown(handlers)))[-1]
    assert fake_data.asked[-1] == "mix [('a.jsonl', 'alpaca', 2.0), ('b.csv', 'auto', 0.5)]"
    assert made["field.data.path"] == "/made/mixture.jsonl"
    left = handlers.data.mixed(told({"mix": "remove", "index": 0}, **form), *shown(handlers))["data.sources.mix"]
    assert "b.csv" in left
    assert "a.jsonl" not in left
    foreign = sources.parts_of({**form, "columns.0": '["x"]', "columns.1": "{", "layout.1": "nonsense"})
    assert [(part.columns, part.layout) for part in foreign] == [("{}", "alpaca"), ("{}", "auto")]
    faulty = list(
        handlers.data.made(Window(), told({"mix": "make"}, **{"path.0": "/a", "weight.0": "x"}), *shown(handlers))
    )
    assert "Expected a weight above 0 for a, found x." in faulty[-1]["data.sources.outcome"]


def test_a_hub_set_is_fetched_as_asked_and_its_fault_is_one_line(handlers: Handlers, fake_data: FakeData) -> None:
    form = {"name": " a/b ", "subset": "", "split": "", "rows": "500"}
    said = list(handlers.data.made(Window(), told({"hub": "fetch"}, **form), *shown(handlers)))[-1]
    assert fake_data.asked[-1] == "hub a/b  train 500"
    assert "found no network" in said["data.sources.outcome"]
    for bad in ({"name": ""}, {"name": "a/b", "rows": "-1"}, {"name": "a/b", "rows": "many"}):
        with pytest.raises(DataError):
            sources.hub_wish(bad)


def test_long_work_is_joined_told_and_ended() -> None:
    long, seen = LongWork(), []

    def work(work: Work) -> str:
        seen.append(1)
        work.tell(3, 4)
        while not work.stopped():
            time.sleep(0.005)
        return "end"

    begun = long.start(("check", 1), work)
    assert long.start(("check", 1), work) is begun, "a second window joins"
    ticks = begun.ticks()
    assert next(ticks) == (3, 4)
    long.stop("examine")
    assert not begun.ended.is_set()
    long.stop("check")
    list(ticks)  # until it has ended
    assert (begun.result, seen) == ("end", [1])


def test_a_fault_nobody_foresaw_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_: Work) -> None:
        raise ValueError("unforeseen")

    ended = LongWork().start(("x", 1), broken)
    list(ended.ticks())
    assert isinstance(ended.fault, Fault)
    assert "unforeseen" not in ended.fault.message
    assert "ValueError: unforeseen" in capsys.readouterr().err


def test_start_is_closed_where_nothing_would_be_learned() -> None:
    view = View(
        first().config,
        MACHINE,
        data_fault=DataError.told_by({"code": "data.nothing", "message": "Expected tokens to train on."}),
    )
    assert summary.start_words(view) == ("Nothing would be learned", False)
    offline = replace(
        view,
        data_fault=HubError.told_by({"code": "hub.offline", "message": "Expected the tokenizer, found no network."}),
    )
    assert summary.start_words(offline) == ("Choose another model", False)


def test_a_cancelled_fetch_leaves_the_file_as_it_was(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*asked: Any) -> Any:
        tell, stopped = asked[-2:]
        tell(1200, 20_000, 1200)
        while not stopped():
            time.sleep(0.005)
        raise DataError.told_by({"code": "data.stopped", "message": "It was stopped."})

    monkeypatch.setattr(handlers.studio.data, "from_hub", endless)
    fetch = told({"hub": "fetch"}, name="a/b", rows="20000")
    answers = handlers.data.made(Window(), fetch, *shown(handlers))
    assert "1,200 rows so far" in next(answers)["data.sources.outcome"]
    handlers.data.stop(told({"kind": "make"}))
    assert list(answers)[-1] == {"data.sources.outcome": ""}


def test_the_last_twelve_pieces_of_work_that_ended_are_remembered() -> None:
    """A check that somebody stopped would else look as if it had just begun."""
    long = LongWork()
    for number in range(20):
        list(long.start(("x", number), lambda work: None).ticks())
    assert [number for number in range(20) if long.of(("x", number))] == list(range(8, 20))
