"""The history: its filter, what runs are called, what is done about failed ones, and how one is had again."""

import json
import math
import os
import shlex
import time
from pathlib import Path
from shutil import copytree

import pytest
import yaml
from made_routes import Routes, made_routes
from made_runs import MakeRun, append, past, sorting, worse, write_run

from core.chat.client import checkpoint_folder
from core.cli import commands as cli
from core.contract.config import DataChoice, LoraChoice, ModelChoice, RunConfig, TrainChoice
from core.contract.events import Correction, Failed, Finished, Paused
from core.machine.locations import Locations
from core.runs.folder.job_folder import JobFolder
from core.runs.folder.notes import note_asked, read_asked
from core.runs.folder.run_yaml import dump_config, read_wish
from core.runs.record.summary import RunSummary, summarise
from studio.figures import history_rows, run_figures
from studio.figures.history_rows import RowFilter, path_of
from studio.figures.proposals import change_for, change_words, next_action
from studio.figures.run_names import Names
from studio.pages.take_home.view import keep
from studio.services.session import Session

RUN = "2026-11-20_2325_good_k3f9"
MEMORY = Failed(at=1e9, attempt=1, code="memory.gpu", message="The card's memory is full.", hint="Choose less.")


def with_config(folder: JobFolder, config: RunConfig) -> JobFolder:
    folder.run_yaml.write_text(dump_config(config), encoding="utf-8")
    return folder


@pytest.fixture
def three(routes: Routes, make_run: MakeRun) -> Routes:
    """Three runs that differ in state, model, method and time."""
    qwen = RunConfig(model=ModelChoice(source="hub", name="Qwen/Qwen3-4B"), data=DataChoice(path="/data/good.jsonl"))
    with_config(make_run(past(20, finished=True), RUN), qwen)
    dpo = RunConfig(name="Pairs", method="dpo", data=DataChoice(path="/data/pairs.jsonl"))
    with_config(make_run([*past(20), MEMORY], "2020-01-02_0304_pairs_k3f9"), dpo)
    with_config(make_run([*past(9), Paused(at=1e9, attempt=1)], "2026-11-19_1000_other_k3f9"), qwen)
    return routes


def ids(routes: Routes, **asked: str) -> list[str]:
    return [run["id"] for run in routes.get("history", **asked)["runs"]]


# ── finding ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_are_found_by_words_state_model_and_method(three: Routes) -> None:
    assert len(ids(three)) == 3
    assert ids(three, words="good 23:25") == [RUN]
    assert ids(three, words="QWEN3 finished") == [RUN]
    assert ids(three, words="nothing like this") == []
    assert ids(three, state="failed") == ["2020-01-02_0304_pairs_k3f9"]
    assert ids(three, state="paused", model="Qwen3-4B") == ["2026-11-19_1000_other_k3f9"]
    assert ids(three, method="dpo") == ["2020-01-02_0304_pairs_k3f9"]
    answer = three.get("history")
    assert (answer["models"], answer["methods"]) == (["Qwen3-4B", "Starter"], ["dpo", "sft"])


def test_runs_are_found_by_when_they_were_made() -> None:
    now = run_figures.made_at("2026-11-21_1200_x_aaaa")
    assert now is not None
    run, undated = RunSummary(RUN, "", "finished"), RunSummary("undated", "", "finished")
    names = Names()
    assert RowFilter(when="day").fits(run, now, names)
    assert not RowFilter(when="day").fits(run, now + 2 * 86_400, names)
    assert RowFilter(when="week").fits(run, now + 2 * 86_400, names)
    assert RowFilter(when="nonsense").fits(run, now, names)
    assert not RowFilter(when="year").fits(undated, now, names)


def test_the_newest_come_first_and_a_page_at_a_time(three: Routes) -> None:
    answer = three.get("history", limit=2)
    assert [run["id"][:10] for run in answer["runs"]] == ["2026-11-20", "2026-11-19"]
    assert (answer["count"], answer["all"]) == (3, 3)
    assert three.get("history", limit=2, tag=answer["tag"]) == {"same": True, "tag": answer["tag"], "deleted": []}
    assert len(three.get("history", limit=-5)["runs"]) == 1


def test_a_row_names_method_and_measure_from_before_training_to_its_best(locations: Locations) -> None:
    made = [write_run(locations, sorting(3), "2026-11-20_2243_a_k3f9", method="classify")]
    made.append(write_run(locations, past(10), "2026-11-20_2243_b_k3f9"))
    sorts, plain = (history_rows.row(summarise(folder)) for folder in made)
    assert (sorts["method"], sorts["measure"]) == ("Classification", "accuracy")
    assert sorts["measured"].split(" → ") == [f"{share}%" for share in (43, 89)]
    assert (plain["method"], plain["measured"]) == ("SFT", "")


def test_five_hundred_runs_are_answered_within_a_third_of_a_second(routes: Routes, locations: Locations) -> None:
    """From summaries, as whoever opens the history a second time has them; the processor's time, so that what else runs
    on the machine is not measured."""
    one = write_run(locations, past(2, finished=True), "2026-09-01_0000_many_aaaa")
    for number in range(499):
        run_id = f"2026-10-{number % 28 + 1:02d}_{number // 28:02d}00_many_aaaa"
        copytree(one.path, locations.runs / run_id, copy_function=os.link)
    routes.get("history")
    took = []
    for _ in range(3):
        fresh = made_routes(locations)  # a studio that has just been started
        began = time.process_time()
        answer = fresh.client.get("/studio/history")
        took.append(time.process_time() - began)
        assert (len(answer.json()["runs"]), answer.json()["count"]) == (50, 500)
        assert len(answer.content) < 60_000
        if took[-1] < 0.3:
            break
    assert min(took) < 0.3, took


def test_rows_are_sorted_with_what_is_unknown_last_and_pins_first(three: Routes) -> None:
    good, pairs, other = RUN, "2020-01-02_0304_pairs_k3f9", "2026-11-19_1000_other_k3f9"
    assert ids(three, sort="when", down="0") == [pairs, other, good]
    assert ids(three, sort="title") == [other, good, pairs], "by their times"
    assert ids(three, sort="took", down="1")[-1] == ids(three, sort="took")[-1] == other, "it has not ended"
    assert ids(three, sort="nonsense") == [good, other, pairs]
    assert three.client.post(f"/studio/run/{pairs}/marks", json={"pinned": True}).json()["pinned"] is True
    assert ids(three) == [pairs, good, other]
    assert ids(three, sort="title", down="1") == [pairs, good, other]


def test_marks_are_changed_shown_and_searched(three: Routes) -> None:
    def mark(**changes: object) -> int:
        return three.client.post(f"/studio/run/{RUN}/marks", json=changes).status_code

    assert [mark(tags=["Support", "support "], note="the calm one"), mark(colour=2)] == [200, 200]
    row = next(run for run in three.get("history")["runs"] if run["id"] == RUN)
    assert (row["tags"], row["note"], row["colour"], row["pinned"]) == (["support"], "the calm one", 2, False)
    assert three.get("history")["tags"] == ["support"]
    assert ids(three, tagged="support") == ids(three, words="calm") == ids(three, words="SUPPORT") == [RUN]
    assert ids(three, tagged="other") == []
    assert [mark(note="x" * 5_000), mark(colour=9), mark(tags=["x" * 40])] == [409] * 3
    assert [mark(note="x" * 9_000), mark(tags="text"), mark(own=1)] == [422] * 3


def test_a_deleted_run_is_told_until_it_cannot_be_had_back(three: Routes) -> None:
    def post(verb: str) -> int:
        return three.client.post(f"/studio/run/{RUN}/{verb}").status_code

    title = next(run["title"] for run in three.get("history")["runs"] if run["id"] == RUN)
    assert post("delete") == 200
    answer = three.get("history")
    assert [run["id"] for run in answer["runs"]] == ["2026-11-19_1000_other_k3f9", "2020-01-02_0304_pairs_k3f9"]
    (gone,) = answer["deleted"]
    assert (gone["id"], gone["title"], 25 < gone["left"] <= 30) == (RUN, title, True)
    assert (post("delete"), post("restore"), post("restore")) == (404, 200, 409)
    assert RUN in ids(three)
    assert three.get("history")["deleted"] == []


def test_a_curve_is_drawn_small_and_whatever_stands_in_its_file() -> None:
    assert path_of([]) == path_of([(0, 1.0)]) == path_of([(0, math.nan), (1, math.inf), (2, 1.0)]) == ""
    assert path_of([(0, 2.0), (50, 1.0), (100, 1.5)]) == "M3 3L48 21L93 12"
    assert path_of([(5, 1.0), (5, 1.0)]) == "M3 21L3 21"


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_called_by_data_model_and_time_until_it_is_renamed_everywhere(three: Routes) -> None:
    titles = {run["id"]: run["title"] for run in three.get("history")["runs"]}
    assert titles[RUN].startswith("good.jsonl on Qwen3-4B, 20 Nov")
    assert titles[RUN].endswith("23:25")
    assert titles["2020-01-02_0304_pairs_k3f9"] == "Pairs"
    assert three.get("points", run=RUN)["status"]["name"] == titles[RUN]

    def rename(name: str) -> int:
        return three.client.post(f"/studio/run/{RUN}/rename", json={"name": name}).status_code

    assert rename("Good one") == 200
    assert ids(three, words="good one") == [RUN]
    assert three.get("points", run=RUN)["status"]["name"] == "Good one"
    assert (rename("x" * 130), rename("x" * 5000), rename("")) == (409, 422, 200)
    assert ids(three, words="good one") == []


def test_runs_that_share_data_and_model_are_called_by_what_was_changed(routes: Routes, make_run: MakeRun) -> None:
    data, qwen = DataChoice(path="/data/support.csv"), ModelChoice(source="hub", name="Qwen/Qwen3-4B")
    first = RunConfig(data=data, model=qwen)
    wide = first.model_copy(update={"lora": LoraChoice(r=32, use_rslora=True)})
    made = {
        "first": first,
        "again": first,
        "wide": wide,
        "gentle": wide.model_copy(update={"train": TrainChoice(learning_rate=1e-4, seed=7, max_length=512)}),
        "small": first.model_copy(
            update={"model": ModelChoice(), "data": data.model_copy(update={"columns": {"a": "b"}})}
        ),
        "named": wide.model_copy(update={"name": "Mine"}),
        "other": first.model_copy(update={"data": DataChoice(path="/elsewhere/support.csv")}),
    }
    for day, (name, config) in enumerate(made.items(), 10):
        with_config(make_run(past(5, finished=True), f"2026-11-{day}_2325_{name}_k3f9"), config)
    rows = {run["id"].split("_")[2]: run for run in routes.get("history")["runs"]}
    assert {name: row["differs"] for name, row in rows.items()} == {
        "first": "",
        "again": "",
        "wide": "rank 32, rsLoRA on",
        "gentle": "max length 512, learning rate 0.0001, seed 7",
        "small": "Starter, other columns, rank 16, +4",
        "named": "Qwen3-4B, other columns, rank 32, +1",
        "other": "",
    }
    titles = {name: row["title"] for name, row in rows.items()}
    assert titles["wide"] == "support.csv on Qwen3-4B, rank 32, rsLoRA on"
    assert titles["gentle"] == "support.csv on Qwen3-4B, max length 512, learning rate 0.0001, +1"
    assert (titles["named"], rows["wide"]["short"]) == ("Mine", "support.csv on Qwen3-4B")
    for name in ("first", "again", "small", "other"):
        assert titles[name].endswith("23:25"), name
    wide = rows["wide"]["id"]
    assert routes.get("points", run=wide)["status"]["name"] == titles["wide"], "the same on every page"
    assert routes.get("compare", runs=f"{wide},{rows['first']['id']}")["runs"][0]["title"] == titles["wide"]


# ── what is done about a failed one ──────────────────────────────────────────────────────────────────────────────────


def test_a_failed_run_keeps_cause_cure_and_the_button_that_does_it(three: Routes) -> None:
    failed = three.get("history", state="failed")["runs"][0]
    assert (failed["cause"], failed["cure"], failed["next"]) == ("The card's memory is full.", "Choose less.", "mend")
    config = three.get(f"run/{failed['id']}/config")
    assert config["change"] == "gradient checkpointing: in every layer"
    assert three.client.post(f"/studio/run/{failed['id']}/mend").json() == {"go": "/"}
    assert three.drafts[0].train.checkpointing == "recompute"
    assert three.drafts[0].data.path == "/data/pairs.jsonl"
    watched = three.get("points", run=failed["id"])["status"]["next"]
    assert watched == {"verb": "mend", "words": f"Run again with {config['change']}", "about": ""}
    assert three.get("points", run=RUN)["status"]["next"] == {"verb": "", "words": "", "about": ""}


def test_a_run_that_came_out_worse_is_no_green_one_anywhere(
    routes: Routes, make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    config = RunConfig(data=DataChoice(path="/data/good.jsonl"), train=TrainChoice(learning_rate=1.0))
    folder = with_config(make_run(worse(), RUN, checkpoints=(100, 200, 300)), config)
    make_run(past(300, finished=True), "2026-11-19_1000_other_k3f9")
    bad, good = routes.get("history")["runs"]
    assert (bad["word"], bad["tone"], bad["next"], bad["verdict"]) == ("Came out worse", "bad", "mend", "")
    assert bad["cause"] == "Do not use this one: it got worse, held-out loss 2.500 → 2.700 (step 100)."
    assert (good["tone"], good["cause"], good["next"]) == ("good", "", "")
    assert good["verdict"] == "It learned: held-out loss 2.500 → 1.203"
    status = routes.get("points", run=RUN)["status"]
    assert status["next"]["words"] == "Run again with learning rate 0.0002"
    assert status["verdict"]["used"].startswith("The checkpoint of step 100 is used:")
    routes.client.post(f"/studio/run/{RUN}/mend")
    assert routes.drafts[0].train.learning_rate == 2e-4
    kept = keep(folder, routes.studio.store.record(RUN), None, [])
    assert kept["verdict"] == status["verdict"]
    assert kept["checkpoints"][0]["words"] == (
        "Best of the saved, step 100 (held-out loss 2.700, 2.500 before training)"
    )
    assert checkpoint_folder(folder, "best").name == "step-000100"
    assert cli.main(["runs", "--home", str(routes.studio.locations.home)]) == 0
    folder.run_yaml.write_text("lora: {r: none}")
    assert routes.get("points", run=RUN)["status"]["next"]["verb"] == "", "what cannot be read is not run again"
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[-2] for line in listed] == ["worse", "better"]


def test_the_button_does_the_change_that_it_names(routes: Routes, make_run: MakeRun) -> None:
    """What was automatic is automatic again when it is reopened; the change is one of what ran all the same."""
    asked = RunConfig(data=DataChoice(path="/data/rows.jsonl"), train=TrainChoice(checkpointing="auto"))
    ran = asked.model_copy(update={"train": TrainChoice(checkpointing="recompute")})
    folder = with_config(make_run([*past(20), MEMORY], RUN), ran)
    note_asked(folder, asked)
    assert routes.get(f"run/{RUN}/config")["change"].endswith("inputs in the machine's memory")
    routes.client.post(f"/studio/run/{RUN}/mend")
    assert routes.drafts[0].train.checkpointing == "offload"


def test_every_cause_has_an_action_that_helps() -> None:
    assert next_action("lost", "") == "resume"
    codes = {"disk.full": "resume", "train.not_finite": "mend", "data.nothing_trained": "rerun"}
    assert {code: next_action("failed", code) for code in codes} == codes
    assert next_action("finished", "") == next_action("training", "") == ""


def test_a_run_that_would_be_another_goes_on_when_a_person_says_so(
    routes: Routes, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core.train.keep.depends import DIFFERS

    fault = Failed(at=1e9, attempt=1, code=DIFFERS, message="Expected the same data.", hint="Put it back.")
    folder = make_run([*past(20), fault], RUN)
    assert routes.get("history")["runs"][0]["next"] == "anyway"
    monkeypatch.setattr("core.runs.control.store.start_supervisor", lambda *_: None)
    assert routes.client.post(f"/studio/run/{RUN}/anyway").json() == {"ok": True}
    assert '"kind":"resumed"' in folder.events.read_text().replace(" ", "")
    assert routes.studio.store.record(RUN).anyway
    assert cli._parser().parse_args(["resume", RUN, "--anyway"]).anyway
    assert not cli._parser().parse_args(["resume", RUN]).anyway


def test_the_mildest_change_that_was_not_made_yet_is_proposed() -> None:
    config = RunConfig(model=ModelChoice(quantization="none"), train=TrainChoice(max_length=2048))
    made = []
    for _ in range(5):
        made.append(change_for("memory.gpu", config))
        config = Session(config).with_values(made[-1]).config
    assert [next(iter(change.items())) for change in made] == [
        ("train.checkpointing", "recompute"),
        ("train.checkpointing", "offload"),
        ("model.quantization", "nf4"),
        ("train.max_length", 1024),
        ("train.max_length", 512),
    ]
    assert change_words(made[3]) == "max length 1,024"
    assert change_words(change_for("train.not_finite", config)) == "learning rate 5e-5"
    assert change_for("disk.full", config) == {}


@pytest.mark.parametrize(
    ("losses", "train", "proposed", "about"),
    [
        ((2.5, 2.7), TrainChoice(learning_rate=1e-4), "learning rate 5e-5", "Half the learning rate"),
        ((2.5, 4.5), TrainChoice(learning_rate=1e-4), "learning rate 2.5e-5", "A quarter of the learning rate"),
        ((2.5, 2.7), TrainChoice(learning_rate=0.1), "learning rate 0.0002", "the usual one"),
        ((2.5, 2.51), TrainChoice(learning_rate=1e-4), "learning rate 0.0002", "Twice the learning rate"),
        ((2.5, 2.51), TrainChoice(num_train_epochs=1), "epochs 2", "More epochs"),
        ((2.5, 2.51), TrainChoice(max_steps=50), "max steps 100", "More epochs"),
        ((2.5, 2.51), TrainChoice(num_train_epochs=3), "learning rate 0.0004", "Twice the learning rate"),
    ],
)
def test_after_a_run_that_is_of_no_use_one_change_is_proposed_and_named(
    routes: Routes, make_run: MakeRun, losses: tuple[float, float], train: TrainChoice, proposed: str, about: str
) -> None:
    before, after = losses
    told = [
        event.model_copy(update={"loss": after if event.step else before}) if event.kind == "evaluation" else event
        for event in past(100, finished=True)
    ]
    with_config(make_run(told, RUN, checkpoints=(100,)), RunConfig(data=DataChoice(path="/data/a.jsonl"), train=train))
    status = routes.get("points", run=RUN)["status"]
    assert status["next"]["words"] == f"Run again with {proposed}"
    assert about in status["verdict"]["do"]
    assert routes.get(f"run/{RUN}/config")["change"] == proposed


# ── having one again ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_yaml_is_the_effective_config_and_the_command_line_reads_back_the_same(
    routes: Routes, make_run: MakeRun, tmp_path: Path
) -> None:
    halved = Correction(attempt=1, key="train.learning_rate", old="0.0002", new="0.0001", reason="bad numbers")
    make_run([*past(20), halved, Finished(at=1e9, attempt=1)], RUN, name="it's mine")
    answer = routes.client.get(f"/studio/run/{RUN}/yaml")
    assert answer.headers["content-disposition"] == f'attachment; filename="{RUN}.yaml"'
    assert yaml.safe_load(answer.text)["train"]["learning_rate"] == 0.0001
    file = tmp_path / "run.yaml"
    file.write_text(answer.text)
    words = shlex.split(routes.get(f"run/{RUN}/config")["command"])
    assert words[:2] == ["python3", "launcher.py"]
    chosen = cli._parser().parse_args(words[2:])
    assert read_wish(Path(chosen.file), chosen.set) == read_wish(file)
    assert chosen.home == str(routes.studio.locations.home)


def test_run_again_keeps_what_a_person_chose_and_opens_what_we_chose(routes: Routes, make_run: MakeRun) -> None:
    asked = RunConfig(
        name="Mine",
        method="dpo",
        preset="chat-style",
        model=ModelChoice(source="hub", name="Qwen/Qwen3-4B", quantization="none"),
        data=DataChoice(path="/data/pairs.jsonl", columns={"prompt": "q"}, system_prompt="Be brief."),
        lora=LoraChoice(r=8, target_modules=("q_proj",)),
        train=TrainChoice(save_steps=50, learning_rate=3e-4, checkpointing="offload"),
    )
    ours = {"tokens_per_pass": 4096, "eval_steps": 7, "optim": "adamw_torch"}
    resolved = asked.model_copy(update={"train": asked.train.model_copy(update=ours)})
    folder = with_config(make_run(past(5, finished=True), RUN), resolved)
    note_asked(folder, asked, (10.0, 20.0))
    assert routes.client.post(f"/studio/run/{RUN}/rerun").json() == {"go": "/"}
    assert routes.drafts == [asked]
    append(folder, [Correction(attempt=1, key="train.tokens_per_pass", old="4096", new="2048", reason="memory")])
    routes.client.post(f"/studio/run/{RUN}/rerun")
    assert routes.drafts[1].train.tokens_per_pass == 2048, "what was corrected is not chosen again"


@pytest.mark.parametrize("older", [True, False])
def test_run_again_leaves_the_method_open_that_an_older_version_wrote_by_itself(
    routes: Routes, make_run: MakeRun, older: bool
) -> None:
    """It wrote "sft" where nobody had chosen a method; now that is written where somebody did."""
    asked = RunConfig(method="sft", data=DataChoice(path="/data/rows.jsonl"))
    folder = with_config(make_run(past(5, finished=True), RUN), asked)
    note_asked(folder, asked, (10.0, 20.0))
    if older:
        file = folder.path / "asked.json"
        noted = json.loads(file.read_text())
        del noted["version"]
        file.write_text(json.dumps(noted))
    routes.client.post(f"/studio/run/{RUN}/rerun")
    assert routes.drafts[0].method == ("auto" if older else "sft")
    kept = read_asked(folder)
    assert kept is not None
    assert kept.seconds == (10.0, 20.0)
