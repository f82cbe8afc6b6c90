"""Questions on the way: which rows are asked, who answers when, and that none of it changes the run."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_run import equal, weights

from core.contract.config import DataChoice, RunConfig
from core.contract.data import Message
from core.data.render.chat_tokens import load_tokenizer, question_ids
from core.machine.locations import ASSETS
from core.model.adapters import Trained
from core.train.channel.channel import Channel
from core.train.channel.reporter import EventReporter
from core.train.evaluate import sample
from core.train.evaluate.sample import Timeline, questions, readable
from core.train.step.batches import IGNORED
from core.train.step.rows import MarkedRows, PairRows, TextRows


def rows_of(*labels: list[int]) -> TextRows:
    rows = TextRows()
    for row in labels:
        rows.append(list(range(10, 10 + len(row))), row)
    return rows


def test_a_question_is_the_prompt_up_to_the_first_trained_token_and_the_answer_the_first_trained_span() -> None:
    no = IGNORED
    rows = rows_of([5, 6, 7], [no, 5], [no, no, 5, 6, no, no, 7], [no, no, no])
    asked = list(questions(rows, 4))
    assert [(one.prompt, one.right) for one in asked] == [([10, 11], [12, 13])], (
        "raw text and prompts alone ask nothing"
    )
    assert [list(questions(rows, 4, most)) for most in (1, 2)] == [[], asked], "prompts too long for this card"
    assert list(questions(rows, 0)) == list(questions(PairRows(), 3)) == []
    pairs = PairRows()
    pairs.append([1, 2, 3], [4, 5], [6])
    assert [(one.prompt, one.right) for one in questions(pairs, 3)] == [([1, 2, 3], [4, 5])]
    marked = MarkedRows()
    marked.append([1, 2, 3], [4], good=False)
    marked.append([5, 6, 7], [8, 9], good=True)
    asked = [(one.prompt, one.right) for one in questions(marked, 3)]
    assert asked == [([5, 6, 7], [8, 9]), ([1, 2, 3], [])], "an answer marked bad is no right one"


def test_the_base_answers_first_then_the_tuned_one_and_the_run_stays_the_same_bit_for_bit(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"train__max_steps": 4, "train__eval_steps": 2}
    silent, quiet = runs.undisturbed(**short)
    monkeypatch.setattr(sample, "SHARE", 1000.0)
    asking, said = runs(train__sample_rows=2, **short)
    samples = said.of("sample")
    assert [(one.step, one.side, one.command_id) for one in samples] == [
        (step, "tuned" if step else "base", f"way-{number}") for step in (0, 2, 4) for number in (0, 1)
    ]
    assert all(one.prompt and one.right and one.seconds > 0 for one in samples)
    assert len({one.text for one in samples if one.command_id == "way-0"}) > 1, "what was learned is heard"
    assert not quiet.of("sample")
    assert said.losses() == quiet.losses()
    assert equal(weights(asking), weights(silent))


@pytest.fixture
def line(said: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A timeline of so many questions, each answered by ``answers``, which is given the run's commands."""

    def make(answers: Callable[[Any], str], count: int = 1) -> Any:
        commands: Any = SimpleNamespace(leaving=False)
        monkeypatch.setattr(sample, "continued", lambda *_: answers(commands))
        tokenizer = SimpleNamespace(decode=lambda *_: "words", all_special_ids=[], added_tokens_decoder={})
        rows = rows_of(*[[IGNORED, IGNORED, 5]] * count)
        model: Any = Trained(torch.nn.Linear(1, 1))
        return Timeline(RunConfig(), rows, model, tokenizer, Channel(EventReporter(said), commands))

    return make


def test_a_fault_is_said_once_and_asks_no_more(said: Any, line: Any) -> None:
    def fails(_commands: Any) -> str:
        raise RuntimeError("no room.\nmore")

    asked = line(fails)
    asked.ask(3, last=True)
    asked.ask(4, last=True)
    assert [note.text for note in said.of("note")] == ["No questions on the way: no room."]
    assert asked._trained.model.training, "the mode is left as it was"


def test_who_is_to_leave_is_not_held_up(said: Any, line: Any) -> None:
    def leaves(commands: Any) -> str:
        commands.leaving = True
        return "half an ans"

    line(leaves, 2).ask(1, last=True)
    assert said.of("sample") == [], "an answer that was cut short is none"


def test_answers_take_a_twentieth_of_the_time_beside_the_first_and_the_last(
    line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten measurements of ten seconds each, an answer takes one: the third answer waits until it has been earned."""
    now = [0.0]

    def takes_a_second(_commands: Any) -> str:
        now[0] += 1.0
        return "an answer"

    monkeypatch.setattr(sample, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    asks = line(takes_a_second)
    asked = []
    for step in range(0, 101, 10):
        before = now[0]
        asks.ask(step, last=step == 100)
        if now[0] > before:
            asked.append(step)
        now[0] += 10.0
    assert asked == [0, 40, 60, 80, 100]


@pytest.mark.parametrize("template", ["auto", "chatml"])
def test_a_standing_instruction_and_its_question_are_apart(template: Any) -> None:
    """Special tokens are not shown, and what they part is parted still."""
    tokenizer = load_tokenizer(ASSETS / "starter")
    if template == "chatml":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    turns = (Message(role="system", content="Be short."), Message(role="user", content="Answer\n\nme"))
    shown = readable(tokenizer, question_ids(tokenizer, turns, DataChoice(template=template), 512))
    header = {"auto": ("", ""), "chatml": ("system\n", "user\n")}[template]
    assert shown == f"{header[0]}Be short.\n\n{header[1]}Answer\n\nme"
