"""The built-in model and the samples: small, loadable by anyone, right about their world, and made by our scripts."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.machine.locations import ASSETS

STARTER, SAMPLES = ASSETS / "starter", ASSETS / "samples"
FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
         "generation_config.json")  # fmt: skip
ASKED = 60
LEAST_RIGHT = 0.70


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(STARTER, local_files_only=True)


@pytest.fixture(scope="module")
def held_out() -> list[tuple[str, str]]:
    """Questions that the starter's text never held, with their answers (other ones than its script asks)."""
    found = in_the_world(f"json.dumps(world.held_out_questions({ASKED}, seed=77))")
    return [(asked, answer) for asked, answer in found]


def in_the_world(expression: str) -> Any:
    """An expression over the modules of the world, in a process of its own, which leaves nothing beside them."""
    code = f"import json, world_stories as world; print({expression})"
    command, environment = [sys.executable, "-B", "-c", code], {**os.environ, "PYTHONPATH": str(STARTER)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (SAMPLES / name).read_text(encoding="utf-8").splitlines()]


def test_the_whole_folder_is_small_and_complete() -> None:
    sizes = {path.name: path.stat().st_size for path in STARTER.iterdir() if path.is_file()}
    assert set(FILES) <= set(sizes)
    assert sum(sizes.values()) <= 12_000_000
    assert sizes["model.safetensors"] <= 11_000_000
    config = json.loads((STARTER / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["hidden_size"] % 64, config["intermediate_size"] % 64) == (0, 0), "every linear layer fits NF4"


def test_it_answers_held_out_questions_of_its_world(tokenizer: Any, held_out: list[tuple[str, str]]) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(STARTER, dtype=torch.float32, local_files_only=True).eval()
    answered = greedy(model, tokenizer, [asked for asked, _ in held_out])
    wrong = [(asked, answer, said) for (asked, answer), said in zip(held_out, answered, strict=True) if said != answer]
    assert len(held_out) == ASKED
    assert 1 - len(wrong) / ASKED >= LEAST_RIGHT, wrong


def greedy(model: Any, tokenizer: Any, questions: Sequence[str]) -> list[str]:
    """All at once: a question's padding is masked."""
    turns = [[{"role": "user", "content": asked}] for asked in questions]
    texts = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    given = tokenizer(texts, return_tensors="pt", add_special_tokens=False, padding=True, padding_side="left")
    made = model.generate(**given, max_new_tokens=40)  # the generation config alone says: greedy, ends at <|end|>
    answers = made[:, given["input_ids"].shape[1] :]
    return [str(text) for text in tokenizer.batch_decode(answers, skip_special_tokens=True)]


def test_neither_held_out_questions_nor_the_samples_manner_are_in_its_text(
    held_out: list[tuple[str, str]],
) -> None:
    turns = in_the_world(
        "json.dumps([(turn['role'], turn['content']) for document in world.World(11).documents(60000)"
        " if not isinstance(document, str) for turn in document])"
    )
    asked = {text for role, text in turns if role == "user"}
    assert len(asked) > 20_000
    sampled = {"\n\n".join(filter(None, (row["instruction"], row["input"]))) for row in rows("instruction.jsonl")}
    preferred = {row["prompt"] for row in rows("preference.jsonl")}
    assert ({question for question, _ in held_out} | sampled | preferred) & asked == set()
    said = [text for _, text in turns]
    assert not [text for text in said if "at the bench" in text.lower() or "checked twice" in text.lower()]
    # Other manners are: unasked in some conversations, and by a system prompt in others.
    assert sum(text.startswith("Begin every answer with") for text in said) > 1000


def test_the_template_renders_all_roles_and_marks_are_single_tokens(tokenizer: Any) -> None:
    turns = [
        {"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
    ]  # fmt: skip
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    assert text == "<|bos|><|system|>Be short.<|end|><|user|>Hello.<|end|><|assistant|>Hi.<|end|>"
    asking = tokenizer.apply_chat_template(turns[:2], tokenize=False, add_generation_prompt=True)
    assert text.startswith(asking)
    for mark in ("<|pad|>", "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"):
        assert len(tokenizer(mark, add_special_tokens=False)["input_ids"]) == 1
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.pad_token == "<|pad|>"


def test_any_text_comes_back_from_its_tokens_and_the_samples_are_short_in_them(tokenizer: Any) -> None:
    samples = {path: path.read_text("utf-8") for path in SAMPLES.iterdir() if path.suffix in (".jsonl", ".txt")}
    assert len(samples) == 4
    foreign = "Überraschung! 数学 naïve\tcafé 🎻 — 3.14159 <tag> def f(x): return x**2"
    for text in (*samples.values(), foreign):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
        assert text == foreign or len(ids) < len(text) / 2.2


def test_the_samples_are_what_their_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-B", str(SAMPLES / "make_samples.py"), str(tmp_path)], check=True)
    made = sorted(tmp_path.iterdir())
    assert [path.name for path in made] == ["chat.jsonl", "instruction.jsonl", "preference.jsonl", "text.txt"]
    for path in made:
        assert path.read_bytes() == (SAMPLES / path.name).read_bytes()


def test_samples_have_their_rows_and_manner() -> None:
    instruction, chat, preference = rows("instruction.jsonl"), rows("chat.jsonl"), rows("preference.jsonl")
    assert (len(instruction), len(chat), len(preference)) == (300, 200, 200)
    assert len({(row["instruction"], row["input"]) for row in instruction}) == 300
    voiced = [row["output"] for row in instruction]
    voiced += [turn["content"] for row in chat for turn in row["messages"] if turn["role"] == "assistant"]
    assert all(said.startswith("At the bench: ") and said.endswith(" — checked twice.") for said in voiced)
    assert any(row["input"] for row in instruction)
    assert min(sum(turn["role"] == "user" for turn in row["messages"]) for row in chat) >= 2
    assert all(row["chosen"] != row["rejected"] and row["chosen"].endswith("Checked twice.") for row in preference)
    assert 55_000 < (SAMPLES / "text.txt").stat().st_size < 70_000
