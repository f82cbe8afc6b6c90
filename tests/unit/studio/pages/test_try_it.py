"""Try: answers of a child or of the run that trains, and held-out rows as questions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desks import Desk, FakeChat, made_desk
from made_runs import append, past

from core.contract.data import Example, Message
from core.contract.errors import ModelError
from core.contract.events import Sample
from core.machine.disk import write_sealed
from core.machine.locations import Locations
from core.runs.folder.held_out_rows import Draw, draw_path, kept_draw, write_draw
from core.runs.folder.job_folder import JobFolder
from studio.figures.held_out import question_and_answer
from studio.services.chats import ChatClients

MakeRun = Callable[..., JobFolder]
RUN = "2026-11-20_2243_test_k3f9"


@pytest.fixture
def desk(locations: Locations) -> Desk:
    return made_desk(locations)


def lines(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def question(**more: Any) -> dict[str, Any]:
    return {"run": RUN, "messages": [{"role": "user", "content": "Who are you?"}], **more}


def test_both_answers_are_streamed_and_the_child_stays_warm(desk: Desk, make_run: MakeRun) -> None:
    make_run(past(5, finished=True), checkpoints=(5,))
    heard = lines(desk.client.post("/studio/ask", json=question(temperature=0.5, seed=7, max_new_tokens=9)))
    assert heard[-1] == {"side": "tuned", "text": f"tuned of {RUN}", "done": True}
    assert desk.chats[0].asked == [([{"role": "user", "content": "Who are you?"}], (9, 0.5, 7), ("base", "tuned"))]
    desk.client.post("/studio/ask", json=question())
    assert len(desk.chats) == 1
    desk.client.post("/studio/ask", json=question(checkpoint="last"))
    assert len(desk.chats) == 2
    assert desk.chats[0].closed


def test_a_fault_in_mid_answer_is_the_last_line(desk: Desk, make_run: MakeRun) -> None:
    make_run(past(5, finished=True))
    fault = ModelError.told_by(
        {"code": "model.gone", "message": "Expected the model, found it gone.", "hint": "Download it again."}
    )
    desk.studio.chats = ChatClients(lambda folder, checkpoint: FakeChat(fault=fault))
    heard = lines(desk.client.post("/studio/ask", json=question()))
    assert heard[-1] == {"fault": "Expected the model, found it gone. Download it again."}


def test_an_idle_child_is_let_go(make_run: MakeRun, desk: Desk) -> None:
    make_run(past(5, finished=True))
    chat = FakeChat()
    desk.studio.chats = ChatClients(lambda folder, checkpoint: chat, idle_seconds=0.05)
    desk.client.post("/studio/ask", json=question())
    deadline = time.monotonic() + 5
    while not chat.closed and time.monotonic() < deadline:
        time.sleep(0.02)
    assert chat.closed


def test_a_training_run_answers_itself(
    desk: Desk, make_run: MakeRun, alive: Callable[[JobFolder], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run(past(10, total=20))
    alive(folder)
    send = desk.studio.store.sample

    def answered(run_id: str, prompt: str, max_new_tokens: int) -> str:
        command = send(run_id, prompt, max_new_tokens)
        for side in ("base", "tuned"):
            append(folder, [Sample(attempt=1, command_id=command, side=side, prompt=prompt, text=f"{side} says")])
        return command

    monkeypatch.setattr(desk.studio.store, "sample", answered)
    heard = lines(desk.client.post("/studio/ask", json=question()))
    assert heard[1:] == [{"side": side, "text": f"{side} says", "done": True} for side in ("base", "tuned")]
    assert desk.chats == []


def test_a_question_is_put_behind_the_system_prompt_that_was_trained() -> None:
    from studio.services.chats import Question

    asked = Question.model_validate(question())
    assert [message.role for message in asked.after("Be brief.").messages] == ["system", "user"]
    assert asked.after("") == asked


def test_held_out_rows_come_with_their_right_answer(desk: Desk, make_run: MakeRun) -> None:
    counts = {"train_rows": 9, "eval_rows": 1}
    made = past(5, finished=True)
    events = [event.model_copy(update=counts) if event.kind == "plan" else event for event in made]
    make_run(events)
    assert desk.client.get(f"/studio/run/{RUN}/keep").json()["held_out"] == 1
    row = desk.client.get(f"/studio/run/{RUN}/held-out?at=-1").json()
    assert (row["prompt"], row["answer"], row["at"]) == ("q", "a", 0)


def test_no_row_is_called_held_out_where_the_run_counted_others(desk: Desk, make_run: MakeRun) -> None:
    """The run left out rows that its template refused: its split is not the one that we would compute."""
    make_run(past(5, finished=True))  # its plan names 900 rows, the file has 10
    assert desk.client.get(f"/studio/run/{RUN}/keep").json()["held_out"] == 0


@pytest.mark.parametrize("numbers", [[3, 7], []], ids=["of this version", "of an earlier one"])
def test_held_out_rows_are_those_of_the_runs_own_draw(desk: Desk, make_run: MakeRun, numbers: list[int]) -> None:
    """As many usable rows as the run counted or not: its draw says which were held out, by their numbers in the file;
    an earlier version's says it by place, which is only sure where nothing was left out."""
    folder = make_run(past(5, finished=True))
    draw = Draw(rows=10, tokens_sha256="a", held_out=[2, 6], order_sha256="b", numbers=numbers)
    write_draw(draw_path(folder.path), draw)
    assert desk.client.get(f"/studio/run/{RUN}/keep").json()["held_out"] == 2
    asked = [desk.client.get(f"/studio/run/{RUN}/held-out?at={at}").json() for at in (0, 1, 2)]
    assert [row["words"].split("row ")[-1].split(" ")[0] for row in asked] == ["3", "7", "3"]
    assert asked[0]["prompt"] == ("of the draw" if numbers else "q")
    write_draw(draw_path(folder.path), draw.model_copy(update={"rows": 9}))
    assert desk.client.get(f"/studio/run/{RUN}/keep").json()["held_out"] == (2 if numbers else 0)


def test_a_draw_that_was_not_written_by_us_is_none(tmp_path: Path) -> None:
    path = draw_path(tmp_path)
    good = {"rows": 10, "tokens_sha256": "a", "held_out": [2], "order_sha256": "b"}
    for bad in ({**good, "held_out": [-1]}, {**good, "held_out": "2"}, {**good, "rows": None}, {"rows": 10}):
        write_sealed(path, bad)
        assert kept_draw(tmp_path) is None
    write_sealed(path, good)
    assert kept_draw(tmp_path) == Draw(**good)
    path.write_text(path.read_text().replace("10", "11"))
    assert kept_draw(tmp_path) is None
    path.write_text("[" * 100_000)
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
    text = Example(row=1, text="one two three four")
    assert question_and_answer(text)[1] == "four"


def test_a_newer_best_checkpoint_is_the_one_that_answers(desk: Desk, make_run: MakeRun) -> None:
    folder = make_run(past(100), checkpoints=(100,))
    desk.client.post("/studio/ask", json=question())
    append(folder, past(200)[len(past(100)) :])
    newer = folder.checkpoints / "step-000200"
    newer.mkdir()
    (newer / "MANIFEST.json").write_text(json.dumps({"eval_loss": 1.2 + 1 / 200}))
    desk.client.post("/studio/ask", json=question())
    assert len(desk.chats) == 2
    assert desk.chats[0].closed
