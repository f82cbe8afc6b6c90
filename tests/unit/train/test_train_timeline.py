"""Questions on the way: which rows are asked, who answers when, and that none of it changes the run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_run import weights

from core.contract.config import DataChoice, RunConfig
from core.contract.data import Message
from core.machine.locations import ASSETS
from core.runs.folder.job_folder import JobFolder
from core.train.channel.channel import Channel
from core.train.channel.reporter import EventReporter
from core.train.evaluate import timeline
from core.train.evaluate.sample import readable
from core.train.evaluate.timeline import Timeline, questions
from core.train.run import train
from core.train.step.micro_batches import IGNORED
from core.train.step.rows import PairRows, TextRows


def rows_of(*labels: list[int]) -> TextRows:
    rows = TextRows()
    for row in labels:
        rows.append(list(range(10, 10 + len(row))), row)
    return rows


def test_a_question_is_the_prompt_up_to_the_first_trained_token_and_the_answer_the_first_trained_span() -> None:
    no = IGNORED
    rows = rows_of([5, 6, 7], [no, 5], [no, no, 5, 6, no, no, 7], [no, no, no])
    found = list(questions(rows, 4))
    assert [(one.prompt, one.right) for one in found] == [([10, 11], [12, 13])], (
        "raw text and prompts alone ask nothing"
    )
    assert list(questions(rows, 0)) == list(questions(PairRows(), 3)) == []
    pairs = PairRows()
    pairs.append([1, 2, 3], [4, 5], [6])
    assert [(one.prompt, one.right) for one in questions(pairs, 3)] == [([1, 2, 3], [4, 5])]


def test_the_base_answers_first_then_the_tuned_one_and_the_run_stays_the_same_bit_for_bit(
    run_config: Callable[..., RunConfig],
    make_folder: Callable[..., JobFolder],
    said: Any,
    letters: Any,
    quiet_torch: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "SHARE", 1000.0)
    steps = {"train__max_steps": 4, "train__eval_steps": 2}
    asking = make_folder(run_config(**steps, train__sample_rows=2), "asking")
    train(asking, said, letters)
    samples = said.of("sample")
    assert [(one.step, one.side, one.command_id) for one in samples] == [
        (step, "tuned" if step else "base", f"way-{number}") for step in (0, 2, 4) for number in (0, 1)
    ]
    assert all(one.prompt and one.right and one.seconds > 0 for one in samples)
    assert len({one.text for one in samples if one.command_id == "way-0"}) > 1, "what was learned is heard"
    quiet = type(said)()
    silent = make_folder(run_config(**steps), "silent")
    train(silent, quiet, letters)
    assert not quiet.of("sample")
    assert [one.loss for one in quiet.of("step")] == [one.loss for one in said.of("step")]
    theirs, ours = weights(silent), weights(asking)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_fault_is_said_once_and_asks_no_more(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> str:
        raise RuntimeError("no room.\nmore")

    monkeypatch.setattr(timeline, "continued", fails)
    model = torch.nn.Linear(1, 1).train()
    commands: Any = SimpleNamespace(leaving=False)
    config = RunConfig()
    rows = rows_of([IGNORED, IGNORED, 5])
    asked: Any = Timeline(config, rows, model, None, Channel(EventReporter(said), commands))
    asked.ask(3, last=True)
    asked.ask(4, last=True)
    assert [note.text for note in said.of("note")] == ["No questions on the way: no room."]
    assert model.training, "the mode is left as it was"


def test_who_is_to_leave_is_not_held_up(said: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: Any = SimpleNamespace(leaving=False)

    def leaves(*_: Any) -> str:
        commands.leaving = True
        return "half an ans"

    monkeypatch.setattr(timeline, "continued", leaves)
    rows = rows_of(*[[IGNORED, IGNORED, 5]] * 2)
    Timeline(RunConfig(), rows, torch.nn.Linear(1, 1), None, Channel(EventReporter(said), commands)).ask(1, last=True)
    assert said.of("sample") == [], "an answer that was cut short is none"


def test_answers_take_a_twentieth_of_the_time_beside_the_first_and_the_last(
    said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten measurements of ten seconds each, an answer takes one: the third answer waits until it has been earned."""
    now = [0.0]

    def takes_a_second(*_: Any) -> str:
        now[0] += 1.0
        return "an answer"

    monkeypatch.setattr(timeline, "continued", takes_a_second)
    monkeypatch.setattr(timeline, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    tokenizer = SimpleNamespace(decode=lambda *_: "words", all_special_ids=[], added_tokens_decoder={})
    channel = Channel(EventReporter(said), SimpleNamespace(leaving=False))  # type: ignore[arg-type]
    line = Timeline(RunConfig(), rows_of([IGNORED, IGNORED, 5]), torch.nn.Linear(1, 1), tokenizer, channel)
    asked = []
    for step in range(0, 101, 10):
        before = now[0]
        line.ask(step, last=step == 100)
        if now[0] > before:
            asked.append(step)
        now[0] += 10.0
    assert asked == [0, 40, 60, 80, 100]


@pytest.mark.parametrize("template", ["auto", "chatml"])
def test_a_standing_instruction_and_its_question_are_apart(template: Any) -> None:
    """Special tokens are not shown, and what they part is parted still."""
    from core.data.render.question import question_ids
    from core.data.render.rendering import load_tokenizer

    tokenizer = load_tokenizer(ASSETS / "starter")
    if template == "chatml":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    turns = (Message(role="system", content="Be short."), Message(role="user", content="Answer\n\nme"))
    shown = readable(tokenizer, question_ids(tokenizer, turns, DataChoice(template=template), 512))
    header = {"auto": ("", ""), "chatml": ("system\n", "user\n")}[template]
    assert shown == f"{header[0]}Be short.\n\n{header[1]}Answer\n\nme"
