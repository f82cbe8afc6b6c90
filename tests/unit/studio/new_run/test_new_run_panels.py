"""The Data block's panels and its long work, without a browser: what is drawn, what is asked, what goes on and ends."""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_window import FINDING, FakeData, Window, in_the_end, look, shown, told

from core.contract.config import DataChoice
from core.contract.data import Checkup, DataFacts, Example, Finding, Message
from core.contract.errors import DataError, Fault
from core.data.files.made import as_row, write_rows
from studio.pages.new_run import cache as cache_module
from studio.pages.new_run.data import block as data
from studio.pages.new_run.data import checkup, lengths, sources
from studio.pages.new_run.form import sent
from studio.pages.new_run.handlers import Handlers
from studio.services.long_work import LongWork, Work
from studio.services.services import Studio
from studio.services.session import first

FIGURES, REPORT = "lengths-figures", "data-report"
OUTCOME = "source-outcome"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as a large one, whose first rows are looked at before the rest."""
    monkeypatch.setattr(cache_module, "LARGE_BYTES", 0)


def made(handlers: Handlers, do: dict[str, Any], **form: str) -> dict[str, Any]:
    """What is said in the end where another source of rows was asked for."""
    return in_the_end(handlers.data.made(Window(), told(do, **form), *shown(handlers)))


def test_what_a_button_sent_is_read_and_anything_else_is_nothing() -> None:
    assert sent(told({"fix": "x"}, name="n")) == ({"fix": "x"}, {"name": "n"})
    for text in ("", "null", "[]", "{", '{"value": 3, "form": []}'):
        assert sent(text) == ({}, {})


# ── lengths ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=200))
def test_every_row_stands_in_one_bar_and_bars_and_stops_share_one_scale(counts: list[int]) -> None:
    spread = lengths.spread_of(tuple(counts))
    stops, bars = spread.stops, spread.bars
    assert list(stops) == sorted(set(stops))
    assert stops[-1] >= max(counts)
    assert len(stops) <= 100
    assert sum(bars) == len(counts)
    for stop in stops:
        assert sum(count for count, at in zip(bars, stops, strict=True) if at <= stop) == sum(n <= stop for n in counts)
    places = [lengths.place(stop, stops) for stop in stops]
    assert all(before < after for before, after in pairwise(places))
    assert places[-1] == pytest.approx(1.0)


def test_lengths_are_drawn_named_and_stand_in_a_table(handlers: Handlers) -> None:
    view = handlers.cache.look(first().config)
    facts = DataFacts(
        rows=100, lengths=(40,) * 90 + (400,) * 10, trained=(9,) * 100, max_length=256, longest=400, mean=76.0
    )
    assert view.figures
    figures = view.figures.model_copy(update={"rows_cut": 10, "tokens_lost": 1440, "tokens_per_epoch": 6160})
    picture, numbers = lengths.lengths_view(replace(view, facts=facts, figures=figures))
    assert "100 rows of 40 to 400 tokens, half of them at most 40. A limit of 256 tokens cuts 10 rows." in picture
    assert picture.count('class="under"') == picture.count('class="over"') == 1
    for words in ("10 of 100", "1,440 (19%)", '<th scope="row">33 – 64</th><td>90</td><td>90%</td>'):
        assert words in numbers


def test_every_row_of_a_sampled_file_is_counted_when_asked(handlers: Handlers, fake_data: FakeData) -> None:
    fake_data.sampled = True
    assert "Count all 400 rows" in look(handlers)[FIGURES]
    fake_data.error = DataError("data.empty/upload")
    assert "This file is empty" in in_the_end(handlers.data.count_all(Window(), *shown(handlers)))[FIGURES]
    fake_data.error = None
    counted = in_the_end(handlers.data.count_all(Window(), *shown(handlers)))
    assert fake_data.asked[-2:] == ["tokenise", "facts 256"], "the lengths are found anew"
    assert "sample" not in counted[FIGURES]
    list(handlers.data.count_all(Window(), *shown(handlers)))
    assert fake_data.asked[-1] == "facts 256", "all are known"


def test_counting_every_row_can_be_ended_and_the_lengths_of_the_sample_stay(
    handlers: Handlers, fake_data: FakeData
) -> None:
    fake_data.sampled = fake_data.slow = True
    look(handlers)
    counting = handlers.data.count_all(Window(), *shown(handlers))
    assert "100 of 400 rows" in next(answer[FIGURES] for answer in counting if FIGURES in answer)
    handlers.data.stop(told({"kind": "count"}))
    assert "Count all 400 rows" in in_the_end(counting)[FIGURES]


# ── the doctor ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_findings_say_what_how_many_and_what_can_be_done() -> None:
    note = Finding(code="languages", level="note", count=1, text="n")
    fault = Finding(code="answer_cut", level="fault", count=700, text="f", rows=tuple(range(500)))
    findings = Checkup(rows=400, findings=(note, FINDING, fault), languages={"English": 0.996, "German": 0.004})
    drawn = checkup.checkup_view(findings)
    order = [drawn.index(f"level-{level}") for level in ("fault", "warning", "note")]
    assert order == sorted(order), "what is worst comes first"
    for words in (
        "Show 500 of 700 rows", "Leave out 3 repeated rows", "an &lt;earlier&gt; one", "English", "&lt;1%"
    ):  # fmt: skip
        assert words in drawn
    assert checkup.tab_words(findings) == "Data doctor (2)"
    assert "nothing to fix" in checkup.checkup_view(Checkup(rows=9, findings=()))
    assert "Check 51,000 rows" in checkup.checkup_view(None, rows=51_000)
    assert 'value="0.250"' in checkup.checkup_view(None, rows=9, progress=(1, 4))


def test_a_small_file_is_examined_unasked_and_once(handlers: Handlers, fake_data: FakeData) -> None:
    assert "Data doctor (1)" in look(handlers)["data-tabs"]
    look(handlers)
    assert fake_data.asked.count("checkup") == 1


# ── large files ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_check_can_be_cancelled_and_taken_up_again(handlers: Handlers, fake_data: FakeData, large: None) -> None:
    fake_data.slow = True
    answers: Iterator[Any] = handlers.looked(Window())
    next(answers)
    assert "7 rows so far" in next(answers)[REPORT]
    handlers.data.stop(told({"kind": "check"}))
    said = in_the_end(answers)
    assert "Only the first 50 rows" in said[REPORT]
    assert said["start"]["value"] == "Check the whole file first"
    look(handlers)
    assert fake_data.asked.count("check") == 1, "what was stopped stays stopped"
    fake_data.slow = False
    again = in_the_end(handlers.data.check_again(Window(), *shown(handlers)))
    assert "400 of 400" in again[REPORT]
    assert "look" in again, "settings follow the whole file"


def test_a_fault_in_the_rest_of_a_large_file_is_said(handlers: Handlers, fake_data: FakeData, large: None) -> None:
    fake_data.error = DataError("data.empty/upload")
    said = look(handlers)
    assert "This file is empty" in said[REPORT]
    assert said["start"]["value"] == "Fix the data file"


# ── other sources of rows ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_fix_is_of_the_rows_as_they_are_now(handlers: Handlers, fake_data: FakeData) -> None:
    look(handlers)
    assert made(handlers, {"fix": "exact_duplicates"})["field.data.path"] == "/made/mended.jsonl"
    assert fake_data.asked[-1] == "fix [('exact_duplicates', ())]"
    assert handlers.cache.made_from("/made/mended.jsonl") == first().config.data.path
    assert 'role="alert"' in made(handlers, {"fix": "markup"})[OUTCOME]


def test_a_made_set_says_what_it_was_made_from(studio: Studio) -> None:
    row = as_row(Example(row=1, messages=(Message(role="user", content="q"), Message(role="assistant", content="a"))))
    origin = {"made": "mended", "from": {"name": "<a>.jsonl"}, "done": [{"what": "left out", "count": 12}]}
    drawn = str(data.origin_view(str(write_rows([row], "x", origin, studio.locations).path), "/old"))
    assert "made from &lt;a&gt;.jsonl: 12 rows left out. Your file is unchanged." in drawn
    assert "Back to the file" in drawn
    assert data.origin_view("/no/such/file") is None


def test_files_are_mixed_by_weight_each_with_its_layout(handlers: Handlers, fake_data: FakeData) -> None:
    form = {"path.0": "/a.jsonl", "layout.0": "alpaca", "weight.0": "2", "path.1": "/b.csv", "weight.1": "0,5"}
    assert made(handlers, {"mix": "make"}, **form)["field.data.path"] == "/made/mixture.jsonl"
    assert fake_data.asked[-1] == "mix [('a.jsonl', 'alpaca', 2.0), ('b.csv', 'auto', 0.5)]"
    left = handlers.data.mixed(Window(), told({"mix": "remove", "index": 0}, **form), *shown(handlers))["mix-form"]
    assert "b.csv" in left
    assert "a.jsonl" not in left
    assert "%" not in left, "what a weight comes to is not known before all rows are"
    for foreign in ({"columns.0": '["x"]'}, {"columns.0": "{"}, {"layout.0": "nonsense"}):
        assert sources.parts_of({**form, **foreign})[0].file == DataChoice(path="/a.jsonl")
    faulty = made(handlers, {"mix": "make"}, **{"path.0": "/a", "weight.0": "x"})
    assert "How often should the rows of a be seen? A weight is a number above 0, not “x”." in faulty[OUTCOME]


def test_a_hub_set_is_fetched_as_asked_and_its_fault_is_one_line(handlers: Handlers, fake_data: FakeData) -> None:
    said = made(handlers, {"hub": "fetch"}, name=" a/b ", subset="", split="", rows="500")
    assert fake_data.asked[-1] == "hub a/b  train 500"
    assert "HF_HUB_OFFLINE is set" in said[OUTCOME]
    for bad in ({"name": ""}, {"name": "a/b", "rows": "-1"}, {"name": "a/b", "rows": "many"}):
        with pytest.raises(DataError):
            sources.hub_wish(bad)


def test_a_cancelled_fetch_leaves_the_file_as_it_was(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*asked: Any) -> Any:
        tell, stopped = asked[-2:]
        tell(1200, 20_000, 1200)
        while not stopped():
            time.sleep(0.005)
        raise DataError("data.stopped", about="it")

    monkeypatch.setattr(handlers.studio.data, "from_hub", endless)
    fetch = told({"hub": "fetch"}, name="a/b", rows="20000")
    answers = handlers.data.made(Window(), fetch, *shown(handlers))
    assert "1,200 rows so far" in next(answers)[OUTCOME]
    handlers.data.stop(told({"kind": "make"}))
    assert in_the_end(answers) == {OUTCOME: ""}


# ── long work ────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def test_a_fault_of_long_work_that_nobody_foresaw_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    ended = LongWork().start(("x", 1), lambda _: {}["unforeseen"])
    list(ended.ticks())
    assert isinstance(ended.fault, Fault)
    assert "unforeseen" not in ended.fault.message
    assert "KeyError: 'unforeseen'" in capsys.readouterr().err


def test_the_last_twelve_pieces_of_work_that_ended_are_remembered() -> None:
    """A check that somebody stopped would else look as if it had just begun."""
    long = LongWork()
    for number in range(20):
        list(long.start(("x", number), lambda work: None).ticks())
    assert [number for number in range(20) if long.of(("x", number))] == list(range(8, 20))
