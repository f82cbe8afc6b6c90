"""Try, with the real child and the real starter: both sides, cancelling, a busy card, a closed pipe, a killed child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from core.chat.client import Answer, ChatClient
from core.chat.messages import Setup
from core.contract.config import RunConfig
from core.contract.errors import Fault
from core.contract.events import Finished, Step
from core.machine.cards import CardLock, CardSet, held_by
from core.machine.children import line_child
from core.machine.children.tied import start_tied
from core.machine.hardware import read_machine
from core.machine.locations import ASSETS, REPOSITORY, Locations
from core.machine.locks import FileLock
from core.runs.control.gpu_lease import take_card
from core.runs.control.queue import JobQueue
from core.runs.folder.job_folder import JobFolder
from core.runs.log.events_log import EventWriter

QUESTION = [{"role": "user", "content": "How many strings does a violin have?"}]


@pytest.fixture(scope="module")
def client(chat_home: Locations, run_folder: Path) -> Iterator[ChatClient]:
    """One child for the tests that leave it alive."""
    from core.runs.folder.run_yaml import read_wish

    client = ChatClient(chat_home, read_wish(run_folder / "run.yaml"), run_folder, "last")
    yield client
    client.close()


def last(answers: list[Answer], side: str) -> str:
    return [answer.text for answer in answers if answer.side == side][-1]


def test_both_sides_stream_base_first_and_the_base_is_the_base(client: ChatClient) -> None:
    answers = list(client.ask(QUESTION, max_new_tokens=12, temperature=0.0, seed=0))
    sides = [answer.side for answer in answers]
    assert sides == sorted(sides)
    assert [answer.side for answer in answers if answer.done] == ["base", "tuned"]
    assert last(answers, "base") == plain_answer(12)
    assert last(answers, "tuned") != last(answers, "base")
    texts = [answer.text for answer in answers if answer.side == "tuned"]
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))


@cache
def plain_answer(max_new_tokens: int) -> str:
    """What plain transformers says, without any of our parts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "starter")
    model = AutoModelForCausalLM.from_pretrained(ASSETS / "starter", dtype=torch.float32)
    text = tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    made = model.generate(ids, max_new_tokens=max_new_tokens, do_sample=False)
    return str(tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))


def test_the_same_seed_samples_the_same_and_another_does_not(client: ChatClient) -> None:
    how = {"sides": ("tuned",), "max_new_tokens": 8, "temperature": 3.0}
    said = [last(list(client.ask(QUESTION, **how, seed=seed)), "tuned") for seed in (7, 7, 8)]
    assert said[0] == said[1] != said[2]


def test_one_side_alone_says_what_it_says_beside_the_other(client: ChatClient) -> None:
    alone = list(client.ask(QUESTION, max_new_tokens=6, sides=("tuned",)))
    assert {answer.side for answer in alone} == {"tuned"}
    assert last(alone, "tuned") == last(list(client.ask(QUESTION, max_new_tokens=6)), "tuned")


def test_closing_the_iterator_cancels_and_the_child_answers_the_next(client: ChatClient) -> None:
    begun = client.ask(QUESTION, max_new_tokens=4000, temperature=3.0, seed=1)
    next(begun)
    child = client._child
    begun.close()
    started = time.monotonic()
    answers = list(client.ask(QUESTION, max_new_tokens=4, temperature=0.0, seed=0))
    assert time.monotonic() - started < 20
    assert client._child is child
    assert [answer.side for answer in answers if answer.done] == ["base", "tuned"]


def test_a_question_out_of_range_is_said_and_the_child_lives(client: ChatClient) -> None:
    with pytest.raises(Fault, match="max_new_tokens") as caught:
        list(client.ask(QUESTION, max_new_tokens=0, temperature=0.0, seed=0))
    assert caught.value.code == "talk.question"
    with pytest.raises(Fault, match="role"):
        list(client.ask([{"role": "poet", "content": "?"}], max_new_tokens=4, temperature=0.0, seed=0))
    assert client._child is not None
    assert client._child.alive()


ENDLESS = """
import json, sys, time
print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
ask = json.loads(sys.stdin.readline())
for said in range(ask["max_new_tokens"]):
    print(json.dumps({"id": ask["id"], "side": "base", "text": "la "}), flush=True)
    time.sleep(0.02)
print(json.dumps({"id": ask["id"], "side": "base", "done": True}), flush=True)
sys.stdin.read()
"""
"""A child's way of speaking, without a model."""


def test_a_killed_child_is_one_line_and_the_next_question_starts_another(
    chat_home: Locations, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        line_child, "start_tied", lambda _command, **how: start_tied([sys.executable, "-S", "-c", ENDLESS], **how)
    )
    client = ChatClient(chat_home, config, None)
    begun = client.ask(QUESTION, max_new_tokens=4000)
    assert next(begun).text == "la "
    killed = client._child
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(Fault) as caught:
        list(begun)
    assert caught.value.code == "talk.died"
    assert "killed by somebody" in caught.value.message
    assert "\n" not in str(caught.value)
    assert last(list(client.ask(QUESTION, max_new_tokens=3)), "base") == "la la la "
    assert client._child is not killed
    client.close()


@pytest.mark.slow
def test_after_a_kill_the_model_is_loaded_anew_and_says_what_it_said(client: ChatClient) -> None:
    begun = client.ask(QUESTION, max_new_tokens=4000, temperature=3.0, seed=1)
    next(begun)
    assert client._child is not None
    os.kill(client._child._process.pid, signal.SIGKILL)
    with pytest.raises(Fault) as caught:
        list(begun)
    assert caught.value.code == "talk.died"
    assert "\n" not in str(caught.value)
    assert last(list(client.ask(QUESTION, max_new_tokens=12, temperature=0.0, seed=0)), "base") == plain_answer(12)


def test_a_busy_card_is_said_at_once(tmp_path: Path, config: RunConfig) -> None:
    locations = Locations(tmp_path).make()
    card = CardLock(locations, read_machine().cards)
    assert card.acquire("2026-11-20_2243_other_k3f9")
    try:
        with pytest.raises(Fault, match="2026-11-20_2243_other_k3f9") as caught:
            list(ChatClient(locations, config, None).ask(QUESTION, max_new_tokens=4))
    finally:
        card.release()
    assert caught.value.code == "card.busy"


def test_a_run_that_has_just_ended_is_waited_for(chat_home: Locations, run_folder: Path, tmp_path: Path) -> None:
    """ "finished" is written some moments before the worker's process, and with it its hold on the card, is gone."""
    locations = Locations(tmp_path).make()
    run = JobFolder(locations.runs / run_folder.name)
    run.path.mkdir()
    writer = EventWriter(run.events, 1)
    writer.write(Step(step=1))
    card = CardLock(locations, CardSet())
    assert card.acquire(run.name)
    with pytest.raises(Fault, match=run.name):
        take_card(locations, CardSet(), "Try")
    writer.write(Finished(step=1))
    threading.Timer(0.5, card.release).start()
    taken = take_card(locations, CardSet(), "Try")
    assert held_by(locations, CardSet()) == "Try"
    taken.release()
    writer.close()


def test_the_child_ends_when_its_pipe_closes_even_while_it_loads(tmp_path: Path, config: RunConfig) -> None:
    setup = Setup(folder=str(ASSETS / "starter"), model=config.model, data=config.data, home=str(tmp_path))
    command = [sys.executable, "-m", "core.chat.child"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert child.stdin is not None
    child.stdin.write(setup.model_dump_json() + "\n")
    child.stdin.flush()
    while not (tmp_path / "locks" / "cpu").exists():  # it has read the setup and goes on to load
        assert child.poll() is None
        time.sleep(0.05)
    child.stdin.close()
    started = time.monotonic()
    child.wait(timeout=30)
    assert time.monotonic() - started < 3
    assert child.stdout is not None
    assert child.stdout.read() == ""
    child.stdout.close()


def test_a_missing_adapter_is_one_line(tmp_path: Path, config: RunConfig) -> None:
    from core.runs.folder.run_yaml import dump_config

    (tmp_path / "run.yaml").write_text(dump_config(config), encoding="utf-8")
    with pytest.raises(Fault, match="step-000009") as caught:
        ChatClient(Locations(tmp_path), config, tmp_path, "step-000009")
    assert caught.value.code == "run.no_checkpoint"


def test_the_child_leaves_within_five_seconds_when_a_run_wants_the_card(
    client: ChatClient, chat_home: Locations, run_folder: Path
) -> None:
    list(client.ask(QUESTION, max_new_tokens=2, temperature=0.0, seed=0))
    child = client._child
    assert child is not None
    supervisor, queue = FileLock(JobFolder(run_folder).supervisor_lock), JobQueue(chat_home)
    assert supervisor.acquire()
    try:
        queue.add(run_folder.name)
        started = time.monotonic()
        while child.alive():
            assert time.monotonic() - started < 5
            time.sleep(0.05)
        assert [line["code"] for line in child.listen() if line] == ["card.busy"]
        assert held_by(chat_home, read_machine().cards) is None
    finally:
        queue.remove(run_folder.name)
        supervisor.release()
