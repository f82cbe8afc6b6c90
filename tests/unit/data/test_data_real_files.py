"""Real files and real templates, where they lie beside the project: all load, and the mask is right under each."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
from whole_rows import encode, encode_rows, read, read_report, text_of

from core.contract.config import DataChoice
from core.contract.data import Example
from core.data.files.made import as_row
from core.data.read.examples import read_examples
from core.data.render.chat_tokens import load_tokenizer, resolve_template
from core.data.render.renderer import renderer
from core.data.render.template import layout_turns, tools_of

FILES = {
    "alpaca_en_999.json": (999, 999, "alpaca", "sft"),
    "gsm8k_7473.json": (7473, 7473, "alpaca", "sft"),
    "sharegpt_500.json": (500, 500, "sharegpt", "sft"),
    "sharegpt_tools_300.json": (300, 300, "sharegpt", "sft"),
    "preference_300.json": (300, 300, "preference", "dpo"),
    "kto_300.json": (300, 300, "kto", "kto"),
    "text_300.jsonl": (300, 300, "text", "pretrain"),
    "text_wiki.txt": (30, 30, "text", "pretrain"),
    "sst2_train.tsv": (6920, 6920, "classification", "classify"),
    "sst2_dev.tsv": (872, 872, "classification", "classify"),
}
AGAIN = ("gsm8k_7473.json", "sst2_train.tsv")
"""Larger files of a layout and a format that a smaller one has, too."""
TOKENIZERS = ("gpt-2", "phi-3", "qwen2")
TEMPLATES = (
    "HuggingFaceTB-SmolLM3-3B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "google-gemma-2-2b-it",
    "meta-llama-Llama-3.1-8B-Instruct",
)
ENDS = {"google": "<end_of_turn>", "meta": "<|eot_id|>"}
_loaded: dict[str, Any] = {}


SOME = {"Qwen-Qwen2.5-7B-Instruct": "gpt-2", "meta-llama-Llama-3.1-8B-Instruct": "phi-3"}
"""Of the vocabularies that lack a template's marks, which are plain text there, one for each of two templates."""


def quick(vocabulary: str, template: str, every: int) -> bool:
    """Whether the default run has it: each template under the vocabulary that knows its marks or most of them."""
    return every > 1 and (vocabulary == "qwen2" or SOME.get(template) == vocabulary)


@pytest.mark.parametrize(
    ("every", "vocabulary", "template"),
    [pytest.param(*case, marks=() if quick(case[1], case[2], case[0]) else pytest.mark.slow)
     for case in product((3, 1), TOKENIZERS, TEMPLATES)],
)  # fmt: skip
def test_ids_and_mask(shared_data: Path, vocabulary: str, template: str, every: int) -> None:
    tokenizer = _tokenizer(shared_data, vocabulary, template)
    end = next((mark for start, mark in ENDS.items() if template.startswith(start)), "<|im_end|>")
    choice = resolve_template(tokenizer, DataChoice())
    using = renderer(tokenizer, choice)
    for example in _conversations(shared_data)[::every]:
        row = encode(tokenizer, example, choice, 1_000_000)
        turns = layout_turns(example, choice)
        own = tokenizer.apply_chat_template(
            copy.deepcopy(turns), tools=tools_of(example, choice), tokenize=True, return_dict=False
        )
        assert list(row.input_ids) == own
        bos = tokenizer.bos_token_id
        assert row.input_ids.count(bos) == (1 if template.startswith(("google", "meta")) else 0)
        expected = list(_answers(turns, text_of(using, example), template, end))
        assert _learned(tokenizer, row.input_ids, row.labels, end) == expected


def _answers(turns: list[dict[str, Any]], text: str, template: str, end: str) -> Iterator[str]:
    """What the answers of a row are under a template, written down independently of the search."""
    last_question = max(number for number, turn in enumerate(turns) if turn["role"] == "user")
    for number, turn in enumerate(turns):
        if turn["role"] != "assistant":
            continue
        answer = turn["content"].strip() if template.startswith(("google", "meta")) else turn["content"]
        for call in turn.get("tool_calls", ()):
            key = "parameters" if template.startswith("meta") else "arguments"
            made = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            written = f'{{"name": "{call["function"]["name"]}", "{key}": {made}}}'
            answer += written if template.startswith("meta") else f"<tool_call>\n{written}\n</tool_call>"
        if template == "Qwen-Qwen3-0.6B" and number == len(turns) - 1 and number > last_question:
            # Qwen3 has the model itself write an empty thought before its last answer.
            answer = "<think>\n\n</think>\n\n" + answer.lstrip("\n")
        if template.startswith("HuggingFaceTB"):
            answer = answer.lstrip("\n")
        assert answer + end in text
        yield answer + end


def _learned(tokenizer: Any, ids: tuple[int, ...], labels: tuple[int, ...], end: str) -> list[str]:
    runs: list[list[int]] = [[]]
    for token, label in zip(ids, labels, strict=True):
        if label == -100:
            runs.append([])
        else:
            runs[-1].append(token)
    decoded = [tokenizer.decode(run, clean_up_tokenization_spaces=False) for run in runs if run]
    if len(tokenizer(end, add_special_tokens=False)["input_ids"]) == 1:
        return decoded
    # Where the end mark is plain text, its last token may reach over it ("<|eot_id|>" and "<" of the next mark).
    return [text[: text.rindex(end) + len(end)] for text in decoded]


def _tokenizer(folder: Path, vocabulary: str, template: str) -> Any:
    if vocabulary not in _loaded:
        _loaded[vocabulary] = load_tokenizer(folder / "tokenizers" / vocabulary)
    tokenizer = _loaded[vocabulary]
    tokenizer.chat_template = (folder / "templates" / f"{template}.jinja").read_text()
    return tokenizer


@cache
def _conversations(folder: Path) -> list[Example]:
    found: list[Example] = []
    for name, rows in (("alpaca_en_999.json", 10), ("sharegpt_500.json", 5), ("sharegpt_tools_300.json", 30)):
        found += islice(read_examples(folder / name, DataChoice()), rows)
    return found


@pytest.mark.parametrize(
    ("name", "encoded"),
    [*(pytest.param(name, 20, marks=pytest.mark.slow if name in AGAIN else ()) for name in FILES),
     *(pytest.param(name, 1000, marks=pytest.mark.slow) for name in FILES)],
)  # fmt: skip
def test_every_row_of_a_file_is_read_and_rows_of_all_its_parts_are_encoded(
    shared_data: Path, name: str, encoded: int
) -> None:
    report = read_report(shared_data / name, DataChoice())
    assert (report.rows, report.usable, report.layout, report.method) == FILES[name]
    assert len(report.problems) == min(200, report.rows - report.usable)
    choice, refused = DataChoice(layout=report.layout), list[Any]()
    examples = list(read_examples(shared_data / name, choice))
    assert len(examples) == report.usable
    tokenizer = _tokenizer(shared_data, "qwen2", "Qwen-Qwen2.5-7B-Instruct")
    some = examples[:: max(1, len(examples) // encoded)]
    rows = encode_rows(tokenizer, some, choice, 100_000, refused=refused)
    assert (len(rows), refused) == (len(some), [])
    assert rows[0] == encode(tokenizer, examples[0], choice, 100_000)


def test_reasoning_reaches_the_template_or_stands_in_the_answer(tmp_path: Path, shared_data: Path) -> None:
    asked, parts = {"role": "user", "content": "Hi"}, [("reasoning", "Be kind."), ("text", "Hello")]
    answers = [{"content": "Hello", "reasoning": "Be kind."}, {"content": [{"type": t, "value": v} for t, v in parts]}]
    _, (example, same) = read(tmp_path, [{"messages": [asked, {"role": "assistant", **one}]} for one in answers])
    assert same.messages == example.messages
    for template in ("Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct"):
        tokenizer = _tokenizer(shared_data, "qwen2", template)
        (made,) = encode_rows(tokenizer, [example], resolve_template(tokenizer, DataChoice()), 512)
        learned = tokenizer.decode([token for token in made.labels if token >= 0])
        assert learned == "<think>\nBe kind.\n</think>\n\nHello<|im_end|>"
    assert read(tmp_path, [as_row(example)])[1] == [example]
