"""Watch: what a page says of a run, a tick of it, the commands that steer it, and runs that cannot be read whole."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from made_routes import Routes
from made_runs import BEGAN, RUN, MakeRun, past, sorting, worse

from core.contract import events
from core.contract.config import DataChoice, ModelChoice, RunConfig
from core.contract.events import MOST_CONFUSED, Acknowledged, Evaluation, Failed, Note, Paused, Stage, Step, Stopped
from core.contract.methods import MEASURES
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import fold
from core.runs.record.words import STATE_WORDS
from studio.figures import run_figures
from studio.figures.points import EXACT, RunPoints, Window
from studio.pages.watch import view
from studio.pages.watch.log_lines import log_lines, said
from studio.pages.watch.page import charts
from studio.words.runs import STATES

CONFIG = RunConfig(data=DataChoice(path="/home/me/good.jsonl"), model=ModelChoice(source="hub", name="Qwen/Qwen3-4B"))
StageOf = Callable[..., Stage]


def status(events: list, config: RunConfig | None = CONFIG, now: float = BEGAN + 500) -> dict[str, Any]:
    return view.status(fold(events), config, RUN, now)


# ── in words ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_training_run_says_when_it_ends() -> None:
    shown = status(past(100, total=400), now=BEGAN + 104)
    assert shown["state"] == "training"
    assert shown["share"] == 0.25
    assert shown["facts"]["left"] == "5 min"  # 300 steps at one a second
    assert shown["facts"]["finish"] == run_figures.clock(BEGAN + 404, BEGAN + 104)
    assert shown["facts"]["step"] == "100 of 400"
    assert shown["facts"]["epoch"] == "1.00 of 3"
    assert shown["facts"]["held_out"] == "1.210"
    assert shown["tab"] == "Training 25% · good.jsonl on Qwen3-4B, 20 Nov 22:43 · Luthier"


def test_what_is_unknown_is_a_dash_and_a_run_has_a_name_all_the_same() -> None:
    shown = status([], config=None)
    facts = shown["facts"]
    assert {facts[name] for name in ("finish", "left", "step", "epoch", "speed", "memory", "loss", "held_out")} == {"–"}
    assert (shown["share"], shown["name"]) == (None, RUN)


def test_downloads_count_bytes(stage_of: StageOf) -> None:
    shown = status([*past(0), stage_of("downloading", done=1.2e9, total=4.1e9, unit="bytes")])
    assert shown["stage"]["text"] == "Downloading 1.2 of 4.1 GB"
    assert shown["stage"]["share"] == pytest.approx(1.2 / 4.1)
    small = status([*past(0), stage_of("downloading", done=340e6, total=4.1e9, unit="bytes")])
    assert small["stage"]["text"] == "Downloading 340 MB of 4.1 GB"


def test_a_step_after_a_stage_means_training_and_the_bar_does_not_jump_meanwhile(stage_of: StageOf) -> None:
    saving = stage_of("saving").model_copy(update={"at": BEGAN + 20})
    assert status([*past(10), saving])["stage"]["text"] == "Saving"
    assert status([*past(10), saving, *past(30)[-20:]])["stage"]["text"] == "Step 30 of 10"
    shown = status([*past(50, total=100), stage_of("evaluating", done=10, total=15, unit="rows")])
    assert shown["stage"]["text"] == "Measuring held-out loss 10 of 15 rows"
    assert (shown["stage"]["share"], shown["share"]) == (None, 0.5)


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_a_sentence_and_its_buttons(state: str) -> None:
    record = fold(past(120))
    shown = view.status(type(record)(**{**vars(record), "state": state}), CONFIG, "x", BEGAN + 500)
    assert shown["sentence"]
    assert (shown["word"], shown["tone"]) == STATES[state]
    assert STATES[state][0] == STATE_WORDS[state]  # type: ignore[index]
    assert shown["tab"].startswith(shown["word"]), "tab, page, history and command line say the same"
    on = {name for name, is_on in shown["buttons"].items() if is_on}
    expected = {
        "queued": {"stop"},
        "starting": {"pause", "stop"},
        "training": {"pause", "save", "stop"},
        "finished": set(),
        "unreadable": set(),
    }
    assert on == expected.get(state, {"resume"})


def test_an_acknowledged_stop_leaves_only_the_harder_one() -> None:
    shown = status([*past(10), Acknowledged(at=BEGAN + 20, attempt=1, command_id="a", command="stop")])
    assert shown["sentence"].startswith("Stopping in a moment")
    assert [name for name, on in shown["buttons"].items() if on] == ["stop_now"]
    kept = status([*past(10), Stopped(at=BEGAN + 20, attempt=1, kept=False)])
    assert "before anything was saved" in kept["sentence"]


@pytest.mark.parametrize(("code", "on"), [("disk.full", "resume"), ("run.differs", "anyway")])
def test_a_failure_says_cause_and_cure_and_what_differs_goes_on_only_anyway(code: str, on: str) -> None:
    fault = Failed(at=BEGAN + 99, attempt=1, code=code, message="Expected 2 GB free, found 1.", hint="Make room.")
    shown = status([*past(10), fault])
    assert shown["failure"] == {"message": fault.message, "hint": fault.hint}
    assert [name for name in ("resume", "anyway") if shown["buttons"][name]] == [on]
    assert not shown["living"]


def test_a_run_tells_its_own_time() -> None:
    paused = status([*past(10), Paused(at=BEGAN + 20, attempt=1, step=10)], now=BEGAN + 90_000)["facts"]
    assert (paused["took"], paused["finish"]) == ("13 s", "–")
    left_the_queue = status([events.Queued(at=0.0), events.Stopped(at=66.0)])
    assert left_the_queue["facts"]["took"] == "–"


def test_a_finished_run_tells_what_became_of_it_in_words_and_colour() -> None:
    good, bad = status(past(500, finished=True)), status(worse())
    assert good["verdict"]["text"] == "It learned: held-out loss 2.500 → 1.202."
    assert bad["verdict"]["text"] == "Do not use this one: it got worse, held-out loss 2.500 → 2.700 (step 100)."
    assert "lower learning rate" in bad["verdict"]["do"]
    assert (good["tone"], bad["tone"]) == ("good", "bad")
    assert status(past(500))["verdict"] is None, "it is not over"
    unmeasured = [event for event in past(50, finished=True) if event.kind != "evaluation"]
    assert (status(unmeasured)["tone"], status(unmeasured)["verdict"]["tone"]) == ("quiet", "quiet")


def test_nobody_is_sent_to_try_a_model_that_was_not_kept(routes: Routes, make_run: MakeRun) -> None:
    make_run(past(100, finished=True))
    assert "No checkpoint" in routes.get("points", run=RUN)["status"]["verdict"]["do"]
    make_run(past(100, finished=True), run_id="2026-11-19_2243_kept_k3f9", checkpoints=(100,))
    kept = routes.get("points", run="2026-11-19_2243_kept_k3f9")["status"]["verdict"]
    assert kept["do"] == "Ask it something that it was not trained on."


def test_tile_and_chart_name_the_same_best_also_where_it_is_the_model_before_training() -> None:
    later = [*past(200), Evaluation(at=BEGAN + 600, attempt=1, step=300, loss=1.9, rows=50)]
    told = ((0, 2.5, 0.9), (100, 1.2, 0.8), (200, 1.9, 0.7))
    sorting = [
        *past(0)[:-1],
        *(Evaluation(at=BEGAN, attempt=1, step=step, loss=loss, rows=50, accuracy=right, best_by="accuracy")
          for step, loss, right in told),
    ]  # fmt: skip
    for story, words, best in (
        (worse(), "3.100, best 2.500 before training", [0, 2.5, "evaluation"]),
        (later, "1.900, best 1.205", [200, 1.205, "evaluation"]),
        (sorting, "1.900", [0, 0.9, "held_out_accuracy"]),
    ):
        assert status(story)["facts"]["held_out"] == words
        assert RunPoints().answer(fold(story), Window())["best"] == best


def test_what_a_method_measures_beside_the_loss_has_tiles_and_charts_and_others_have_none() -> None:
    pairs = [
        event.model_copy(update={"margin": -0.2 + event.step / 100, "accuracy": 0.6})
        if event.kind in ("step", "evaluation")
        else event
        for event in past(100)
    ]
    facts = status(pairs)["facts"]
    assert (facts["margin"], facts["accuracy"]) == ("0.800, held-out 0.800", "60%, held-out 60%")
    points = RunPoints().answer(fold(pairs), Window())
    assert points["measured"] == {"margin": [[0, -0.2], [100, 0.8]], "accuracy": [[0, 0.6], [100, 0.6]]}
    both = {"margin", "accuracy"}
    assert both <= points["raw"].keys()
    plain = RunPoints().answer(fold(past(100)), Window())
    assert not both & (status(past(100))["facts"].keys() | plain["raw"].keys() | plain["measured"].keys())
    drawn = [series["key"] for chart in charts() for series in chart["series"]]
    assert [drawn.count(prefix + name) for name in MEASURES for prefix in ("", "held_out_")] == [1] * 2 * len(MEASURES)
    assert set(MEASURES) <= Step.model_fields.keys() & Evaluation.model_fields.keys()


def test_a_classifier_has_its_measures_and_its_newest_confusion_matrix() -> None:
    shown = status(sorting(3))
    facts = shown["facts"]
    assert re.fullmatch(r"99%, held-out \d+%, before \d+%", facts["accuracy"])
    assert facts["macro_f1"].startswith("held-out ")
    drawn = view.matrix(fold(sorting(3)))
    assert drawn is not None
    assert (drawn["key"], drawn["labels"]) == ("1.400", ("sport", "politics", "culture"))
    right, rows = sum(drawn["counts"][place][place] for place in range(3)), sum(map(sum, drawn["counts"]))
    assert drawn["about"] == f"Held-out rows at step 400: {right} of {rows} got their right label."
    points = RunPoints().answer(fold(sorting(3)), Window())["measured"]
    assert points.keys() == {"accuracy", "macro_f1"}
    assert "held_out_macro_f1" in {series["key"] for chart in charts() for series in chart["series"]}
    assert view.matrix(fold(past(100))) is None
    many = [
        event.model_copy(update={"confusion": ()}) if event.kind == "evaluation" else event
        for event in sorting(MOST_CONFUSED + 1)
    ]
    in_its_place = view.matrix(fold(many))
    assert in_its_place is not None
    assert in_its_place["about"].startswith(f"It is drawn of up to {MOST_CONFUSED} labels, and this run has 41.")
    assert not in_its_place["counts"]
    assert view.matrix(fold(many[:1])) is None, "nothing was measured yet"
    said = [status(past(1), RunConfig(method=method))["words"]["try"] for method in ("sft", "classify")]
    assert said == ["Try it against the original", "Try it"]


def test_a_number_is_ranked_by_its_smallest_error() -> None:
    errors = iter((3.0, 1.0, 2.0))
    story = [
        event.model_copy(update={"mean_error": next(errors)}) if event.kind == "evaluation" else event
        for event in past(200)
    ]
    assert status(story)["facts"]["mean_error"] == "held-out 2.000, before 3.000, best 1.000"


def test_what_each_attempt_says_anew_is_worth_knowing_once() -> None:
    notes = [Note(at=BEGAN + at, code="x", text=text, hint="Do this.") for at, text in enumerate("abababc")]
    assert status([*past(10), *notes])["notes"] == [["a", "Do this."], ["b", "Do this."], ["c", "Do this."]]


def test_figures_are_written_for_people() -> None:
    times = {0: "0 s", 45.4: "45 s", 59.7: "1 min", 3_599: "1 h 00 min", 3_900: "1 h 05 min", 180_000: "2 d 2 h"}
    assert {seconds: run_figures.duration(seconds) for seconds in times} == times
    sizes = {0: "0 B", 999: "999 B", 41_000: "41 KB", 3_400_000: "3.4 MB", 4.1e9: "4.1 GB"}
    assert {count: run_figures.bytes_words(count) for count in sizes} == sizes
    noon = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    clocks = {0: "12:00", 1: "Sat 12:00", 10: "30 Nov 12:00"}
    assert {days: run_figures.clock(noon + days * 86_400, noon) for days in clocks} == clocks


def test_the_log_is_lines_for_people(make_run: MakeRun, stage_of: StageOf) -> None:
    note = Note(at=BEGAN, attempt=1, code="kernels.plain", text="No C compiler.", hint="sudo apt install gcc")
    folder = make_run([*past(100, finished=True), note])
    lines = [line.split("  ", 1)[1] for line in log_lines(folder.events)]
    assert lines[0] == "Queued"
    assert "Saved step-000100 (1.0 MB), the best so far" in lines
    assert "Held-out loss 2.5000 before training (50 rows, 1 s)" in lines
    assert lines[-1] == "No C compiler. sudo apt install gcc"
    assert len(log_lines(folder.events, keep=1)) == 1
    assert log_lines(folder.path / "none") == []
    assert len(said([stage_of("downloading", text="Qwen3", done=done, total=9) for done in range(9)])) == 1
    # By the clock of all pages: the worker's own count leaves out its start, and a run that was paused had several.
    assert "10 min" in said([events.Starting(at=1000.0), events.Finished(at=1600.0, step=3, seconds=480.0)])[-1]


# ── a tick, and commands ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tick_has_words_and_numbers_and_asks_for_the_log_apart(routes: Routes, make_run: MakeRun) -> None:
    assert routes.get("points") == {"run": ""}
    make_run(past(300, finished=True), name="Mine")
    answer = routes.get("points", run=RUN, smooth="0.9")
    assert answer["status"]["name"] == "Mine"
    assert answer["points"]["steps"][-1] == 300
    assert set(answer["points"]["smooth"]) == set(answer["points"]["raw"]) - EXACT
    assert "log" not in answer
    assert any("Finished" in line for line in routes.get("points", run=RUN, log="1")["log"])
    asked = {"run": RUN, "since": "-5", "smooth": "nan?", "first": "x", "last": "9" * 40, "shape": "\x00"}
    assert routes.get("points", **asked)["run"] == RUN, "nonsense in the address is no fault"


@pytest.mark.parametrize("name", ["../../etc", "2026-11-20_2243_none_k3f9", "x" * 300])
def test_an_unknown_run_is_404_and_one_line(routes: Routes, name: str) -> None:
    answer = routes.client.get("/studio/points", params={"run": name})
    assert answer.status_code == 404
    assert answer.json()["message"].startswith("There is no run called")


def test_a_run_without_processes_is_lost_and_a_living_one_obeys(
    routes: Routes, make_run: MakeRun, alive: Callable[[JobFolder], None]
) -> None:
    folder = make_run(past(10, total=20))
    assert routes.get("points", run=RUN)["status"]["state"] == "lost"
    alive(folder)
    assert routes.get("points", run=RUN)["status"]["state"] == "training"
    for verb in ("pause", "save", "stop", "stop_now"):
        assert routes.client.get(f"/studio/run/{RUN}/{verb}").status_code == 405
        assert routes.client.post(f"/studio/run/{RUN}/{verb}").json() == {"ok": True}
        assert json.loads(folder.commands.read_text().splitlines()[-1])["verb"] == verb


def test_a_run_that_has_not_ended_is_discarded_and_one_that_has_obeys_no_more(
    routes: Routes, make_run: MakeRun
) -> None:
    folder = make_run([*past(10, total=20), Paused(at=1e9, attempt=1, step=10)])
    assert routes.client.post(f"/studio/run/{RUN}/discard").json() == {"go": "/history"}
    assert not folder.path.exists()
    folder = make_run(past(10, finished=True))
    refused = [routes.client.post(f"/studio/run/{RUN}/{verb}") for verb in ("discard", "pause")]
    assert [answer.status_code for answer in refused] == [409, 409]
    assert "cannot be paused" in refused[1].json()["message"]
    assert folder.path.is_dir()


# ── what cannot be read whole ────────────────────────────────────────────────────────────────────────────────────────

BAD = "2026-11-20_2250_bad_k3f9"


@pytest.mark.parametrize("file", ["events.jsonl", "summary.json", "run.yaml", "name", "checkpoints", "jobs"])
def test_one_bad_run_is_shown_with_its_reason_and_the_house_stays_open(
    routes: Routes, make_run: MakeRun, file: str
) -> None:
    make_run(past(10, finished=True))
    bad = make_run(past(10, finished=True), run_id=BAD)
    (bad.path / file).unlink(missing_ok=True)
    (bad.path / file).symlink_to("/dev/zero")
    get, post = routes.client.get, routes.client.post
    rows = {row["id"]: row for row in get("/studio/history").json()["runs"]}
    assert rows[BAD]["word"] == "Unreadable"
    assert rows[BAD]["cause"] == f"This run cannot be read: {file} is a link."
    assert [name for name, offered in rows[BAD]["can"].items() if offered] == ["delete"]
    assert rows[RUN]["word"] == "Finished"
    assert get("/studio/points").json()["run"] == RUN
    for path in ("runs", "now", "queue"):
        assert get(f"/studio/{path}").status_code == 200
    asked = [
        get(f"/studio/points?run={BAD}"),
        *(get(f"/studio/run/{BAD}/{what}") for what in ("keep", "config", "yaml")),
    ]
    asked += [get(f"/studio/compare?runs={RUN},{BAD}"), post(f"/studio/run/{BAD}/resume")]
    assert {answer.status_code for answer in asked} == {409}
    assert all(f"{file} is a link" in answer.json()["message"] for answer in asked)
    assert post(f"/studio/run/{BAD}/delete").json() == {"ok": True}
    assert [row["id"] for row in get("/studio/history").json()["runs"]] == [RUN]


def test_damage_of_a_log_and_fields_of_another_version_are_told(routes: Routes, make_run: MakeRun) -> None:
    folder = make_run(past(10, finished=True))
    folder.events.write_bytes(folder.events.read_bytes() + b'{"kind":"note","te\n')
    with folder.run_yaml.open("a") as file:
        file.write("later: 1\n")
    notes = routes.get("points", run=RUN)["status"]["notes"]
    assert [words for words, _ in notes] == [
        "1 line of this run's log is damaged or missing: what stood there is not shown.",
        "run.yaml was written by another version; fields that this one does not know are left out: later.",
    ]
    assert routes.get("history")["runs"][0]["cause"].startswith("1 line of this run's log is damaged")
    assert routes.client.get(f"/studio/run/{RUN}/config").status_code == 200
    folder.run_yaml.write_text("lora: {r: none}\n")
    assert "lora.r" in routes.client.get(f"/studio/run/{RUN}/config").json()["problems"][0]


@pytest.mark.parametrize(
    "numbers", ['"at":1e11,"seconds":1e11,"loss":1e300', '"at":1e300', '"step":99999999999999999999']
)
def test_no_number_of_a_log_stops_a_page(routes: Routes, make_run: MakeRun, numbers: str) -> None:
    folder = make_run(past(10, total=20))
    with folder.events.open("a") as log:
        log.write(f'{{"kind":"step","attempt":1,{numbers}}}\n')
    for path in (f"points?run={RUN}&log=1", "history", "runs"):
        assert routes.client.get(f"/studio/{path}").status_code == 200
