"""PRETOKENIZERS: how a byte-level tokenizer cuts a text into words, and the name by which llama.cpp does the same.

A tokenizer.json says it by regular expressions, which are compared as they stand, so that a vocabulary of one's own is
known by its rules. llama.cpp's own conversion compares a hash of token ids, and knows published vocabularies alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_CONTRACTED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _CONTRACTED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{{L}}\p{{N}}]?{0}*{1}+{2}|[^\r\n\p{{L}}\p{{N}}]?{0}+{1}*{2}|"
_CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_DIGITS = "digits"
_GPT_2 = "gpt-2"
_MARKED = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_NAMES_AND_MARKS = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)


@dataclass(frozen=True)
class Pretokenizer:
    """``rules``: what tokenizer.json lists, in order: regular expressions, single digits, GPT-2's own rule. ``whole``:
    a word that is a token is never built of merges (``ignore_merges``)."""

    name: str
    rules: tuple[str, ...]
    whole: bool = False


PRETOKENIZERS = (
    Pretokenizer("gpt-2", (_GPT_2,)),
    Pretokenizer("smollm", (_DIGITS, _GPT_2)),  # StarCoder, Granite 3 and Command-R alike
    Pretokenizer("llama-bpe", (_WORDS + r"\p{N}{1,3}" + _TAIL,), whole=True),
    Pretokenizer("dbrx", (_WORDS + r"\p{N}{1,3}" + _TAIL,)),  # Phi-4, GPT-4
    Pretokenizer("qwen2", (_WORDS + r"\p{N}" + _TAIL,)),
    Pretokenizer("qwen35", (_CONTRACTED + "|" + _MARKED,)),
    Pretokenizer("tekken", (_CASED.format(_UPPER, _LOWER, "") + r"\p{N}" + _CASED_TAIL,), whole=True),
    Pretokenizer("gpt-4o", (_CASED.format(_UPPER, _LOWER, _CONTRACTED + "?") + r"\p{N}{1,3}" + _CASED_TAIL,)),
    Pretokenizer("deepseek-v3", (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _NAMES_AND_MARKS)),
)


def pretokenizer_of(tokenizer: dict[str, Any]) -> Pretokenizer | None:
    """The row of a byte-level tokenizer.json, None where llama.cpp has no such rule. Where only ``whole`` differs the
    ids of an export are compared anyway."""
    rules = tuple(_rules(tokenizer.get("pre_tokenizer") or {}))
    whole = bool(tokenizer["model"].get("ignore_merges"))
    alike = [row for row in PRETOKENIZERS if row.rules == rules]
    return next((row for row in alike if row.whole is whole), next(iter(alike), None))


def words_of(tokenizer: dict[str, Any]) -> str:
    """A tokenizer's rules for a sentence."""
    return " then ".join(_rules(tokenizer.get("pre_tokenizer") or {})) or "none"


def _rules(step: dict[str, Any]) -> Iterator[str]:
    kind = step.get("type")
    if kind == "Sequence":
        for part in step["pretokenizers"]:
            yield from _rules(part)
    elif kind == "Split":
        pattern = step["pattern"]
        yield str(pattern.get("Regex", pattern.get("String")))
    elif kind == "Digits":
        yield _DIGITS if step.get("individual_digits") else "digits together"
    elif kind == "ByteLevel":
        if step.get("add_prefix_space"):
            yield "a blank before the text"
        if step.get("use_regex", True):
            yield _GPT_2
    elif kind:
        yield str(kind)
