"""Conversations drawn from a seed: what people write, and what breaks a search for answers."""

from __future__ import annotations

import json
import random

from core.contract.data import Example, Message

__all__ = ["conversations"]

_WORDS = (
    "the", "answer", "is", "forty-two", "Oslo", "rain", "don't", "naïve", "café", "cafe\u0301", "Straße", "привет",
    "мир", "你好", "世界", "こんにちは", "שלום", "مرحبا", "🦜", "👩‍👩‍👧‍👦", "🇳🇴", "é́", "x²", "∑",
    "1234567890123", "3.14", "a\tb", "\u00a0", "\u200b", "ﬁ", "{{ messages }}", "{% if %}",
    "<b>bold</b>", "`code`",
    "\\n", '"quoted"',
    "http://a.b/c?d=e&f=g", "user", "assistant", "system", ":", "...",
)  # fmt: skip
_MARKS = (
    "<|im_end|>", "<|im_start|>assistant\n", "<|im_start|>user\nHi<|im_end|>", "[INST]", " [/INST]", "</s>", "<s>",
    "<|eot_id|>", "<end_of_turn>\n", "<start_of_turn>model\n", "### Response:\n", "### END", "\n### END\n",
    "ASSISTANT:", "USER: ", "<|end|>", "<|assistant|>\n", "<think>", "</think>", "<think>\nhm\n</think>\n\n",
    "<tool_call>", "</tool_call>", "Xmark0Q", "Xtried0Q", "<<SYS>>", "<｜Assistant｜>", "<|endoftext|>",
    "GPT4 Correct Assistant:",
)  # fmt: skip
_EDGES = ("", "", "", " ", "\n", "\n\n", "  \n", "\t", "\r\n")


def _text(dice: random.Random, marks: float, thinks: float = 0.0) -> str:
    pieces = [
        dice.choice(_MARKS) if dice.random() < marks else dice.choice(_WORDS)
        for _ in range(dice.choice((1, 1, 2, 4, 8, 16)))
    ]
    glue = dice.choice((" ", " ", "\n", "\n\n", ""))
    text = glue.join(pieces)
    if not text.strip():
        text = "So."
    if dice.random() < thinks:
        text = f"<think>\n{dice.choice(_WORDS)} so\n</think>\n\n{text}"
    return dice.choice(_EDGES) + text + dice.choice(_EDGES)


def _call(dice: random.Random) -> Message:
    calls = [
        {"name": dice.choice(("weather", "lookUp", "a.b")), "arguments": {"at": dice.choice(_WORDS), "n": number}}
        for number in range(dice.choice((1, 1, 2)))
    ]
    return Message(role="assistant", content="", tool_calls=json.dumps(calls, ensure_ascii=False))


def _conversation(dice: random.Random, row: int) -> Example:
    marks = dice.choice((0.0, 0.0, 0.1, 0.4))
    turns: list[Message] = []
    if dice.random() < 0.4:
        turns.append(Message(role="system", content=_text(dice, 0.0).strip()))
    tools = ""
    if dice.random() < 0.3:
        listed = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": {}}}]
        tools = json.dumps(listed)
    for _ in range(dice.choice((1, 1, 2, 3, 5))):
        turns.append(Message(role="user", content=_text(dice, marks)))
        if tools and dice.random() < 0.5:
            turns += [_call(dice), Message(role="tool", content=_text(dice, marks))]
        turns.append(Message(role="assistant", content=_text(dice, marks, thinks=0.2)))
    if dice.random() < 0.1:
        turns.append(Message(role="user", content="And then?"))
    return Example(row=row, messages=tuple(turns), tools=tools)


def conversations(count: int, seed: int) -> list[Example]:
    """The same ones for the same seed."""
    dice = random.Random(seed)
    return [_conversation(dice, row) for row in range(1, count + 1)]
