"""What pages say of a run: words, times, sizes, and which buttons make sense."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from made_runs import BEGAN, past, worse

from core.contract import events
from core.contract.config import DataChoice, ModelChoice, RunConfig
from core.contract.events import Acknowledged, Evaluation, Failed, Note, Paused, Stage, Step, Stopped
from core.contract.methods import MEASURES
from core.runs.folder.job_folder import JobFolder
from core.runs.record.job_record import fold
from studio.figures import run_figures
from studio.figures.points import RunPoints, Window
from studio.pages.watch import view
from studio.pages.watch.log_lines import log_lines, said
from studio.pages.watch.page import charts
from studio.words.runs import STATES

CONFIG = RunConfig(data=DataChoice(path="/home/me/good.jsonl"), model=ModelChoice(source="hub", name="Qwen/Qwen3-4B"))


def status(events: list, config: RunConfig | None = CONFIG, now: float = BEGAN + 500) -> dict:
    return view.status(fold(events), config, "2026-11-20_2243_test_k3f9", now)


def test_a_training_run_says_when_it_ends() -> None:
    shown = status(past(100, total=400), now=BEGAN + 104)
    assert shown["state"] == "training"
    assert shown["share"] == 0.25
    assert shown["facts"]["left"] == "5 min"  # 300 steps at one a second
    assert shown["facts"]["finish"] == run_figures.clock(BEGAN + 404, BEGAN + 104)
    assert shown["facts"]["step"] == "100 of 400"
    assert shown["facts"]["epoch"] == "1.00 of 3"
    assert shown["facts"]["held_out"] == "1.210"
    assert shown["tab"] == "Training 25 % · good.jsonl on Qwen3-4B, 20 Nov 22:43 · Luthier"


def test_what_is_unknown_is_a_dash() -> None:
    shown = status([])
    facts = shown["facts"]
    assert {facts[name] for name in ("finish", "left", "step", "epoch", "speed", "memory", "loss", "held_out")} == {"–"}
    assert shown["share"] is None


def test_downloads_count_bytes(stage_of: Callable[..., Stage]) -> None:
    shown = status([*past(0), stage_of("downloading", done=1.2e9, total=4.1e9, unit="bytes")])
    assert shown["stage"]["text"] == "Downloading 1.2 of 4.1 GB"
    assert shown["stage"]["share"] == pytest.approx(1.2 / 4.1)
    small = status([*past(0), stage_of("downloading", done=340e6, total=4.1e9, unit="bytes")])
    assert small["stage"]["text"] == "Downloading 340 MB of 4.1 GB"


def test_a_step_after_a_stage_means_training(stage_of: Callable[..., Stage]) -> None:
    saving = stage_of("saving").model_copy(update={"at": BEGAN + 20})
    assert status([*past(10), saving])["stage"]["text"] == "Saving"
    assert status([*past(10), saving, *past(30)[-20:]])["stage"]["text"] == "Step 30 of 10"


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_a_sentence_and_its_buttons(state: str) -> None:
    record = fold(past(120))
    shown = view.status(type(record)(**{**vars(record), "state": state}), CONFIG, "x", BEGAN + 500)
    assert shown["sentence"]
    assert (shown["word"], shown["tone"]) == STATES[state]
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
    assert shown["sentence"].startswith("Stopping after this pass")
    assert [name for name, on in shown["buttons"].items() if on] == ["stop_now"]


def test_a_failure_says_cause_and_cure() -> None:
    fault = Failed(
        at=BEGAN + 99, attempt=1, code="disk.full", message="Expected 2 GB free, found 1.", hint="Make room."
    )
    shown = status([*past(10), fault])
    assert shown["failure"] == {"message": fault.message, "hint": fault.hint}
    assert shown["buttons"]["resume"]
    assert not shown["living"]


def test_a_paused_run_stops_its_clock() -> None:
    shown = status([*past(10), Paused(at=BEGAN + 20, attempt=1, step=10)], now=BEGAN + 90_000)
    assert shown["facts"]["took"] == "13 s"
    assert shown["facts"]["finish"] == "–"


def test_a_finished_run_tells_what_became_of_it_in_words_and_colour() -> None:
    good, bad = status(past(500, finished=True)), status(worse())
    assert good["verdict"]["text"] == "Better than before training: held-out loss 2.500 → 1.202"
    assert bad["verdict"]["text"] == "Worse than before training: held-out loss 2.500 → 2.700 (step 100)"
    assert "lower learning rate" in bad["verdict"]["do"]
    assert (good["tone"], bad["tone"]) == ("good", "bad")
    assert status(past(500))["verdict"] is None, "it is not over"
    unmeasured = [event for event in past(50, finished=True) if event.kind != "evaluation"]
    assert (status(unmeasured)["tone"], status(unmeasured)["verdict"]["tone"]) == ("quiet", "quiet")


def test_tile_and_chart_name_the_same_best_also_where_it_is_the_model_before_training() -> None:
    record = fold(worse())
    assert status(worse())["facts"]["held_out"] == "3.100, best 2.500 before training"
    assert RunPoints().answer(record, Window())["best"] == [0, 2.5]
    assert RunPoints().answer(fold(past(200)), Window())["best"] == [200, 1.205]


def test_stopped_with_nothing_kept_says_so() -> None:
    assert "before anything was saved" in status([*past(10), Stopped(at=BEGAN + 20, attempt=1, kept=False)])["sentence"]


def test_an_unreadable_config_still_has_a_name() -> None:
    assert status(past(1), config=None)["name"] == "2026-11-20_2243_test_k3f9"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (45.4, "45 s"), (59.7, "1 min"), (3_599, "1 h 00 min"), (3_900, "1 h 05 min"), (180_000, "2 d 2 h")],
)
def test_durations(seconds: float, words: str) -> None:
    assert run_figures.duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (999, "999 B"), (41_000, "41 KB"), (3_400_000, "3.4 MB"), (4.1e9, "4.1 GB")]
)
def test_bytes(count: float, words: str) -> None:
    assert run_figures.bytes_words(count) == words


def test_clocks_name_the_day_when_it_is_another() -> None:
    noon = time.mktime((2026, 11, 20, 12, 0, 0, 0, 0, -1))
    assert run_figures.clock(noon, noon) == "12:00"
    assert run_figures.clock(noon + 86_400, noon) == "Sat 12:00"
    assert run_figures.clock(noon + 10 * 86_400, noon) == "30 Nov 12:00"


def test_the_log_is_lines_for_people(make_run: Callable[..., JobFolder]) -> None:
    note = Note(at=BEGAN, attempt=1, code="kernels.plain", text="No C compiler.", hint="sudo apt install gcc")
    folder = make_run([*past(100, finished=True), note])
    lines = [line.split("  ", 1)[1] for line in log_lines(folder.events)]
    assert lines[0] == "Queued"
    assert "Saved step-000100 (1.0 MB), the best so far" in lines
    assert "Held-out loss 2.5000 before training (50 rows, 1 s)" in lines
    assert lines[-1] == "No C compiler. sudo apt install gcc"
    assert log_lines(folder.events, keep=1) != lines
    assert log_lines(folder.path / "none") == []


def test_progress_within_a_stage_is_one_line(stage_of: Callable[..., Stage]) -> None:
    downloads = [stage_of("downloading", text="Qwen3", done=done, total=9) for done in range(9)]
    assert len(said(downloads)) == 1


def test_what_a_method_measures_beside_the_loss_has_tiles_and_charts_and_others_have_none() -> None:
    pairs = [
        event.model_copy(update={"margin": -0.2 + event.step / 100, "accuracy": 0.6})
        if event.kind in ("step", "evaluation")
        else event
        for event in past(100)
    ]
    facts = status(pairs)["facts"]
    assert (facts["margin"], facts["accuracy"]) == ("0.800, held-out 0.800", "60\u00a0%, held-out 60\u00a0%")
    points = RunPoints().answer(fold(pairs), Window())
    assert points["measured"] == {"margin": [[0, -0.2], [100, 0.8]], "accuracy": [[0, 0.6], [100, 0.6]]}
    assert {"margin", "accuracy"} <= points["raw"].keys()
    plain = RunPoints().answer(fold(past(100)), Window())
    assert not {"margin", "accuracy"} & (
        status(past(100))["facts"].keys() | plain["raw"].keys() | plain["measured"].keys()
    )
    assert {"margin", "accuracy"} <= {chart["key"] for chart in charts()}
    assert set(MEASURES) <= Step.model_fields.keys() & Evaluation.model_fields.keys()


def test_the_best_held_out_loss_is_named_where_it_was_earlier() -> None:
    later = Evaluation(at=BEGAN + 600, attempt=1, step=300, loss=1.9, rows=50)
    assert status([*past(200), later])["facts"]["held_out"] == "1.900, best 1.205"


def test_the_bar_does_not_jump_while_the_run_measures_or_saves(stage_of: Callable[..., Stage]) -> None:
    shown = status([*past(50, total=100), stage_of("evaluating", done=10, total=15, unit="rows")])
    assert shown["stage"]["text"] == "Measuring held-out loss 10 of 15 rows"
    assert shown["stage"]["share"] is None
    assert shown["share"] == 0.5


def test_a_run_refused_for_what_differs_goes_on_only_anyway() -> None:
    def buttons(code: str) -> dict[str, bool]:
        return status([*past(10), Failed(at=BEGAN + 99, attempt=1, code=code, message="No.")])["buttons"]

    assert buttons("run.differs")["anyway"]
    assert not buttons("run.differs")["resume"]
    assert buttons("disk.full")["resume"]
    assert not buttons("disk.full")["anyway"]


def test_what_each_attempt_says_anew_is_worth_knowing_once() -> None:
    notes = [Note(at=BEGAN + at, code="x", text=text, hint="Do this.") for at, text in enumerate("abababc")]
    assert status([*past(10), *notes])["notes"] == [["a", "Do this."], ["b", "Do this."], ["c", "Do this."]]


def test_the_log_and_the_page_tell_one_time() -> None:
    """The worker's own count leaves out its start; a run that was paused had several."""
    told = [events.Starting(at=1000.0, attempt=1), events.Finished(at=1600.0, step=3, seconds=480.0)]
    assert "10 min" in said(told)[-1]
    assert fold(told).started_at == 1000.0


def test_a_run_that_left_the_queue_took_no_time() -> None:
    record = fold([events.Queued(at=0.0), events.Stopped(at=66.0)])
    assert view._took(record, 100.0) == run_figures.UNKNOWN
