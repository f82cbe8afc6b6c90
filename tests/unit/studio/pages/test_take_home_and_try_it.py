"""Take home and Try: which runs have something to take, forms and exports; answers, and held-out rows as questions."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_routes import FakeChat, Routes
from made_runs import RUN, MakeRun, append, past, sorting, write_run

from core.contract.config import ModelChoice, RunConfig
from core.contract.data import Example, Message
from core.contract.errors import RunError
from core.contract.events import Event, Exported, Finished, Queued, Sample, Stage, Starting
from core.contract.forms import FORMS, QUANTISATIONS
from core.export.guides.runtimes import section
from core.machine.disk import write_sealed
from core.machine.locations import Locations
from core.runs.folder.held_out_rows import Draw, draw_path, kept_draw, write_draw
from core.runs.folder.job_folder import JobFolder
from studio.figures.held_out import asked_for, question_and_answer
from studio.figures.run_figures import used_words
from studio.pages.take_home.forms import merged_bytes
from studio.pages.take_home.uses import uses
from studio.services.chats import ChatClients, Question
from studio.words.faults import in_one

# ── take home ────────────────────────────────────────────────────────────────────────────────────────────────────────


def exporting(folder: JobFolder, *events: Event) -> JobFolder:
    job = JobFolder(folder.jobs / "merged")
    job.path.mkdir(parents=True)
    job.export_yaml.write_text("name: merged\nform: merged\n")
    append(job, [Queued(at=1.0), Starting(at=2.0, attempt=1), *events])
    return job


def test_what_there_is_to_take_home(routes: Routes, make_run: MakeRun) -> None:
    folder = make_run(past(300, finished=True), checkpoints=(100, 200, 300))
    done = Exported(at=9.0, attempt=1, name="merged", form="merged", bytes=9_000_000, checks=("same logits",),
                    warnings=("It lost what it learned.",))  # fmt: skip
    (folder.exports / "merged").mkdir(parents=True)
    card = '# Mine\n```python\nmodel = load("this folder")\n```\n\n```python\nno\n```\n'
    (folder.exports / "merged" / "README.md").write_text(card)
    exporting(folder, Stage(at=3.0, attempt=1, stage="merging"), done, Finished(at=10.0, attempt=1, seconds=8.0))
    keep = routes.get(f"run/{RUN}/keep")
    assert [item["name"] for item in keep["checkpoints"]] == ["best", "step-000200", "step-000100"]
    assert keep["checkpoints"][0]["words"] == "Best, step 300 (held-out loss 1.203)"
    assert {form["key"] for form in keep["forms"]} == {"adapter", "merged", "gguf", "gguf_adapter", "script"}
    assert keep["jobs"][0]["path"] == str(folder.exports / "merged")
    assert keep["jobs"][0]["checks"] == ["same logits"]
    assert keep["jobs"][0]["warnings"] == ["It lost what it learned."]
    [use] = keep["jobs"][0]["uses"]
    assert (use["title"], use["code"]) == ("Python", f'model = load("{folder.exports / "merged"}")')
    assert "for vLLM" in keep["forms"][0]["use"]
    assert keep["disk"].endswith("free on this disk.")


def test_the_best_of_a_model_that_sorts_is_the_one_that_is_right_most_often(routes: Routes, make_run: MakeRun) -> None:
    folder = make_run(past(200, finished=True), checkpoints=(100, 200))
    for step, right in ((100, 0.9), (200, 0.8)):
        manifest = folder.checkpoints / f"step-{step:06d}" / "MANIFEST.json"
        told = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**told, "eval_own": right, "eval_by": "accuracy"}))
    words = [item["words"] for item in routes.get(f"run/{RUN}/keep")["checkpoints"]]
    assert words == ["Best, step 100 (held-out accuracy 90%)", "Last, step 200 (held-out accuracy 80%)"]
    assert used_words(folder).startswith("The checkpoint of step 100 is used: of what was saved, its held-out accuracy")


def test_what_a_killed_export_left_is_said_while_it_stands(routes: Routes, make_run: MakeRun) -> None:
    folder = make_run(past(100, finished=True), checkpoints=(100,))
    draft = exporting(folder, Stage(at=3.0, attempt=1, stage="merging")).export_draft("merged")
    draft.mkdir(parents=True)
    (draft / "written.json").write_text("{}")
    (draft / "model.safetensors").write_bytes(bytes(3_000_000))
    [job] = routes.get(f"run/{RUN}/keep")["jobs"]
    assert job["word"] == "Interrupted"
    assert "3.0 MB of it are kept for a day" in job["sentence"]


def test_a_form_tells_its_options_and_what_is_missing_for_it(
    routes: Routes, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(past(100, finished=True), checkpoints=(100,))
    asked = replace(FORMS["merged"], needs=("json", "no_such_package"), options=frozenset({"quantisation", "weights"}))
    monkeypatch.setitem(FORMS, "merged", asked)
    adapter, merged, *_ = routes.get(f"run/{RUN}/keep")["forms"]
    assert (adapter["options"], adapter["missing"], adapter["kinds"]) == ([], "", [])
    assert merged["options"] == ["quantisation", "weights"]
    assert "no_such_package, which is not installed" in merged["missing"]
    assert merged["install"].endswith("-m pip install no_such_package")
    kinds = {kind["name"]: kind for kind in merged["kinds"]}
    assert list(kinds) == [*QUANTISATIONS]
    assert kinds["q4_k_m"]["title"].startswith("Q4_K_M · about ")
    assert "usual choice" in kinds["q4_k_m"]["use"]


def test_how_an_export_is_used_is_read_from_its_card(tmp_path: Path) -> None:
    export = tmp_path / "it's"
    export.mkdir()
    assert uses(export) == []
    card = ["# <b>", "## Use", "Here.", "### One", "In sh.", "```sh\na -f B\nc\n```", "### Two", "In Python.",
            '```python\nx = load("this folder")\n```', "## Recipe", "### No", "x", "```sh\nrm\n```", ""]  # fmt: skip
    (export / "README.md").write_text("\n\n".join(card))
    one, two = uses(export)
    assert one == {"title": "One", "about": "In sh.", "code": f"cd {shlex.quote(str(export))}\na -f B\nc"}
    assert (two["title"], two["code"]) == ("Two", f'x = load("{export}")')


def test_a_system_prompt_with_headings_and_code_ends_no_command(tmp_path: Path) -> None:
    lines = ["llama-cli -sys 'Rules:\n## First\n```\nx\n```\n### Last'", "b"]
    parts = (section(title, "In sh.", "sh", line) for title, line in zip(("One", "Two"), lines, strict=True))
    (tmp_path / "README.md").write_text(
        "\n".join(["# x", "## Use", "", *parts, "## Recipe", section("No", "x", "sh", "c")])
    )
    assert [use["code"].partition("\n")[2] for use in uses(tmp_path)] == lines


def test_a_classifier_is_taken_home_in_words_of_its_own(locations: Locations, routes: Routes) -> None:
    write_run(locations, sorting(3), RUN, checkpoints=(400,), method="classify")
    assert all("head" in form["use"] for form in routes.get(f"run/{RUN}/keep")["forms"])


def test_a_form_without_room_says_how_much_is_short(
    routes: Routes, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(past(100, finished=True), checkpoints=(100,))
    usage = type("Usage", (), {"free": 1_000_000})()
    monkeypatch.setattr("studio.pages.take_home.view.shutil.disk_usage", lambda _: usage)
    forms = {form["key"]: form for form in routes.get(f"run/{RUN}/keep")["forms"]}
    assert forms["adapter"]["room"]
    assert not forms["merged"]["room"]
    assert forms["merged"]["size"].endswith("more first.")


def test_a_bad_export_request_is_refused(routes: Routes, make_run: MakeRun) -> None:
    make_run(past(5, finished=True))
    assert routes.client.post(f"/studio/run/{RUN}/export", json={"name": "../x", "form": "adapter"}).status_code == 422
    nothing = routes.client.post(f"/studio/run/{RUN}/export", json={"name": "x", "form": "adapter"})
    assert nothing.status_code == 409
    assert "checkpoint" in nothing.json()["message"]


def test_a_hub_models_merged_size_is_known_before_it_is_made() -> None:
    qwen = RunConfig(model=ModelChoice(source="hub", name="Qwen/Qwen3-4B"))
    assert merged_bytes(qwen) == pytest.approx(8.04e9, rel=0.01)
    assert merged_bytes(RunConfig(model=ModelChoice(source="folder", name="/nowhere"))) == 0


def test_an_export_can_be_stopped(routes: Routes, make_run: MakeRun) -> None:
    job = exporting(make_run(past(100, finished=True), checkpoints=(100,)))
    assert routes.client.post(f"/studio/run/{RUN}/export/merged/stop").json() == {"ok": True}
    assert json.loads(job.commands.read_text().splitlines()[-1])["verb"] == "stop"
    assert routes.client.post(f"/studio/run/{RUN}/export/none/stop").status_code == 409


def test_no_run_and_no_checkpoint_are_two_things(routes: Routes, make_run: MakeRun) -> None:
    assert routes.get("runs") == {"runs": [], "all": 0}
    make_run(past(5))
    assert routes.get("runs") == {"runs": [], "all": 1}
    make_run(past(100), "2026-11-19_1000_kept_k3f9", checkpoints=(100,))
    assert [run["id"][:10] for run in routes.get("runs")["runs"]] == ["2026-11-19"]


def test_a_bad_export_job_is_left_out_and_the_others_are_shown(routes: Routes, make_run: MakeRun) -> None:
    folder = make_run(past(10, finished=True))
    for name in ("good", "bad"):
        (folder.jobs / name).mkdir(parents=True)
        (folder.jobs / name / "export.yaml").write_text("name: x\n")
    (folder.jobs / "bad" / "events.jsonl").mkdir()
    (folder.jobs / "away").symlink_to(folder.jobs / "good")
    assert [job["name"] for job in routes.get(f"run/{RUN}/keep")["jobs"]] == ["good"]
    assert routes.client.post(f"/studio/run/{RUN}/export/away/stop").status_code == 409


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def question(**more: Any) -> dict[str, Any]:
    return {"run": RUN, "messages": [{"role": "user", "content": "Who are you?"}], **more}


def asked(routes: Routes, **more: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in routes.client.post("/studio/ask", json=question(**more)).text.splitlines()]


def test_both_answers_are_streamed_and_the_child_stays_warm_until_another_checkpoint_is_asked(
    routes: Routes, make_run: MakeRun
) -> None:
    folder = make_run(past(100), checkpoints=(100,))
    heard = asked(routes, temperature=0.5, seed=7, max_new_tokens=9, top_p=0.9, stop=["\n"])
    assert heard[-1] == {"side": "tuned", "text": f"tuned of {RUN}", "done": True}
    how = {"temperature": 0.5, "seed": 7, "max_new_tokens": 9, "top_p": 0.9, "stop": ("\n",), "plain": False}
    assert routes.chats[0].asked == [([{"role": "user", "content": "Who are you?"}], how, ("base", "tuned"))]
    asked(routes)
    assert len(routes.chats) == 1
    append(folder, past(200)[len(past(100)) :])
    newer = folder.checkpoints / "step-000200"
    newer.mkdir()
    (newer / "MANIFEST.json").write_text(json.dumps({"eval_loss": 1.2 + 1 / 200}))
    asked(routes)
    assert [chat.closed for chat in routes.chats] == [True, False], "the best is another one now"
    asked(routes, checkpoint="last")
    assert [chat.closed for chat in routes.chats] == [True, True, False]


def test_a_fault_in_mid_answer_is_the_last_line(routes: Routes, make_run: MakeRun) -> None:
    make_run(past(5, finished=True))
    fault = RunError("talk.busy")
    routes.studio.chats = ChatClients(lambda folder, checkpoint: FakeChat(fault=fault))
    assert asked(routes)[-1] == {"fault": in_one(fault)}


def test_an_idle_child_is_let_go(make_run: MakeRun, routes: Routes) -> None:
    make_run(past(5, finished=True))
    chat = FakeChat()
    routes.studio.chats = ChatClients(lambda folder, checkpoint: chat, idle_seconds=0.05)
    asked(routes)
    deadline = time.monotonic() + 5
    while not chat.closed and time.monotonic() < deadline:
        time.sleep(0.02)
    assert chat.closed


def test_a_run_of_scores_is_asked_for_texts_and_told_with_scores(routes: Routes, make_run: MakeRun) -> None:
    make_run(past(100), checkpoints=(100,))
    heard = asked(routes, sides=["tuned"], second="And you?")
    assert heard[-1] == {"side": "tuned", "text": "good 80.0%", "done": True, "scores": [["bad", 0.2], ["good", 0.8]]}
    assert routes.get(f"run/{RUN}/keep")["asked"] == asked_for(RunConfig())
    named = [
        [asked_for(RunConfig(method=method), texts)[key] for key in ("scores", "kind", "prompt", "second")]
        for method, texts in (("sft", 1), ("classify", 1), ("classify", 2), ("reward", 1))
    ]
    assert named == [
        [False, "", "Question", ""],
        [True, "label", "Text", ""],
        [True, "label", "Text", "Second text"],
        [True, "answer", "Question", "Answer to be scored"],
    ]


@pytest.mark.parametrize("two", [{"second": "And you?"}, {"messages": [{"role": "assistant", "content": "x"}]}])
def test_a_training_run_is_asked_one_text(
    routes: Routes, make_run: MakeRun, alive: Callable[[JobFolder], None], two: dict[str, Any]
) -> None:
    alive(make_run(past(10, total=20)))
    assert "two" in asked(routes, **two)[-1]["fault"]


def test_a_training_run_answers_itself(
    routes: Routes, make_run: MakeRun, alive: Callable[[JobFolder], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(past(10, total=20))
    alive(folder)
    send = routes.studio.store.sample

    def answered(run_id: str, prompt: str, max_new_tokens: int) -> str:
        command = send(run_id, prompt, max_new_tokens)
        for side in ("base", "tuned"):
            append(folder, [Sample(attempt=1, command_id=command, side=side, prompt=prompt, text=f"{side} says")])
        return command

    monkeypatch.setattr(routes.studio.store, "sample", answered)
    assert asked(routes)[1:] == [{"side": side, "text": f"{side} says", "done": True} for side in ("base", "tuned")]
    assert routes.chats == []


def test_a_question_is_put_behind_the_system_prompt_that_was_trained() -> None:
    plain = Question.model_validate(question())
    assert [message.role for message in plain.after("Be brief.").messages] == ["system", "user"]
    assert plain.after("") == plain
    alone = plain.model_copy(update={"plain": True})
    assert alone.after("Be brief.") == alone


# ── held-out rows ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("train_rows", "count"), [(9, 1), (899, 0)])
def test_held_out_rows_come_with_their_right_answer_where_the_run_counted_as_many(
    routes: Routes, make_run: MakeRun, train_rows: int, count: int
) -> None:
    """A run that left out rows that its template refused: its split is not the one that we would compute of all 10."""
    counts = {"train_rows": train_rows, "eval_rows": 1}
    made = past(5, finished=True)
    make_run([event.model_copy(update=counts) if event.kind == "plan" else event for event in made])
    assert routes.get(f"run/{RUN}/keep")["held_out"] == count
    row = routes.client.get(f"/studio/run/{RUN}/held-out?at=-1")
    if count:
        assert [row.json()[name] for name in ("prompt", "answer", "at")] == ["q", "a", 0]
    else:
        assert row.status_code == 409


@pytest.mark.parametrize("numbers", [[3, 7], []], ids=["of this version", "of an earlier one"])
def test_held_out_rows_are_those_of_the_runs_own_draw(routes: Routes, make_run: MakeRun, numbers: list[int]) -> None:
    """As many usable rows as the run counted or not: its draw says which were held out, by their numbers in the file;
    an earlier version's says it by place, which is only sure where nothing was left out."""
    folder = make_run(past(5, finished=True))
    draw = Draw(rows=10, tokens_sha256="a", held_out=[2, 6], order_sha256="b", numbers=numbers)
    write_draw(draw_path(folder.path), draw)
    assert routes.get(f"run/{RUN}/keep")["held_out"] == 2
    asked = [routes.get(f"run/{RUN}/held-out", at=at) for at in (0, 1, 2)]
    assert [row["words"].split("row ")[-1].split(" ")[0] for row in asked] == ["3", "7", "3"]
    assert asked[0]["prompt"] == ("of the draw" if numbers else "q")
    write_draw(draw_path(folder.path), draw.model_copy(update={"rows": 9}))
    assert routes.get(f"run/{RUN}/keep")["held_out"] == (2 if numbers else 0)


def test_a_draw_that_was_not_written_by_us_is_none(tmp_path: Path) -> None:
    path = draw_path(tmp_path)
    good = {"rows": 10, "tokens_sha256": "a", "held_out": [2], "order_sha256": "b"}
    for bad in ({**good, "held_out": [-1]}, {**good, "held_out": "2"}, {**good, "rows": None}, {"rows": 10}):
        write_sealed(path, bad)
        assert kept_draw(tmp_path) is None
    write_sealed(path, good)
    assert kept_draw(tmp_path) == Draw(**good)
    for text in (path.read_text().replace("10", "11"), "[" * 100_000):
        path.write_text(text)
        assert kept_draw(tmp_path) is None
    path.unlink()
    path.symlink_to("/dev/zero")
    assert kept_draw(tmp_path) is None


def test_questions_of_all_kinds_of_rows() -> None:
    roles = ("user", "assistant", "user", "assistant")
    chat = Example(row=1, messages=tuple(Message(role=role, content=role) for role in roles))
    messages, answer = question_and_answer(chat)
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert answer == "assistant"
    assert question_and_answer(Example(row=1, text="one two three four"))[1] == "four"
