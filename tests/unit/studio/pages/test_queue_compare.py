"""Who waits and when, and runs beside each other: settings, figures, curves, one question to each."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from made_routes import MACHINE, Routes
from made_runs import MakeRun, append, past, step, worse

from core.contract.config import DataChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.events import Correction, Evaluation, Failed, Queued
from core.machine.cards import CardLock, CardSet
from core.machine.hardware import Gpu
from core.runs.control.gpu_lease import GIVES_WAY
from core.runs.control.queue import JobQueue
from core.runs.folder.held_out_rows import Draw, draw_path, write_draw
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import note_asked
from core.runs.folder.run_yaml import dump_config
from studio.figures.queueing import card_taken, held_cards, queue_view
from studio.figures.run_figures import clock

HOLDER = "2026-11-20_2243_holder_k3f9"
WAITING = [f"2026-11-20_225{number}_wait_k3f9" for number in range(3)]


@pytest.fixture
def queued(routes: Routes, make_run: MakeRun, alive: Callable[[JobFolder], None]) -> Iterator[Routes]:
    """A run that trains, and three that wait; how long the third takes is not known."""
    alive(make_run(past(100, total=400), HOLDER, name="Holder"))
    for number, run_id in enumerate(WAITING):
        folder = make_run([Queued(at=1.0)], run_id, name=f"Wait {number}")
        alive(folder)
        if number < 2:
            note_asked(folder, RunConfig(), (3000.0, 4200.0))
        JobQueue(routes.studio.locations).add(run_id)
    card = CardLock(routes.studio.locations, MACHINE.cards)
    assert card.acquire(HOLDER)
    yield routes
    card.release()


# ── the queue ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_queue_says_who_has_the_card_who_waits_and_when(queued: Routes) -> None:
    now = time.time()
    view = queued.get("queue")
    assert (view["holders"][0]["title"], view["holders"][0]["word"]) == ("Holder", "Training")
    assert view["holders"][0]["ends"] in {clock(now + 300 + late, now) for late in (0, 60)}
    assert [run["title"] for run in view["waiting"]] == ["Wait 0", "Wait 1", "Wait 2"]
    first, second, third = view["waiting"]
    assert first["starts"] == view["holders"][0]["ends"]
    assert first["ends"] == second["starts"] in {clock(now + 3900 + late, now) for late in (0, 60)}
    assert third["starts"] == second["ends"] != "–"
    assert third["ends"] == "–", "what is not known is not made up"
    assert queued.get("history")["queue"] == view


def test_a_run_that_waits_for_another_card_waits_for_that_card(queued: Routes) -> None:
    """The second of three is for a card that nobody holds: it begins at once, and nobody waits for it here."""
    JobQueue(queued.studio.locations).waits_for(WAITING[1], CardSet(("other",)))
    now = time.time()
    view = queued.get("queue")
    first, second, third = view["waiting"]
    assert second["starts"] in {clock(now, now), clock(now + 60, now)}
    assert third["starts"] == first["ends"]


def test_on_a_machine_of_two_cards_the_queue_names_them_and_a_run_on_both_waits_for_both(queued: Routes) -> None:
    """One run trains on the first card, another on the second; of those that wait the first wants both."""
    cards = [Gpu(number, f"GPU-{number}", "NVIDIA GeForce RTX 3060", None, None, None) for number in range(2)]
    machine, store = replace(MACHINE, gpus=tuple(cards)), queued.studio.store
    locations = queued.studio.locations
    first, second = (CardLock(locations, machine.choosing(name).cards) for name in "01")
    assert first.acquire(HOLDER)
    assert second.acquire("Try")
    JobQueue(locations).waits_for(WAITING[0], machine.choosing("all").cards)
    JobQueue(locations).waits_for(WAITING[1], machine.choosing("1").cards)
    view = queue_view(store, machine)
    assert [one["on"] for one in view["holders"]] == ["RTX 3060 (0)", "RTX 3060 (1)"]
    assert [one["on"] for one in view["waiting"]] == ["RTX 3060 (0), RTX 3060 (1)", "RTX 3060 (1)", "RTX 3060 (0)"]
    assert view["waiting"][0]["starts"] == "–", "nobody knows when Try leaves"
    assert held_cards(locations, machine) == {0}, "a guest leaves when a run wants the card"
    assert card_taken(locations, machine.choosing("1")), "a run waits for it"
    second.release()
    now, view = time.time(), queue_view(store, machine)
    assert view["waiting"][0]["starts"] in {clock(now + 300 + late, now) for late in (0, 60)}
    assert view["waiting"][1]["starts"] == view["waiting"][0]["ends"]
    first.release()
    assert second.acquire(HOLDER)
    assert first.acquire(HOLDER)
    assert [one["on"] for one in queue_view(store, machine)["holders"]] == ["RTX 3060 (0), RTX 3060 (1)"]
    first.release()
    second.release()


def test_the_queue_is_reordered_and_a_run_is_taken_out(queued: Routes) -> None:
    moved = queued.client.post(f"/studio/queue/{WAITING[2]}/move", json={"place": 0}).json()
    assert [run["id"] for run in moved["waiting"]] == [WAITING[2], WAITING[0], WAITING[1]]
    assert queued.client.post(f"/studio/run/{WAITING[0]}/stop").json() == {"ok": True}
    folder = JobFolder(queued.studio.locations.runs / WAITING[0])
    assert json.loads(folder.commands.read_text().splitlines()[-1])["verb"] == "stop"
    assert queued.client.post(f"/studio/queue/{HOLDER}/move", json={"place": 0}).status_code == 409
    assert queued.client.post(f"/studio/queue/{WAITING[1]}/move", json={"place": -1}).status_code == 422
    assert queued.client.post("/studio/queue/../move", json={"place": 1}).status_code in (404, 405)


def test_a_free_card_and_a_guest_on_it_are_told_apart(routes: Routes, make_run: MakeRun) -> None:
    locations = routes.studio.locations
    assert routes.get("queue") == {"holders": [], "waiting": []}
    assert not card_taken(locations, MACHINE)
    card = CardLock(locations, MACHINE.cards)
    assert card.acquire("Try")
    assert routes.get("queue")["holders"][0]["title"].startswith("Try it, which keeps its model loaded")
    assert not card_taken(locations, MACHINE), "a guest leaves when a run wants the card"
    card.release()
    make_run(past(30, finished=True), HOLDER, name="Lighthouse answers")
    assert card.acquire(f"{GIVES_WAY}{HOLDER}")
    assert routes.get("queue")["holders"][0]["title"] == "Report on Lighthouse answers"
    card.release()


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


def put(folder: JobFolder, config: RunConfig | None = None, **train: Any) -> JobFolder:
    config = config or RunConfig(data=DataChoice(path="/a/good.jsonl"), train=TrainChoice(**train))
    folder.run_yaml.write_text(dump_config(config), encoding="utf-8")
    return folder


@pytest.fixture
def compared(routes: Routes, make_run: MakeRun) -> tuple[Routes, list[str]]:
    names = [f"2026-11-1{number}_2243_run_k3f9" for number in range(3)]
    put(make_run(past(300, finished=True), names[0], checkpoints=(300,)))
    second = put(make_run(past(150, finished=True), names[1], checkpoints=(100,)), learning_rate=1e-3)
    corrected = Correction(attempt=1, key="train.learning_rate", old="0.001", new="0.0005", reason="numbers")
    append(second, [corrected, Evaluation(at=3.0, attempt=1, step=150, loss=0.5)])
    fault = Failed(at=1e9, attempt=1, code="x", message="No.", hint="")
    put(make_run([*past(20), fault], names[2]), max_length=512)
    return routes, names


def test_only_what_differs_is_shown_and_corrections_count(compared: tuple[Routes, list[str]]) -> None:
    routes, names = compared
    answer = routes.get("compare", runs=",".join(names))
    assert {row["key"]: row["values"] for row in answer["differing"]} == {
        "train.max_length": ["2,048", "2,048", "512"],
        "train.learning_rate": ["0.0002", "0.0005", "0.0002"],
    }
    assert answer["same"].endswith("other settings are the same.")
    assert routes.get("compare", runs=f"{names[0]},{names[0]},{names[1]}")["runs"][1]["id"] == names[1]


def test_the_figures_at_the_end_and_the_lowest_among_them(compared: tuple[Routes, list[str]]) -> None:
    routes, names = compared
    rows = {row["key"]: row for row in routes.get("compare", runs=",".join(names))["finals"]}
    assert rows["state"]["values"] == ["Finished", "Finished", "Failed"]
    assert rows["best"]["values"] == ["1.203", "0.500", "2.500, before training"]
    assert rows["best"]["best"] == [False, True, False]
    assert rows["steps"]["values"] == ["300 of 300", "150 of 150", "20 of 20"]
    assert rows["took"]["values"] == ["5 min", "2 min", "20 s"]
    assert not any(rows["steps"]["best"])


def test_what_is_not_comparable_is_drawn_apart_and_not_ranked(routes: Routes, make_run: MakeRun) -> None:
    """A DPO loss begins at 0.693 whatever was learned: beside SFT it was called the lowest."""
    names = [f"2026-11-1{number}_2243_run_k3f9" for number in range(5)]
    stories = [*[past(300, finished=True)] * 4, worse()]
    folders = [put(make_run(story, name)) for story, name in zip(stories, names, strict=True)]
    append(folders[1], [Evaluation(at=3.0, attempt=1, step=400, loss=0.6, margin=0.2, accuracy=0.75)])

    def compare(*places: int) -> tuple[dict[str, Any], dict[str, Any]]:
        answer = routes.get("compare", runs=",".join(names[place] for place in places))
        return answer, {row["key"]: row for row in answer["finals"]}

    answer, rows = compare(0, 1)
    assert (answer["groups"], answer["apart"], rows["best"]["best"]) == ([[0, 1]], "", [False, True])
    _, rows = compare(0, 4)
    assert (rows["best"]["values"][1], rows["best"]["best"]) == ("2.500, before training", [True, False])

    sft = RunConfig(data=DataChoice(path="/a/good.jsonl"))
    put(folders[1], sft.model_copy(update={"method": "dpo"}))
    answer, rows = compare(0, 1, 2, 3)
    assert answer["groups"] == [[0, 2, 3], [1]]
    assert answer["apart"].startswith("Charted separately and not ranked (A, C, D | B): they learn in different ways")
    assert rows["best"]["best"] == [True, False, True, True], "of those that can be ranked"
    assert (rows["accuracy"]["values"][1], rows["margin"]["values"][1]) == ("75%", "0.200")
    put(folders[0], sft.model_copy(update={"method": "dpo", "train": TrainChoice(beta=0.5)}))
    answer, _ = compare(0, 1)
    assert (answer["groups"], "beta" in answer["apart"].lower()) == ([[0], [1]], True)
    put(folders[0], sft.model_copy(update={"method": "dpo", "train": TrainChoice(beta=0.1, loss_type="sigmoid")}))
    answer, _ = compare(0, 1)
    assert answer["groups"] == [[0, 1]], "the method's usual values, as earlier versions wrote them"


def test_held_out_rows_are_the_same_where_their_tokens_are(routes: Routes, make_run: MakeRun) -> None:
    """By the runs' own draws, whatever the settings say: the same rows at another length, others of the same file."""
    names = [f"2026-11-1{number}_2243_run_k3f9" for number in range(2)]
    first, second = put(make_run(past(100), names[0])), put(make_run(past(100), names[1]), max_length=512)
    runs = ",".join(names)
    assert routes.get("compare", runs=runs)["groups"] == [[0], [1]], "nothing says that no row was cut"
    draw = Draw(rows=10, tokens_sha256="a", held_out=[2], order_sha256="b", numbers=[3], held_out_sha256="c")
    write_draw(draw_path(first.path), draw)
    write_draw(draw_path(second.path), draw.model_copy(update={"tokens_sha256": "other"}))
    assert routes.get("compare", runs=runs)["groups"] == [[0, 1]]
    write_draw(draw_path(second.path), draw.model_copy(update={"held_out_sha256": "other"}))
    answer = routes.get("compare", runs=runs)
    assert answer["groups"] == [[0], [1]]
    assert answer["apart"].endswith("they were measured on different held-out rows.")
    old = draw.model_copy(update={"numbers": [], "held_out_sha256": ""})
    write_draw(draw_path(second.path), old)
    assert routes.get("compare", runs=runs)["groups"] == [[0, 1]], "an earlier version's draw of the same tokens"


def test_curves_stand_at_common_steps_and_end_where_their_run_ended(compared: tuple[Routes, list[str]]) -> None:
    routes, names = compared
    curves = routes.get("compare", runs=",".join(names), smooth=0.9)["curves"]
    assert curves["steps"] == list(range(1, 301))
    assert all(len(column["low"]) == 300 for column in curves["raw"].values())
    known = {key: sum(value is not None for value in column["low"]) for key, column in curves["raw"].items()}
    assert known == {"train0": 300, "train1": 150, "train2": 20}
    assert curves["raw"]["train1"]["low"][150:] == [None] * 150
    assert curves["points"]["held1"][-1] == [150, 0.5]
    assert (curves["begin"], curves["until"]) == (0, 300)
    zoomed = routes.get("compare", runs=",".join(names), first=10, last=30)["curves"]
    assert (zoomed["steps"][0], zoomed["steps"][-1]) == (10, 30)


def test_long_and_short_runs_share_their_buckets(routes: Routes, make_run: MakeRun) -> None:
    names = ["2026-11-10_2243_long_k3f9", "2026-11-11_2243_short_k3f9"]
    put(make_run(past(5_000, finished=True), names[0]))
    put(make_run([*past(2_001), step(2_002)], names[1]))
    curves = routes.get("compare", runs=",".join(names))["curves"]
    assert len(curves["steps"]) < 650
    assert curves["steps"] == sorted(curves["steps"])
    short = [value for value in curves["raw"]["train1"]["low"] if value is not None]
    assert 2_002 / 16 <= len(short) <= 2_002 / 8 + 1


@pytest.mark.parametrize(
    "names", ["", "2026-11-10_2243_run_k3f9", ",".join(f"r{number}" for number in range(6)), "../x,y"]
)
def test_one_run_six_runs_and_none_are_one_line(compared: tuple[Routes, list[str]], names: str) -> None:
    answer = compared[0].client.get("/studio/compare", params={"runs": names})
    assert answer.status_code in (404, 409)
    assert answer.json()["message"].startswith(("Two to 5 runs can be compared", "There is no run called"))


def test_it_is_known_which_of_them_score_an_answer_or_a_text(compared: tuple[Routes, list[str]]) -> None:
    routes, names = compared
    for name, method in zip(names, ("reward", "classify", "dpo"), strict=False):
        config = RunConfig.model_validate({"method": method, "data": {"path": "/a/good.jsonl"}})
        put(JobFolder(routes.studio.locations.runs / name), config)
    runs = routes.get("compare", runs=",".join(names))["runs"]
    assert [run["kind"] for run in runs[:3]] == ["answer", "label", ""]


def test_each_is_asked_the_same_and_the_original_once(compared: tuple[Routes, list[str]]) -> None:
    routes, names = compared
    messages = [{"role": "user", "content": "Hello?"}]
    both = routes.client.post("/studio/ask", json={"run": names[0], "messages": messages}).text.splitlines()
    assert [line["side"] for line in map(json.loads, both) if line["done"]] == ["base", "tuned"]
    alone = routes.client.post("/studio/ask", json={"run": names[1], "messages": messages, "sides": ["tuned"]})
    heard = [json.loads(line) for line in alone.text.splitlines()]
    assert heard[-1] == {"side": "tuned", "text": f"tuned of {names[1]}", "done": True}
    assert [asked[2] for chat in routes.chats for asked in chat.asked] == [("base", "tuned"), ("tuned",)]
    qwen = RunConfig(model=ModelChoice(source="hub", name="Qwen/Qwen3-4B"), data=DataChoice(path="/a/good.jsonl"))
    put(JobFolder(routes.studio.locations.runs / names[2]), qwen)
    bases = [run["base"] for run in routes.get("compare", runs=",".join(names))["runs"]]
    assert bases[0] == bases[1] != bases[2], "another base is another original"
