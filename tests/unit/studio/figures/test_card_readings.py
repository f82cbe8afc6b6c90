"""Speed against the card's published rate, memory against the forecast, the card's state, and answers on the way."""

from typing import Any

import pytest
from made_runs import on_two_cards, past, step

from core.contract.config import RunConfig
from core.contract.estimate import LearnedRun
from core.contract.events import Event, Plan, Sample, Stage
from core.estimate.inputs.cards import CARDS
from core.runs.record.job_record import RunRecord, fold
from studio.figures.points import forecast_bytes
from studio.pages.watch import view
from studio.pages.watch.view import KEPT, answers_on_the_way, card_state, speed_words

CARD, RATE = "NVIDIA GeForce RTX 4070", CARDS["RTX 4070"].operations


def run_on(card: str, operations: float, *more: Event) -> RunRecord:
    fields: dict[str, Any] = {"card": card, "operations": operations, "predicted_bytes": 5_000_000_000}
    predicted = LearnedRun.model_construct(**fields)
    planned = Plan(total_steps=400, estimated_bytes=700_000_000).model_copy(update={"predicted": predicted})
    return fold([*past(30, total=400), planned, *more])


def facts(record: RunRecord) -> dict[str, str]:
    return view.status(record, RunConfig(), "x", 0.0)["facts"]


def test_the_share_is_counted_work_over_the_published_rate_and_one_stutter_moves_it_little() -> None:
    operations = 0.65 * RATE / 900  # the made steps do 900 tokens a second
    assert speed_words(run_on(CARD, operations)) == "900 tok/s, 65% of what this card can do"
    slow = step(31).model_copy(update={"tokens_per_second": 9.0})
    assert speed_words(run_on(CARD, operations, slow)) == "9 tok/s, 65% of what this card can do"


@pytest.mark.parametrize(("card", "operations"), [("Some Card", 1e9), (CARD, 0.0)])
def test_an_unknown_share_is_left_out(card: str, operations: float) -> None:
    assert speed_words(run_on(card, operations)) == "900 tok/s"
    assert facts(fold(past(0)))["speed"] == "–"


def test_the_forecast_is_in_the_terms_of_what_is_measured() -> None:
    assert forecast_bytes(run_on("x", 1.0)) == 700_000_000
    on_card = step(31).model_copy(update={"reserved_bytes": 6_000_000_000})
    assert forecast_bytes(run_on("x", 1.0, on_card)) == 5_000_000_000
    assert forecast_bytes(fold([])) == 0
    assert facts(run_on("x", 1.0))["memory"].endswith(", forecast 700\u00a0MB"), "a figure keeps its unit on its line"


def test_what_the_card_does_not_tell_is_left_out() -> None:
    all_of_it = {"gpu_load": 0.97, "temperature_celsius": 67.0, "power_watts": 212.4}
    assert card_state(step(1).model_copy(update=all_of_it)) == "97% busy, 67\u00a0°C, 212\u00a0W"
    assert card_state(step(1).model_copy(update={"temperature_celsius": 67.0})) == "67\u00a0°C"
    assert card_state(step(1)) == ""


def test_of_several_cards_each_says_how_it_is_doing_by_its_name() -> None:
    told = view.status(fold(on_two_cards(past(30, total=400))), RunConfig(), "x", 0.0)
    assert told["cards"] == [
        {"name": "RTX 3060 (0)", "state": "9.1 GB, 97% busy, 67\u00a0°C, 168\u00a0W"},
        {"name": "RTX 4090 (1)", "state": "8.8 GB, 41% busy, 188\u00a0W"},
    ]
    assert told["facts"]["device"] == "2 cards"
    ended = view.status(fold(on_two_cards(past(30, finished=True))), RunConfig(), "x", 0.0)
    assert [card["state"] for card in ended["cards"]] == ["", ""], "nobody reads them any more"
    assert view.status(fold(past(30, total=400)), RunConfig(), "x", 0.0)["cards"] == []


def test_the_share_of_what_two_cards_can_do_is_of_both() -> None:
    record = run_on(CARD, 0.65 * RATE / 900)
    assert record.plan is not None
    assert record.plan.predicted is not None
    both = record.plan.model_copy(update={"predicted": record.plan.predicted.model_copy(update={"cards": 2})})
    assert speed_words(fold([*past(30, total=400), both])).endswith(" 32% of what this card can do")


def test_a_run_that_waits_says_for_what_and_no_longer_when_it_goes_on() -> None:
    events = past(30, total=400)
    waits = Stage(at=events[-1].at + 5, attempt=1, stage="waiting", text="1 GB more room")
    told = view.status(fold([*events, waits]), RunConfig(), "x", waits.at)
    assert told["stage"]["waits"] is True
    assert told["sentence"].endswith("1 GB more room")
    assert told["facts"]["finish"] == told["facts"]["left"] == "–", "nobody knows for how long"
    on = view.status(fold([*events, waits, step(31, waits.at + 9)]), RunConfig(), "x", waits.at + 9)
    assert not (on["stage"] or {}).get("waits")
    assert "room" not in on["sentence"]
    assert on["facts"]["left"] != "–"


def answer(number: int, side: str = "tuned", text: str = "", question: int = 0) -> Sample:
    named: Any = {"command_id": f"way-{question}", "side": side, "prompt": "Why?", "right": "So."}
    return Sample(step=number, text=text or f"at {number}", seconds=0.5, **named)


def test_answers_stand_by_question_the_newest_first_and_the_base_last() -> None:
    asked = Sample(command_id="abc", prompt="someone's own", text="x")
    record = fold([answer(0, "base"), asked, answer(10), answer(10, question=1), answer(20)])
    first, second = answers_on_the_way(record)
    assert first["answers"] == [("Step 20", "at 20"), ("Step 10", "at 10"), ("Before training", "at 0")]
    assert (first["prompt"], first["right"], first["cost"]) == ("Why?", "So.", "One answer took at most 0.5 s.")
    assert second["answers"] == [("Step 10", "at 10")]


def test_answers_that_were_given_again_stand_once_and_a_night_of_them_is_thinned() -> None:
    record = fold([answer(0, "base"), answer(10), answer(20), answer(10, text="again"), answer(20, text="later")])
    assert [text for _, text in answers_on_the_way(record)[0]["answers"]] == ["later", "again", "at 0"]
    record = fold([answer(0, "base"), *(answer(number) for number in range(1, 1000))])
    shown = answers_on_the_way(record)[0]["answers"]
    assert len(shown) <= KEPT + 1
    assert (shown[0][1], shown[-1][0]) == ("at 999", "Before training")
