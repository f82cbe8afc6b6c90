"""Pairs, marks and labels on their way through the browser: choice, charts, answers.

One studio and one page, which each test finds as the one before left it; what a method's loss is, is tested where it
is computed. By default what is started waits for a card that is held, and what Watch and Try show is of a run that is
written as a worker writes it; ``-m slow`` trains all three by real processes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from driving import RunningStudio
from made_runs import past, sorting, write_run
from visiting import intercept, shows
from waiting import until

from core.contract.config import RunConfig
from core.contract.events import Evaluation, Event, Step
from core.machine.locations import Locations
from core.runs.control.store import RunStore
from core.runs.record.job_record import RunRecord

pytestmark = pytest.mark.browser
PATIENCE = 120_000
STEPS = "4"
MARKED, PAIRED, SORTED = (f"2026-11-20_2243_{name}_k3f9" for name in ("marks", "pairs", "kinds"))
PRESSED = "#data-methods [aria-pressed=true]"


def set_knob(page: Any, key: str, value: str) -> None:
    """Types into an advanced setting."""
    field = page.locator(f"#train-{key} input")
    if not field.is_visible():
        page.locator("#block-advanced").get_by_text("Advanced").first.click()
    field.fill(value)
    field.press("Tab")


def at_new_run(page: Any, studio: RunningStudio) -> None:
    """New run as a test before left it, or loaded where that went on to another page."""
    if page.url != f"{studio.root}/":
        page.goto(f"{studio.root}/")
        shows(page, "#data-table [data-f=count]", " rows")


def started(page: Any, studio: RunningStudio) -> str:
    """The run of what stands in New run, by its id; Watch shows it."""
    shows(page, "#summary", f"{STEPS}, of ")
    page.wait_for_function("() => !document.querySelector('#start').disabled")
    page.locator("#start").click()
    page.wait_for_url("**/watch?run=*")
    return str(page.url.split("run=")[1].split("&")[0])


def asked_for(page: Any, studio: RunningStudio) -> RunConfig:
    """What is asked for by Start, of a run that waits for the card."""
    store, run_id = RunStore(Locations(studio.home)), started(page, studio)
    config = store.open(run_id).config()
    store.stop(run_id)
    until(lambda: store.record(run_id).state == "stopped")
    return config


def trained(page: Any, studio: RunningStudio) -> RunRecord:
    """The run of what stands in New run, from Start to its end."""
    run_id = started(page, studio)
    page.locator("[data-f=save-file]").wait_for()  # of an ended run, whose verdict may be that it came out worse
    record = RunStore(Locations(studio.home)).record(run_id)
    assert record.state == "finished"
    return record


def of_two_answers(events: Sequence[Event], **measured: float) -> list[Event]:
    """The same run, with what is measured of a good and a bad answer in each step and evaluation."""
    more = {"margin": 0.3, "chosen_reward": 0.1, "rejected_reward": -0.2, **measured}
    return [event.model_copy(update=more) if isinstance(event, Step | Evaluation) else event for event in events]


def charts(page: Any) -> set[str]:
    """The charts that are shown, by key."""
    shown = page.locator(".charts > figure:not([hidden])").evaluate_all("all => all.map(one => one.className)")
    return {name.removeprefix("chart-") for names in shown for name in names.split() if name.startswith("chart-")}


def pairs_chosen(page: Any) -> None:
    """New run with pairs: six methods take them; another one changes no other setting, and its own settings stand under
    Advanced."""
    page.get_by_role("radio", name="Preferences").check()
    shows(page, PRESSED, "DPO")
    # Until then an older look's board may stand there.
    page.wait_for_function("() => document.querySelectorAll('#data-methods button').length === 6")
    offered = page.locator("#data-methods button").all_inner_texts()
    assert offered == ["DPO", "ORPO", "SimPO", "CPO", "Reward model", "SFT"]
    set_knob(page, "max_steps", STEPS)
    set_knob(page, "eval_steps", STEPS)
    page.get_by_role("button", name="SimPO").click()
    shows(page, PRESSED, "SimPO")
    shows(page, "#data-methods .hint", "ever longer")
    page.locator("#train-simpo_gamma").wait_for()
    assert not page.locator("#train-rpo_alpha").is_visible()
    assert page.locator("#train-max_steps input").input_value() == STEPS
    page.get_by_role("button", name="DPO").click()
    shows(page, PRESSED, "DPO")


def pairs_are_measured(page: Any) -> None:
    """Watch has the charts of pairs, and none of marks."""
    page.locator(".chart-rewards").scroll_into_view_if_needed()
    shows(page, ".chart-margin .chart-legend", "Held-out")
    assert {"margin", "accuracy", "rewards"} <= charts(page)
    assert "kl" not in charts(page)
    assert page.locator(".chart-rewards .chart-item:not([hidden])").count() == 4
    assert page.faults == []


def test_pairs_are_asked_for_as_a_preference_and_measured_as_one(
    page: Any, studio: RunningStudio, card_is_held: None, tmp_path: Path
) -> None:
    assert page.locator("#data-methods").count() == 0, "examples leave no choice"
    pairs_chosen(page)
    config = asked_for(page, studio)
    assert (config.method, config.train.max_steps, config.train.eval_steps) == ("dpo", int(STEPS), int(STEPS))
    events = of_two_answers(past(120, finished=True), accuracy=0.6)
    write_run(Locations(studio.home), events, PAIRED, "Pairs", method="dpo")
    page.goto(f"{studio.root}/watch?run={PAIRED}")
    pairs_are_measured(page)

    # marks: what they leave to choose
    marks_chosen(page, studio, tmp_path)
    assert page.faults == []


@pytest.mark.slow
def test_pairs_become_a_preference(page: Any, studio: RunningStudio) -> None:
    at_new_run(page, studio)
    pairs_chosen(page)
    record = trained(page, studio)
    assert record.evaluations[0].loss == pytest.approx(0.693147, abs=1e-3)
    assert record.evaluations[-1].loss < record.evaluations[0].loss
    pairs_are_measured(page)


def marks_chosen(page: Any, studio: RunningStudio, folder: Path) -> None:
    """New run with a file of marked answers, which is KTO's."""
    rows = [
        {
            "prompt": f"What is {number} plus one?",
            "completion": f"It is {number + number % 2}.",
            "label": number % 2 > 0,
        }
        for number in range(40)
    ]
    marks = folder / "marks.jsonl"
    marks.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    at_new_run(page, studio)
    page.locator("#data-file").set_input_files(marks)
    shows(page, PRESSED, "KTO")


def marks_are_measured(page: Any) -> None:
    """Watch has the charts of marks, and none of pairs."""
    page.locator(".chart-kl").wait_for()
    assert {"kl", "margin", "rewards"} <= charts(page)
    assert "accuracy" not in charts(page)
    assert page.locator("[data-measure=kl]").is_visible()
    assert page.faults == []


def labels_chosen(page: Any, folder: Path) -> None:
    """New run with labels: both ways of learning, what the labels are, and the offer for the rare one."""
    kinds = {"sport": 30, "politics": 20, "weather": 6}
    rows = [{"text": f"Day {n}: {kind} again.", "label": kind} for kind, count in kinds.items() for n in range(count)]
    labels = folder / "labels.jsonl"
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    page.locator("#data-file").set_input_files(labels)
    shows(page, PRESSED, "Classification")
    shows(page, "#summary", "sort texts into 3 labels")
    assert page.locator("#data-methods button").all_inner_texts() == ["Classification", "SFT"]
    page.get_by_role("button", name="Balance labels").click()
    page.locator("#data-report [aria-pressed=true]", has_text="Balance").wait_for()
    set_knob(page, "max_steps", STEPS)
    set_knob(page, "eval_steps", STEPS)


def labels_are_measured(page: Any, record: RunRecord) -> None:
    """Watch has the measures of labels, and the matrix, whose cells say what they are."""
    assert {"accuracy", "loss"} <= charts(page)
    assert not {"margin", "mean_error"} & charts(page)
    page.locator("[data-f=matrix] tbody tr").nth(2).wait_for()
    page.locator("[data-f=matrix] tbody td").first.hover()
    first, right = record.plan.labels[0], record.evaluations[-1].confusion[0]
    shows(page, '[data-f="matrix-said"]', f"{right[0]} of {sum(right)} “{first}” rows were called “{first}”.")


def a_text_is_sorted(page: Any) -> None:
    """Try has one side, a bar for each label, nothing about sampling; Take home speaks of a classifier."""
    page.locator("[data-f=verdict-try]").click()
    shows(page, '[data-f="prompt-name"]', "Text")
    page.locator('[data-f="prompt"]').fill("Day 3: sport again.")
    assert not page.locator('[data-f="temperature"], [data-f="second"]').first.is_visible()
    page.locator('[data-f="send"]').click()
    page.locator(".scores li").nth(2).wait_for()
    shares = page.locator(".scores b").all_inner_texts()
    assert shares == sorted(shares, key=lambda share: -float(share.strip("% ")))
    assert page.locator("[data-f=answers] .answer").count() == 1

    # the exports themselves are tested where they are made
    page.goto(page.url.replace("/try", "/take-home"))
    shows(page, '[data-f="for-adapter"]', "trained head")
    shows(page, '[data-f="for-merged"]', "classifiers")
    assert page.faults == []


def answering(page: Any) -> list[Any]:
    """Answers in the model's place, as the studio streams them; what it was asked."""
    asked: list[Any] = []
    scores = [["sport", 0.7], ["weather", 0.2], ["politics", 0.1]]
    told = [{"loading": 0.5}, {"side": "tuned", "text": "sport", "done": True, "scores": scores}]

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(content_type="application/x-ndjson", body="".join(json.dumps(line) + "\n" for line in told))

    intercept(page, "**/studio/load", lambda route: route.fulfill(json={"ready": True}))
    intercept(page, "**/studio/ask", answer)
    return asked


def test_labels_are_asked_for_and_shown_as_a_classifier(
    page: Any, studio: RunningStudio, card_is_held: None, tmp_path: Path
) -> None:
    at_new_run(page, studio)
    labels_chosen(page, tmp_path)
    config = asked_for(page, studio)
    assert (config.method, config.train.class_weights, config.train.max_steps) == ("classify", "balanced", int(STEPS))
    write_run(Locations(studio.home), sorting(3), SORTED, "Kinds", (400,), "classify")
    page.goto(f"{studio.root}/watch?run={SORTED}")
    page.locator("[data-f=save-file]").wait_for()
    labels_are_measured(page, RunStore(Locations(studio.home)).record(SORTED))
    questions = answering(page)
    a_text_is_sorted(page)
    page.unroute_all()
    (question,) = questions
    assert (question["run"], question["sides"]) == (SORTED, ["tuned"])
    assert question["messages"] == [{"role": "user", "content": "Day 3: sport again."}]


@pytest.mark.slow
def test_labels_become_a_classifier_to_take_home(page: Any, studio: RunningStudio, tmp_path: Path) -> None:
    at_new_run(page, studio)
    labels_chosen(page, tmp_path)
    record = trained(page, studio)
    assert record.plan.labels == ("politics", "sport", "weather")
    labels_are_measured(page, record)
    a_text_is_sorted(page)


def test_a_run_on_marks_shows_their_own_measure(page: Any, studio: RunningStudio) -> None:
    """Of a run that is written as a worker writes it."""
    events = of_two_answers(past(120, finished=True), kl=0.2)
    write_run(Locations(studio.home), events, MARKED, "Marks", method="kto")
    page.goto(f"{studio.root}/watch?run={MARKED}")
    marks_are_measured(page)


@pytest.mark.slow
def test_marks_become_a_preference(page: Any, studio: RunningStudio, tmp_path: Path) -> None:
    marks_chosen(page, studio, tmp_path)
    set_knob(page, "max_steps", STEPS)
    set_knob(page, "eval_steps", STEPS)
    record = trained(page, studio)
    assert record.evaluations[-1].kl is not None
    marks_are_measured(page)
    page.locator("[data-f=verdict-try]").click()
    page.locator('[data-f="prompt"]').fill("What is 7 plus one?")
    page.locator('[data-f="length"]').evaluate("field => { field.value = '12' }")
    page.locator('[data-f="send"]').click()
    answered = "[...document.querySelectorAll('[data-f=answers] .answer-text')].filter(one => one.innerText.length > 3)"
    page.wait_for_function(f"() => {answered}.length >= 2")
